"""Trains a network on a GPU, a batch cut into eight shards of examples. Twin: cpu/by_examples.py.

Each GPU has all parameters, and runs its shards one after the other. Their gradients are added by the tree. Then every
GPU gets a slice of the sum over all of them, as long as anyone's, updates the parameters in it, whose optimizer's state
it alone has (ZeRO-1), and gives them to the others. Where batch normalization learns, the shards go from layer to layer
together, each with room and a gradient of its own. All of a step is one captured graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.engines import Evaluator
from nnlib.gpu.backward import Backward
from nnlib.gpu.engine import GpuEngine
from nnlib.gpu.evaluator import GpuEvaluator
from nnlib.gpu.feed import Words
from nnlib.gpu.forward import DeviceBatch, Forward
from nnlib.gpu.output import ShardLosses
from nnlib.gpu.runtime import Array, Runtime, align, grid_of
from nnlib.gpu.shards.exchange import Exchange
from nnlib.gpu.shards.nccl import Nccl, tree_sum
from nnlib.gpu.shards.norms import Shard, ShardNorms
from nnlib.model.augmentation import augment
from nnlib.model.batches import Part
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut, Rows, order_for_shards
from nnlib.shards.evaluator import ShardsEvaluator
from nnlib.shards.tree import SHARDS
from nnlib.spec.types import Edge, NetworkSpec
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import map_in_turn

NOTHING: Words = np.zeros(1, np.int32)  # what a GPU gets that has no examples


@dataclass(frozen=True, slots=True)
class Place:
    """Where an own shard begins among the words of all, its examples, and how many of the batch come before them."""

    start: int
    size: int
    low: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How the own shards of a batch lie: shard n of all has the n-th `each` of the examples."""

    own: tuple[Place, ...]
    each: int
    examples: int  # of the whole batch


class Uses:
    """A sink (see `backward.Sink`) of a shard that goes along with others."""

    def __init__(self) -> None:
        self._used = set[int]()

    def begin(self) -> None:
        """See `backward.Sink`."""
        self._used.clear()

    def next_use(self, owner: int) -> bool:
        """See `backward.Sink`."""
        seen = owner in self._used
        self._used.add(owner)
        return seen

    def touched(self, edge: Edge, batch: DeviceBatch, delta: Array) -> None:
        """Not called: a plan by examples has no sparse inputs."""
        raise NotImplementedError


class Branches:
    """The sum of the own shards' gradients, which come one after the other in the same memory, as `tree.Tree` adds.

    One branch a height is kept, in memory of its own; the last sum stays where the gradients come.
    """

    def __init__(self, runtime: Runtime, gradient: Array, shards: int) -> None:
        self._runtime, self._gradient = runtime, gradient
        self._kept = [runtime.zeros(gradient.size) for _ in range(shards.bit_length() - 1)]

    def add(self, place: int) -> None:
        """Add what the own shard at this place has left in the gradient."""
        height, count = 0, place + 1
        while count % 2 == 0:
            kept = self._kept[height]
            self._runtime.launch("add", grid_of(kept.size), self._gradient, kept, kept.size)
            height, count = height + 1, count // 2
        if height < len(self._kept):
            self._runtime.move(self._kept[height], self._gradient)


