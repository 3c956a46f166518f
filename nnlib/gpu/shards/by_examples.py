"""Trains a network on a GPU, a batch cut into eight shards of examples. Twin: cpu/by_examples.py.

Each GPU has all parameters, and runs its shards one after the other, each as a captured graph. Their gradients are
added by the tree. Then every GPU gets a slice of the sum over all of them, as long as anyone's, updates the parameters
in it, whose optimizer's state it alone has (ZeRO-1), and gives them to the others. That is launched piece by piece: a
few kernels and two exchanges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.engines import Evaluator
from nnlib.gpu.engine import GpuEngine
from nnlib.gpu.evaluator import GpuEvaluator
from nnlib.gpu.feed import Words
from nnlib.gpu.forward import DeviceBatch
from nnlib.gpu.output import ShardLosses
from nnlib.gpu.runtime import Array, Runtime, grid_of
from nnlib.gpu.shards.exchange import Exchange
from nnlib.gpu.shards.nccl import Nccl
from nnlib.model.augmentation import augment
from nnlib.model.batches import Part
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut, Rows, order_for_shards
from nnlib.shards.evaluator import ShardsEvaluator
from nnlib.spec.types import NetworkSpec
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import map_in_turn

NOTHING: Words = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The own shards of a batch, each with how many examples it has; `low`: where in the batch each begins."""

    own: tuple[tuple[Words, int], ...]
    low: tuple[int, ...]
    examples: int  # of the whole batch


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
        self._gradient = self._session.parameters.gradient
        self._branches = Branches(runtime, self._gradient, len(together.own))
        self._asked = by_shards(self._evaluator, network.spec, together)

    def _prepare(self, numbered: tuple[int, Longs]) -> Share:
        """See `GpuEngine`; of the own examples, and those that pictures of its own are mixed with."""
        (step, rows), own = numbered, self._exchange.own
        dealt, drawn, seed = Rows(len(rows), own), order_for_shards(rows), self._settings.seed
        examples, mine = augment(self._spec, self._examples, drawn, seed, step, some=dealt.place)
        parts = [mine[dealt.shard(place)] for place in range(len(own))]
        packed = (self._packing.pack(examples, part, learn=True) if len(part) else NOTHING for part in parts)
        low = tuple(shard * dealt.each for shard in own)
        return Share(tuple(zip(packed, map(len, parts), strict=True)), low, len(rows))

    def _compute(self, batch: Share, part: Part) -> None:
        self._begin(part)
        for place, ((words, size), low) in enumerate(zip(batch.own, batch.low, strict=True)):
            if size:
                work = partial(self._shard, place, low, batch.examples)
                self._session.run((place, low, batch.examples), words, self._packing, size, work, train=True)
            else:
                self._skip(place)
        self._optimizer.finish()

    def _shard(self, place: int, low: int, examples: int, batch: DeviceBatch) -> None:
        batch = replace(batch, place=place, low=low, of=examples)
        self._session.forward.run(batch)
        self._backward.run(batch)
        self._branches.add(place)

    def _skip(self, place: int) -> None:
        """Take a shard without examples, whose gradient is 0."""
        assert isinstance(self._losses, ShardLosses), "this engine has them by shard"
        self._losses.skip(place)
        self._runtime.clear(self._gradient)
        self._branches.add(place)

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
