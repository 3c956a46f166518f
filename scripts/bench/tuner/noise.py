"""What noise costs our method, and what helps: who names the best trial, trying it again, telling the model of errors.

Problems for development with noise that is added, in parts of the interquartile range of random points, and one of
trainings with seeds. The rule `auto` was chosen by other seeds (0 to 9) of twelve of these problems.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from regiondag.tuning.gp.ask import NOISY
from scripts.bench.common import harness
from scripts.bench.common.harness import Bench, Row
from scripts.bench.quality.rules_scores import DAYS, singles
from scripts.bench.quality.rules_shop import read_shop, window
from scripts.bench.tuner.noise_runs import (
    AMONG_FEW,
    AUTO,
    CAUTIOUS,
    EIGHTH,
    ERRORS,
    GRADIENT,
    MODEL,
    OBSERVED,
    ORACLE,
    OWN_NOISE,
    RANDOM,
    UNEVEN,
    USUAL,
    Key,
    Noisy,
    Run,
    runs_in,
)
from scripts.bench.tuner.problems import names, problem
from scripts.bench.tuner.stats import Comparison, Ground, compare, gather, ground

BENCH = "tuner_noise"
SOME = (
    *("branin2", "hart6", "rosen4", "bbob-f7-5", "bbob-f13-2", "bbob-mixint-f3-5", "lcbench-167190"),
    *("func3c", "contamination", "rbv2_rpart-1487", "rbv2_xgboost-188", "lasso-diabetes-mae"),
)
MORE = (
    *("bbob-f1-2", "bbob-f22-10", "bbob-mixint-f21-10", "iaml_glmnet-1489", "lcbench-168910"),
    *("rbv2_rpart-31", "rbv2_xgboost-29", "linear-diabetes-mse"),
)
NO_NUMBERS = ("contamination",)  # along which noise could grow
BUDGETS = (28, 60)
NONE, BOTH = "no noise", "noise 5 and 30 %"
LEVELS = {NONE: (0.0,), BOTH: (0.05, 0.3), "noise 5 %": (0.05,), "noise 30 %": (0.3,)}
RULES = {
    AUTO: "winner: auto",
    MODEL: "winner: model",
    CAUTIOUS: "least mean and one deviation",
    AMONG_FEW: "by the model of the best five",
    ORACLE: "who knows the truth",
}
SHORT = {rule: RULES[rule] for rule in (AUTO, MODEL)}
AGAIN = {EIGHTH: "every eighth trial again", GRADIENT: "by knowledge gradient again"}
CLOSE = 8  # of the best recipes, whose differences matter


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    problems: tuple[str, ...] = (*SOME, *MORE)
    some: tuple[str, ...] = SOME  # for what costs more runs
    own_noise: tuple[str, ...] = (OWN_NOISE,)
    seeds: range = range(10, 14)
    trials: int = 60
    recipes: int = 100  # of the retail example: all


QUICK = Sizes(("branin2",), ("branin2",), (), range(10, 11), 28, 4)


class NoiseBench(Bench[Sizes]):
    """The rows."""

    def winner(self) -> Iterator[Row]:
        """Whom rules name, beside the trial with the best value."""
        sizes = self.sizes
        noisy = [Noisy(base, part) for part in LEVELS[BOTH] for base in _there(sizes.problems)]
        noisy += [Noisy(base, 0.0) for base in (*_there(sizes.problems), *sizes.own_noise)]
        runs = self._runs(noisy, (RANDOM, USUAL), sizes.seeds)
        for level, parts in LEVELS.items():
            chosen = [r for r in runs if r.key.noisy.part in parts and r.key.noisy.base != OWN_NOISE]
            yield from self._winner_rows(level, chosen)
        yield from self._winner_rows("trainings with seeds", [r for r in runs if r.key.noisy.base == OWN_NOISE])

    def again(self) -> Iterator[Row]:
        """Trying a point again beside new points alone, the winner by the rule that was best."""
        noisy = [Noisy(base, part) for part in LEVELS[BOTH] for base in _there(self.sizes.some)]
        runs = self._runs(noisy, (RANDOM, USUAL, *AGAIN), self.sizes.seeds)
        for budget, (way, title) in itertools.product(self._budgets(), AGAIN.items()):
            beside = compare(_ground(runs, budget), f"{way} {CAUTIOUS}", f"{USUAL} {CAUTIOUS}")
            yield from self._rows(f"regret, {title} (peer: never): {BOTH}, {budget} trials", beside)

    def errors(self) -> Iterator[Row]:
        """Telling the model each trial's deviation, which grows tenfold over the space, beside learning one for all."""
        bases = [base for base in _there(self.sizes.some) if base not in NO_NUMBERS]
        noisy = [Noisy(base, part, UNEVEN) for part in LEVELS[BOTH] for base in bases]
        runs = self._runs(noisy, (RANDOM, USUAL, ERRORS), self.sizes.seeds)
        for budget, rule in itertools.product(self._budgets(), (CAUTIOUS, MODEL)):
            beside = compare(_ground(runs, budget), f"{ERRORS} {rule}", f"{USUAL} {rule}")
            what = f"regret, the model is told errors (peer: one is learned): uneven {BOTH}, {RULES[rule]}"
            yield from self._rows(f"{what}, {budget} trials", beside)

    def customers(self) -> Iterator[Row]:
        """How much less the difference of two recipes varies by chance than a recipe, which share their customers."""
        shop = read_shop()
        asked = window(shop, shop.end - DAYS, DAYS)
        models = itertools.islice(singles(asked.history), self.sizes.recipes)
        values = np.array([asked.ndcg(model(asked)).astype(float) for _, model in models])
        best = values[np.argsort(-values.mean(axis=1), kind="stable")[:CLOSE]]
        errors = _standard_errors(best)
        pairs = list(itertools.combinations(range(len(best)), 2))
        shares = [float(_standard_errors(best[i] - best[j]) / np.hypot(errors[i], errors[j])) for i, j in pairs]
        what = (
            f"retail example, ndcg@20 of {values.shape[1]:,} customers, the best {len(best)} of {len(values)} recipes"
        )
        yield Row(f"{what}: standard error, median", statistics.median(errors.tolist()), None, "")
        name = f"{what}: standard error of a difference, as a part of that of independent values, median"
        yield Row(name, statistics.median(shares), None, "", note=f"{min(shares):.2f} to {max(shares):.2f}")

    def details(self, rows: Sequence[Row]) -> dict[str, object]:
        """Return what is kept besides the rows: sizes and intervals."""
        sizes = self.sizes
        notes = {row.workload: row.note for row in rows if row.note}
        return {"seeds": [*sizes.seeds], "problems": [*_there(sizes.problems), *sizes.own_noise], "notes": notes}

    def _budgets(self) -> list[int]:
        return [budget for budget in BUDGETS if budget <= self.sizes.trials]

    def _runs(self, noisy: Iterable[Noisy], ways: Sequence[str], seeds: Iterable[int]) -> list[Run]:
        keys = [Key(one, way, seed, self.sizes.trials) for seed, one, way in itertools.product(seeds, noisy, ways)]
        return runs_in(self.area).fill_all(keys)

    def _winner_rows(self, level: str, runs: Sequence[Run]) -> Iterator[Row]:
        if not runs:
            return
        for budget in self._budgets():
            found = _ground(runs, budget)
            for rule, title in RULES.items() if level in (NONE, BOTH) else SHORT.items():
                beside = compare(found, f"{USUAL} {rule}", f"{USUAL} {OBSERVED}")
                name = f"regret, {title} (peer: winner: observed): {level}, {budget} trials"
                yield from self._rows(name, beside, upper=rule == AUTO and level in (NONE, BOTH))
            asked = [run.noise[budget] >= NOISY for run in runs if run.key.way == USUAL]
            yield Row(
                f"runs in which auto asks the model: {level}, {budget} trials", 100 * statistics.fmean(asked), None, "%"
            )

    def _rows(self, name: str, beside: Comparison | None, *, upper: bool = False) -> Iterator[Row]:
        """Give a row with a ratio of regrets, and one with the upper end of its interval."""
        if beside is None:
            return
        yield Row(name, beside.ratios[0].value, 1.0, "", note=beside.describe())
        if upper:
            yield Row(f"upper end of its interval: {name}", max(ratio.high for ratio in beside.ratios), None, "", 1)


def _there(wanted: Iterable[str]) -> list[str]:
    """Return the problems that this machine has the data of."""
    return [name for name in wanted if name in names()]


def _ground(runs: Iterable[Run], budget: int) -> Ground:
    """Return the regrets of ways and rules, each pair as a tuner."""
    runs = list(runs)
    optima = {run.key.noisy.name: problem(run.key.noisy.base).optimum for run in runs}
    values = gather(
        (run.key.noisy.name, f"{run.key.way} {rule}", run.key.seed, best)
        for run in runs
        for rule, best in run.best.items()
    )
    return ground(values, optima, budget, f"{RANDOM} {OBSERVED}")


def _standard_errors(values: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean over the last axis."""
    return np.asarray(values.std(axis=-1, ddof=1) / np.sqrt(values.shape[-1]))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for."""
    return harness.main(BENCH, NoiseBench, Sizes(), QUICK, kept=True, argv=argv)


if __name__ == "__main__":
    sys.exit(main())
