"""Sparse matrices as the plain arrays that a model file keeps, and back, checked: files may be damaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.families.family import Arrays
from nnlib.spec.json_section import MOST_UNITS

WIDTH = "width"
WEIGHTS_OF_INPUTS = "weights_of_inputs"  # whose rows say how many inputs a model is asked with


def pack(name: str, matrix: sparse.csr_array) -> Arrays:
    """Return the three arrays of a sparse matrix, their names beginning with `name`."""
    return {
        f"{name}_starts": matrix.indptr.astype(np.int64),
        f"{name}_indices": matrix.indices.astype(np.int32),
        f"{name}_values": matrix.data.astype(np.float32, copy=False),
    }


def unpack(arrays: Mapping[str, NDArray[Any]], name: str, width: int) -> sparse.csr_array:
    """Return what `pack` was given, a matrix of `width` columns; KeyError or ValueError when the arrays are wrong."""
    values = take(arrays, f"{name}_values", np.float32, None)
    indices = take(arrays, f"{name}_indices", np.int32, len(values))
    starts = take(arrays, f"{name}_starts", np.int64, None)
    if not len(starts) or starts[0] != 0 or starts[-1] != len(values) or np.any(np.diff(starts) < 0):
        raise ValueError(f"{name}_starts: legal: from 0 to {len(values)}, never falling")
    if len(indices) and not (indices.min() >= 0 and indices.max() < width):
        raise ValueError(f"{name}_indices: legal: 0 to {width - 1}")
    small = starts.astype(np.int32) if len(values) < 2**31 else starts  # what SciPy's products take as it is
    return sparse.csr_array((values, indices, small), (len(starts) - 1, width))


def take_width(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return the number of items, which models keep as `width` where no array of theirs has this size."""
    width = int(take(arrays, WIDTH, np.int64, 1)[0])
    if not 1 <= width <= MOST_UNITS:
        raise ValueError(f"{WIDTH}: {width}, legal: 1 to {MOST_UNITS}")
    return width


def take(arrays: Mapping[str, NDArray[Any]], name: str, dtype: Any, *shape: int | None) -> NDArray[Any]:
    """Return an array of this type and shape (None: any size); KeyError without it, ValueError when it is another."""
    found = arrays[name]
    fits = found.ndim == len(shape) and all(want in (None, size) for want, size in zip(shape, found.shape, strict=True))
    if found.dtype != dtype or not fits:
        legal = " x ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: {found.dtype} {found.shape}, legal: {np.dtype(dtype)}, {legal}")
    return found
