"""A batch as one array of words, so that one copy brings all of it to the GPU; kernels/README.md has its layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import DataSet
from nnlib.gpu.runtime import align
from nnlib.model.batches import unique_targets
from nnlib.model.examples import Examples
from nnlib.model.network import count_units
from nnlib.ops import losses
from nnlib.spec.types import Layer, LayerKind, NetworkSpec
from nnlib.util.arrays import Longs

Words = NDArray[np.int32]
ABSENT = -1
SPARSE = ("starts", "items", "values")
TRANSPOSED = ("count", "rows", "row_starts", "examples", "places")
OWNED = ("starts", "items")


class Packing:
    """Where everything of a batch lies: the header word of every section, and where the dense sections start.

    Dense sections come first, each with room for `most` examples, so that their places are the same in all batches.
    """

    def __init__(self, spec: NetworkSpec, sets: Mapping[int, DataSet], most: int) -> None:
        """Lay out batches of up to `most` examples of data sets by the number of their layer."""
        self.most, self._spec = most, spec
        self._alone = {n for n, data_set in sets.items() if data_set.ignore_zero}
        self._at: dict[tuple[int, str], int] = {}
        for n, layer in enumerate(spec.layers):
            for name in self._sections(layer, sets.get(n)):
                self._at[n, name] = len(self._at)
        for name in OWNED:
            self._at[ABSENT, name] = len(self._at)
        end = align(len(self._at))
        self._dense: dict[tuple[int, str], int] = {}
        for key in self._at:
            if key[1] == "dense":
                self._dense[key] = end
                end += align(most * count_units(spec, key[0]))
        self._begin = end

    def _sections(self, layer: Layer, data_set: DataSet | None) -> tuple[str, ...]:
        if layer.kind is LayerKind.INPUT:
            if not layer.sparse:
                return ("dense",)
            valued = data_set is None or not data_set.boolean or data_set.weights is not None
            return (*(SPARSE if valued else SPARSE[:2]), *TRANSPOSED)
        if layer.kind is LayerKind.HIDDEN or data_set is None:
            return ()
        names = ["starts", "items", *(() if data_set.boolean else ("values",))] if data_set.sparse else ["dense"]
        names += ["weights"] if data_set.weights is not None else []
        return (*names, *(("shares",) if losses.error_of(self._spec, layer).softmax else ()))

    def at(self, layer: int, name: str) -> int:
        """Return the header word of a section, ABSENT when there is none; layer ABSENT has the items that are owned."""
        return self._at.get((layer, name), ABSENT)

    def dense(self, layer: int) -> int:
        """Return the word at which the dense values of a layer start."""
        return self._dense[layer, "dense"]

    def alone(self, layer: int) -> bool:
        """Whether of a target only the stored entries count (SparseIgnoreZero)."""
        return layer in self._alone

    @property
    def key(self) -> tuple[object, ...]:
        """What is the same in all packings that a captured graph may serve."""
        return (self.most, tuple(self._at), tuple(sorted(self._alone)))

    def pack(
        self, examples: Examples, rows: Longs, learn: bool = False, targets: bool = True, owned: Csr | None = None
    ) -> Words:
        """Return the batch of some examples; `learn` for what the gradients of sparse inputs need."""
        sections: dict[tuple[int, str], NDArray[Any] | int] = {}
        for n, layer in enumerate(self._spec.layers):
            if layer.kind is LayerKind.INPUT:
                found = _input(examples.sets[n].take(rows), learn)
            elif layer.kind is LayerKind.OUTPUT and targets:
                found = _target(examples.sets[n].take(rows), self.at(n, "shares") != ABSENT)
            else:
                continue
            sections |= {(n, name): values for name, values in found.items() if (n, name) in self._at}
        if owned is not None:
            sections |= {(ABSENT, "starts"): owned.indptr, (ABSENT, "items"): owned.indices}
        return self._join(sections)

    def _join(self, sections: Mapping[tuple[int, str], NDArray[Any] | int]) -> Words:
        lengths = {
            key: len(values) for key, values in sections.items() if not isinstance(values, int) and key[1] != "dense"
        }
        words = np.zeros(self._begin + sum(lengths.values()), np.int32)
        end = self._begin
        for key, values in sections.items():
            if isinstance(values, int):
                words[self._at[key]] = values
                continue
            start = self._dense.get(key, end)
            words[self._at[key]] = start
            flat = _words(values.reshape(-1))
            words[start : start + len(flat)] = flat
            end += lengths.get(key, 0)
        return words


def _input(data_set: DataSet, learn: bool) -> dict[str, NDArray[Any] | int]:
    """Return the sections of an input; the weight of an example multiplies its sparse values."""
    rows = data_set.rows
    if isinstance(rows, Dense):
        return {"dense": rows.floats(as_input=True, dtype=np.float32)}
    assert isinstance(rows, Csr), "what was taken is in memory"
    found: dict[str, NDArray[Any] | int] = {"starts": rows.indptr, "items": rows.indices}
    if rows.values is not None or data_set.weights is not None:
        values = np.ones(rows.nonzeros, np.float32) if rows.values is None else rows.values.astype(np.float32)
        if data_set.weights is not None:
            values *= np.repeat(data_set.weights, np.diff(rows.indptr))
        found["values"] = values
    return found | _transpose(rows) if learn else found


def _transpose(rows: Csr) -> dict[str, NDArray[Any] | int]:
    """Return the units that occur, ascending, with the examples of each, ascending, and where each entry stands."""
    places = np.arange(rows.nonzeros, dtype=np.int32)
    shape = (rows.examples, rows.width)
    columns = sparse.csr_array((places, rows.indices, rows.indptr.astype(np.int32)), shape=shape).tocsc()
    touched = np.flatnonzero(np.diff(columns.indptr))
    starts = np.append(columns.indptr[touched], columns.indptr[-1])
    return {
        "count": len(touched),
        "rows": touched,
        "row_starts": starts,
        "examples": columns.indices,
        "places": columns.data,
    }


def _target(data_set: DataSet, by_share: bool) -> dict[str, NDArray[Any] | int]:
    """Return the sections of a target; `shares` as `targets.targets_of` has them."""
    found: dict[str, NDArray[Any] | int] = {}
    rows = data_set.rows
    if isinstance(rows, Dense):
        found["dense"] = dense = rows.floats(as_input=False, dtype=np.float32)
        if by_share:
            found["shares"] = dense.sum(axis=1)
    else:
        assert isinstance(rows, Csr), "what was taken is in memory"
        rows = unique_targets(rows, data_set.ignore_zero)
        found |= {"starts": rows.indptr, "items": rows.indices}
        if rows.values is not None:
            found["values"] = rows.values.astype(np.float32)
        if by_share:
            found["shares"] = _sum_rows(rows)
    if data_set.weights is not None:
        found["weights"] = data_set.weights.astype(np.float32)
    return found


def _sum_rows(rows: Csr) -> NDArray[np.float32]:
    """Return the sum of each row; of a row without values 1, of an empty one 0."""
    if rows.values is None:
        return (np.diff(rows.indptr) > 0).astype(np.float32)
    values = rows.values.astype(np.float32)
    summed = sparse.csr_array((values, rows.indices, rows.indptr), shape=(rows.examples, rows.width)).sum(axis=1)
    return np.asarray(summed, np.float32)


def _words(values: NDArray[Any]) -> Words:
    """Return numbers as words: floats by their bits, whole numbers as int32."""
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values, np.float32).view(np.int32)
    return values.astype(np.int32, copy=False)
