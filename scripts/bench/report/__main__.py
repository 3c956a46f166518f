"""How long the report's page of a large run takes to make and to open, and how large it is."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import Measured, NotMeasuredError, measure_in_turn, module
from tests.support.browser import Page, chromium, find_chromium
from tests.support.made_up_run import Shape, make_attempts, write_logs, write_run

BENCH = "report"
REPORT = (sys.executable, "-m", "regiondag", "report")
MEGABYTE = 1e6
READY = "document.documentElement && document.documentElement.dataset.ready"  # headline, map and table are there
# Pictures are drawn when they come into sight: so one section after the other does.
REST = "document.querySelector(':is(#region, #timeline, #failures):not([data-drawn])')"
DRAWN = f"({REST}?.scrollIntoView(), document.documentElement.dataset.drawn)"


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    shape: Shape
    many: Shape  # regions, without the peer
    repeats: int
    patience: float  # seconds, of one side


FULL = Sizes(Shape(), Shape(1000, 20, 30), repeats=5, patience=120)
QUICK = Sizes(Shape(6, 50, 30, 16), Shape(130, 4, 8, 16), repeats=1, patience=60)


class Report(Bench[Sizes]):
    """The rows."""

    @cached_property
    def run(self) -> Path:
        """A run directory with journals and event logs."""
        run = write_run(self.area / "run-made-up", self.sizes.shape)
        write_logs(run, make_attempts(self.sizes.shape))
        return run.path

    @cached_property
    def pages(self) -> tuple[tuple[Path, Measured], ...]:
        """Our page and the peer's, with what it took to make each."""
        ours, theirs = self.run / "report" / "index.html", self.area / "peer.html"
        both: tuple[list[str | Path], ...] = ([*REPORT, self.run, "--json"], module("report.peer", self.run, theirs))
        sizes = self.sizes
        made = measure_in_turn(*both, repeats=sizes.repeats, timeout=sizes.patience, codes=(0, 1))
        return tuple(zip((ours, theirs), made, strict=True))

    def make(self) -> Iterator[Row]:
        """From journals and event logs to the page."""
        (_, ours), (_, peer) = self.pages
        name = f"page of {self.sizes.shape}"
        yield Row(f"{name}: made in (peer: plotly.io.to_html of the same)", ours.seconds, peer.seconds, "s", goal=10)
        yield Row(f"{name}: peak memory", ours.peak_mb, peer.peak_mb, "MB")

    def size(self) -> Iterator[Row]:
        """What has to be sent to a colleague."""
        ours, peer = (page.stat().st_size / MEGABYTE for page, _ in self.pages)
        yield Row(f"page of {self.sizes.shape}: size", ours, peer, "MB", goal=6)

    def open(self) -> Iterator[Row]:
        """From the address to a page that answers and shows what is in view, and to all of its pictures."""
        ours = (READY, DRAWN)
        # Its scripts draw while the page is read: when the last one is through, everything is there.
        theirs = ("document.readyState === 'complete' && document.querySelectorAll('.main-svg').length > 0",)
        seconds = [self._seconds_to_open(self.pages[0][0], ours) for _ in range(self.sizes.repeats)]
        usable, drawn = (statistics.median(found) for found in zip(*seconds, strict=True))
        try:
            [peer], note = self._seconds_to_open(self.pages[1][0], theirs), ""
        except NotMeasuredError as error:
            peer, note = None, f"peer: {str(error)[:160]}"
        name = f"page of {self.sizes.shape}: in Chromium"
        yield Row(f"{name} usable after", usable, peer, "s", goal=1, note=note)
        yield Row(f"{name} all pictures drawn after", drawn, peer, "s", goal=3, note=note)

    def many(self) -> Iterator[Row]:
        """The same of many regions, as each of them is one more row, tile and search."""
        run = write_run(self.area / "run-many", self.sizes.many)
        write_logs(run, make_attempts(self.sizes.many))
        repeats, patience = min(self.sizes.repeats, 3), self.sizes.patience
        [made] = measure_in_turn([*REPORT, run.path, "--json"], repeats=repeats, timeout=patience, codes=(0, 1))
        name = f"page of {self.sizes.many}"
        yield Row(f"{name}: made in", made.seconds, None, "s", goal=10)
        yield Row(f"{name}: size", run.page.stat().st_size / MEGABYTE, None, "MB", goal=8)
        seconds = [self._seconds_to_open(run.page, (READY, DRAWN)) for _ in range(self.sizes.repeats)]
        usable, drawn = (statistics.median(found) for found in zip(*seconds, strict=True))
        yield Row(f"{name}: in Chromium usable after", usable, None, "s", goal=1)
        yield Row(f"{name}: in Chromium all pictures drawn after", drawn, None, "s", goal=3)

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
    sys.exit(main(BENCH, Report, FULL, QUICK))
