"""Numbers that are none end what computed them."""

from __future__ import annotations

import numpy as np

from nnlib.errors import DivergedError, NotFiniteError
from nnlib.util.arrays import Floats


def require_finite(values: Floats) -> Floats:
    """Return what a layer gives (b, units); NotFiniteError for the first example that has other than finite numbers."""
    if np.isfinite(values.max(initial=0)) and np.isfinite(values.min(initial=0)):  # no array of flags is needed
        return values
    raise NotFiniteError(int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0]))


def mean_error(total: float, examples: int) -> float:
    """Return the mean of errors that were summed over examples; DivergedError when it is not finite."""
    if not np.isfinite(total):
        raise DivergedError(f"the validation loss is {total}; lower learning_rate")
    return total / examples
