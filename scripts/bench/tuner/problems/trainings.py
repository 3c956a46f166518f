"""Two real, noisy trainings on scikit-learn's data; every trial has a seed of its own, the mean of 20 is the truth."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache

import numpy as np

from scripts.bench.tuner.problem import Parameter, Point, Problem

SEEDS = range(101, 121)  # of the trainings whose mean is a point's true value
DIGITS_BEST = 0.1205  # the best values known
DIABETES_BEST = 0.4673
DIGITS_ROWS = 400
EPOCHS = 15
DIVERGED = 10.0  # the loss that a training reports when its numbers are no numbers any more

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


def digits(point: Point) -> float:
    """Return the mean validation loss of 20 trainings."""
    return _mean(digits_trial, point)


def diabetes(point: Point) -> float:
    """Return the mean validation error of 20 trainings."""
    return _mean(diabetes_trial, point)


def _mean(trial: Callable[[Point, int], float], point: Point) -> float:
    return float(np.mean([trial(point, seed) for seed in SEEDS]))


@cache
def _digits_data() -> tuple[np.ndarray, ...]:
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(classes))
    pixels, targets = (pixels / 16.0)[order], np.eye(10)[classes[order]]
    return pixels[:DIGITS_ROWS], targets[:DIGITS_ROWS], pixels[DIGITS_ROWS:], targets[DIGITS_ROWS:]


def digits_trial(point: Point, seed: int) -> float:
    """Train a perceptron on 400 digits with Adam and return its cross-entropy on the others."""
    inputs, targets, others, classes = _digits_data()
    chance = np.random.default_rng(seed)
    units = int(point["units"])
    weights = [
        chance.standard_normal(shape) * float(point["scale"]) * math.sqrt(2 / shape[0])
        for shape in ((64, units), (units, 10))
    ]
    state = [*weights, np.zeros(units), np.zeros(10)]
    adam = Adam(float(point["rate"]), float(point["decay"]))
    batch, keep = int(point["batch"]), 1 - float(point["dropout"])
    with np.errstate(all="ignore"):
        for _ in range(EPOCHS):
            order = chance.permutation(DIGITS_ROWS)
            for begin in range(0, DIGITS_ROWS, batch):
                rows = order[begin : begin + batch]
                mask = (chance.random((len(rows), units)) < keep) / keep
                adam.step(state, _gradients(state, inputs[rows], targets[rows], mask))
        hidden = np.maximum(others @ state[0] + state[2], 0)
        likely = _softmax(hidden @ state[1] + state[3])
        loss = float(-np.log(np.maximum((likely * classes).sum(1), 1e-12)).mean())
    return loss if loss < DIVERGED else DIVERGED  # NaN, too


def _gradients(
    state: list[np.ndarray], inputs: np.ndarray, targets: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, ...]:
    hidden = np.maximum(inputs @ state[0] + state[2], 0) * mask
    error = (_softmax(hidden @ state[1] + state[3]) - targets) / len(inputs)
    back = (error @ state[1].T) * (hidden > 0) * mask
    return inputs.T @ back, hidden.T @ error, back.sum(0), error.sum(0)


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


class Adam:
    """Adam with decoupled weight decay."""

    def __init__(self, rate: float, decay: float) -> None:
        self.rate, self.decay, self.steps = rate, decay, 0
        self.means: list[np.ndarray] = []
        self.squares: list[np.ndarray] = []

    def step(self, state: list[np.ndarray], gradients: tuple[np.ndarray, ...]) -> None:
        """Change the state in place."""
        if not self.steps:
            self.means, self.squares = ([np.zeros_like(array) for array in state] for _ in range(2))
        self.steps += 1
        size = self.rate * math.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        for array, gradient, mean, square in zip(state, gradients, self.means, self.squares, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient * gradient - square)
            array -= size * mean / (np.sqrt(square) + 1e-8)
            if array.ndim == 2:
                array *= 1 - self.rate * self.decay


@cache
def _diabetes_data() -> tuple[np.ndarray, ...]:
    from sklearn.datasets import load_diabetes

    features, values = load_diabetes(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(values))
    features, values = features[order], values[order]
    return features[:292], values[:292], features[292:], values[292:]


def diabetes_trial(point: Point, seed: int) -> float:
    """Boost trees on 292 patients and return the part of the other 150's variance that is left."""
    from sklearn.ensemble import GradientBoostingRegressor

    inputs, values, others, outcomes = _diabetes_data()
    model = GradientBoostingRegressor(
        learning_rate=float(point["rate"]),
        n_estimators=int(point["trees"]),
        max_depth=int(point["depth"]),
        subsample=float(point["rows"]),
        max_features=float(point["columns"]),
        min_samples_leaf=int(point["leaf"]),
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error = model.fit(inputs, values).predict(others) - outcomes
    return float((error**2).mean() / outcomes.var())


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("mlp_digits", "sklearn", DIGITS, digits, DIGITS_BEST, trial=digits_trial),
        Problem("gbm_diab", "sklearn", DIABETES, diabetes, DIABETES_BEST, trial=diabetes_trial),
    )
}


def names() -> tuple[str, ...]:
    """Return the names of the problems."""
    return tuple(PROBLEMS)


def make(name: str) -> Problem:
    """Return a problem."""
    return PROBLEMS[name]
