"""The error of the output layers on a GPU, and delta = dLoss/dz in place of their sums. Twin: cpu/output.py."""

from __future__ import annotations

import copy
import math

import numpy as np

from nnlib.gpu.buffers import ACTIVATIONS, ERRORS, error_constants
from nnlib.gpu.forward import DeviceBatch, Forward
from nnlib.gpu.runtime import Array, grid_of
from nnlib.model.graph import Node
from nnlib.ops.activations import ROWWISE
from nnlib.shards.errors import Errors
from nnlib.shards.tree import SHARDS
from nnlib.spec.types import Activation
from nnlib.util.arrays import Longs

TILE = 1024  # units that a block of the kernel `output_*` does
ALONE, COMPAT, LOSS_ONLY, DROPPED, BY_VALUE = (1 << n for n in range(5))  # as `enum Flag` in kernels/error.cuh
ADDED, FAILED, FAILURE = 1, 2, 3  # places in `status`: the sum of all losses, the first step that failed, its loss


class Losses:
    """Computes the errors of a batch; what came of them stands in `status` (see `finish_loss` in kernels/reduce.cu).

    Of a network that is cut the sums by shard stand in `by_shard`: a rank has those of its own shards, and last that of
    the layers that are whole on every rank. `status` has what is here alone then.
    """

    def __init__(self, forward: Forward, most: int, rows: int = 1) -> None:
        """Make room for batches of up to `most` examples, and sums by shard of so many steps in turn, or of all."""
        self._forward, self._runtime = forward, forward.runtime
        self.status = self._runtime.zeros(4, np.float64)
        self._first, self._ends = self._lay_out()
        self._parts = self._runtime.zeros(most * self._ends[-1], np.float64)
        self._constants: dict[tuple[int, int], Array] = {}
        self._ends_by_size: dict[int, Array] = {}
        self.by_shard = self._runtime.zeros((rows, len(self._ends)), np.float64)
        numbers = 2 * most if forward.wide_outputs else 0
        self._own_exponents = self._runtime.zeros(len(forward.exchange.own) * numbers)
        self._exponents = self._runtime.zeros(SHARDS * numbers)

    def _lay_out(self) -> tuple[dict[tuple[int, int], int], list[int]]:
        """Return at which tile each piece begins, and where each sum ends: of own shards, then of whole layers."""
        rooms, wide = self._forward.rooms, self._forward.wide_outputs
        shards = len(self._forward.exchange.own) if self._forward.cut is not None else 0
        first, ends, end = {}, [], 0
        for shard in range(shards + 1):
            for number in sorted(node.number for node in self._forward.graph.outputs):
                for place, piece in enumerate(rooms[number].pieces):
                    if (place if number in wide else shards) == shard:
                        first[number, place] = end
                        end += math.ceil(piece.z.shape[1] / TILE)
            ends.append(end)
        return first, ends

    def run(self, batch: DeviceBatch, only: bool) -> None:
        """Compute the error of all output layers into `status`; `only` for that alone, without any delta."""
        for node in self._forward.graph.outputs:
            self.error(node, batch, only)
        self.finish(batch)

    def finish(self, batch: DeviceBatch) -> None:
        """Add up the error of the batch."""
        count, step = batch.size * self._ends[-1], self._forward.step
        self._runtime.launch("finish_loss", (1,), self._parts, count, self.status, step)
        if self._forward.cut is not None:
            rows, ends = len(self.by_shard), self._ends_of(batch.size)
            arguments = (self._parts, ends, self.by_shard, rows, step, int(rows == 1))
            self._runtime.launch("part_sums", (len(self._ends),), *arguments)

    def add_to(self, errors: Errors, steps: Longs) -> None:
        """Add the errors of a network that is cut, of the steps after these; waits until they are done."""
        rows, own = self._runtime.download(self.by_shard), self._forward.exchange.own
        for row in rows[steps % len(rows)].tolist():
            errors.add(row[-1], dict(zip(own, row, strict=False)))

    def error(self, node: Node, batch: DeviceBatch, only: bool = False) -> Array:
        """Compute the error of one output layer, and return its delta (b, n) in place of its sums, the last piece's."""
        room, launch = self._forward.rooms[node.number], self._runtime.launch
        bias = self._forward.pending[node.number]
        assert node.error is not None, "this is an output layer"
        kind, flags = node.layer.activation, LOSS_ONLY * only
        by_value = kind in ROWWISE and not node.error.softmax
        sums = room.pieces[-1].z[: batch.size]
        size, n = sums.shape
        if node.error.softmax:
            self._normalize(node, batch, bias)
        if by_value:
            assert room.rowwise is not None, "rowwise output layers have it"
            self._runtime.move(room.rowwise, sums)
            self._forward.rowwise(node, room.rowwise[:size], room.totals)
            self._runtime.move(sums, room.rowwise, sums.size)
            kind, flags = Activation.LINEAR, flags | BY_VALUE
        flags |= COMPAT * node.error.compat | DROPPED * self._forward.drops(batch, node)
        for place in range(len(room.pieces)):
            self._launch(node, place, batch, bias, ACTIVATIONS.index(kind), flags)
        self._forward.pending[node.number] = None
        if by_value and not only:
            arguments = (sums, room.rowwise, room.totals, size, n, n, ACTIVATIONS.index(node.layer.activation))
            launch("rowwise_backward", (size,), *arguments)
        return sums

    def _normalize(self, node: Node, batch: DeviceBatch, bias: Array | None) -> None:
        """Find the normalizer of a SoftMax: of a layer that is cut, from every shard's highest sum and exponentials."""
        room, size, launch = self._forward.rooms[node.number], batch.size, self._runtime.launch
        if node.number not in self._forward.wide_outputs:
            [piece] = room.pieces
            launch("log_sum_exp", (size,), piece.z, bias, room.totals, size, piece.z.shape[1], piece.ld)
            return
        own = self._own_exponents[: len(room.pieces) * size * 2].reshape(len(room.pieces), size * 2)
        for piece, parts in zip(room.pieces, own, strict=True):
            some = None if bias is None else bias[piece.at]
            launch("exp_parts", (size,), piece.z, some, parts, size, piece.z.shape[1], piece.ld)
        parts = self._exponents[: SHARDS * size * 2]
        self._forward.exchange.gather(own, parts)
        launch("join_parts", grid_of(size), parts, room.totals, size)

    def _launch(self, node: Node, place: int, batch: DeviceBatch, bias: Array | None, kind: int, flags: int) -> None:
        room, number, size = self._forward.rooms[node.number], node.number, batch.size
        piece = room.pieces[place]
        assert node.error is not None, "this is an output layer"
        n, low = piece.z.shape[1], piece.low
        sparse = batch.packing.at(number, "dense") < 0
        if sparse:
            name, where = "output_sparse", batch.at(number, "starts", "items", "values")
        else:  # the batch has the targets of what is here
            name, where, low = "output_dense", (*batch.at(number, "dense"), node.units), piece.at.start
        first = size * self._first[number, place]
        grid = (size, math.ceil(n / TILE))
        alone = ALONE * (sparse and batch.packing.alone(number))
        self._runtime.launch(
            name,
            grid,
            *(piece.z, None if bias is None else bias[piece.at], size, n, piece.ld, low),
            batch.words,
            *where,
            *batch.at(number, "weights", "shares"),
            room.totals if node.error.softmax else None,
            *(ERRORS.index(node.error.kind), kind, flags | alone),
            *(room.unit, self._error(node, batch.examples)),
            *self._forward.mask(batch, node),
            self._parts[first : first + grid[0] * grid[1]],
        )

    def _ends_of(self, size: int) -> Array:
        """Return where the parts of each sum end in batches of a size; made once."""
        if size not in self._ends_by_size:
            self._ends_by_size[size] = self._runtime.zeros(len(self._ends), np.int64)
            self._runtime.upload(self._ends_by_size[size], size * np.array(self._ends))
        return self._ends_by_size[size]

    def _error(self, node: Node, examples: int) -> Array:
        """Return the constants of an error that is a mean over so many examples; made once."""
        key = node.number, examples
        if key not in self._constants:
            assert node.error is not None, "this is an output layer"
            self._constants[key] = self._runtime.zeros(8)
            self._runtime.upload(self._constants[key], error_constants(node.error, examples))
        return self._constants[key]


