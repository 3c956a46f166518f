"""A batch as one array of words, so that one copy brings all of it to the GPU; kernels/README.md has its layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import DataSet
from nnlib.errors import NnlibError
from nnlib.gpu.runtime import align
from nnlib.model.batches import unique_targets
from nnlib.model.examples import Examples
from nnlib.model.network import count_units
from nnlib.ops import losses
from nnlib.ops.touched import touched_columns
from nnlib.shards.cut import Cut, Items
from nnlib.shards.tree import SHARDS
from nnlib.spec.types import Layer, LayerKind, NetworkSpec
from nnlib.util.arrays import Longs

Words = NDArray[np.int32]
ABSENT = -1
SPARSE = ("starts", "items", "values")
TRANSPOSED = ("count", "rows", "row_starts", "examples", "places")
BY_SHARD = ("count", "rows", "row_starts")  # of the transposed entries, once more for every own shard of a wide input
OWNED = ("starts", "items")  # for every piece of an output layer
MOST_WORDS = (1 << 31) - 1  # that an int of the header can point at


@dataclass(frozen=True, slots=True)
class Within:
    """A section that is the part of another one of its layer from a place on."""

    name: str
    place: int


Whole = NDArray[np.integer]
Section = NDArray[Any] | int | Within


class Packing:
    """Where everything of a batch lies: the header word of every section, and where the dense sections start.

    Dense sections come first, each with room for `most` examples, so that their places are the same in all batches.
    """

    def __init__(self, spec: NetworkSpec, sets: Mapping[int, DataSet], most: int, cut: Cut | None = None) -> None:
        """Lay out batches of up to `most` examples of data sets by the number of their layer.

        With a `cut` the network is a rank's part, and of a wide layer's entries and dense targets the batch has what is
        the rank's; values of entries and sparse targets it has all, as they are few.
        """
        self.most, self._spec, self._cut = most, spec, cut
        pieces = len(cut.own) if cut else 1
        self._alone = {n for n, data_set in sets.items() if data_set.ignore_zero}
        self._at: dict[tuple[int, str], int] = {}
        for n, layer in enumerate(spec.layers):
            for name in self._sections(n, layer, sets.get(n)):
                self._at[n, name] = len(self._at)
        for piece in range(pieces):
            for name in OWNED:
                self._at[ABSENT, f"{name}{piece}"] = len(self._at)
        end = align(len(self._at))
        self._dense: dict[tuple[int, str], int] = {}
        for key in self._at:
            if key[1] == "dense":
                self._dense[key] = end
                end += align(most * count_units(spec, key[0]))
        self._begin = end
        self._require_room(end)

    def _sections(self, number: int, layer: Layer, data_set: DataSet | None) -> tuple[str, ...]:
        if layer.kind is LayerKind.INPUT:
            if not layer.sparse:
                return ("dense",)
            valued = data_set is None or not data_set.boolean or data_set.weights is not None
            items = self._cut.inputs.get(number) if self._cut else None
            more = _names_by_shard(items) if items else ()
            return (*(SPARSE if valued else SPARSE[:2]), *TRANSPOSED, *more)
        if layer.kind is LayerKind.HIDDEN or data_set is None:
            return ()
        names = ["starts", "items", *(() if data_set.boolean else ("values",))] if data_set.sparse else ["dense"]
        names += ["weights"] if data_set.weights is not None else []
        return (*names, *(("shares",) if losses.error_of(self._spec, layer).softmax else ()))

    def at(self, layer: int, name: str) -> int:
        """Return the header word of a section, ABSENT when there is none.

        Layer ABSENT has the items that are owned, `starts0` and `items0` for the first piece of an output layer, ...
        """
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
        self,
        examples: Examples,
        rows: Longs,
        learn: bool = False,
        targets: bool = True,
        owned: Sequence[Csr] = (),
    ) -> Words:
        """Return the batch of some examples; `learn` for what the gradients of sparse inputs need.

        `owned`: items of an output layer by the numbers that they have in each of its pieces.
        """
        sections: dict[tuple[int, str], Section] = {}
        inputs, outputs = (self._cut.inputs, self._cut.outputs) if self._cut else ({}, {})
        for n, layer in enumerate(self._spec.layers):
            if layer.kind is LayerKind.INPUT:
                found = _input(examples.sets[n].take(rows), learn, inputs.get(n))
            elif layer.kind is LayerKind.OUTPUT and targets:
                own = outputs[n].place if n in outputs else slice(None)
                found = _target(examples.sets[n].take(rows), self.at(n, "shares") != ABSENT, own)
            else:
                continue
            sections |= {(n, name): values for name, values in found.items() if (n, name) in self._at}
        for piece, items in enumerate(owned):
            sections |= {(ABSENT, f"starts{piece}"): items.indptr, (ABSENT, f"items{piece}"): items.indices}
        return self._join(sections)

    def _require_room(self, words: int) -> None:
        if words > MOST_WORDS:
            raise NnlibError(
                f"a batch of up to {self.most:,} examples takes {words:,} numbers, legal on a GPU: up to "
                f"{MOST_WORDS:,}; use a smaller batch or device: cpu"
            )

    def _join(self, sections: Mapping[tuple[int, str], Section]) -> Words:
        arrays = {key: values for key, values in sections.items() if isinstance(values, np.ndarray)}
        lengths = {key: len(values) for key, values in arrays.items() if key[1] != "dense"}
        count = self._begin + sum(lengths.values())
        self._require_room(count)
        words = np.zeros(count, np.int32)
        end = self._begin
        for key, values in arrays.items():
            start = self._dense.get(key, end)
            words[self._at[key]] = start
            flat = _words(values.reshape(-1))
            words[start : start + len(flat)] = flat
            end += lengths.get(key, 0)
        for (layer, name), value in sections.items():
            if isinstance(value, Within):
                words[self._at[layer, name]] = words[self._at[layer, value.name]] + value.place
            elif isinstance(value, int):
                words[self._at[layer, name]] = value
        return words


def _names_by_shard(items: Items) -> tuple[str, ...]:
    return ("origins", *(f"{name}{place}" for place in range(len(items.own)) for name in BY_SHARD))


def _input(data_set: DataSet, learn: bool, items: Items | None) -> dict[str, Section]:
    """Return the sections of an input, of which a rank may have some items.

    The weight of an example multiplies its sparse values.
    """
    rows = data_set.rows
    if isinstance(rows, Dense):
        return {"dense": rows.floats(as_input=True, dtype=np.float32)}
    assert isinstance(rows, Csr), "what was taken is in memory"
    found: dict[str, Section] = {}
    if rows.values is not None or data_set.weights is not None:
        values = np.ones(rows.nonzeros, np.float32) if rows.values is None else rows.values.astype(np.float32)
        if data_set.weights is not None:
            values *= np.repeat(data_set.weights, np.diff(rows.indptr))
        found["values"] = values
    if items is not None:
        return found | _cut_input(rows, items, learn)
    found |= {"starts": rows.indptr, "items": rows.indices}
    if not learn:
        return found
    places, shape = np.arange(rows.nonzeros, dtype=np.int32), (rows.examples, rows.width)
    return found | _transpose(places, rows.indices, rows.indptr, shape)


def _cut_input(rows: Csr, items: Items, learn: bool) -> dict[str, Section]:
    """Return a rank's entries of an input: those of an example by shard, then ascending.

    `starts` has a place for each own shard of each example, `origins` where in the whole batch an entry stands.
    Transposed, the entries are by shard, too, and each shard has the sections BY_SHARD for itself.
    """
    own, shards = items.own, len(items.own)
    [places] = np.nonzero((rows.indices % SHARDS >= own[0]) & (rows.indices % SHARDS <= own[-1]))
    place, shard = np.divmod(rows.indices[places], SHARDS)
    shard -= own[0]
    example = np.repeat(np.arange(rows.examples), np.diff(rows.indptr))[places]
    # A column a segment: SciPy brings entries into this order by counting, faster than sorting would be.
    segments = sparse.csr_array(
        (np.arange(len(places)), example * shards + shard, [0, len(places)]), shape=(1, rows.examples * shards)
    ).tocsc()
    order = segments.data
    found: dict[str, Section] = {
        "starts": segments.indptr,
        "items": (place * shards + shard)[order],
        "origins": places[order],
    }
    if not learn:
        return found
    each = -(-items.units // SHARDS)  # units of a shard at most: these are numbered shard by shard for once
    starts = np.append(0, np.cumsum(np.bincount(example, minlength=rows.examples)))
    shape = (rows.examples, shards * each)
    transposed = _transpose(places, shard * each + place, starts, shape)
    numbered = transposed["rows"]
    assert isinstance(numbered, np.ndarray), "the rows are listed"
    transposed["rows"] = numbered % each * shards + numbered // each
    ends = np.searchsorted(numbered, np.arange(shards + 1) * each)
    for n, (low, high) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        parts = high - low, Within("rows", low), Within("row_starts", low)
        transposed |= {f"{name}{n}": part for name, part in zip(BY_SHARD, parts, strict=True)}
    return found | transposed


def _transpose(places: Whole, items: Whole, starts: Whole, shape: tuple[int, int]) -> dict[str, Section]:
    """Return the units that occur, ascending, with the examples of each, ascending, and where each entry stands."""
    parts = tuple(np.asarray(part, np.int32) for part in (places, items, starts))
    touched, columns = touched_columns(sparse.csr_array(parts, shape=shape))
    return {
        "count": len(touched),
        "rows": touched,
        "row_starts": columns.indptr,
        "examples": columns.indices,
        "places": columns.data,
    }


def _target(data_set: DataSet, by_share: bool, own: slice) -> dict[str, Section]:
    """Return the sections of a target, of dense values `own` units; `shares` as `targets.targets_of` has them."""
    found: dict[str, Section] = {}
    rows = data_set.rows
    if isinstance(rows, Dense):
        dense = rows.floats(as_input=False, dtype=np.float32)
        found["dense"] = dense[:, own]
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
