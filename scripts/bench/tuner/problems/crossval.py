"""Losses of scikit-learn's models on its small data sets, by cross-validation with fixed folds.

A model is made anew for each fold, so that a point always has the same loss; models with a seed get 0.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

ROWS = 500  # at most, so that an evaluation takes a fraction of a second
WORST = 10.0  # the loss of what fails, as of what diverges
LEAST = 1e-6  # the least probability that a logarithmic loss counts

Measure = Callable[[Any, np.ndarray, np.ndarray], float]


@cache
def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and targets of digits, wine, iris, breast or diabetes, in random order."""
    from sklearn import datasets

    loader = {"breast": "breast_cancer"}.get(name, name)
    inputs, targets = getattr(datasets, f"load_{loader}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(targets))[:ROWS]
    return inputs[order], targets[order]


def validate(make: Callable[[], Any], name: str, measure: Measure, folds: int = 3) -> float:
    """Return the mean loss of models on the rows that each has not seen."""
    return float(np.mean(losses(make, name, measure, folds)))


def validate_or_fail(make: Callable[[], Any], name: str, measure: Measure, folds: int = 3) -> float:
    """Return the same, or infinity if a model has diverged."""
    found = losses(make, name, measure, folds)
    return float(np.mean(found)) if max(found) < WORST else math.inf


def losses(make: Callable[[], Any], name: str, measure: Measure, folds: int) -> list[float]:
    """Return the loss of each fold, at the most `WORST`."""
    inputs, targets = load(name)
    fold = np.arange(len(targets)) % folds
    found = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # that something has not converged
        for number in range(folds):
            left_out = fold == number
            try:
                model = make().fit(inputs[~left_out], targets[~left_out])
                loss = measure(model, inputs[left_out], targets[left_out])
            except (ValueError, np.linalg.LinAlgError):  # numbers that are none any more
                loss = WORST
            found.append(loss if loss < WORST else WORST)  # NaN, too
    return found


def error(model: Any, inputs: np.ndarray, targets: np.ndarray) -> float:
    """Return the part of wrong classes."""
    return float(np.mean(model.predict(inputs) != targets))


def log_loss(model: Any, inputs: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean negative logarithm of the right class's probability."""
    likely = model.predict_proba(inputs)[np.arange(len(targets)), np.searchsorted(model.classes_, targets)]
    return float(-np.log(np.maximum(likely, LEAST)).mean())


def brier(model: Any, inputs: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean squared error of the classes' probabilities."""
    return float(((model.predict_proba(inputs) - (targets[:, None] == model.classes_)) ** 2).sum(1).mean())


def unexplained(model: Any, inputs: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean squared error as a part of the variance."""
    return float(((model.predict(inputs) - targets) ** 2).mean() / targets.var())


def absolute(model: Any, inputs: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean absolute error as a part of the standard deviation."""
    return float(np.abs(model.predict(inputs) - targets).mean() / targets.std())
