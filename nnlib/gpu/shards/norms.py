"""Batch normalization, on GPUs, of a batch that is cut into shards of examples. Twin: cpu/maps/shard_norms.py.

All own shards have come to a layer when its statistics are merged, each with room of its own. One exchange a layer each
way, which a captured graph may have in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnlib.gpu.forward import DeviceBatch, Forward
from nnlib.gpu.maps.channels import Channels
from nnlib.gpu.runtime import THREADS, Array
from nnlib.gpu.shards.exchange import Exchange
from nnlib.gpu.shards.nccl import tree_sum
from nnlib.model.graph import Node
from nnlib.model.network import norm_count
from nnlib.spec.geometry import Maps


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """An own shard that has examples, and what computes it."""

    forward: Forward
    batch: DeviceBatch


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """What a layer's shards give, and what becomes of it: pairs of numbers of each of n channels, two of them a part.

    They are the mean and the sum of squares of the distances from it; on the way back the gradients of scale and bias.
    """

    own: Array  # (own shards, 2, n)
    mine: Array  # (2, n): of these together
    every: Array  # (ranks, 2, n)
    whole: Array  # (2, n): of the batch
    center: Array  # (n,): its mean
    inverse: Array  # (n,): 1 / standard deviation


class ShardNorms:
    """The batch normalizations of a network that learn; all ranks ask for the same at once."""

    def __init__(self, forward: Forward, exchange: Exchange) -> None:
        network, self._runtime = forward.graph.network, forward.runtime
        self._parameters, self._exchange = forward.parameters, exchange
        self.layers = network.learned_norms
        zeros, shards, self._rooms = self._runtime.zeros, len(exchange.own), dict[int, Statistics]()
        for layer in self.layers:
            n = norm_count(network.spec, layer)
            parts = zeros((shards, 2, n)), zeros((2, n)), zeros((exchange.ranks, 2, n)), zeros((2, n))
            self._rooms[layer] = Statistics(*parts, zeros(n), zeros(n))
        self._channels = Channels(self._runtime, max(room.inverse.size for room in self._rooms.values()))

    def forward(self, node: Node, shards: Sequence[Shard], each: int, examples: int) -> None:
        """Normalize the sums of the shards in place: `each` examples, or fewer in the last ones, of so many in all."""
        room, maps, first = self._rooms[node.number], self._maps(node), self._exchange.own.start
        for shard in shards:
            self._channels.measure(_sums(node, shard), room.own[shard.batch.place], maps)
        self._join(room.own, room.mine, maps, (first, each, examples))
        self._exchange.gather(room.mine, room.every)
        self._join(room.every, room.whole, maps, (0, each * len(room.own), examples))
        mean, variance, scale, bias = (
            self._parameters.values(f"norm{node.number}_{name}") for name in ("mean", "variance", "scale", "bias")
        )
        found = *room.whole, room.center, room.inverse, mean, variance
        sizes = examples, maps.channels, maps.area, examples
        self._runtime.launch("map_statistics", (math.ceil(maps.channels / THREADS),), *found, *sizes)
        for shard in shards:
            z, normal = _sums(node, shard), _normal(node, shard)
            self._channels.normalize_by(z, normal, (room.center, room.inverse), (scale, bias), maps)

    def backward(self, node: Node, shards: Sequence[Shard], deltas: Sequence[Array], examples: int) -> None:
        """Turn dLoss/d(what `forward` gave) into dLoss/d(sums), in place; each shard has its part of the gradients."""
        room, maps = self._rooms[node.number], self._maps(node)
        if len(shards) < len(room.own):
            self._runtime.clear(room.own)
        for shard, delta in zip(shards, deltas, strict=True):
            found = room.own[shard.batch.place]
            self._channels.sum_back(delta, _normal(node, shard), (found[0], found[1]), maps)
            for name, sums in zip(("scale", "bias"), found, strict=True):
                self._runtime.move(shard.forward.parameters.gradient_of(f"norm{node.number}_{name}"), sums)
        tree_sum(self._runtime, room.own, room.mine)
        self._exchange.gather(room.mine, room.every)
        tree_sum(self._runtime, room.every, room.whole)
        factors = self._parameters.values(f"norm{node.number}_scale"), room.inverse
        for shard, delta in zip(shards, deltas, strict=True):
            gradients = room.whole[0], room.whole[1]
            self._channels.normalize_back(delta, _normal(node, shard), factors, gradients, examples, maps)

    def _join(self, parts: Array, out: Array, maps: Maps, sizes: tuple[int, int, int]) -> None:
        """Merge moments of parts; `sizes`: the number of the first, the examples of each, those of the whole batch."""
        grid = (math.ceil(maps.channels / THREADS),)
        self._runtime.launch("join_moments", grid, parts, len(parts), out, maps.channels, *sizes, maps.area)

    def _maps(self, node: Node) -> Maps:
        """Return a layer's channels and their places: units without maps are channels of one place."""
        n = self._rooms[node.number].inverse.size
        return node.maps if node.maps.channels == n else Maps(n)


def _sums(node: Node, shard: Shard) -> Array:
    return shard.forward.rooms[node.number].z[: shard.batch.size]


def _normal(node: Node, shard: Shard) -> Array:
    normal = shard.forward.rooms[node.number].normal
    assert normal is not None, "room for training has it"
    return normal[: shard.batch.size]
