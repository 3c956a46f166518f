"""Published functions, and a made-up training loss."""

from __future__ import annotations

import math

import numpy as np

from scripts.bench.tuner.problem import Parameter, Point, Problem

SOURCE = "functions"


def box(dimensions: int, low: float, high: float) -> tuple[Parameter, ...]:
    """Return reals x0, x1, ... of one range."""
    return tuple(Parameter(f"x{index}", low, high) for index in range(dimensions))


def _array(point: Point) -> np.ndarray:
    return np.array([float(value) for value in point.values()])


def branin(point: Point) -> float:
    """Branin's function; three global minima."""
    x, y = _array(point)
    curve = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return float(curve**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
HARTMANN_SCALES = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
HARTMANN_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(point: Point) -> float:
    """Hartmann's function of six variables; its second minimum, at -3.2032, is the wider one."""
    inner = (HARTMANN_SCALES * (_array(point) - HARTMANN_CENTRES) ** 2).sum(1)
    return float(-HARTMANN_WEIGHTS @ np.exp(-inner))


def rosenbrock(point: Point) -> float:
    """Rosenbrock's function as it is: a curved valley between walls of thousands."""
    x = _array(point)
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


ACKLEY_CENTRE = np.random.default_rng(20140).uniform(-15, 15, 5)  # not the middle, where a design may fall


def ackley(point: Point) -> float:
    """Ackley's function, its minimum moved away from the middle of the space."""
    x = _array(point) - ACKLEY_CENTRE
    waves = np.exp(np.cos(2 * math.pi * x).mean())
    return float(-20 * np.exp(-0.2 * np.sqrt((x**2).mean())) - waves + 20 + math.e)


def levy(point: Point) -> float:
    """Levy's function: waves on a valley of waves; the only global minimum is where all are 1."""
    w = 1 + (_array(point) - 1) / 4
    first, between, last = w[0], w[:-1], w[-1]
    waves = ((between - 1) ** 2 * (1 + 10 * np.sin(math.pi * between + 1) ** 2)).sum()
    end = (last - 1) ** 2 * (1 + math.sin(2 * math.pi * last) ** 2)
    return float(math.sin(math.pi * first) ** 2 + waves + end)


NETWORK = (
    Parameter("rate", 1e-5, 1.0, log=True),
    Parameter("decay", 1e-7, 1e-1, log=True),
    Parameter("layers", 1, 5, whole=True),
    Parameter("units", 16, 1024, log=True, whole=True),
    Parameter("dropout", 0.0, 0.7),
    Parameter("batch", 16, 512, log=True, whole=True),
    Parameter("optimizer", options=("sgd", "adam", "rmsprop")),
    Parameter("activation", options=("relu", "tanh", "sigmoid")),
)


def network_loss(point: Point) -> float:
    """A made-up training loss: the best rate depends on optimizer and batch, the best dropout on the capacity."""
    rate, decay, layers, units, dropout, batch = (float(point[p.name]) for p in NETWORK[:6])
    batches = math.log2(batch / 64)
    best_rate = {"sgd": -1.0, "adam": -3.0, "rmsprop": -3.3}[str(point["optimizer"])] + 0.15 * batches
    beyond = math.log10(rate) - best_rate
    if beyond > 1:
        return 2.3 * 10 ** (beyond - 1)  # diverged: from the loss of guessing to hundreds
    capacity = math.log2(layers * units) - 9
    loss = 0.08 + (0.12 if beyond > 0 else 0.05) * beyond**2
    loss += 0.008 * capacity**2 + 0.01 * (layers - 2) ** 2 + 0.004 * batches**2
    loss += 0.3 * (dropout - min(max(0.1 + 0.08 * capacity, 0), 0.6)) ** 2 + 0.006 * (math.log10(decay) + 4) ** 2
    loss += {"sgd": 0.01, "adam": 0.0, "rmsprop": 0.02}[str(point["optimizer"])]
    return loss + {"relu": 0.0, "tanh": 0.012, "sigmoid": 0.04 + 0.03 * (layers - 1)}[str(point["activation"])]


HARTMANN_BEST = -3.32236801141551

PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("branin2", SOURCE, (Parameter("x0", -5, 10), Parameter("x1", 0, 15)), branin, 0.397887357729738),
        Problem("hart6", SOURCE, box(6, 0, 1), hartmann, HARTMANN_BEST),
        Problem("hart6n", SOURCE, box(6, 0, 1), hartmann, HARTMANN_BEST, noise=0.1),
        Problem("rosen4", SOURCE, box(4, -2.048, 2.048), rosenbrock, 0.0),
        Problem("ackley5", SOURCE, box(5, -32.768, 32.768), ackley, 0.0),
        Problem("levy30", SOURCE, box(30, -10, 10), levy, 0.0),
        Problem("nn8", SOURCE, NETWORK, network_loss, 0.08, noise=0.01),
    )
}


def names() -> tuple[str, ...]:
    """Return the names of the problems."""
    return tuple(PROBLEMS)


def make(name: str) -> Problem:
    """Return a problem."""
    return PROBLEMS[name]