class ExamplesEngine(GpuEngine):
    """See `engines.Engine`. All ranks do the same at the same time: run a batch, ask for totals and states, go on."""

    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        examples: Examples,
        settings: TrainSettings,
        threads: int,
        cut: Cut,
        together: Collectives,
    ) -> None:
        """As `GpuEngine`; the `cut` says which shards, and of which rows the states, are this rank's."""
        super().__init__(runtime, network, examples, settings, threads, None, ALONE, together)
        self._cut, self._exchange = cut, Exchange(runtime, together)
        self._asked = by_shards(self._evaluator, network.spec, together)
        self._norms: ShardNorms | None = None
        if network.learned_norms:
            self._go_together(math.ceil(min(settings.batch, examples.count) / SHARDS))
        else:
            self._branches = Branches(runtime, self._session.parameters.gradient, len(together.own))

    def _go_together(self, most: int) -> None:
        """Make room for all own shards at once, of up to `most` examples each."""
        session, losses = self._session, self._losses
        assert isinstance(losses, ShardLosses), "this engine has them by shard"
        parameters, self._norms = session.parameters, ShardNorms(session.forward, self._exchange)
        self._gradients = self._runtime.zeros((len(self._exchange.own), parameters.gradient.size))
        self._forwards, self._backwards = list[Forward](), list[Backward]()
        for gradient in self._gradients:
            forward = session.forward.beside(parameters.beside(gradient), most)
            self._forwards.append(forward)
            self._backwards.append(Backward(forward, losses.beside(forward), Uses()))

    def _prepare(self, numbered: tuple[int, Longs]) -> tuple[Words, Layout]:
        """See `GpuEngine`; of the own examples, and those that pictures of its own are mixed with."""
        (step, rows), own = numbered, self._exchange.own
        dealt, drawn, seed = Rows(len(rows), own), order_for_shards(rows), self._settings.seed
        examples, mine = augment(self._spec, self._examples, drawn, seed, step, some=dealt.place)
        words, places, start = list[Words](), list[Place](), 0
        for place, shard in enumerate(own):
            part = mine[dealt.shard(place)]
            places.append(Place(start, len(part), shard * dealt.each))
            if len(part):
                packed = self._packing.pack(examples, part, learn=True)
                words += [packed, np.zeros(align(packed.size) - packed.size, np.int32)]
                start += align(packed.size)
        return np.concatenate(words or [NOTHING]), Layout(tuple(places), dealt.each, len(rows))

    def _compute(self, batch: tuple[Words, Layout], part: Part) -> None:
        words, layout = batch
        work = partial(self._step, part, layout)
        own = sum(place.size for place in layout.own)
        self._session.run((part, layout), words, self._packing, own, work, train=True, exchange=self._exchange)

    def _step(self, part: Part, layout: Layout, every: DeviceBatch) -> None:
        self._begin(part)
        batches = [
            replace(every, words=every.words[one.start :], size=one.size, low=one.low, of=layout.examples, place=n)
            for n, one in enumerate(layout.own)
        ]
        if self._norms is None:
            for batch in batches:
                self._shard(batch)
        else:
            self._shards(self._norms, layout, batches)
        self._optimizer.finish()

    def _shard(self, batch: DeviceBatch) -> None:
        """Compute a shard, and add its gradient to those before it."""
        if batch.size:
            self._session.forward.run(batch)
            self._backward.run(batch)
        else:
            self._skip(batch.place, self._session.parameters.gradient)
        self._branches.add(batch.place)

    def _skip(self, place: int, gradient: Array) -> None:
        """Take a shard without examples, whose gradient is 0."""
        assert isinstance(self._losses, ShardLosses), "this engine has them by shard"
        self._losses.skip(place)
        self._runtime.clear(gradient)

    def _shards(self, norms: ShardNorms, layout: Layout, batches: Sequence[DeviceBatch]) -> None:
        """Compute the own shards layer by layer; then the gradient is the sum of theirs."""
        full = [Shard(self._forwards[batch.place], batch) for batch in batches if batch.size]
        backwards, nodes = self._backwards[: len(full)], self._session.graph.nodes  # these are the first ones
        for node in nodes:
            for shard in full:
                shard.forward.sum_up(node, shard.batch)
            if node.number in norms.layers:
                norms.forward(node, full, layout.each, layout.examples)
            elif node.layer.batch_norm:
                for shard in full:
                    shard.forward.normalize(node, shard.batch)
            for shard in full:
                shard.forward.activate(node, shard.batch)
        for backward in backwards:
            backward.begin()
        for node in reversed(nodes):
            found = [backward.delta(node, shard.batch) for backward, shard in zip(backwards, full, strict=True)]
            deltas = [delta for delta in found if delta is not None]  # all, or none
            if node.number in norms.layers & self._session.parameters.live:
                norms.backward(node, full, deltas, layout.examples)
            else:
                for backward, delta in zip(backwards, deltas, strict=False):
                    backward.norm_backward(node, delta)
            for backward, shard, delta in zip(backwards, full, deltas, strict=False):
                backward.give(node, shard.batch, delta)
        for backward, shard in zip(backwards, full, strict=True):
            backward.finish(shard.batch)
        for batch in batches[len(full) :]:
            self._skip(batch.place, self._gradients[batch.place])
        tree_sum(self._runtime, self._gradients, self._session.parameters.gradient)

    def evaluator(self) -> Evaluator:
        """See `engines.Engine`."""
        return self._asked

    def states(self) -> Mapping[str, Floats]:
        """See `engines.Engine`: the own rows of each array, as `Cut.rows_of` has them."""
        whole = self._session.parameters.pull_states(self._whole)
        return {name: self._cut.take(name, array) for name, array in whole.items()}

    def _whole(self, state: Array) -> Array:
        """Return an array of states of all ranks, of which this has a slice."""
        whole = self._runtime.zeros((self._exchange.ranks, state.size))
        self._runtime.move(whole[self._exchange.together.rank], state)
        self._exchange.collect(whole)
        return whole.reshape(-1)

    def resume(self, step: int, states: Mapping[str, Floats]) -> None:
        """See `engines.Engine`: from the own rows, as `states` gives them."""
        super().resume(step, {name: self._joined(name, rows) for name, rows in states.items()})

    def _joined(self, name: str, own: Floats) -> Floats:
        """Return an array of states of which every rank has its own rows."""
        rows = self._cut.rows_of(name)
        if not isinstance(rows, Rows):
            return own
        padded = np.zeros((rows.each * len(self._cut.own), *own.shape[1:]), own.dtype)
        padded[: len(own)] = own
        every: Any = self._exchange.gather_here(padded)
        return np.asarray(every.reshape(-1, *own.shape[1:])[: rows.units])


def by_shards(asked: GpuEvaluator, spec: NetworkSpec, together: Collectives) -> Evaluator:
    """Return what asks a GPU about shards of examples, one after the other, and joins the answers of all GPUs."""
    host = together.host if isinstance(together, Nccl) else together
    return ShardsEvaluator(asked, spec, np.float32, map_in_turn, host)
