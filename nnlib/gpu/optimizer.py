"""The update of all parameters on a GPU: rows that a batch touches, all else in one launch. Twin: cpu/optimizer.py."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from nnlib.gpu.forward import DeviceBatch, Forward
from nnlib.gpu.parameters import Table
from nnlib.gpu.runtime import Array, grid_of
from nnlib.gpu.shards.clip import Clip, SlicesClip
from nnlib.gpu.shards.exchange import Exchange
from nnlib.model.batches import Part
from nnlib.model.network import Layout, count_units, is_sparse_input, iterate_limited_edges, layout_of
from nnlib.optim.hyper import ADAMS, USUAL, Hyper, Pacing, Rate, step_shift
from nnlib.optim.rules import RULES, Pace
from nnlib.spec.types import Edge

RULE_NAMES = tuple(RULES)  # as `enum Rule` in kernels/names.cuh
CHUNK = 2048  # rows that a block of `column_squares` takes, as in kernels/limits.cu
TABLE_BLOCKS = 4096  # that share the rows which a batch touches


class Optimizer:
    """An update rule at work; takes each update from its number in `step`."""

    def __init__(
        self,
        forward: Forward,
        hyper: Hyper,
        rate: Rate,
        steps: int,
        clip: float,
        several: bool = False,
        pacings: Sequence[Pacing] = (),
        exchange: Exchange | None = None,
    ) -> None:
        """Use `rate` for the updates 1 to `steps`; with `clip` the norm of a gradient is limited to it.

        `several`: an update may take several batches; no parameters are tables then. `pacings`: of the layers.
        `exchange`: with ranks that have gradients of other examples, and update a slice of the parameters each.
        """
        self._forward, self._parameters, self._runtime = forward, forward.parameters, forward.runtime
        self._exchange, self._own = exchange, forward.parameters.own
        self._rule, self._kind = RULES[hyper.rule], RULE_NAMES.index(hyper.rule)
        self._forced = bool(hyper.l2 or hyper.l1)
        runtime, self._constants = self._runtime, hyper
        self._pacings = pacings or (USUAL,) * len(forward.graph.network.spec.layers)
        self._hyper = runtime.zeros(8)
        self._paces = {pacing: runtime.zeros((steps + 1, 4)) for pacing in dict.fromkeys(self._pacings)}
        runtime.upload(self._hyper, hyper_constants(hyper))
        self.follow(rate)
        assert forward.marks is not None, "a forward pass for training has them"
        self._marks = forward.marks
        self._spans = tuple(self._find_spans())
        self._clip: Clip | SlicesClip | None = None
        if clip:
            self._clip = SlicesClip(self._parameters, exchange, clip) if exchange else Clip(forward, clip)
        self._scale = self._clip.scale if self._clip else None
        limited = [w for edge, w in self._find_limited() if not self._by_rows(edge)]
        self._squares = runtime.zeros(max((math.ceil(w.shape[0] / CHUNK) * w.shape[1] for w in limited), default=0))
        # With one batch an update these are the numbers of the batches, too.
        self.step = runtime.zeros(1, np.int64) if several else forward.step
        self._sum = runtime.zeros(self._gradient_here().size) if several else None
        self._part = Part()
        self._used = set[int]()
        self._late: list[tuple[Edge, DeviceBatch, Array]] = []

    def follow(self, rate: Rate) -> None:
        """Use other learning rates from the next step on; call `settle_all` before."""
        shift = step_shift(self._forward.graph.network.spec)
        for pacing, paces in self._paces.items():
            self._runtime.upload(paces, tabulate_paces(self._constants, rate, len(paces) - 1, shift, pacing))

    def _paces_of(self, owner: int) -> Array:
        """Return the numbers of each step for the weights of an edge."""
        return self._paces[self._pacings[self._forward.graph.network.spec.edges[owner].target]]

    def _find_spans(self) -> Iterator[tuple[slice, Pacing, tuple[Any, ...]]]:
        """Yield the pieces of the flat arrays, as far as they are updated here, whose layers have one pacing.

        The last of each is what the kernel needs to mark what is not finite.
        """
        network = self._parameters.network
        for pacing, some in groupby(self._parts_here(), lambda part: self._pacings[network.layer_of(part[0])]):
            parts = list(some)
            span, ends = slice(parts[0][1], parts[-1][2]), self._runtime.zeros(len(parts), np.int64)
            self._runtime.upload(ends, np.array([end - span.start for _, _, end in parts]))
            marks = self._marks.of_parts(parts[0][0])
            yield span, pacing, (self._forward.step, ends, len(parts), marks)

    def _parts_here(self) -> Iterator[tuple[str, int, int]]:
        """Yield the arrays in the flat ones, as far as they are updated here: name, begin and end."""
        for name, low, high in self._parameters.flat_order:
            low, high = max(low, self._own.start), min(high, self._own.stop)
            if low < high:
                yield name, low, high

    def _gradient_here(self) -> Array:
        return self._parameters.gradient[self._own]

    def start(self, part: Part) -> None:
        """Start on a batch, a part of its update."""
        self._part = part
        if part.first and self._sum is not None:
            self._runtime.launch("begin_step", (1,), self.step)

    def settle(self, batch: DeviceBatch) -> None:
        """Bring the weights that a batch will read up to the step before this one."""
        for owner, table in self._parameters.tables.items():
            if self._rule.moves or self._forced:
                source = self._forward.graph.network.spec.edges[owner].source
                self._settle(owner, table, batch.words, batch.at(source, "count", "rows"), 1)

    def settle_all(self) -> None:
        """Bring all rows to this step."""
        for owner, table in self._parameters.tables.items():
            if not self._rule.still or self._forced:
                self._settle(owner, table, None, (-1, -1), 0)

    def _settle(self, owner: int, table: Table, words: Array | None, where: tuple[int, ...], behind: int) -> None:
        rows, n = table.values.shape
        states = (*table.states, None, None)[:2]
        arrays = (table.values, *states, table.last)
        numbers = (self._kind, self._paces_of(owner), self.step, behind, self._hyper)
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
            arguments = (*batch.transposed(edge.source, delta), gradient, *strides, delta.shape[1])
            noise = self._forward.input_noise(batch, edge.source)
            self._runtime.launch("touched_add", self._rows(edge), *arguments, *noise)
        elif self._clip is not None:
            self._late.append((edge, batch, delta))
        else:
            self._apply(edge, batch, delta)

    def finish(self) -> None:
        """Apply what was not applied yet, and the limits of WeightNorm, unless more batches of the update follow."""
        parameters, exchange = self._parameters, self._exchange
        if exchange is not None:
            exchange.scatter_sum(parameters.gradient.reshape(exchange.ranks, -1))
        if self._sum is not None:
            self._add_up(self._gradient_here(), self._sum)
        if not self._part.last:
            return
        if self._clip is not None:
            self._clip.measure({late[0].owner: late for late in self._late})
        self._share()
        for late in self._late:
            self._apply(*late)
        for span, pacing, marks in self._spans:
            here = slice(span.start - self._own.start, span.stop - self._own.start)
            states = (*(state[here] for state in parameters.states), None, None)[:2]
            count, decayed = span.stop - span.start, max(0, min(span.stop, parameters.decayed) - span.start)
            arrays = (parameters.flat[span], parameters.gradient[span], *states, count, decayed)
            numbers = (self._kind, self._paces[pacing], self.step, self._hyper, self._scale)
            self._runtime.launch("update", grid_of(count // 4), *arrays, *numbers, *marks)
        if exchange is not None:
            exchange.collect(parameters.flat.reshape(exchange.ranks, -1))
        self._limit()

    def _add_up(self, gradient: Array, total: Array) -> None:
        """Add a batch's share to what those before it gave, in `total` if more follow, else in `gradient`."""
        part, grid, launch = self._part, grid_of(gradient.size), self._runtime.launch
        if part.share != 1:
            launch("mul_c", grid, gradient, part.share, gradient.size)
        if not part.first:
            launch("add", grid, gradient, total, gradient.size)
        if not part.last:
            self._runtime.move(total, gradient)

    def _rows(self, edge: Edge) -> tuple[int]:
        """Return the grid of a launch over the rows that a batch touches."""
        return (min(count_units(self._forward.graph.network.spec, edge.source), TABLE_BLOCKS),)

    def _gradient(self, owner: int) -> Array | None:
        return None if owner in self._parameters.tables else self._parameters.gradient_of(f"weights{owner}")

    def _apply(self, edge: Edge, batch: DeviceBatch, delta: Array) -> None:
        table = self._parameters.tables[edge.owner]
        states = (*table.states, None, None)[:2]
        noise, key, step, layers, layer = self._forward.input_noise(batch, edge.source)
        self._runtime.launch(
            "touched_update",
            self._rows(edge),
            *batch.transposed(edge.source, delta),
            *(table.values, *states, table.last, table.values.shape[1]),
            *(self._kind, self._paces_of(edge.owner), step, self._hyper, self._scale),
            *(noise, key, layers, layer, self._marks.of_parts(f"weights{edge.owner}")),
        )

    def _share(self) -> None:
        """In compat mode the gradient of shared weights is the mean over the edges that share them, as in DSSTNE."""
        spec = self._forward.graph.network.spec
        if not spec.compat:
            return
        for name, low, high in self._parts_here():
            uses = sum(name == f"weights{edge.owner}" for edge in spec.edges)
            if uses > 1:
                gradient = self._parameters.gradient[low:high]
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


def tabulate_paces(hyper: Hyper, rate: Rate, steps: int, shift: int, own: Pacing = USUAL) -> np.ndarray:
    """Return the numbers of each step from 0, (steps + 1, 4): see `enum Pace` in kernels/names.cuh.

    They are computed in double precision and rounded once, as when NumPy's scalars meet its float32 arrays.
    """
    table = np.zeros((steps + 1, 4))
    for step in range(1, steps + 1):
        t = max(1, step + shift - own.since)  # before that nobody asks
        pace = Pace(t, own.factor * rate(step), hyper.momentum, hyper.beta2)
        corrections = (pace.corrected_rate, pace.correction) if hyper.rule in ADAMS else (0, 0)
        table[step] = (pace.rate, *corrections, pace.rate * hyper.l2)
    with np.errstate(over="ignore"):  # a rate that does not fit makes a training diverge, which is found there
        return table.astype(np.float32)
