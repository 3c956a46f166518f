"""Small batches as the kernels get them (see kernels/README.md), and what is in them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from nnlib.gpu.selfcheck.case import Numbers
from nnlib.model.batches import DENOISE, Batch, add_noise

SEED, LAYERS, LAYER = 2**32 - 3, 5, 1  # of the noise
MISSING = -1


def packed(**sections: Any) -> tuple[Numbers, dict[str, int]]:
    """Return the batch and the header words of its sections: an array is one, an int a count, None is missing."""
    header, body = [], [np.empty(0, np.int32)]
    start = len(sections) + 1  # a word that belongs to no section
    for content in sections.values():
        if content is None or isinstance(content, int):
            header.append(MISSING if content is None else content)
            continue
        header.append(start)
        words = content if content.dtype == np.float32 else content.astype(np.int32)
        body.append(np.ascontiguousarray(words).view(np.int32).reshape(-1))
        start += content.size
    numbers = {name: MISSING if content is None else n for n, (name, content) in enumerate(sections.items())}
    return np.concatenate([np.array([*header, 0x7FFFFFFF], np.int32), *body]), numbers


def packed_input(x: sparse.csr_array, ones: bool) -> tuple[Numbers, dict[str, int]]:
    """Return the batch of a sparse input; `ones`: without values."""
    places = sparse.csr_array((np.arange(x.nnz, dtype=np.int64) + 1, x.indices, x.indptr), shape=x.shape).tocsc()
    rows = np.flatnonzero(np.diff(places.indptr))
    return packed(
        starts=x.indptr,
        items=x.indices,
        values=None if ones else x.data,
        count=len(rows),
        rows=rows,
        row_starts=np.append(places.indptr[rows], x.nnz),
        examples=places.indices,
        places=places.data - 1,
    )


def random_input(
    random: np.random.Generator, examples: int, units: int, ones: bool, most: int = 9, doubles: bool = True
) -> sparse.csr_array:
    """Return inputs of up to `most` entries, ascending, some twice; the first, every third and the last are empty."""
    counts = random.integers(0, most + 1, examples) * (np.arange(examples) % 3 != 0) * bool(units)
    counts[-1:] = 0
    rows = [np.sort(random.choice(units, min(count, units) if not doubles else count, doubles)) for count in counts]
    indices = np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int32)
    values = np.ones(len(indices)) if ones else random.normal(0, 2, len(indices))
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    return sparse.csr_array((values.astype(np.float32), indices, starts), shape=(examples, units))


def with_noise(x: sparse.csr_array, p: float, step: int) -> sparse.csr_array:
    """Return what denoising leaves of the inputs of layer LAYER."""
    spec: Any = SimpleNamespace(denoising=p, layers=range(LAYERS))
    return add_noise(spec, Batch({LAYER: x}, {}, x.shape[0]), SEED, step).inputs[LAYER]


def noise_of(p: float) -> Numbers | None:
    """Return the kernels' argument of that name."""
    return np.array([p, 1 / (1 - p)], np.float32) if p else None


def noise_key() -> int:
    """Return the key of the noise."""
    return SEED << 8 | DENOISE


def gradient_of(x: sparse.csr_array, delta: Numbers) -> Numbers:
    """Return the gradient (units, n) of all weights, summed in the order of the examples."""
    return np.asarray(x.T.tocsr() @ delta)
