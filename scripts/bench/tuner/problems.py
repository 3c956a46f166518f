"""The problems of tuner.py: published functions, a made-up training loss, and two real trainings (tasks.py).

Everything is minimised. `observe` is what a tuner sees, with the noise that belongs to this trial of this run; `true`
is what a reported point is judged by. Nothing here may be used to choose a tuner's constants.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from scripts.bench.tuner import tasks as tuner_tasks

Value = float | int | str
Point = Mapping[str, Value]
PROBES = 4  # points that tell whether a kept run was of the same problem


@dataclass(frozen=True)
class Parameter:
    """A real or whole number between bounds, or one of some options."""

    name: str
    low: float = 0
    high: float = 0
    log: bool = False
    whole: bool = False
    options: tuple[str, ...] = ()

    def at(self, unit: float) -> Value:
        """Return the value at `unit` in [0, 1), uniform on the parameter's scale; every whole number as likely."""
        if self.options:
            return self.options[int(unit * len(self.options))]
        low, high = (self.low - 0.5, self.high + 0.5) if self.whole else (self.low, self.high)
        value = math.exp(math.log(low) + math.log(high / low) * unit) if self.log else low + (high - low) * unit
        value = min(max(value, self.low), self.high)
        return min(max(round(value), round(self.low)), round(self.high)) if self.whole else value


@dataclass(frozen=True)
class Problem:
    """A loss over a space.

    `optimum` is the least true value, or the best known one of a real training. Regrets below `floor` are taken for
    `floor`: about a thousandth of what random search leaves, or what noise hides.
    """

    name: str
    space: tuple[Parameter, ...]
    true: Callable[[Point], float]
    optimum: float
    floor: float
    noise: float = 0.0  # standard deviation added to the true value
    trial: Callable[[Point, int], float] | None = None  # a real training with its seed, instead of added noise

    def observe(self, point: Point, seed: int, trial: int) -> float:
        """Return what trial number `trial` of the run with this seed reports."""
        chance = np.random.default_rng([seed, trial, *self.name.encode()])
        if self.trial:
            return self.trial(point, int(chance.integers(1, 2**31)))
        return self.true(point) + self.noise * float(chance.standard_normal())

    def random_point(self, chance: np.random.Generator) -> dict[str, Value]:
        """Return a uniform point."""
        return {parameter.name: parameter.at(chance.random()) for parameter in self.space}

    def fingerprint(self) -> str:
        """Return a digest of the space and of some values: kept runs of a problem that has changed do not count."""
        chance = np.random.default_rng(1)
        points = [self.random_point(chance) for _ in range(PROBES)]
        values = [f"{self.observe(point, 0, trial):.6g}" for trial, point in enumerate(points)]
        values.append(f"{self.true(points[0]):.6g}")
        return hashlib.sha256(json.dumps([points, values]).encode()).hexdigest()[:12]


def _box(dimensions: int, low: float, high: float) -> tuple[Parameter, ...]:
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


DIGITS = (
    Parameter("rate", 1e-4, 1.0, log=True),
    Parameter("decay", 1e-6, 1.0, log=True),
    Parameter("units", 8, 256, log=True, whole=True),
    Parameter("dropout", 0.0, 0.8),
    Parameter("batch", 8, 128, log=True, whole=True),
    Parameter("scale", 0.1, 4.0, log=True),
)
DIABETES = (
    Parameter("rate", 0.005, 0.5, log=True),
    Parameter("trees", 10, 300, log=True, whole=True),
    Parameter("depth", 1, 8, whole=True),
    Parameter("rows", 0.3, 1.0),
    Parameter("columns", 0.1, 1.0),
    Parameter("leaf", 1, 64, log=True, whole=True),
)
HARTMANN_BEST = -3.32236801141551


@cache
def problems() -> dict[str, Problem]:
    """Return all problems by name."""
    found = (
        Problem("branin2", (Parameter("x0", -5, 10), Parameter("x1", 0, 15)), branin, 0.397887357729738, 1e-3),
        Problem("hart6", _box(6, 0, 1), hartmann, HARTMANN_BEST, 1e-3),
        Problem("hart6n", _box(6, 0, 1), hartmann, HARTMANN_BEST, 1e-2, noise=0.1),
        Problem("rosen4", _box(4, -2.048, 2.048), rosenbrock, 0.0, 3e-2),
        Problem("ackley5", _box(5, -32.768, 32.768), ackley, 0.0, 2e-2),
        Problem("nn8", NETWORK, network_loss, 0.08, 1e-3, noise=0.01),
        Problem(
            "mlp_digits", DIGITS, tuner_tasks.digits, tuner_tasks.DIGITS_BEST, 3e-3, trial=tuner_tasks.digits_trial
        ),
        Problem(
            "gbm_diab",
            DIABETES,
            tuner_tasks.diabetes,
            tuner_tasks.DIABETES_BEST,
            3e-3,
            trial=tuner_tasks.diabetes_trial,
        ),
    )
    return {problem.name: problem for problem in found}
