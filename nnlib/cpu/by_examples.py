"""Trains a network on processors, a batch cut into eight shards of examples. Twin: gpu/shards/by_examples.py.

All products are those of a shard, as their bits depend on how many rows there are, so one rank pays for what several
could share: what that costs, `python -m scripts.bench.level3.examples` shows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nnlib.contract import TrainSettings
from nnlib.cpu.backward import Way, backward_shards
from nnlib.cpu.engine import CpuEngine
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.cpu.maps.shard_norms import ShardNorms
from nnlib.cpu.optimizer import limit_weights
from nnlib.cpu.shard_gradients import ShardGradients, Summed, lay_out
from nnlib.engines import Evaluator
from nnlib.model.augmentation import augment
from nnlib.model.batches import Batch, batch_of, part_of
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut, Rows, order_for_shards
from nnlib.shards.evaluator import ShardsEvaluator
from nnlib.shards.tree import Tree
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The own shards of a batch, and how many examples there are in all: shard n has the n-th `each` of them."""

    own: Sequence[Batch]
    each: int
    examples: int


class ExamplesEngine(CpuEngine):
    """See `engines.Engine`.

    The `cut` says which shards are this rank's. It has the whole network, but the optimizer's state of its own rows.
    All ranks do the same at the same time, as in `CpuEngine`.
    """

    def __init__(
        self,
        network: Network,
        examples: Examples,
        settings: TrainSettings,
        each: Each,
        cut: Cut,
        together: Collectives = ALONE,
    ) -> None:
        super().__init__(network, examples, settings, each, cut, together)
        self._places = lay_out(network, cut)
        self._summed = Summed(network, self._places, cut, together)
        self._memory: list[ShardGradients] = []  # as many as the tree keeps, and those that come together

    def batches(self, examples: Iterable[Longs]) -> Generator[Share, None, None]:
        """See `engines.Engine`: a rank reads its own examples, and those that pictures of its own are mixed with."""
        spec, dtype, seed = self._network.spec, self._network.dtype, self._settings.seed
        for step, rows in enumerate(examples, self.step + 1):
            dealt = Rows(len(rows), self._together.own)
            drawn = order_for_shards(rows)
            found, mine = augment(spec, self._examples, drawn, seed, step, self._each, dealt.place)
            parts = (mine[dealt.shard(place)] for place in range(len(dealt.own)))
            yield Share([batch_of(spec, found, part, dtype) for part in parts], dealt.each, len(rows))

    def run(self, batch: Any) -> None:
        """See `engines.Engine`."""
        self.step += 1
        part = part_of(self._examples.count, self._settings, self.step)
        if part.first:
            self._optimizer.begin()
        found = dict[int, Way]()
        tree, norms = Tree[Floats](), ShardNorms(self._each, self._together, batch.each, batch.examples)
        shards = [*zip(self._together.own, batch.own, strict=True)]
        step = len(shards) if self._forward.normalized else 1  # these wait for each other, others need less memory
        for first in range(0, len(shards), step):
            some = shards[first : first + step]
            gradients = [self._room(tree.kept + n) for n in range(len(some))]
            found |= self._shards(some, gradients, part.share, norms)
            for gradient in gradients:
                tree.add(gradient.flat)
        self._summed.add(tree.total(), part.last)
        if part.last:
            self._summed.give(self._optimizer, self._settings.clip, self._each)
            limit_weights(self._network)
        self._errors.add(0.0, {shard: way.error for shard, way in found.items()})
        for way in found.values():
            self._look_at(way.error, way.values)

    def _shards(
        self, some: Sequence[tuple[int, Batch]], sinks: Sequence[ShardGradients], share: float, norms: ShardNorms
    ) -> dict[int, Way]:
        """Compute shards together, each with its gradient's memory; return how those went that have examples."""
        for (_, own), sink in zip(some, sinks, strict=True):
            sink.begin(share if own.examples else 0.0)
        full = [(shard, own) for shard, own in some if own.examples]  # the first ones
        given = [(own.inputs, partial(self._keep, low=shard * norms.each)) for shard, own in full]
        found = self._forward.run_shards(given, norms)
        ways = [Way(values, own.targets, sink) for (_, own), values, sink in zip(full, found, sinks, strict=False)]
        backward_shards(self._forward, ways, norms)
        return {shard: way for (shard, _), way in zip(full, ways, strict=True)}

    def evaluator(self) -> Evaluator:
        """See `engines.Engine`."""
        return by_shards(self._network, self._each, False, self._together)

    def _room(self, place: int) -> ShardGradients:
        if place == len(self._memory):
            self._memory.append(ShardGradients(self._network, self._places))
        return self._memory[place]


def by_shards(network: Network, each: Each, split: bool, together: Collectives) -> Evaluator:
    """Return what asks a network about shards of examples; `split`: see `engines.Backend.evaluator`."""
    return ShardsEvaluator(CpuEvaluator(network, each, split), network.spec, network.dtype, each, together)
