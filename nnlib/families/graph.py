"""Graph filters: what a customer has, smoothed along the graph that joins items by the customers who took both.

The filter of GF-CF (Shen et al. 2021, "How powerful is graph convolution for recommendation?") and, with `sharpen`,
of BSPM (Choi et al. 2023, "Blurring-sharpening process models for collaborative filtering").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nnlib.data.events import Events
from nnlib.families.common.products import times
from nnlib.families.family import Arrays, Size, Value
from nnlib.families.packing import pack, take, unpack
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import workers

DEFAULTS: Mapping[str, Value] = {
    "customer_exponent": 0.4,  # a of D_u^-a R D_i^-b
    "item_exponent": 0.4,  # b; GF-CF has 0.5 twice, shops like less
    "low_pass": 0.1,  # weight of the ideal low pass beside the linear filter
    "vectors": 64,  # how many the low pass lets through
    "sharpen": 0.0,  # for how long; 0 is GF-CF
    "fit_half_life": 40.0,  # days, of the counts that make the graph
    "ask_half_life": 80.0,  # days, of the history that is asked with
}
BLOCK = 512  # customers scored at once
MORE_VECTORS = 20  # what the search for the first ones begins with beside them
ITERATIONS = 10
RANK = 1e-11  # of the largest square: what lies below is rounding
STEPS = 4  # terms of the exponential, as one step of Runge and Kutta's fourth order has them


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A fitted graph filter.

    With R the counts, d_u and d_i the sums of its rows and columns, G = d_u^-a R d_i^-b over its largest singular
    value (which is 1 where a = b = 1/2), P = G^T G, V the first right singular vectors of G, and q a history:
    q P + low_pass q d_i^-b V V^T d_i^b, sharpened by exp(-sharpen P).
    """

    normalised: sparse.csr_array  # G (customers, items), float32
    transposed: sparse.csr_array  # G^T, by rows as well
    scale: Floats  # (items,): d_i^-b; 0 where nobody took the item
    vectors: Floats  # V (items, vectors)
    hyperparameters: Mapping[str, Value]

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items)."""
        out = np.empty((len(rows), len(self.scale)), np.float32)
        half_life = float(self.hyperparameters["ask_half_life"])
        with workers(1):
            for low in range(0, len(rows), BLOCK):
                history = asked.take(rows[low : low + BLOCK]).aged_from_last(half_life)
                out[low : low + BLOCK] = self._sharpened(self._blurred(history)).T
        return out

    def arrays(self) -> Arrays:
        """Return the normalised counts, the scale and the vectors."""
        return {**pack("normalised", self.normalised), "scale": self.scale, "vectors": self.vectors}

    def _blurred(self, history: sparse.csr_array) -> Floats:
        """Return (items, b): both filters' sum. The first product goes by the histories' items, which are few."""
        kind = self.transposed.indices.dtype  # else SciPy turns all of its indices into the histories' kind
        few = (history.data, history.indices.astype(kind), history.indptr.astype(kind))
        met = sparse.csr_array(few, history.shape) @ self.transposed
        linear = times(self.transposed, np.ascontiguousarray(met.toarray().T))
        spectrum = (history * self.scale[None]).tocsr() @ self.vectors
        back = np.divide(1, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)
        weight = np.float32(self.hyperparameters["low_pass"])
        return np.asarray(linear + back[:, None] * (self.vectors @ (weight * spectrum.T)))

    def _sharpened(self, blurred: Floats) -> Floats:
        """Return exp(-sharpen P) times `blurred`, by the first terms of the series.

        P is never made: with many items it would not fit in memory.
        """
        time = float(self.hyperparameters["sharpen"])
        if not time:
            return blurred
        total, term = blurred.copy(), blurred
        for step in range(1, STEPS + 1):
            term = times(self.transposed, times(self.normalised, term)) * np.float32(-time / step)
            total += term
        return total


def fit(history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Graph:
    """Return the filter of what all customers have taken."""
    counts = history.aged(float(hyperparameters["fit_half_life"]))
    customers = _power(counts.sum(axis=1), -float(hyperparameters["customer_exponent"]))
    scale = _power(counts.sum(axis=0), -float(hyperparameters["item_exponent"]))
    row = np.repeat(np.arange(history.customers), np.diff(counts.indptr))
    values = counts.data * customers[row] * scale[counts.indices]
    normalised = sparse.csr_array((values, counts.indices, counts.indptr), counts.shape)
    with workers(1):
        transposed = normalised.T.tocsr()
        largest, vectors = singular_vectors(normalised, transposed, int(hyperparameters["vectors"]), seed)
    for matrix in (normalised, transposed):
        matrix.data /= largest or 1
    return Graph(normalised, transposed, scale, vectors, hyperparameters)


def restore(arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Graph:  # noqa: ARG001
    """Return the filter that `arrays` was taken from; KeyError or ValueError when they are wrong."""
    scale = take(arrays, "scale", np.float32, None)
    if np.any(scale < 0):
        raise ValueError("scale: legal: 0 and above")
    vectors = take(arrays, "vectors", np.float32, len(scale), None)
    normalised = unpack(arrays, "normalised", len(scale))
    return Graph(normalised, normalised.T.tocsr(), scale, vectors, hyperparameters)


def bytes_needed(size: Size, hyperparameters: Mapping[str, Value]) -> int:
    """Return how much memory `fit` takes at most beside its data."""
    columns = int(hyperparameters["vectors"]) + MORE_VECTORS
    return 56 * size.entries + 16 * columns * size.items + 8 * columns * size.customers + 40 * columns**2


def singular_vectors(
    matrix: sparse.csr_array, transposed: sparse.csr_array, count: int, seed: int
) -> tuple[np.float32, Floats]:
    """Return the largest singular value and the first right singular vectors (columns, count) of `matrix`.

    There are fewer vectors where its rank is lower; the value of rank 0 is 0.
    Subspace iteration from a start that the seed gives (Halko, Martinsson and Tropp 2011, algorithm 4.4).
    """
    width = min(count + MORE_VECTORS, *matrix.shape)
    space = np.random.default_rng(seed).standard_normal((matrix.shape[1], width), np.float32)
    for _ in range(ITERATIONS):
        space = _orthonormal(times(transposed, times(matrix, space)))
    space = _orthonormal(space)  # of rounding, too
    image = times(matrix, space)
    squares, turn = np.linalg.eigh(image.T @ image)  # ascending
    return np.sqrt(squares.max(initial=0)), np.ascontiguousarray((space @ turn)[:, ::-1][:, :count])


def _orthonormal(columns: Floats) -> Floats:
    """Return an orthonormal basis of what the columns span, by their Gram matrix: ten times as fast as QR."""
    parts = (columns[low : low + BLOCK].astype(np.float64) for low in range(0, len(columns), BLOCK))
    values, turn = np.linalg.eigh(sum(part.T @ part for part in parts))
    some = values > RANK * values.max(initial=0)
    basis: Floats = columns @ (turn[:, some] / np.sqrt(values[some])).astype(np.float32)
    return basis


def _power(sums: Floats, exponent: float) -> Floats:
    """Return sums ** exponent, and 0 for 0."""
    return np.power(sums, np.float32(exponent), out=np.zeros(len(sums), np.float32), where=sums > 0)
