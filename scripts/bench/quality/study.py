"""What a study of four lines gives the 41 countries of the retail example, run on a real pool as a user would run it.

The test window decides nothing. Differences have 95 % intervals of paired customers.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import scored_metrics
from regiondag.champions.chance import estimate
from regiondag.node import choice
from regiondag.run.layout import RunFolder
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.study.model import POOLED
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.manager.pools import pool_up
from scripts.bench.quality.runs import (
    LAST,
    SLOTS,
    SUITE,
    TABLE,
    Lines,
    call,
    read_purchases,
    wait_for_run,
    write_study,
    write_table,
)

BENCH = "study"
POOL = "bench-study"
LIMIT = 900.0  # seconds of the whole study on two cores
WANTED = {"p@10": 0.1050, "ndcg@20": 0.1352}
SCORE, MEAN = "ndcg@20", 0.1217
PEERS = ("floor", "simple", "bestsellers")
LEAST = 10  # test customers of a country that is shown

Scores = Mapping[str, NDArray[np.float64]]  # what was tested -> (metrics, customers)


@dataclass(frozen=True)
class Sizes:
    """Which countries, and how many trials."""

    countries: tuple[str, ...] = ()  # all
    study: str = ""  # more lines of study.yaml
    windows: int = 5


QUICK = Sizes(("Belgium", "Germany", "Portugal"), "families: [popularity, knn]\nsearch: {rounds: 1, parallel: 4}\n", 1)


class StudyBench(Bench[Sizes]):
    """The rows."""

    @cached_property
    def _purchases(self) -> Lines:
        return read_purchases(self.sizes.countries)

    def countries(self) -> Iterator[Row]:
        """The whole study once: what serves, beside recent popularity and the best simple method."""
        study = self._make("once", date.max)
        with pool_up(POOL, SUITE, self.area, gpus=SLOTS):
            begin = time.monotonic()
            run = _run(study)
            seconds = time.monotonic() - begin
        spec, names, scores = read_test(run)
        yield Row("whole study, generate to report", seconds, None, "s", LIMIT)
        for n, name in enumerate(names):
            if name in WANTED:
                served = float(np.nanmean(scores[""][n]))
                for peer in PEERS:
                    difference = estimate(scores[""][n] - scores[peer][n])
                    note = f"difference {difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]"
                    goal = WANTED[name] if peer == "floor" else None
                    other = float(np.nanmean(scores[peer][n]))
                    yield Row(f"{name}, all countries (peer: {peer})", served, other, "", goal, note, higher=True)
        for slug, (first, last) in spec.rows["test"].items():
            ours, floor = (scores[who][0, first:last] for who in ("", "floor"))
            if np.isfinite(ours).sum() >= LEAST:
                worst = estimate(ours - floor).high  # below 0: worse than recent popularity beyond chance
                name = f"{names[0]}, {slug}, {np.isfinite(ours).sum()} customers (peer: recent popularity)"
                note = f"the difference may be as large as {worst:+.4f}"
                yield Row(name, float(np.nanmean(ours)), float(np.nanmean(floor)), "", None, note, higher=True)

    def windows(self) -> Iterator[Row]:
        """The same with the table ended four weeks earlier each time: chosen on one window, tested on the next."""
        found: dict[str, list[float]] = {}
        with pool_up(POOL, SUITE, self.area, gpus=SLOTS):
            for number in range(self.sizes.windows):
                study = self._make(f"window-{number}", LAST - timedelta(days=28 * number - 1))
                _, names, scores = read_test(_run(study))
                for model in ("", *PEERS):
                    found.setdefault(model, []).append(float(np.nanmean(scores[model][names.index(SCORE)])))
        for peer in PEERS:
            pairs = list(zip(found[""], found[peer], strict=True))
            served, other = (float(np.mean(found[who])) for who in ("", peer))
            note = ", ".join(f"{one:.4f} : {two:.4f}" for one, two in pairs)
            goal = MEAN if peer == "floor" else None
            yield Row(
                f"{SCORE}, mean of {len(pairs)} windows (peer: {peer})", served, other, "", goal, note, higher=True
            )
            ahead = sum(one > two for one, two in pairs)
            yield Row(f"windows ahead of {peer}", ahead, None, f"of {len(pairs)}", len(pairs), higher=True)

    def _make(self, name: str, until: date) -> Path:
        """Write a study of the purchases before a day, and return its file."""
        folder = self.area / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_table(folder / TABLE, self._purchases, until)
        return write_study(folder, self.sizes.study)


def _run(study: Path) -> RunFolder:
    """Run a study to its end; NotMeasuredError when it does not come to one."""
    path = call("generate", "--quiet", str(study)).strip().splitlines()[-1]
    call("submit", path, "--pool", POOL)
    return wait_for_run(path, POOL)


def read_test(run: RunFolder) -> tuple[RegionSpec, Sequence[str], Scores]:
    """Return what the final job's test found: the metrics, and of each model those of every customer."""
    folder = run.region(POOLED)
    spec = read_spec(folder.spec)
    return spec, scored_metrics(spec.metric), choice.read_test(folder)[1]


if __name__ == "__main__":
    sys.exit(main(BENCH, StudyBench, Sizes(), QUICK))
