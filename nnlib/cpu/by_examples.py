"""Trains a network on processors, a batch cut into eight shards of examples. Twin: gpu/shards/by_examples.py.

A rank computes all of its examples together. What is summed over examples is summed shard by shard, and so is each
product whose rows would have other bits with others beside them: what that costs one rank,
`python -m scripts.bench.level3.examples` shows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nnlib.contract import TrainSettings
from nnlib.cpu.backward import backward_shards
from nnlib.cpu.engine import CpuEngine
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.cpu.forward import Values
from nnlib.cpu.maps.shard_norms import ShardNorms
from nnlib.cpu.optimizer import limit_weights
from nnlib.cpu.shard_gradients import ShardGradients, Summed, lay_out
from nnlib.engines import Evaluator
from nnlib.model.augmentation import augment
from nnlib.model.batches import part_of, take_inputs, take_targets
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.ops.targets import Targets
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut, Rows, order_for_shards
from nnlib.shards.evaluator import ShardsEvaluator
from nnlib.util.arrays import Longs
from nnlib.util.threads import Each


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The own examples of a batch, and the targets of each own shard that has some; how many examples there are in all.

    Shard n has the n-th `each` of them.
    """

    inputs: Mapping[int, Any]
    targets: Sequence[Mapping[int, Targets]]
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
        places = lay_out(network, cut)
        self._sink, self._summed = ShardGradients(network, places), Summed(network, places, cut, together)

    def batches(self, examples: Iterable[Longs]) -> Generator[Share, None, None]:
        """See `engines.Engine`: a rank reads its own examples, and those that pictures of its own are mixed with."""
        spec, dtype, seed = self._network.spec, self._network.dtype, self._settings.seed
        for step, rows in enumerate(examples, self.step + 1):
            dealt = Rows(len(rows), self._together.own)
            drawn = order_for_shards(rows)
            found, mine = augment(spec, self._examples, drawn, seed, step, self._each, dealt.place)
            shards = (mine[dealt.shard(place)] for place in range(len(dealt.own)))
            targets = [take_targets(spec, found, some, dtype) for some in shards if len(some)]
            yield Share(take_inputs(spec, found, mine, dtype), targets, dealt.each, len(rows))

    def run(self, batch: Any) -> None:
        """See `engines.Engine`."""
        self.step += 1
        part = part_of(self._examples.count, self._settings, self.step)
        if part.first:
            self._optimizer.begin()
        norms = ShardNorms(self._each, self._together, batch.each, batch.examples)
        self._sink.begin(part.share if batch.targets else 0.0)
        if batch.targets:
            self._pass(batch, norms)
        else:
            self._errors.add(0.0, {})
            nodes = [node for node in self._forward.nodes if node.number in self._forward.normalized]
            norms.attend(nodes, self._network.norms, self._forward.live)
        self._summed.add(self._sink.flat, part.last)
        if part.last:
            self._summed.give(self._optimizer, self._settings.clip, self._each)
            limit_weights(self._network)

    def _pass(self, batch: Share, norms: ShardNorms) -> None:
        """Go forward and back with the own examples."""
        own, forward = self._together.own, self._forward
        keep = partial(self._keep, low=own[0] * batch.each)
        values = forward.run(batch.inputs, keep, True, Values(batch.examples, norms.shards, norms))
        errors = backward_shards(forward, values, batch.targets, self._sink)
        self._errors.add(0.0, dict(zip(own, errors, strict=False)))
        self._look_at(sum(errors), values)

    def evaluator(self) -> Evaluator:
        """See `engines.Engine`."""
        return by_shards(self._network, self._each, False, self._together)


def by_shards(network: Network, each: Each, split: bool, together: Collectives) -> Evaluator:
    """Return what asks a network about shards of examples; `split`: see `engines.Backend.evaluator`."""
    return ShardsEvaluator(CpuEvaluator(network, each, split), network.spec, network.dtype, each, together)
