"""The error of the output layers on a GPU, and delta = dLoss/dz in place of their sums. Twin: cpu/output.py."""

from __future__ import annotations

import math

import numpy as np

from nnlib.gpu.buffers import ACTIVATIONS, ERRORS, error_constants
from nnlib.gpu.forward import DeviceBatch, Forward
from nnlib.gpu.runtime import Array
from nnlib.model.graph import Node
from nnlib.ops.activations import ROWWISE
from nnlib.spec.types import Activation

TILE = 1024  # units that a block of the kernel `output_*` does
ALONE, COMPAT, LOSS_ONLY, DROPPED, BY_VALUE = (1 << n for n in range(5))  # as `enum Flag` in kernels/error.cuh
ADDED, FAILED, FAILURE = 1, 2, 3  # places in `status`: the sum of all losses, the first step that failed, its loss


class Losses:
    """Computes the errors of a batch; what came of them stands in `status` (see `finish_loss` in kernels/reduce.cu)."""

    def __init__(self, forward: Forward, most: int) -> None:
        """Make room for batches of up to `most` examples."""
        self._forward, self._runtime = forward, forward.runtime
        self.status = self._runtime.zeros(4, np.float64)
        self._tiles = {node.number: math.ceil(node.units / TILE) for node in forward.graph.outputs}
        self._parts = self._runtime.zeros(most * sum(self._tiles.values()), np.float64)
        self._constants: dict[tuple[int, int], Array] = {}

    def run(self, batch: DeviceBatch, only: bool) -> None:
        """Compute the error of all output layers into `status`; `only` for that alone, without any delta."""
        for node in self._forward.graph.outputs:
            self.error(node, batch, only)
        self.finish(batch)

    def finish(self, batch: DeviceBatch) -> None:
        """Add up the error of the batch."""
        count = batch.size * sum(self._tiles.values())
        self._runtime.launch("finish_loss", (1,), self._parts, count, self.status, self._forward.step)

    def error(self, node: Node, batch: DeviceBatch, only: bool = False) -> Array:
        """Compute the error of one output layer, and return its delta (b, n) in place of its sums."""
        room, launch = self._forward.rooms[node.number], self._runtime.launch
        sums, bias = room.sums[: batch.size], self._forward.pending[node.number]
        assert node.error is not None, "this is an output layer"
        kind, flags = node.layer.activation, LOSS_ONLY * only
        by_value = kind in ROWWISE and not node.error.softmax
        size, n = sums.shape
        if node.error.softmax:
            launch("log_sum_exp", (size,), sums, bias, room.totals, size, n, room.ld)
        if by_value:
            assert room.rowwise is not None, "rowwise output layers have it"
            self._runtime.move(room.rowwise, sums)
            self._forward.rowwise(node, room.rowwise[:size], room.totals)
            self._runtime.move(sums, room.rowwise, sums.size)
            kind, flags = Activation.LINEAR, flags | BY_VALUE
        flags |= COMPAT * node.error.compat | DROPPED * self._forward.drops(batch, node)
        self._launch(node, batch, sums, bias, ACTIVATIONS.index(kind), flags)
        self._forward.pending[node.number] = None
        if by_value and not only:
            arguments = (sums, room.rowwise, room.totals, size, n, n, ACTIVATIONS.index(node.layer.activation))
            launch("rowwise_backward", (size,), *arguments)
        return sums

    def _launch(self, node: Node, batch: DeviceBatch, sums: Array, bias: Array | None, kind: int, flags: int) -> None:
        room, (size, n) = self._forward.rooms[node.number], sums.shape
        assert node.error is not None, "this is an output layer"
        grid = (size, math.ceil(n / TILE))
        sparse = batch.packing.at(node.number, "dense") < 0
        if sparse:
            name, where = "output_sparse", batch.at(node.number, "starts", "items", "values")
        else:
            name, where = "output_dense", (*batch.at(node.number, "dense"), n)
        first = size * sum(tiles for number, tiles in self._tiles.items() if number < node.number)
        parts = self._parts[first : first + grid[0] * grid[1]]
        alone = ALONE * (sparse and batch.packing.alone(node.number))
        self._runtime.launch(
            name,
            grid,
            *(sums, bias, size, n, room.ld, 0),
            batch.words,
            *where,
            *batch.at(node.number, "weights", "shares"),
            room.totals if node.error.softmax else None,
            *(ERRORS.index(node.error.kind), kind, flags | alone),
            *(room.unit, self._error(node, size)),
            *self._forward.noise(node.number),
            parts,
        )

    def _error(self, node: Node, size: int) -> Array:
        """Return the constants of an error for batches of a size; made once."""
        key = node.number, size
        if key not in self._constants:
            self._constants[key] = self._runtime.zeros(8)
            self._runtime.upload(self._constants[key], error_constants(node, size))
        return self._constants[key]
