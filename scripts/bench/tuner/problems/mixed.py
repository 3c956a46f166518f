"""Mixed and categorical functions by which other tuners were measured.

func2c, func3c: B. Ru, A. S. Alvi, V. Nguyen, M. A. Osborne, S. J. Roberts, "Bayesian Optimisation over Multiple
Continuous and Categorical Inputs" (CoCaBO), ICML 2020: each category adds one of three functions of the same two
numbers. The noise of 1e-6 that its authors add is left out.

contamination, pest: C. Oh, J. M. Tomczak, E. Gavves, M. Welling, "Combinatorial Bayesian Optimization using the Graph
Cartesian Product" (COMBO), NeurIPS 2019; the first is from Y. Hu, J. Hu, Y. Xu, F. Wang, R. Z. Cao, "Contamination
control in food supply chain", Winter Simulation Conference 2010. Distributions and prices are those of COMBO's code,
the draws are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from scripts.bench.tuner.problem import Parameter, Point, Problem

STAGES = 25
SIMULATIONS = 100
LIMIT = 0.1  # of the fraction that is contaminated, or eaten by pests
SEEDS = range(101, 141)  # of the simulations whose mean is the truth about pest


def _rosenbrock(x: float, y: float) -> float:
    return (100 * (y - x**2) ** 2 + (x - 1) ** 2) / 300


def _camel(x: float, y: float) -> float:
    return ((4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (4 * y**2 - 4) * y**2) / 10


def _beale(x: float, y: float) -> float:
    return ((1.5 - x + x * y) ** 2 + (2.25 - x + x * y**2) ** 2 + (2.625 - x + x * y**3) ** 2) / 50


FUNCTIONS = {"rosenbrock": _rosenbrock, "camel": _camel, "beale": _beale}
CAMEL_BEST = -1.031628453489877 / 10
FIRST = tuple(FUNCTIONS)
SECOND = ("rosenbrock", "camel", "beale", "beale again", "beale once more")  # as published: three of five are alike
THIRD = {"5 camel": (5, _camel), "2 rosenbrock": (2, _rosenbrock), "2 beale": (2, _beale), "3 beale": (3, _beale)}
NUMBERS = (Parameter("x", -1, 1), Parameter("y", -1, 1))


def func2c(point: Point) -> float:
    """Return the sum of two functions, each chosen by a category; the best is the camel twice."""
    x, y = 2 * float(point["x"]), 2 * float(point["y"])
    return sum(FUNCTIONS[str(point[name]).split()[0]](x, y) for name in ("first", "second"))


def func3c(point: Point) -> float:
    """Return the same with a third function, several times."""
    factor, function = THIRD[str(point["third"])]
    return func2c(point) + factor * function(2 * float(point["x"]), 2 * float(point["y"]))


@cache
def _contaminations() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    chance = np.random.default_rng(2010)
    shape = (STAGES, SIMULATIONS)
    return chance.beta(1, 30, SIMULATIONS), chance.beta(1, 17 / 3, shape), chance.beta(1, 3 / 7, shape)


def contamination(point: Point) -> float:
    """Return the price of preventing contamination at some stages of a food chain, and of failing elsewhere.

    At each stage a part of what is clean is contaminated, or, at the price of 1, a part of what is contaminated is
    cleaned. A stage gives back the share of simulations in which less than a tenth is contaminated, less .95.
    """
    fraction, spread, cure = _contaminations()
    total = 0.0
    for stage in range(STAGES):
        prevented = point[f"stage{stage}"] == "prevent"
        fraction = fraction * (1 - cure[stage]) if prevented else fraction + spread[stage] * (1 - fraction)
        total += prevented - (float((fraction < LIMIT).mean()) - 0.95)
    return total


PESTICIDES = ("none", "first", "second", "third", "fourth")
PRICES = np.array([0.0, 1.0, 0.8, 0.7, 0.5])
DISCOUNTS = np.array([0.0, 0.2, 0.3, 0.3, 0.0])  # for using one at all stages
TOLERANCES = np.array([0.0, 1.0, 2.5, 2.0, 0.5]) / 7  # what pests gain while one is used at all stages
STRENGTHS = np.array([0.0, 2.0, 3.0, 3.0, 5.0]) / 7  # second parameter of a beta distribution: less is stronger


def _used(point: Point) -> list[int]:
    return [PESTICIDES.index(str(point[f"stage{stage}"])) for stage in range(STAGES)]


def pest_trial(point: Point, seed: int) -> float:
    """Return the price of pesticides and the expected number of stages with too many pests, of 100 simulations."""
    return _pest(_used(point), np.random.default_rng(seed))


def _pest(used: Sequence[int], chance: np.random.Generator) -> float:
    fraction = chance.beta(1, 30, SIMULATIONS)
    strengths = STRENGTHS.copy()
    total = 0.0
    for pesticide in used:
        total += float((fraction > LIMIT).mean())
        spread = chance.beta(1, 17 / 3, SIMULATIONS)
        if pesticide:
            fraction = fraction * (1 - chance.beta(1, strengths[pesticide], SIMULATIONS))
            strengths[pesticide] += TOLERANCES[pesticide] / STAGES
            total += PRICES[pesticide] * (1 - DISCOUNTS[pesticide] * used.count(pesticide) / STAGES)
        else:
            fraction = fraction + spread * (1 - fraction)
    return float(total)


def pest(point: Point) -> float:
    """Return the mean of 40 times 100 simulations."""
    return float(np.mean([pest_trial(point, seed) for seed in SEEDS]))


def _stages(options: tuple[str, ...]) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"stage{stage}", options=options) for stage in range(STAGES))


TWO = (Parameter("first", options=FIRST), Parameter("second", options=SECOND), *NUMBERS)
THREE = (*TWO[:2], Parameter("third", options=tuple(THIRD)), *NUMBERS)
PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("func2c", "cocabo", TWO, func2c, 2 * CAMEL_BEST),
        Problem("func3c", "cocabo", THREE, func3c, 7 * CAMEL_BEST),
        Problem("contamination", "combo", _stages(("leave", "prevent")), contamination),
        Problem("pest", "combo", _stages(PESTICIDES), pest, trial=pest_trial),
    )
}


def names() -> tuple[str, ...]:
    """Return the names of the problems."""
    return tuple(PROBLEMS)


def make(name: str) -> Problem:
    """Return a problem."""
    return PROBLEMS[name]
