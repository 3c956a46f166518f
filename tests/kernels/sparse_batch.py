"""What the kernels of sparse inputs get, see kernels/README.md: a batch as one array of ints, the numbers of steps.

The batches are those of the self-check, with numbers of the types that the harness asks for.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from nnlib.cpu.sparse_products import touched_by
from nnlib.gpu.selfcheck import batches
from nnlib.gpu.selfcheck.batches import LAYER, LAYERS, noise_of, random_input, with_noise
from nnlib.optim.hyper import Hyper, Rate

__all__ = ["LAYER", "LAYERS", "noise_of", "random_input", "with_noise"]
MISSING = np.int32(batches.MISSING)


def packed_input(x: sparse.csr_array, ones: bool) -> tuple[np.ndarray, dict[str, np.int32]]:
    """Return the batch of a sparse input; `ones`: without values."""
    batch, at = batches.packed_input(x, ones)
    return batch, {name: np.int32(word) for name, word in at.items()}


def noise_key() -> np.uint64:
    """Return the key of the noise."""
    return np.uint64(batches.noise_key())


def gradient_of(x: sparse.csr_array, delta: np.ndarray) -> np.ndarray:
    """Return the gradient (units, n) of all weights, as NumPy has it."""
    touched = touched_by(x)
    gradient = np.zeros((x.shape[1], delta.shape[1]), np.float32)
    gradient[touched.rows] = touched.columns @ delta
    return gradient


def stepped(step: int) -> np.ndarray:
    """Return the number of the step in an array, as the kernels get it."""
    return np.array([step], np.int64)


def hyper_numbers(hyper: Hyper) -> np.ndarray:
    """Return the kernels' argument `hyper`."""
    mu, b = hyper.momentum, hyper.beta2
    return np.array([mu, 1 - mu, 1 + mu, b, 1 - b, hyper.l2, hyper.l1, 0], np.float32)


def paces(hyper: Hyper, rate: Rate, steps: int, shift: int = 0) -> np.ndarray:
    """Return the kernels' argument of that name, for the steps up to `steps`."""
    mu, b = hyper.momentum, hyper.beta2
    rows = [
        (rate(t), rate(t) / (1 - mu ** (t + shift)), 1 / (1 - b ** (t + shift)), rate(t) * hyper.l2)
        for t in range(1, steps + 1)
    ]
    return np.array([(np.nan,) * 4, *rows], np.float32)


def same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    """Fail unless two arrays have the same bits; any NaN is as good as another."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    different = (found.view(np.int32) != wanted.view(np.int32)) & ~(np.isnan(found) & np.isnan(wanted))
    places = np.argwhere(different)
    assert not len(places), f"{len(places)} differ, first {places[0]}: {found[different][0]!r} {wanted[different][0]!r}"
