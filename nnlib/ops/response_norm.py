"""Local response normalization across maps (Krizhevsky et al. 2012, section 3.3), as cuDNN and DSSTNE have it.

Shapes: x (b, units) holds C maps an example, one after the other. With s = k + alpha / n sum x^2, where the sum is over
the same place of n maps, (n - 1) // 2 of them before and n // 2 behind the own one, as far as there are such:
y = x s^-beta.
"""

from __future__ import annotations

import numpy as np

from nnlib.spec.geometry import Maps
from nnlib.spec.types import LocalResponse
from nnlib.util.arrays import Floats


def forward(rule: LocalResponse, x: Floats, maps: Maps) -> Floats:
    """Return y, (b, units)."""
    source = x.reshape(len(x), maps.channels, -1)
    y = _power(_scale(rule, source), rule.beta)
    y *= source
    return y.reshape(x.shape)


def backward(rule: LocalResponse, x: Floats, delta: Floats, maps: Maps) -> Floats:
    """Return dLoss/dx from delta = dLoss/dy.

    dLoss/dx_j = delta_j s_j^-beta - (2 alpha beta / n) x_j sum_i delta_i x_i s_i^(-beta - 1), over the i that see j.
    """
    source, delta = (array.reshape(len(x), maps.channels, -1) for array in (x, delta))
    s = _scale(rule, source)
    below = _power(s, rule.beta)
    below *= delta
    np.divide(below, s, out=s)
    s *= source
    seen = _window_sum(s, rule.n // 2, (rule.n - 1) // 2)
    seen *= source
    seen *= x.dtype.type(2 * rule.alpha * rule.beta / rule.n)
    below -= seen
    return below.reshape(x.shape)


def _scale(rule: LocalResponse, x: Floats) -> Floats:
    s = _window_sum(np.square(x), (rule.n - 1) // 2, rule.n // 2)
    s *= x.dtype.type(rule.alpha / rule.n)
    s += x.dtype.type(rule.k)
    return s


def _window_sum(x: Floats, before: int, behind: int) -> Floats:
    """Return for each map the sum of so many before, itself and so many behind; x (b, C, S)."""
    total = x.copy()
    for distance in range(1, min(max(before, behind) + 1, x.shape[1])):
        if distance <= before:
            total[:, distance:] += x[:, :-distance]
        if distance <= behind:
            total[:, :-distance] += x[:, distance:]
    return total


def _power(s: Floats, beta: float) -> Floats:
    """Return s^-beta; of the usual 3/4 by roots, which cost a tenth."""
    if beta == 0.75:
        root = np.sqrt(s)
        return np.asarray(1 / (root * np.sqrt(root)))
    return np.asarray(s ** s.dtype.type(-beta))
