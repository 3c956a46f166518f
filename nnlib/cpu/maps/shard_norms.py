"""Batch normalization of a batch that is cut into shards of examples, some of which each rank has.

A layer's statistics are those of the whole batch. Each shard has its mean and squares of the distances from it, which
are merged in the order of the tree; a rank gives those of its branch to all others, in one exchange, and all merge what
came. So are the two sums of the way back added. `ops/batch_norm.py` has the formulas. Twin: gpu/shards/norms.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnlib.cpu.maps.norms import measure, normalize_back_by, normalize_by, sum_back
from nnlib.cpu.maps.pieces import by_maps
from nnlib.cpu.sink import Sink
from nnlib.model.graph import Node
from nnlib.ops import batch_norm
from nnlib.ops.batch_norm import BatchNorm, Moments, Normed
from nnlib.shards.collectives import Collectives
from nnlib.shards.tree import tree_sum
from nnlib.spec.types import LayerType
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each


class ShardNorms:
    """Of one batch of `examples`, of which shard n has the n-th `each`.

    What is given is of the own shards that have examples, in their order; all ranks ask for the same at once.
    """

    def __init__(self, threads: Each, together: Collectives, each: int, examples: int) -> None:
        self.each, self.examples = each, examples
        self._threads, self._together = threads, together

    def forward(self, node: Node, norm: BatchNorm, sums: Sequence[Floats]) -> list[tuple[Normed, Floats]]:
        """Return of each shard what the way back needs, and the normalized, scaled and shifted sums (b, units).

        `sums` are overwritten, and the running averages of `norm` take in the batch's statistics.
        """
        wide = [_wide(node, z) for z in sums]
        found = [self._measure(node, z) for z in wide]
        nothing = [Moments.of_nothing(len(norm.mean), norm.mean.dtype) for _ in self._together.own[len(found) :]]
        own = tree_sum([*found, *nothing])
        every = self._together.share(np.stack([own.mean, own.squares]))
        counts = (self._count(rank) * _places(node) for rank in range(self._together.ranks))
        batch = tree_sum([Moments(count, *row) for count, row in zip(counts, every.copy(), strict=True)])
        inverse = batch_norm.remember(norm, batch)
        outs = [self._normalize(node, norm, z, batch.mean, inverse) for z in wide]
        return [(Normed(z, inverse), out.reshape(len(z), -1)) for z, out in zip(wide, outs, strict=True)]

    def backward(
        self, node: Node, norm: BatchNorm, normed: Sequence[Normed], deltas: Sequence[Floats], sinks: Sequence[Sink]
    ) -> list[Floats]:
        """Return dLoss/d(sums) (b, units) of each shard, from delta = dLoss/d(what `forward` gave).

        The latter is overwritten. Each of the `sinks` gets its shard's part in the gradients of scale and bias.
        """
        wide = [_wide(node, np.ascontiguousarray(delta)) for delta in deltas]
        own = np.zeros((len(self._together.own), 2, len(norm.scale)), norm.scale.dtype)
        for shard, delta, (scale, bias), sink in zip(normed, wide, own, sinks, strict=False):
            self._sum_back(node, shard, delta, scale, bias)
            sink.norm(node.number, scale, bias)
        scale, bias = tree_sum([*self._together.share(tree_sum([*own.copy()])).copy()])
        gradients, count = (scale, bias), self.examples * _places(node)
        found = [self._back(node, norm, *pair, gradients, count) for pair in zip(normed, wide, strict=True)]
        return [delta.reshape(len(delta), -1) for delta in found]

    def _count(self, rank: int) -> int:
        """Return how many examples the shards of a rank have."""
        low = rank * len(self._together.own) * self.each
        return max(0, min(len(self._together.own) * self.each, self.examples - low))

    def _measure(self, node: Node, z: Floats) -> Moments:
        if not _is_wide(node):
            return batch_norm.moments_of(z)
        found = Moments.of_nothing(z.shape[1], z.dtype)
        by_maps(self._threads, lambda some: measure(z, some, found), len(z), node.maps)
        found.count = len(z) * _places(node)
        return found

    def _normalize(self, node: Node, norm: BatchNorm, z: Floats, mean: Floats, inverse: Floats) -> Floats:
        if not _is_wide(node):
            return batch_norm.normalize(norm, z, mean, inverse)
        out = np.empty_like(z)
        by_maps(self._threads, lambda some: normalize_by(norm, z, some, mean, inverse, out), len(z), node.maps)
        return out

    def _sum_back(self, node: Node, normed: Normed, delta: Floats, scale: Floats, bias: Floats) -> None:
        if _is_wide(node):
            by_maps(self._threads, lambda some: sum_back(normed, delta, some, scale, bias), len(delta), node.maps)
        else:
            scale[...], bias[...] = batch_norm.sums_of(normed, delta)

    def _back(
        self, node: Node, norm: BatchNorm, normed: Normed, delta: Floats, gradients: tuple[Floats, Floats], count: int
    ) -> Floats:
        if not _is_wide(node):
            return batch_norm.normalize_back(norm, normed, delta, *gradients, count)

        def some(channels: slice) -> None:
            normalize_back_by(norm, normed, delta, channels, gradients, count)

        by_maps(self._threads, some, len(delta), node.maps)
        return delta


def _is_wide(node: Node) -> bool:
    """Whether statistics are by channel of maps, not by unit."""
    return node.layer.type is not LayerType.FULLY_CONNECTED


def _places(node: Node) -> int:
    return node.maps.area if _is_wide(node) else 1


def _wide(node: Node, z: Floats) -> Floats:
    return z.reshape(len(z), node.maps.channels, node.maps.area) if _is_wide(node) else z
