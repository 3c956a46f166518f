#!/usr/bin/env python3
"""How many trials a country needs when it learns from the others, on the retail example. See README.md in this folder.

With --only a part of the runs is made and nothing is kept but they: the next call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import harness
from harness import Row, measure_groups, number, table, to_json
from retail_data import read_shop
from sharing_run import OFF
from sharing_runs import Area, Key, Run
from sharing_stats import BATCH, Curves, Scale, mean_regrets, mean_worths, needed, scales
from sharing_work import JUDGES, LARGEST, LARGEST_TRAIN, RANGES, Kept, costs

from nnlib.contract import slug_of

BENCH = "sharing"
AREA = harness.WORK / BENCH
SHARING = ("warm", "model")
# Ways of finding a country's point: how it shares, and by whose word the winner is chosen.
WAYS = {
    OFF: (OFF, "observed"),
    "warm": ("warm", "observed"),
    "model": ("model", "model"),
    "model, winner: observed": ("model", "observed"),
    "off, winner: model": (OFF, "model"),
}
TOGETHER = ("warm", "model", "model, winner: observed")
BUDGETS = (8, 12, 16, 24, 32)
GOAL = 16  # trials, for what a country alone has after 32
SOME_CUSTOMERS = 10


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    trials: int = 32
    seeds: int = 3
    countries: tuple[str, ...] = ()  # all of them, if empty
    workers: int = 1
    goals: bool = True  # they are for the full sizes


QUICK = Sizes(trials=8, seeds=1, countries=("italy", "norway", "sweden"), goals=False)


class SharingBench:
    """The rows, and the runs that they are made of."""

    def __init__(self, sizes: Sizes, area: Area) -> None:
        self.sizes = sizes
        self.area = area
        self.runs: list[Run] = []

    @property
    def keys(self) -> list[Key]:
        """Return all runs, every way of sharing of a seed before the next seed."""
        return [self.key(share, seed) for seed, share in product(range(self.sizes.seeds), (OFF, *SHARING))]

    @property
    def complete(self) -> bool:
        """Whether every run is there."""
        return len(self.runs) == len(self.keys)

    def key(self, share: str, seed: int) -> Key:
        """Return the name of a run."""
        return Key(share, seed, self.sizes.trials, self.sizes.countries)

    def fill(self, only: Sequence[str]) -> None:
        """Make the runs that are missing."""
        for text in self.area.fill([key for key in self.keys if key.share in only], self.sizes.workers):
            print(text, file=sys.stderr, flush=True)
        self.runs = self.area.all(self.keys)

    def rows(self) -> Iterator[Row]:
        """Return the rows of the runs that are there; only seeds count of which all three runs are."""
        by = self._scales()
        for way in TOGETHER:
            goal = GOAL if self.sizes.goals and way in SHARING else None
            yield self._needed(way, OFF, "regret", self._regrets(way, by), self._regrets(OFF, by), goal)
        chosen = "off, winner: model"
        yield self._needed("model", chosen, "regret", self._regrets("model", by), self._regrets(chosen, by))
        for way in TOGETHER:
            ours, alone = ([-worth for worth in mean_worths(self._of(side))] for side in (way, OFF))
            yield self._needed(way, OFF, "ndcg@20", ours, alone)
        some = self._larger()
        larger = {slug: scale for slug, scale in by.items() if slug in some}
        for way in TOGETHER:
            what = f"regret in the {len(larger)} countries with {SOME_CUSTOMERS} customers or more"
            yield self._needed(way, OFF, what, self._regrets(way, larger), self._regrets(OFF, larger))
        for way, budget in product([way for way in WAYS if way != OFF], BUDGETS):
            if budget <= self.sizes.trials:
                ours, peer = (self._regrets(side, by)[budget // BATCH - 1] for side in (way, OFF))
                yield Row(f"mean regret after {budget} trials: {way} (peer: off)", ours, peer, "")
        for share in (OFF, *SHARING):
            spent = [run for run in self.runs if run.key.share == share]
            seconds = statistics.fmean(run.proposing for run in spent)
            yield Row(f"proposals of a run of {len(by)} countries: CPU, {share}", seconds, None, "s")

    def _whole(self) -> list[Run]:
        """Return the runs of seeds of which all are there."""
        seeds = Counter(run.key.seed for run in self.runs)
        return [run for run in self.runs if seeds[run.key.seed] == 1 + len(SHARING)]

    def _of(self, way: str) -> list[Curves]:
        share, rule = WAYS[way]
        return [run.worths[rule] for run in self._whole() if run.key.share == share]

    def _regrets(self, way: str, by: dict[str, Scale]) -> list[float]:
        return mean_regrets(self._of(way), by)

    def _scales(self) -> dict[str, Scale]:
        alone = [run.values for run in self._whole() if run.key.share == OFF]
        return scales(alone, [curves for run in self._whole() for curves in run.worths.values()])

    def _needed(
        self, way: str, peer: str, what: str, ours: Sequence[float], alone: Sequence[float], goal: float | None = None
    ) -> Row:
        """Return the row of the trials until a curve is where that of countries alone is at its lowest.

        Not where that one ends: alone, small countries go after luck, and more trials make their winners worse.
        """
        trials, found = self.sizes.trials, needed(ours, min(alone))
        never = "" if found else f" (more than {trials})"
        seeds = f"{len(self._of(OFF))} seed{'s' * (len(self._of(OFF)) > 1)}"
        others = "countries alone" if peer == OFF else f"countries alone ({peer})"
        name = f"trials until the mean {what} is as good as the best of {others} in {trials}: {way}{never}; {seeds}"
        return Row(name, found or trials + BATCH, trials, "trials", goal, self._note(way) if goal else "")

    def _note(self, way: str) -> str:
        by = self._scales()
        pairs = zip(self._of(OFF), self._of(way), strict=True)
        each = [needed(mean_regrets([ours], by), min(mean_regrets([alone], by))) for alone, ours in pairs]
        spent = [f"{slug} {number(found, 's')}" for slug, found in costs(Kept(self.area.folder).found).items()]
        settings = ", ".join(f"{name} {value}" for name, value in LARGEST_TRAIN.items())
        lines = [
            f"seeds: {', '.join(str(found or f'more than {self.sizes.trials}') for found in each)}",
            f"{len(by)} of {len(self._of(OFF)[0])} countries: in the others nothing is better than the median of how "
            "countries alone start",
            f"{LARGEST} with {settings}, in the space of the others",
            f"worth: mean of seeds {', '.join(map(str, JUDGES))}; ranges: {' '.join(RANGES.split())}",
            f"a trial's CPU, mean: {', '.join(spent)}",
        ]
        return "\n".join(lines)

    def _larger(self) -> set[str]:
        counts = Counter(slug_of(str(region)) for region in read_shop().regions)
        return {slug for slug, count in counts.items() if count >= SOME_CUSTOMERS}

    def to_json(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Return the form in which results are kept: besides the rows all curves."""
        by = self._scales()
        return {
            **to_json(BENCH, rows),
            "notes": {row.workload: row.note for row in rows if row.note},
            "tuner": self.area.stamp,
            "seeds": list(range(self.sizes.seeds)),
            "seconds": costs(Kept(self.area.folder).found),
            "scales": {slug: [_digits(scale.best), _digits(scale.usual)] for slug, scale in by.items()},
            "mean regrets": {way: list(map(_digits, self._regrets(way, by))) for way in WAYS},
            "curves": {
                way: {slug: [list(map(_digits, run[slug])) for run in self._of(way)] for slug in self._of(way)[0]}
                for way in WAYS
            },
        }


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _text(raw: dict[str, Any]) -> str:
    """Return JSON in which a list of numbers is one line."""
    text = json.dumps(raw, ensure_ascii=False, indent=1)
    return re.sub(r"\[\s+([-\d.e,\s]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench/sharing.py", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="three countries, under a minute; nothing is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--only", choices=(OFF, *SHARING), help="make only these runs; nothing else is kept")
    parser.add_argument("--seeds", type=int, help=f"seeds 0 ... N - 1; {Sizes().seeds} without this")
    parser.add_argument("--area", type=Path, default=AREA, help=f"where runs are kept; {AREA} without this")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1, help="runs at the same time")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Make the runs that are missing and print; keep the results when nothing is missing from them."""
    arguments = options(argv)
    sizes = QUICK if arguments.quick else Sizes()
    sizes = replace(sizes, seeds=arguments.seeds or sizes.seeds, workers=arguments.workers)
    with tempfile.TemporaryDirectory() as scratch:
        bench = SharingBench(sizes, Area(Path(scratch) if arguments.quick else arguments.area))
        bench.fill((arguments.only,) if arguments.only else (OFF, *SHARING))
        if not bench.complete:
            print(f"{len(bench.runs)} of {len(bench.keys)} runs are there", file=sys.stderr)
            return 1
        rows = measure_groups({"rows": bench.rows}, None)
        text = _text(bench.to_json(rows))
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(text, encoding="utf-8")
    if not arguments.quick and not arguments.only and sizes.seeds >= Sizes().seeds:
        (harness.RESULTS / f"{BENCH}.json").write_text(text, encoding="utf-8")
    return int(any(row.met is False or row.ours is None for row in rows))


if __name__ == "__main__":
    sys.exit(main())
