"""What a rank has of a network that is cut: which units, and arrays and batches of these alone.

A sparse input is dealt out unit by unit, unit i to shard i % 8, as its popular units cost most. An output layer is cut
into ranges, a whole number of blocks each, as all its units cost the same. A rank has its units in ascending order; one
that has all shards has the network as it is.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.model.batches import Batch
from nnlib.model.network import (
    BLOCK,
    Layout,
    Network,
    bias_count,
    count_units,
    layout_of,
    norm_count,
    weight_shape,
)
from nnlib.ops.batch_norm import BatchNorm
from nnlib.ops.targets import Targets
from nnlib.shards.plan import EXAMPLES, Plan, plan_of
from nnlib.shards.tree import SHARDS, shards_of
from nnlib.spec.types import LayerKind, NetworkSpec
from nnlib.util.arrays import Floats, Longs

MULTIPLE = 8  # of which a block's width is one, for the sake of products


@dataclass(frozen=True, slots=True)
class Items:
    """The units of a wide layer that a rank has: `own` are its shards, `units` all units."""

    units: int
    own: range

    @property
    def count(self) -> int:
        """How many units the rank has."""
        return sum(len(range(shard, self.units, SHARDS)) for shard in self.own)

    def numbers(self, local: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the numbers in the network of units by their numbers here."""
        each = len(self.own)
        found: NDArray[np.int64] = SHARDS * (local // each) + self.own[0] + local % each
        return found

    def shards(self, local: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places among the own shards of those that units belong to, by their numbers here."""
        found: NDArray[np.int64] = local % len(self.own)
        return found

    def take(self, whole: Floats) -> Floats:
        """Return the rank's rows of an array (units, ...); the array itself where these are all."""
        if len(self.own) == SHARDS:
            return whole
        local = np.empty((self.count, *whole.shape[1:]), whole.dtype)
        for place, shard in enumerate(self.own):
            local[place :: len(self.own)] = whole[shard::SHARDS]
        return local

    def put(self, local: Floats, whole: Floats) -> None:
        """Write the rank's rows into an array (units, ...)."""
        for place, shard in enumerate(self.own):
            whole[shard::SHARDS] = local[place :: len(self.own)]

    def columns(self, matrix: sparse.csr_array) -> sparse.csr_array:
        """Return the rank's columns of a sparse matrix (b, units), its entries in their order."""
        if len(self.own) == SHARDS:
            return matrix
        shard = matrix.indices % SHARDS
        mine = (shard >= self.own[0]) & (shard <= self.own[-1])
        before = np.append(np.int32(0), np.cumsum(mine, dtype=np.int32))
        local = matrix.indices[mine] // SHARDS * len(self.own) + (shard[mine] - self.own[0])
        shape = (matrix.shape[0], self.count)
        return sparse.csr_array((matrix.data[mine], local, before[matrix.indptr]), shape=shape)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an array that a rank has: of `units`, those of the shards `own`, which are ranges.

    Under a plan by examples it updates these, and keeps their state; and these are the examples of a batch that it has.
    """

    units: int
    own: range

    @property
    def each(self) -> int:
        """How many rows a shard has; the last shards may have fewer."""
        return math.ceil(self.units / SHARDS)

    @property
    def place(self) -> slice:
        """The rank's rows."""
        return slice(min(self.own[0] * self.each, self.units), min((self.own[-1] + 1) * self.each, self.units))

    @property
    def count(self) -> int:
        """How many rows the rank has."""
        return int(self.place.stop - self.place.start)

    def shard(self, place: int) -> slice:
        """Return the rows, by their numbers here, of an own shard, by its place among these."""
        return slice(min(place * self.each, self.count), min((place + 1) * self.each, self.count))

    def take(self, whole: Floats) -> Floats:
        """Return the rank's rows of an array (units, ...), not copied."""
        return whole[self.place]

    def put(self, local: Floats, whole: Floats) -> None:
        """Write the rank's rows into an array (units, ...)."""
        whole[self.place] = local


@dataclass(frozen=True, slots=True)
class Range(Rows):
    """The units of a wide output layer that a rank has: a whole number of blocks for each shard."""

    @property
    def blocks(self) -> int:
        """How many blocks a shard has; the last shard may have fewer."""
        return max(1, round(self.units / SHARDS / BLOCK))

    @property
    def width(self) -> int:
        """How many units are computed at a time: about BLOCK, in shards that are as even as they can be."""
        return MULTIPLE * math.ceil(self.units / SHARDS / self.blocks / MULTIPLE)

    @property
    def each(self) -> int:
        """How many units a shard has; the last shards may have fewer."""
        return self.blocks * self.width

    def shards(self, local: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places among the own shards of those that units belong to, by their numbers here."""
        found: NDArray[np.int64] = local // self.each
        return found

    def numbers(self, local: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the numbers in the network of units by their numbers here."""
        found: NDArray[np.int64] = local.astype(np.int64) + self.place.start
        return found

    def targets(self, targets: Targets) -> Targets:
        """Return the rank's columns of targets (b, units)."""
        if len(self.own) == SHARDS:
            return targets
        low, high, columns = self.place.start, self.place.stop, targets.columns
        if columns is None:
            assert targets.dense is not None, "targets are sparse or dense"
            return dataclasses.replace(targets, dense=targets.dense[:, low:high])
        starts = columns.indptr[low : high + 1]
        some = slice(starts[0], starts[-1])
        parts = columns.data[some], columns.indices[some], starts - starts[0]
        return dataclasses.replace(targets, columns=sparse.csc_array(parts, shape=(columns.shape[0], high - low)))


@dataclass(frozen=True, eq=False)
class Cut:
    """A network's plan, and the shards that a rank has; `spec` is that of the whole network."""

    plan: Plan
    spec: NetworkSpec
    own: range

    @cached_property
    def inputs(self) -> dict[int, Items]:
        """The wide inputs by layer."""
        layers = (n for n in self.plan.wide if self.spec.layers[n].kind is LayerKind.INPUT)
        return {n: Items(count_units(self.spec, n), self.own) for n in layers}

    @cached_property
    def outputs(self) -> dict[int, Range]:
        """The wide output layers by layer."""
        layers = (n for n in self.plan.wide if self.spec.layers[n].kind is LayerKind.OUTPUT)
        return {n: Range(count_units(self.spec, n), self.own) for n in layers}

    @property
    def is_whole(self) -> bool:
        """Whether the rank has all shards, and so the network as it is."""
        return len(self.own) == SHARDS

    def rows_of(self, name: str) -> Items | Rows | None:
        """Return which rows of an array a rank has, by its name in `Network.arrays` or, with more behind it, of a
        state; None for all. By examples it has all parameters, and of the states what belongs to its `updated` rows.
        """
        array, _, state = name.partition("_state")
        if self.plan.kind == EXAMPLES:
            return self.updated(array) if state else None
        return self.units_of(array)

    def units_of(self, kind: str) -> Items | Range | None:
        """Return which units' rows of a parameter array a rank has; None for all."""
        if kind.startswith("norm"):
            return None
        edge = self.spec.edges[int(kind.removeprefix("weights").removeprefix("bias"))]
        rows = self.inputs.get(edge.source) if kind.startswith("weights") else None
        return rows or self.outputs.get(edge.target)

    def updated(self, name: str) -> Rows:
        """Return which rows of an array a rank updates by examples, by its name in `Network.arrays`.

        Of what has no rows these are numbers: of biases, and of a batch normalization's scale and bias.
        """
        if name.startswith("norm"):
            layer = int(name.removeprefix("norm").partition("_")[0])
            return Rows(norm_count(self.spec, layer), self.own)
        edge = self.spec.edges[int(name.removeprefix("weights").removeprefix("bias"))]
        if name.startswith("bias"):
            return Rows(bias_count(self.spec, edge), self.own)
        below, above = weight_shape(self.spec, edge)
        return Rows(below if layout_of(self.spec, edge) is Layout.PLAIN else above, self.own)

    def take(self, name: str, whole: Floats) -> Floats:
        """Return the rank's part of an array that is named as in `rows_of`; perhaps a view, perhaps the array."""
        rows = self.rows_of(name)
        return whole if rows is None else rows.take(whole)

    def put(self, name: str, local: Floats, whole: Floats) -> None:
        """Write the rank's part of an array into the whole one."""
        rows = self.rows_of(name)
        if rows is None:
            whole[...] = local
        elif local is not whole:
            rows.put(local, whole)

    @cached_property
    def local(self) -> NetworkSpec:
        """The network with as many units as the rank has."""
        layers = list(self.spec.layers)
        parts: dict[int, Items | Range] = {**self.inputs, **self.outputs}
        for number, part in parts.items():
            layers[number] = dataclasses.replace(layers[number], units=part.count, dimensions=(part.count,))
        return self.spec if self.is_whole else dataclasses.replace(self.spec, layers=tuple(layers))

    def network(self, whole: Network) -> Network:
        """Return the rank's part of a network, of which it may share arrays; the network itself where that is all."""
        if self.is_whole:
            return whole
        stores = {n: self.take(f"weights{n}", store) for n, store in whole.stores.items()}
        biases = [self.take(f"bias{n}", bias) for n, bias in enumerate(whole.biases)]
        return dataclasses.replace(whole, spec=self.local, stores=stores, biases=biases)

    def owned(self, network: Network) -> Network:
        """Return what the rank updates of its network, sharing the arrays."""
        if self.plan.kind != EXAMPLES:
            return network
        stores = {n: self.updated(f"weights{n}").take(store) for n, store in network.stores.items()}
        biases = [self.updated(f"bias{n}").take(bias) for n, bias in enumerate(network.biases)]
        norms = dict[int, BatchNorm]()
        for n, norm in network.norms.items():
            scale, bias = (self.updated(f"norm{n}_{name}").take(getattr(norm, name)) for name in ("scale", "bias"))
            norms[n] = dataclasses.replace(norm, scale=scale, bias=bias)
        return dataclasses.replace(network, stores=stores, biases=biases, norms=norms)

    def batch(self, whole: Batch) -> Batch:
        """Return the rank's units of a batch, in which denoising was drawn for all of them."""
        if self.is_whole:
            return whole
        inputs = {n: self.inputs[n].columns(x) if n in self.inputs else x for n, x in whole.inputs.items()}
        targets = {n: self.outputs[n].targets(t) if n in self.outputs else t for n, t in whole.targets.items()}
        return dataclasses.replace(whole, inputs=inputs, targets=targets)


def order_for_shards(rows: Longs) -> Longs:
    """Return the examples of a batch in the order in which they are dealt out to shards: by their numbers.

    A batch is drawn from some blocks of a file. So a shard has neighbours, and a rank has few of these blocks to read.
    """
    return np.sort(rows)


def cut_of(spec: NetworkSpec, batch: int, parallel: str) -> Cut | None:
    """Return what one rank alone has under the plan of a training, see `plan_of`; None where nothing is cut."""
    plan = plan_of(spec, batch, parallel)
    return Cut(plan, spec, shards_of(0, 1)) if plan.is_cut else None
