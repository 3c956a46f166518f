"""By what a gradient on a GPU is multiplied so that its norm is at most a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from nnlib.gpu.forward import DeviceBatch, Forward
from nnlib.gpu.parameters import Parameters
from nnlib.gpu.runtime import Array, part_blocks
from nnlib.gpu.shards.exchange import Exchange
from nnlib.shards.cut import Items, Range
from nnlib.shards.tree import SHARDS
from nnlib.spec.types import Edge

Late = Mapping[int, tuple[Edge, DeviceBatch, Array]]  # whose rows are touched, by the edge that owns the weights
Launch = Callable[[Array, Late], None]  # of a kernel that writes parts of a sum of squares
Share = tuple[int, Launch]  # its blocks, a part each: as many on any number of ranks


class Clip:
    """Sums of squares in a fixed order: of what is whole on every rank, and shard by shard of what is cut."""

    def __init__(self, forward: Forward, limit: float) -> None:
        self._forward, self._limit, self._runtime = forward, limit, forward.runtime
        self._parameters = forward.parameters
        zeros = self._runtime.zeros
        self.scale = zeros(1)
        if forward.cut is None:
            shares = [[*self._of_all(), *self._of_whole_tables()]]
        else:
            shares = [list(self._of_shard(place)) for place in range(len(forward.exchange.own))]
            shares.append([*self._of_whole(), *self._of_whole_tables()])
        self._launches = [share for some in shares for share in some]
        blocks = [sum(blocks for blocks, _ in some) for some in shares]
        self._parts, self._own = zeros(sum(blocks), np.float64), zeros(len(blocks), np.float64)
        self._sums, self._ends = zeros(SHARDS + 1, np.float64), zeros(len(blocks), np.int64)
        self._runtime.upload(self._ends, np.cumsum(blocks))

    def measure(self, late: Late) -> None:
        """Set `scale` by the gradient as it is, of which `late` has what comes of touched rows."""
        end, launch = 0, self._runtime.launch
        for blocks, work in self._launches:
            parts, end = self._parts[end : end + blocks], end + blocks
            work(parts, late)
        sums = self._parts
        if self._forward.cut is not None:
            sums, step = self._sums, self._forward.step
            launch("part_sums", (self._own.size,), self._parts, self._ends, self._own, 1, step, 0)
            self._forward.exchange.gather(self._own[:-1], sums[:SHARDS])
            self._runtime.move(sums[SHARDS:], self._own[-1:], 2)
        launch("clip_scale", (1,), sums, sums.size, self._limit, self.scale)

    def _of_all(self) -> Iterator[Share]:
        yield self._squares(self._parameters.gradient)

    def _of_whole(self) -> Iterator[Share]:
        """Yield what is whole of a network that is cut, array by array."""
        for gradient, rows in self._arrays():
            if rows is None:
                yield self._squares(gradient)

    def _of_whole_tables(self) -> Iterator[Share]:
        for owner, table in self._parameters.tables.items():
            if self._source(owner) not in self._forward.wide_inputs:
                yield part_blocks(table.values.size), self._touched(owner, "")

    def _of_shard(self, place: int) -> Iterator[Share]:
        """Yield what an own shard has of the arrays that are cut, by its place among the own ones."""
        for gradient, rows in self._arrays():
            if isinstance(rows, Range):
                yield self._squares(gradient[rows.shard(place)])
            elif isinstance(rows, Items):
                yield self._squares_of_rows(gradient, rows, place)
        for owner, table in self._parameters.tables.items():
            items = self._forward.wide_inputs.get(self._source(owner))
            if items is not None:
                count = -(-items.units // SHARDS) * table.values.shape[1]
                yield part_blocks(count), self._touched(owner, str(place))

    def _arrays(self) -> Iterator[tuple[Array, Items | Range | None]]:
        """Yield the arrays that have a whole gradient, and how they are cut."""
        assert self._forward.cut is not None, "else there is one sum over all of them"
        for name, _, _ in self._parameters.flat_order:
            gradient = self._parameters.gradient_of(name)
            assert gradient is not None, "arrays of the flat one have it"
            yield gradient, self._forward.cut.units_of(name)

    def _source(self, owner: int) -> int:
        return self._forward.graph.network.spec.edges[owner].source

    def _squares(self, x: Array) -> Share:
        blocks = part_blocks(x.size)
        return blocks, lambda parts, _: self._runtime.launch("sum_squares", (blocks,), x, parts, x.size)

    def _squares_of_rows(self, x: Array, items: Items, place: int) -> Share:
        """Return the share of one shard of a sparse input's weights (units, n)."""
        rows, n = x.shape
        blocks = part_blocks(len(range(items.own[place], items.units, SHARDS)) * n)
        numbers = (rows, n, place, len(items.own))
        return blocks, lambda parts, _: self._runtime.launch("sum_squares_of_rows", (blocks,), x, parts, *numbers)

    def _touched(self, owner: int, shard: str) -> Launch:
        """Return what sums over the touched rows of a table, or of one shard of it."""

        def work(parts: Array, late: Late) -> None:
            edge, batch, delta = late[owner]
            arguments = (*batch.transposed(edge.source, delta, shard), parts, delta.shape[1])
            noise = self._forward.input_noise(batch, edge.source)
            self._runtime.launch("touched_squares", (parts.size,), *arguments, *noise)

        return work


class SlicesClip:
    """As `Clip`, where ranks have a gradient's slices: sums of squares by eighths of it, whoever has them."""

    def __init__(self, parameters: Parameters, exchange: Exchange, limit: float) -> None:
        self._runtime, self._exchange, self._limit = parameters.runtime, exchange, limit
        zeros, count = self._runtime.zeros, len(exchange.own)
        self.scale = zeros(1)
        self._slices = parameters.gradient[parameters.own].reshape(count, -1)
        self._blocks = part_blocks(self._slices.size // count)
        self._parts, self._own = zeros((count, self._blocks), np.float64), zeros(count, np.float64)
        self._sums, self._ends = zeros(SHARDS, np.float64), zeros(count, np.int64)
        self._runtime.upload(self._ends, self._blocks * np.arange(1, count + 1))

    def measure(self, _: Late) -> None:
        """Set `scale` by the gradient as it is."""
        launch = self._runtime.launch
        for own, parts in zip(self._slices, self._parts, strict=True):
            launch("sum_squares", (self._blocks,), own, parts, own.size)
        launch("part_sums", (self._own.size,), self._parts, self._ends, self._own, 1, None, 0)
        self._exchange.gather(self._own, self._sums)
        launch("clip_scale", (1,), self._sums, SHARDS, self._limit, self.scale)
