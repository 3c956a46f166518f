"""How long the report's page of a large run takes to make and to open, and how large it is."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scripts.bench.common.harness import Row, main
from scripts.bench.common.processes import Measured, NotMeasuredError, measure, module
from tests.support.browser import Page, chromium, find_chromium
from tests.support.made_up_run import Shape, make_attempts, write_logs, write_run

BENCH = "report"
REPORT = (sys.executable, "-m", "regiondag", "report")
MEGABYTE = 1e6


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    shape: Shape
    repeats: int
    patience: float  # seconds, of one side


FULL = Sizes(Shape(), repeats=5, patience=120)
QUICK = Sizes(Shape(6, 50, 30, 16), repeats=1, patience=60)


class Report:
    """The rows, in groups that can be measured alone."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        self.area = area
        self.sizes = sizes
        self.groups = {"make": self.make, "size": self.size, "open": self.open}

    @cached_property
    def run(self) -> Path:
        """A run directory with journals and event logs."""
        run = write_run(self.area / "run-made-up", self.sizes.shape)
        write_logs(run, make_attempts(self.sizes.shape))
        return run.path

    @cached_property
    def pages(self) -> dict[str, tuple[Path, float, float]]:
        """Each side's page, with the median of seconds and the most memory that it took to make."""
        argvs: dict[str, list[str | Path]] = {
            "ours": [*REPORT, self.run, "--json"],
            "peer": module("report.peer", self.run, self.area / "peer.html"),
        }
        paths = {"ours": self.run / "report" / "index.html", "peer": self.area / "peer.html"}
        runs: dict[str, list[Measured]] = {side: [] for side in argvs}
        for _ in range(self.sizes.repeats):
            for side, argv in argvs.items():
                runs[side].append(measure(argv, timeout=self.sizes.patience, codes=(0, 1)))
        return {
            side: (paths[side], statistics.median(run.seconds for run in found), max(run.peak_mb for run in found))
            for side, found in runs.items()
        }

    def make(self) -> Iterator[Row]:
        """From journals and event logs to the page."""
        (_, ours, our_peak), (_, peer, peer_peak) = self.pages["ours"], self.pages["peer"]
        yield Row(
            f"page of {self.sizes.shape}: made in (peer: plotly.io.to_html of the same)", ours, peer, "s", goal=10
        )
        yield Row(f"page of {self.sizes.shape}: peak memory", our_peak, peer_peak, "MB")

    def size(self) -> Iterator[Row]:
        """What has to be sent to a colleague."""
        ours, peer = (self.pages[side][0].stat().st_size / MEGABYTE for side in ("ours", "peer"))
        yield Row(f"page of {self.sizes.shape}: size", ours, peer, "MB", goal=6)

    def open(self) -> Iterator[Row]:
        """From the address to a page that answers and shows what is in view, and to all of its pictures."""
        ours = ("document.documentElement && document.documentElement.dataset.ready",
                "document.documentElement.dataset.drawn")  # fmt: skip
        # Its scripts draw while the page is read: when the last one is through, everything is there.
        theirs = ("document.readyState === 'complete' && document.querySelectorAll('.main-svg').length > 0",)
        seconds = [self._seconds_to_open(self.pages["ours"][0], ours) for _ in range(self.sizes.repeats)]
        usable, drawn = (statistics.median(found) for found in zip(*seconds, strict=True))
        try:
            [peer], note = self._seconds_to_open(self.pages["peer"][0], theirs), ""
        except NotMeasuredError as error:
            peer, note = None, f"peer: {str(error)[:160]}"
        name = f"page of {self.sizes.shape}: in Chromium"
        yield Row(f"{name} usable after", usable, peer, "s", goal=3, note=note)
        yield Row(f"{name} all pictures drawn after", drawn, peer, "s", note=note)

    def _seconds_to_open(self, path: Path, conditions: Sequence[str]) -> list[float]:
        """Open a page in a browser that has just started, whose own start does not count; return when each holds."""
        program = find_chromium()
        if not program:
            raise NotMeasuredError("no Chromium: sudo apt-get install chromium")
        with chromium(program) as browser:
            page = Page(browser)
            begin = time.perf_counter()
            page.tab.goto(path.as_uri(), wait_until="commit")
            seconds = []
            try:
                for condition in conditions:
                    page.wait(condition, self.sizes.patience)
                    seconds.append(time.perf_counter() - begin)
            except TimeoutError as error:
                raise NotMeasuredError(str(error)) from error
            return seconds


if __name__ == "__main__":
    sys.exit(main(BENCH, lambda area, quick: Report(area, QUICK if quick else FULL).groups))
