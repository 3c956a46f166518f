"""Numbers that are none end what computed them."""

from __future__ import annotations

import numpy as np

from nnlib.errors import DivergedError, NotFiniteError
from nnlib.util.arrays import Floats

PIECE = 1 << 16  # numbers looked at at a time: their flags stay in a core's cache


def require_finite(values: Floats) -> Floats:
    """Return what a layer gives (b, units); NotFiniteError for the first example that has other than finite numbers."""
    if (first := first_broken(values)) < len(values):
        raise NotFiniteError(first)
    return values


def first_broken(values: Floats) -> int:
    """Return the first row of values (b, n) with a number that is not finite, b where there is none."""
    if np.isfinite(values.max(initial=0)) and np.isfinite(values.min(initial=0)):  # no array of flags is needed
        return len(values)
    return int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])


def all_finite(values: Floats) -> bool:
    """Whether an array has finite numbers alone; no array of as many flags is made."""
    flat = values.reshape(-1)
    return all(np.isfinite(flat[low : low + PIECE]).all() for low in range(0, flat.size, PIECE))


def mean_error(total: float, examples: int) -> float:
    """Return the mean of errors that were summed over examples; DivergedError when it is not finite."""
    if not np.isfinite(total):
        raise DivergedError(f"the validation loss is {total}; lower learning_rate")
    return total / examples
