"""The update of all parameters on a GPU: rows that a batch touches, all else in one launch. Twin: cpu/optimizer.py."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from nnlib.gpu.forward import DeviceBatch, Forward
from nnlib.gpu.parameters import Table
from nnlib.gpu.runtime import Array, grid_of, part_blocks
from nnlib.model.network import Layout, count_units, is_sparse_input, iterate_limited_edges, layout_of
from nnlib.optim.hyper import ADAMS, Hyper, Rate, step_shift
from nnlib.optim.rules import RULES, Pace
from nnlib.spec.types import Edge

RULE_NAMES = tuple(RULES)  # as `enum Rule` in kernels/names.cuh
CHUNK = 2048  # rows that a block of `column_squares` takes, as in kernels/limits.cu
TABLE_BLOCKS = 4096  # that share the rows which a batch touches


class Optimizer:
    """An update rule at work; takes each step from its number in `Forward.step`."""

    def __init__(self, forward: Forward, hyper: Hyper, rate: Rate, steps: int, clip: float) -> None:
        """Use `rate` for the steps 1 to `steps`; with `clip` the norm of a gradient is limited to it."""
        self._forward, self._parameters, self._runtime = forward, forward.parameters, forward.runtime
        self._rule, self._kind, self._clip = RULES[hyper.rule], RULE_NAMES.index(hyper.rule), clip
        self._forced = bool(hyper.l2 or hyper.l1)
        shift = step_shift(forward.graph.network.spec)
        runtime = self._runtime
        self._hyper, self._paces = runtime.zeros(8), runtime.zeros((steps + 1, 4))
        runtime.upload(self._hyper, hyper_constants(hyper))
        runtime.upload(self._paces, tabulate_paces(hyper, rate, steps, shift))
        self._scale = runtime.zeros(1) if clip else None
        sizes = [self._parameters.flat.size, *(table.values.size for table in self._parameters.tables.values())]
        self._blocks = [part_blocks(size) for size in sizes]  # that sum the squares of each part of a gradient
        self._parts = runtime.zeros(sum(self._blocks) if clip else 0, np.float64)
        limited = [w for edge, w in self._find_limited() if not self._by_rows(edge)]
        self._squares = runtime.zeros(max((math.ceil(w.shape[0] / CHUNK) * w.shape[1] for w in limited), default=0))
        self._used = set[int]()
        self._late: list[tuple[Edge, DeviceBatch, Array]] = []

    def settle(self, batch: DeviceBatch) -> None:
        """Bring the weights that a batch will read up to the step before this one."""
        for owner, table in self._parameters.tables.items():
            if self._rule.moves or self._forced:
                source = self._forward.graph.network.spec.edges[owner].source
                self._settle(table, batch.words, batch.at(source, "count", "rows"), 1)

    def settle_all(self) -> None:
        """Bring all rows to this step."""
        for table in self._parameters.tables.values():
            if not self._rule.still or self._forced:
                self._settle(table, None, (-1, -1), 0)

    def _settle(self, table: Table, words: Array | None, where: tuple[int, ...], behind: int) -> None:
        rows, n = table.values.shape
        states = (*table.states, None, None)[:2]
        arrays = (table.values, *states, table.last)
        numbers = (self._kind, self._paces, self._forward.step, behind, self._hyper)
        self._runtime.launch("settle", (min(rows, TABLE_BLOCKS),), words, *where, rows, *arrays, n, *numbers)

    def begin(self) -> None:
        """Start to take the gradients of a batch."""
        self._used.clear()
        self._late.clear()
        spec = self._forward.graph.network.spec
        for owner in {edge.owner for edge in spec.edges if is_sparse_input(spec.layers[edge.source])}:
            gradient = self._gradient(owner)
            if gradient is not None:
                self._runtime.clear(gradient)
                self._used.add(owner)

    def next_use(self, owner: int) -> bool:
        """Whether a gradient is to be added to what another edge with the same weights gave."""
        seen = owner in self._used
        self._used.add(owner)
        return seen

    def touched(self, edge: Edge, batch: DeviceBatch, delta: Array) -> None:
        """Take the gradient of a sparse input's weights: apply it at once, unless the whole one is needed first."""
        table = self._parameters.tables.get(edge.owner)
        if table is None:
            gradient, flipped = self._gradient(edge.owner), self._parameters.is_flipped(edge)
            assert gradient is not None, "the edge is trained"
            strides = (1, gradient.shape[1]) if flipped else (gradient.shape[1], 1)
            arguments = (*self._transpose_arguments(edge, batch, delta), gradient, *strides, delta.shape[1])
            noise = self._forward.input_noise(batch, edge.source)
            self._runtime.launch("touched_add", self._rows(edge), *arguments, *noise)
        elif self._clip:
            self._late.append((edge, batch, delta))
        else:
            self._apply(edge, batch, delta)

    def finish(self) -> None:
        """Apply what was not applied yet, and the limits of WeightNorm."""
        parameters, flat = self._parameters, self._parameters.flat
        if self._clip:
            self._measure()
        self._share()
        for late in self._late:
            self._apply(*late)
        states = (*parameters.states, None, None)[:2]
        arrays = (flat, parameters.gradient, *states, flat.size, parameters.decayed)
        numbers = (self._kind, self._paces, self._forward.step, self._hyper, self._scale)
        self._runtime.launch("update", grid_of(flat.size // 4), *arrays, *numbers)
        self._limit()

    def _rows(self, edge: Edge) -> tuple[int]:
        """Return the grid of a launch over the rows that a batch touches."""
        return (min(count_units(self._forward.graph.network.spec, edge.source), TABLE_BLOCKS),)

    def _gradient(self, owner: int) -> Array | None:
        return None if owner in self._parameters.tables else self._parameters.gradient_of(f"weights{owner}")

    def _transpose_arguments(self, edge: Edge, batch: DeviceBatch, delta: Array) -> tuple[object, ...]:
        names = ("count", "rows", "row_starts", "examples", "places", "values")
        return (batch.words, *batch.at(edge.source, *names), delta, delta.strides[0] // 4)

    def _apply(self, edge: Edge, batch: DeviceBatch, delta: Array) -> None:
        table = self._parameters.tables[edge.owner]
        states = (*table.states, None, None)[:2]
        noise, key, step, layers, layer = self._forward.input_noise(batch, edge.source)
        self._runtime.launch(
            "touched_update",
            self._rows(edge),
            *self._transpose_arguments(edge, batch, delta),
            *(table.values, *states, table.last, table.values.shape[1]),
            *(self._kind, self._paces, step, self._hyper, self._scale),
            *(noise, key, layers, layer),
        )

    def _measure(self) -> None:
        """Find by what the gradient is to be multiplied so that its norm is at most `clip`."""
        gradient, launch = self._parameters.gradient, self._runtime.launch
        end = self._blocks[0]
        launch("sum_squares", (end,), gradient, self._parts, gradient.size)
        for count, (edge, batch, delta) in zip(self._blocks[1:], self._late, strict=True):
            parts, end = self._parts[end : end + count], end + count
            arguments = (*self._transpose_arguments(edge, batch, delta), parts, delta.shape[1])
            launch("touched_squares", (count,), *arguments, *self._forward.input_noise(batch, edge.source))
        launch("clip_scale", (1,), self._parts, self._parts.size, self._clip, self._scale)

    def _share(self) -> None:
        """In compat mode the gradient of shared weights is the mean over the edges that share them, as in DSSTNE."""
        spec = self._forward.graph.network.spec
        if not spec.compat:
            return
        for owner in self._used:
            uses, gradient = sum(edge.owner == owner for edge in spec.edges), self._gradient(owner)
            if uses > 1 and gradient is not None:
                self._runtime.launch("mul_c", grid_of(gradient.size), gradient, 1 / uses, gradient.size)

    def _find_limited(self) -> Iterator[tuple[Edge, Array]]:
        """Yield the edges whose weights have a limit and are not shared, with their weights."""
        for edge in iterate_limited_edges(self._forward.graph.network):
            yield edge, self._parameters.weights(edge.number)

    def _by_rows(self, edge: Edge) -> bool:
        return layout_of(self._forward.graph.network.spec, edge) is Layout.BY_OUTPUT

    def _limit(self) -> None:
        """Scale down the weights into each unit whose norm is above the limit."""
        for edge, w in self._find_limited():
            limit = self._forward.graph.network.spec.layers[edge.target].weight_norm
            rows, n = w.shape
            if self._by_rows(edge):
                self._runtime.launch("limit_rows", (min(rows, 1 << 16),), w, rows, n, limit)
            else:
                grid = (math.ceil(n / 32), math.ceil(rows / CHUNK))
                self._runtime.launch("column_squares", grid, w, self._squares, rows, n)
                self._runtime.launch("limit_columns", grid, w, self._squares, rows, n, limit)


def hyper_constants(hyper: Hyper) -> np.ndarray:
    """Return `enum Hyper` of kernels/names.cuh."""
    mu, beta = hyper.momentum, hyper.beta2
    return np.array([mu, 1 - mu, 1 + mu, beta, 1 - beta, hyper.l2, hyper.l1, 0], np.float32)


def tabulate_paces(hyper: Hyper, rate: Rate, steps: int, shift: int) -> np.ndarray:
    """Return the numbers of each step from 0, (steps + 1, 4): see `enum Pace` in kernels/names.cuh.

    They are computed in double precision and rounded once, as when NumPy's scalars meet its float32 arrays.
    """
    table = np.zeros((steps + 1, 4))
    for step in range(1, steps + 1):
        pace = Pace(step + shift, rate(step), hyper.momentum, hyper.beta2)
        corrections = (pace.corrected_rate, pace.correction) if hyper.rule in ADAMS else (0, 0)
        table[step] = (pace.rate, *corrections, pace.rate * hyper.l2)
    with np.errstate(over="ignore"):  # a rate that does not fit makes a training diverge, which is found there
        return table.astype(np.float32)
