"""Batch normalization of a batch that is cut into shards of examples, some of which each rank has.

A layer's statistics are those of the whole batch. Each shard has its mean and squares of the distances from it, which
are merged in the order of the tree; a rank gives those of its branch to all others, in one exchange, and all merge what
came. So are the two sums of the way back added. `ops/batch_norm.py` has the formulas. Twin: gpu/shards/norms.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from nnlib.cpu.maps.by_shard import filled
from nnlib.cpu.maps.norms import measure, normalize_back_by, normalize_by, sum_back
from nnlib.cpu.maps.pieces import by_maps
from nnlib.cpu.sink import Sink
from nnlib.model.graph import Node
from nnlib.ops import batch_norm
from nnlib.ops.batch_norm import BatchNorm, Moments, Normed
from nnlib.shards.collectives import Collectives
from nnlib.shards.cut import Rows
from nnlib.shards.tree import tree_sum
from nnlib.spec.types import LayerType
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each


class ShardNorms:
    """Of one batch of `examples`, of which shard n has the n-th `each`.

    What is given is of the own shards; all ranks ask for the same at once, those without examples by `attend`.
    """

    def __init__(self, threads: Each, together: Collectives, each: int, examples: int) -> None:
        self.each, self.examples = each, examples
        self._threads, self._together = threads, together
        self.shards = tuple(map(Rows(examples, together.own).shard, range(len(together.own))))

    def forward(self, node: Node, norm: BatchNorm, sums: Floats) -> tuple[Normed, Floats]:
        """Return what the way back needs, and the normalized, scaled and shifted sums (b, units).

        `sums` are overwritten, and the running averages of `norm` take in the batch's statistics.
        """
        z = _wide(node, sums)
        found = [self._measure(node, z[some]) for some in filled(self.shards)]
        mean, inverse = self._merge(node, norm, found)
        return Normed(z, inverse), self._normalize(node, norm, z, mean, inverse).reshape(sums.shape)

    def backward(self, node: Node, norm: BatchNorm, normed: Normed, delta: Floats, sink: Sink) -> Floats:
        """Return dLoss/d(sums) (b, units), from delta = dLoss/d(what `forward` gave), which is overwritten.

        The `sink` gets the own shards' part in the gradients of scale and bias.
        """
        wide = _wide(node, np.ascontiguousarray(delta))
        parts = np.zeros((len(self.shards), 2, len(norm.scale)), norm.scale.dtype)
        for some, (scale, bias) in zip(filled(self.shards), parts, strict=False):
            self._sum_back(node, Normed(normed.normal[some], normed.inverse), wide[some], scale, bias)
        own = tree_sum([*parts])
        sink.norm(node.number, *own)
        scale, bias = self._add(own)
        return self._back(node, norm, normed, wide, (scale, bias), self.examples * _places(node)).reshape(delta.shape)

    def attend(self, nodes: Sequence[Node], norms: Mapping[int, BatchNorm], live: Collection[int]) -> None:
        """Take part in all exchanges of a batch of which this rank has no example; `nodes` are those that learn."""
        for node in nodes:
            self._merge(node, norms[node.number], [])
        for node in (node for node in reversed(nodes) if node.number in live):
            self._add(np.zeros((2, len(norms[node.number].scale)), norms[node.number].scale.dtype))

    def _merge(self, node: Node, norm: BatchNorm, found: Sequence[Moments]) -> tuple[Floats, Floats]:
        """Return the whole batch's mean and 1 / standard deviation, from the moments of the own shards."""
        nothing = [Moments.of_nothing(len(norm.mean), norm.mean.dtype) for _ in self.shards[len(found) :]]
        own = tree_sum([*found, *nothing])
        every = self._together.share(np.stack([own.mean, own.squares]))
        counts = (self._count(rank) * _places(node) for rank in range(self._together.ranks))
        batch = tree_sum([Moments(count, *row) for count, row in zip(counts, every.copy(), strict=True)])
        return batch.mean, batch_norm.remember(norm, batch)

    def _add(self, own: Floats) -> Floats:
        """Return the sum over all shards, from that over the own ones."""
        return tree_sum([*self._together.share(own).copy()])

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
