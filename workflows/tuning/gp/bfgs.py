"""Minimise a smooth function in a box from several starts at once (projected BFGS).

SciPy's L-BFGS-B would do, but importing it costs half a second of every PRE script, and a start at a time costs more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SUFFICIENT = 1e-4  # share of the promised decrease that a step must bring
HALVINGS = 12
SMALL = 1e-9


def minimise(
    function: Callable[[Array], tuple[Array, Array]], starts: Array, low: Array, high: Array, steps: int
) -> tuple[Array, Array]:
    """Return the end of each start and the function there; rows of `starts` go their ways independently.

    `function` takes rows and returns their values and gradients. It may return inf, but not at the starts.
    """
    low, high = np.broadcast_to(low, starts.shape), np.broadcast_to(high, starts.shape)
    at = np.clip(starts, low, high)
    value, gradient = function(at)
    count, dimensions = at.shape
    inverse = np.tile(np.eye(dimensions), (count, 1, 1))
    scaled = np.zeros(count, dtype=bool)
    alive = np.ones(count, dtype=bool)
    for _ in range(steps):
        free = ((at > low) | (gradient < 0)) & ((at < high) | (gradient > 0))
        slope = np.where(free, gradient, 0.0)
        direction = np.where(free, -np.einsum("kij,kj->ki", inverse, slope), 0.0)
        uphill = np.einsum("ki,ki->k", direction, slope) >= 0
        direction = np.where(uphill[:, None], -slope, direction)
        inverse[uphill] = np.eye(dimensions)
        length = np.abs(direction).max(axis=1)
        reach = np.where(scaled & ~uphill, 1.0, np.minimum(1.0, 0.1 * _span(low, high) / np.maximum(length, SMALL)))
        alive &= np.abs(slope).max(axis=1) > SMALL
        if not alive.any():
            break
        new, new_value, new_gradient, moved = _search(function, at, value, slope, direction, reach, alive, low, high)
        step, change = new - at, new_gradient - gradient
        _update(inverse, scaled, step, change, moved)
        alive = moved & (value - new_value > SMALL * (1 + np.abs(value)))
        at, value, gradient = new, new_value, new_gradient
    return at, value


def _span(low: Array, high: Array) -> float:
    return float(np.max(high - low))


def _search(
    function: Callable[[Array], tuple[Array, Array]],
    at: Array,
    value: Array,
    slope: Array,
    direction: Array,
    reach: Array,
    alive: NDArray[np.bool_],
    low: Array,
    high: Array,
) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Halve each row's step until it brings enough; rows that find none stay where they are."""
    new, new_value = at.copy(), value.copy()
    new_gradient = slope.copy()
    open_rows = alive.copy()
    moved = np.zeros_like(alive)
    for _ in range(HALVINGS):
        rows = np.flatnonzero(open_rows)
        if not len(rows):
            break
        tried = np.clip(at[rows] + reach[rows, None] * direction[rows], low[rows], high[rows])
        found, gradient = function(tried)
        promised = np.einsum("ki,ki->k", slope[rows], tried - at[rows])
        good = np.isfinite(found) & (found <= value[rows] + SUFFICIENT * np.minimum(promised, 0)) & (promised < 0)
        taken = rows[good]
        new[taken], new_value[taken], new_gradient[taken] = tried[good], found[good], gradient[good]
        moved[taken] = True
        open_rows[taken] = False
        reach = reach * 0.3
    return new, new_value, new_gradient, moved


def _update(inverse: Array, scaled: NDArray[np.bool_], step: Array, change: Array, moved: NDArray[np.bool_]) -> None:
    """Take a step and the gradient's change on it into each row's inverse Hessian."""
    curvature = np.einsum("ki,ki->k", step, change)
    for row in np.flatnonzero(moved & (curvature > 1e-12)):
        s, y, sy = step[row], change[row], curvature[row]
        if not scaled[row]:
            inverse[row] = np.eye(len(s)) * (sy / (y @ y))
            scaled[row] = True
        hy = inverse[row] @ y
        both = hy[:, None] * s
        inverse[row] += s[:, None] * s * (1 + y @ hy / sy) / sy - (both + both.T) / sy
