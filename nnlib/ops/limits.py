"""Limits of norms, and the penalty of units that are active too often. The reference of kernels/limits.cu."""

from __future__ import annotations

import numpy as np

from nnlib.spec.types import Sparseness
from nnlib.util.arrays import Floats

MEAN_FLOOR = 1e-6  # of the mean activation in the sparseness penalty, as in DSSTNE


def limit_norms(x: Floats, limit: float, axis: int, scale: int = 1) -> None:
    """Scale down, in place, rows (axis 1) or columns (axis 0) of x whose norm, times `scale`, is above the limit."""
    norms = np.linalg.norm(x, axis=axis, keepdims=True) * scale
    x *= np.minimum(1, limit / np.maximum(norms, np.finfo(x.dtype).tiny))


def sparseness_penalty(rule: Sparseness, a: Floats) -> float:
    """Return beta times the Kullback-Leibler divergence of p from each unit's mean over the batch, a (b, n)."""
    mean, p = np.clip(a.mean(axis=0), MEAN_FLOOR, 1 - MEAN_FLOOR), rule.p
    parts = (p * np.log(p / mean) if p else 0.0) + ((1 - p) * np.log((1 - p) / (1 - mean)) if p < 1 else 0.0)
    return rule.beta * float(np.sum(parts))


def sparseness_gradient(rule: Sparseness, a: Floats) -> Floats:
    """Return dPenalty/da, (n,): the same for all examples."""
    mean = np.clip(a.mean(axis=0), MEAN_FLOOR, 1 - MEAN_FLOOR)
    gradient: Floats = (rule.beta / len(a)) * ((1 - rule.p) / (1 - mean) - rule.p / mean)
    return gradient
