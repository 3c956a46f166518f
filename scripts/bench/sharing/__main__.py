"""How many trials a country needs when it learns from the others, on the retail example.

Runs are kept in .bench/sharing, and the next call goes on from there.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from nnlib.contract import slug_of
from scripts.bench.common.harness import Bench, Row, main, number
from scripts.bench.quality.runs import read_purchases
from scripts.bench.sharing.run import OFF
from scripts.bench.sharing.runs import Key, Run, runs_in, stamp_of
from scripts.bench.sharing.stats import BATCH, Curves, Scale, mean_regrets, mean_worths, needed, scales
from scripts.bench.sharing.work import JUDGES, LARGEST, LARGEST_TRAIN, RANGES, Kept, costs

BENCH = "sharing"
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
MIN_ITEMS = 10  # of a customer who counts


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    trials: int = 32
    seeds: int = 3
    countries: tuple[str, ...] = ()  # all of them, if empty


QUICK = Sizes(trials=8, seeds=1, countries=("norway", "sweden"))


class SharingBench(Bench[Sizes]):
    """The rows, and the runs that they are made of."""

    @cached_property
    def runs(self) -> list[Run]:
        """All runs; those that are missing are made."""
        sizes, shares = self.sizes, (OFF, *SHARING)
        keys = [Key(share, seed, sizes.trials, sizes.countries) for seed, share in product(range(sizes.seeds), shares)]
        return runs_in(self.area).fill_all(keys)

    def rows(self) -> Iterator[Row]:
        """Return the rows of all runs."""
        by = self._scales()
        for way in TOGETHER:
            goal = GOAL if way in SHARING else None
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
                regret, other = (self._regrets(side, by)[budget // BATCH - 1] for side in (way, OFF))
                yield Row(f"mean regret after {budget} trials: {way} (peer: off)", regret, other, "")
        for share in (OFF, *SHARING):
            spent = [run for run in self.runs if run.key.share == share]
            seconds = statistics.fmean(run.proposing for run in spent)
            yield Row(f"proposals of a run of {len(by)} countries: CPU, {share}", seconds, None, "s")

    def _of(self, way: str) -> list[Curves]:
        share, rule = WAYS[way]
        return [run.worths[rule] for run in self.runs if run.key.share == share]

    def _regrets(self, way: str, by: dict[str, Scale]) -> list[float]:
        return mean_regrets(self._of(way), by)

    def _scales(self) -> dict[str, Scale]:
        alone = [run.values for run in self.runs if run.key.share == OFF]
        return scales(alone, [curves for run in self.runs for curves in run.worths.values()])

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
        spent = [f"{slug} {number(found, 's')}" for slug, found in costs(Kept(self.area).found).items()]
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
        """Return the countries with some customers who have bought ten different things."""
        items = Counter((row[0], row[1]) for row in {tuple(line[:3]) for line in read_purchases()[1:]})
        counts = Counter(slug_of(region) for (region, _), count in items.items() if count >= MIN_ITEMS)
        return {slug for slug, count in counts.items() if count >= SOME_CUSTOMERS}

    def details(self, rows: Sequence[Row]) -> dict[str, object]:
        """Return what is kept besides the rows: all curves."""
        by = self._scales()
        return {
            "notes": {row.workload: row.note for row in rows if row.note},
            "tuner": stamp_of(self.area),
            "seeds": list(range(self.sizes.seeds)),
            "seconds": costs(Kept(self.area).found),
            "scales": {slug: [_digits(scale.best), _digits(scale.usual)] for slug, scale in by.items()},
            "mean regrets": {way: list(map(_digits, self._regrets(way, by))) for way in WAYS},
            "curves": {
                way: {slug: [list(map(_digits, run[slug])) for run in self._of(way)] for slug in self._of(way)[0]}
                for way in WAYS
            },
        }


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    sys.exit(main(BENCH, SharingBench, Sizes(), QUICK, kept=True))