class ShardLosses(Losses):
    """The errors of a batch's shards of examples, which come one after the other: `by_shard` (own shards, steps)."""

    def __init__(self, forward: Forward, most: int, steps: int, own: range) -> None:
        """Make room for shards of up to `most` examples, and for their sums of so many steps in turn."""
        super().__init__(forward, most)
        self._own = own
        self.by_shard = self._runtime.zeros((len(own), steps), np.float64)

    def beside(self, forward: Forward) -> ShardLosses:
        """Return what computes the errors of a shard that is computed beside others, into the same sums."""
        other = copy.copy(self)
        other._forward, other._parts = forward, self._runtime.zeros(self._parts.size, np.float64)
        return other

    def finish(self, batch: DeviceBatch) -> None:
        """Add up the error of a shard."""
        super().finish(batch)
        self._keep(batch.place, batch.size)

    def skip(self, place: int) -> None:
        """Note that an own shard has no examples in this step."""
        self._keep(place, 0)

    def _keep(self, place: int, size: int) -> None:
        row = self.by_shard[place]
        self._runtime.launch("part_sums", (1,), self._parts, self._ends_of(size), row, row.size, self._forward.step, 0)

    def add_to(self, errors: Errors, steps: Longs) -> None:
        """Add the errors of the steps after these; waits until they are done."""
        found = self._runtime.download(self.by_shard)
        for column in found[:, steps % found.shape[1]].T.tolist():
            errors.add(0.0, dict(zip(self._own, column, strict=True)))
