"""Problems in whose spaces not everything can be tried: parts fail, or break constraints that are known.

gramacy2: R. B. Gramacy et al., "Modeling an Augmented Lagrangian for Blackbox Constrained Optimization", Technometrics
58, 2016. branin-disk: M. A. Gelbart, J. Snoek, R. P. Adams, "Bayesian Optimization with Unknown Constraints", UAI 2014.
hart6-cut: B. Letham, B. Karrer, G. Ottoni, E. Bakshy, "Constrained Bayesian Optimization with Noisy Experiments",
Bayesian Analysis 14, 2019; beyond their radius of 1 lie 92 % of the space, beyond 1.4 half of it. What breaks a
constraint there is a trial that fails here. sgd-diabetes and perceptron-diabetes are trainings by gradients, of which
some diverge.

hs35: W. Hock, K. Schittkowski, "Test Examples for Nonlinear Programming Codes", 1981, problem 35; its best point lies
on the constraint. tree-diabetes is of our own: a node that has enough samples for a leaf has enough to be split.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scripts.bench.tuner.problem import Parameter, Point, Problem
from scripts.bench.tuner.problems import crossval
from scripts.bench.tuner.problems.functions import HARTMANN_BEST, box, branin, hartmann

FAILS = math.inf
GRAMACY_BEST = 0.5997880520093705
RADIUS = 1.4


def gramacy(point: Point) -> float:
    """Return a sum that is least where a curve crosses the space; below the curve trials fail."""
    x, y = float(point["x0"]), float(point["x1"])
    above = x + 2 * y + math.sin(2 * math.pi * (x**2 - 2 * y)) / 2 >= 1.5
    return x + y if above and x**2 + y**2 <= 1.5 else FAILS


def branin_disk(point: Point) -> float:
    """Return Branin's function in a disk, which has one of its three minima."""
    x, y = float(point["x0"]), float(point["x1"])
    return branin(point) if (x - 2.5) ** 2 + (y - 7.5) ** 2 <= 50 else FAILS


def hartmann_ball(point: Point) -> float:
    """Return Hartmann's function in a ball around a corner."""
    return hartmann(point) if sum(float(x) ** 2 for x in point.values()) <= RADIUS**2 else FAILS


def hs35(point: Point) -> float:
    """Return a quadratic function of three variables."""
    x, y, z = (float(value) for value in point.values())
    return 9 - 8 * x - 6 * y - 4 * z + 2 * x * x + 2 * y * y + z * z + 2 * x * y + 2 * x * z


DESCENT = (
    Parameter("eta0", 1e-4, 1.0, log=True),
    Parameter("learning_rate", options=("constant", "invscaling")),
    Parameter("power_t", 0.1, 0.9, when=(("learning_rate", ("invscaling",)),)),
    Parameter("alpha", 1e-6, 1.0, log=True),
    Parameter("penalty", options=("l2", "l1", "elasticnet")),
    Parameter("max_iter", 1, 100, log=True, whole=True),
    Parameter("average", options=("no", "yes")),
)
PERCEPTRON = (
    Parameter("learning_rate_init", 1e-3, 10.0, log=True),
    Parameter("momentum", 0.0, 0.99),
    Parameter("units", 4, 64, log=True, whole=True),
    Parameter("batch_size", options=(8, 16, 32, 64), ordered=True),
    Parameter("activation", options=("relu", "tanh")),
    Parameter("alpha", 1e-6, 10.0, log=True),
)
TREE = (
    Parameter("min_samples_leaf", 1, 100, whole=True),
    Parameter("min_samples_split", 2, 100, whole=True),
    Parameter("max_depth", 1, 12, whole=True),
    Parameter("max_features", 0.1, 1.0),
)


def _scaled(model: Any, *before: Any) -> Any:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(*before, StandardScaler(), TransformedTargetRegressor(model, transformer=StandardScaler()))


def descent(point: Point) -> Any:
    """Return a linear model of all products of two features, fitted by stochastic gradients."""
    from sklearn.linear_model import SGDRegressor
    from sklearn.preprocessing import PolynomialFeatures

    more = {**point, "average": point["average"] == "yes"}
    return _scaled(SGDRegressor(tol=None, random_state=0, **more), PolynomialFeatures(include_bias=False))


def perceptron(point: Point) -> Any:
    """Return a network with one hidden layer, trained for 10 epochs by stochastic gradients."""
    from sklearn.neural_network import MLPRegressor

    more = {name: value for name, value in point.items() if name != "units"}
    return _scaled(
        MLPRegressor(hidden_layer_sizes=(int(point["units"]),), solver="sgd", max_iter=10, random_state=0, **more)
    )


def tree(point: Point) -> Any:
    """Return a regression tree."""
    from sklearn.tree import DecisionTreeRegressor

    return DecisionTreeRegressor(random_state=0, **point)


def _loss(learner: Callable[[Point], Any]) -> Callable[[Point], float]:
    return lambda point: crossval.validate_or_fail(lambda: learner(point), "diabetes", crossval.unexplained)


BRANIN = (Parameter("x0", -5, 10), Parameter("x1", 0, 15))
LINE, SPLIT = ("x0 + x1 + 2 * x2 <= 3",), ("min_samples_leaf <= min_samples_split",)
PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("gramacy2", "failing", box(2, 0, 1), gramacy, GRAMACY_BEST, worst=math.sqrt(3)),
        Problem("branin-disk", "failing", BRANIN, branin_disk, 0.397887357729738, worst=180.0),
        Problem("hart6-cut", "failing", box(6, 0, 1), hartmann_ball, HARTMANN_BEST, worst=0.0),
        Problem("sgd-diabetes", "failing", DESCENT, _loss(descent), worst=crossval.WORST),
        Problem("perceptron-diabetes", "failing", PERCEPTRON, _loss(perceptron), worst=crossval.WORST),
        Problem("hs35", "constrained", box(3, 0, 1.5), hs35, 1 / 9, constraints=LINE),
        Problem("tree-diabetes", "constrained", TREE, _loss(tree), constraints=SPLIT),
    )
}


def names() -> tuple[str, ...]:
    """Return the names of the problems."""
    return tuple(PROBLEMS)


def make(name: str) -> Problem:
    """Return a problem."""
    return PROBLEMS[name]
