"""Update rules, applied in place to pieces of a weight matrix that fit the cache.

With G = gradient of the mean loss + l2 times W (biases: without l2), a = learning rate, t = 1, 2, ...:

sgd      W -= a G
rmsprop  v = 0.9 v + 0.1 G^2;  W -= a G / sqrt(max(1e-9, v))
adam     m = 0.9 m + 0.1 G;  s = 0.999 s + 0.001 G^2;  W -= a (m / (1 - 0.9^t)) / (sqrt(s / (1 - 0.999^t)) + 1e-8)

SGD and RMSProp as in DSSTNE with mu = 0.9; Adam as in Kingma and Ba (2015), algorithm 1, where DSSTNE starts at t = 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.errors import NnlibError

Floats = NDArray[Any]  # float32, in tests float64

DECAY, SQUARE_DECAY = 0.9, 0.999
RMSPROP_FLOOR = 1e-9
ADAM_EPSILON = 1e-8
CHUNK = 1 << 15  # numbers updated at a time: the five arrays of Adam then stay in a core's cache

Rule = Callable[[Floats, Floats, Sequence[Floats], float, int, Floats], None]


def sgd(w: Floats, g: Floats, _state: Sequence[Floats], rate: float, _step: int, tmp: Floats) -> None:
    """Update w with gradient g; tmp is scratch memory of the same shape."""
    np.multiply(g, rate, out=tmp)
    w -= tmp


def rmsprop(w: Floats, g: Floats, state: Sequence[Floats], rate: float, _step: int, tmp: Floats) -> None:
    """Update w and state (v,) with gradient g; tmp is scratch memory of the same shape."""
    (v,) = state
    np.multiply(g, g, out=tmp)
    tmp *= 1 - DECAY
    v *= DECAY
    v += tmp
    np.maximum(v, RMSPROP_FLOOR, out=tmp)
    np.sqrt(tmp, out=tmp)
    np.divide(g, tmp, out=tmp)
    tmp *= rate
    w -= tmp


def adam(w: Floats, g: Floats, state: Sequence[Floats], rate: float, step: int, tmp: Floats) -> None:
    """Update w and state with gradient g; tmp is scratch memory of the same shape.

    The state is (m / 0.1, s / 0.001), and the constants are drawn out of the loop, which saves three passes:
    a (m / c1) / (sqrt(s / c2) + e) = a k (m / 0.1) / (sqrt(s / 0.001) + e q), q = sqrt(c2 / 0.001), k = 0.1 q / c1.
    """
    m, s = state
    q = float(np.sqrt((1 - SQUARE_DECAY**step) / (1 - SQUARE_DECAY)))
    k = (1 - DECAY) * q / (1 - DECAY**step)
    m *= DECAY
    m += g
    np.multiply(g, g, out=tmp)
    s *= SQUARE_DECAY
    s += tmp
    np.sqrt(s, out=tmp)
    tmp += ADAM_EPSILON * q
    np.divide(m, tmp, out=tmp)
    tmp *= rate * k
    w -= tmp


RULES: dict[str, tuple[Rule, int]] = {"sgd": (sgd, 0), "rmsprop": (rmsprop, 1), "adam": (adam, 2)}


@dataclass(slots=True)
class _Slot:
    """One parameter array (rows, columns) with the rule's state beside it."""

    values: Floats
    state: tuple[Floats, ...]
    l2: float


class Optimizer:
    """Applies one rule to the parameters it was given; `step` counts the batches from 1."""

    def __init__(self, name: str, rate: float, l2: float, weights: Sequence[Floats], biases: Sequence[Floats]) -> None:
        """Start with a zero state for `weights` (each 2-D, row-contiguous) and `biases` (each 1-D)."""
        if name.lower() not in RULES:
            raise NnlibError(f"trial.json: train.optimizer: {name!r} is not legal, legal: {', '.join(RULES)}")
        self._rule, states = RULES[name.lower()]
        self._rate = rate
        self._weights = [_slot(values, states, l2) for values in weights]
        self._biases = [_slot(values[:, None], states, 0.0) for values in biases]
        self.step = 0

    def rows(self, edge: int, low: int, gradient: Floats) -> None:
        """Update the weight rows from `low` with their dense gradient (rows, columns)."""
        self._update(self._weights[edge], low, gradient)

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """Update the biases from `low` with their gradient (n,)."""
        self._update(self._biases[edge], low, gradient[:, None])

    def touched(self, edge: int, rows: NDArray[np.integer], gradient: Floats) -> None:
        """Update all weight rows, where only `rows` (ascending) have a gradient, the others zero.

        Rows without a gradient move too (momentum, l2), so each piece gets a gradient of its own size.
        """
        slot = self._weights[edge]
        step = max(1, CHUNK // slot.values.shape[1])
        for low in range(0, len(slot.values), step):
            first, last = np.searchsorted(rows, (low, low + step))
            if first == last and not slot.state and not slot.l2:
                continue
            piece = np.zeros_like(slot.values[low : low + step])
            piece[rows[first:last] - low] = gradient[first:last]
            self._update(slot, low, piece)

    def _update(self, slot: _Slot, low: int, gradient: Floats) -> None:
        step = max(1, CHUNK // gradient.shape[1])
        scratch = np.empty_like(gradient[:step])
        for start in range(0, len(gradient), step):
            g = gradient[start : start + step]
            place = slice(low + start, low + start + len(g))
            w, tmp = slot.values[place], scratch[: len(g)]
            if slot.l2:
                np.multiply(w, slot.l2, out=tmp)
                g += tmp
            self._rule(w, g, [state[place] for state in slot.state], self._rate, self.step, tmp)


def _slot(values: Floats, states: int, l2: float) -> _Slot:
    return _Slot(values, tuple(np.zeros_like(values) for _ in range(states)), l2)
