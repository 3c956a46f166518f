"""What regions with related tasks gain by learning from each other, and what they lose where half are strangers.

Eight data sets on which one learner was tried are eight regions that are tuned at once. Runs are kept in
.bench/sharing_related, and the next call goes on from there.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path
from typing import Any

from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.kept_runs import KeptRuns, digest_of
from scripts.bench.common.processes import ONE_THREAD, measure, module
from scripts.bench.sharing.related_run import OFF, RANDOM
from scripts.bench.sharing.related_tasks import ALIKE, FAMILIES, KINDS, MIXED, PARTS, is_stranger
from scripts.bench.tuner.stats import FIRST_BUDGET, Comparison, Ground, compare, gather, ground

BENCH = "sharing_related"
SHARES = ("warm", "model")
BUDGETS = (8, 16, FIRST_BUDGET, 32)
SOURCES = (
    "workflows/tuning/**/*.py",
    "workflows/study/space.py",
    "scripts/bench/sharing/related_*.py",
    "scripts/bench/tuner/problem.py",
    "scripts/bench/tuner/problems/yahpo.py",
)
TIME_LIMIT = 3600  # seconds for a run
WORDS = {ALIKE: "related tasks", MIXED: "half of them strangers"}


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    families: tuple[str, ...] = FAMILIES
    parts: int = PARTS
    seeds: int = 5


QUICK = Sizes(families=FAMILIES[-1:], parts=1, seeds=1)


@dataclass(frozen=True)
class Key:
    """Which run of eight regions."""

    family: str
    kind: str
    part: int
    share: str
    seed: int

    @property
    def words(self) -> list[str]:
        """What its process is told."""
        return [self.family, self.kind, str(self.part), self.share, str(self.seed), str(BUDGETS[-1])]


@dataclass(frozen=True)
class Run:
    """All values by region, in order, and the CPU seconds of its proposals."""

    key: Key
    values: Mapping[str, Sequence[float]]
    proposing: float


class Related(Bench[Sizes]):
    """The rows."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        super().__init__(area, sizes)
        self.runs: list[Run] = []
        self.compared: dict[tuple[str, int, str, str], Comparison] = {}

    def regret(self) -> Iterator[Row]:
        """Make the runs that are missing; then some rows for each kind of study and way of sharing."""
        sizes = self.sizes
        orders = product(range(sizes.seeds), range(sizes.parts), sizes.families, KINDS, (RANDOM, OFF, *SHARES))
        keys = [Key(family, kind, part, share, seed) for seed, part, family, kind, share in orders]
        self.runs = runs_in(self.area).fill_all(keys)
        for kind in KINDS:
            of_kind = [run for run in self.runs if run.key.kind == kind]
            grounds = {budget: ground_of(of_kind, budget) for budget in BUDGETS}
            for share, budget in product(SHARES, BUDGETS):
                yield from self._rows(grounds[budget], kind, share, budget)

    def _rows(self, found: Ground, kind: str, share: str, budget: int) -> Iterator[Row]:
        groups = {"all": list(found.regrets), "strangers": [name for name in found.regrets if is_stranger(name)]}
        groups |= {family: [n for n in found.regrets if n.startswith(f"{family}:")] for family in self.sizes.families}
        for group, names in groups.items():
            if of_group := compare(found.only(names), share, OFF):
                self.compared[kind, budget, share, group] = of_group
        beside = self.compared[kind, budget, share, "all"]
        where = f"{WORDS[kind]}, {budget} trials, share: {share}"
        yield Row(f"regret as a part of that with share: off: {where}", beside.ratios[0].value, 1.0, "")
        if kind == ALIKE:  # it is to help here
            yield Row(f"the same, upper end of its interval: {where}", max(r.high for r in beside.ratios), None, "", 1)
        else:  # and not to harm there
            yield Row(f"the same, lower end of its interval: {where}", min(r.low for r in beside.ratios), None, "", 1)
        yield Row(f"pairs won, lost as peer ({beside.ties} ties): {where}", beside.wins, beside.losses, "", higher=True)

    def cost(self) -> Iterator[Row]:
        """What the proposals of a run take."""
        for share in SHARES:
            ours, alone = (
                statistics.fmean(run.proposing for run in self.runs if run.key.share == side) for side in (share, OFF)
            )
            yield Row(f"proposals of a run of 8 regions: CPU, share: {share} (peer: off)", ours, alone, "s")

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return what is kept besides the rows: every comparison, also by families and of strangers alone."""
        return {
            "seeds": self.sizes.seeds,
            "tuner": digest_of(SOURCES),
            "compared": {
                f"{WORDS[kind]}, {budget} trials, {share}, {group}": _published(beside)
                for (kind, budget, share, group), beside in self.compared.items()
            },
        }


def ground_of(runs: Sequence[Run], budget: int) -> Ground:
    """Return the regrets of one kind of study after some trials."""
    values = gather(
        (f"{run.key.family}:{region}", run.key.share, run.key.seed, _best_after(seen))
        for run in runs
        for region, seen in run.values.items()
    )
    return ground(values, dict.fromkeys(values), budget, RANDOM)


def _best_after(seen: Sequence[float]) -> dict[int, float]:
    best = list(accumulate(seen, min))
    return {budget: best[budget - 1] for budget in BUDGETS}


def runs_in(area: Path) -> KeptRuns[Key, Run]:
    """Return the runs that a folder keeps."""
    stamp = digest_of(SOURCES)

    def make(key: Key) -> dict[str, Any]:
        argv = module("sharing.related_run", *key.words)
        raw: dict[str, Any] = json.loads(measure(argv, timeout=TIME_LIMIT, env=ONE_THREAD).output)
        return raw

    def read(key: Key, raw: Mapping[str, Any]) -> Run:
        return Run(key, raw["values"], raw["proposing"])

    return KeptRuns(lambda key: area / f"{'-'.join(key.words)}.json", lambda _: stamp, read, make)


def _published(beside: Comparison) -> dict[str, object]:
    name, ratio = beside.worst
    return {
        "ratios": [[round(x, 3) for x in (one.value, one.low, one.high)] for one in beside.ratios],
        "won": beside.wins,
        "lost": beside.losses,
        "ties": beside.ties,
        "claim": beside.claim,
        "worst": f"{name} {ratio:.2f}",
    }


if __name__ == "__main__":
    sys.exit(main(BENCH, Related, Sizes(), QUICK, kept=True))
