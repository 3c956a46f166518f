"""Sums over the examples of a batch that is cut: of each shard alone, and these in the order of the tree.

So a sum has the bits that it has where each shard is another rank's. The first shards have examples, at least one of
them; the others count as zeros. A batch that is not cut has no shards, and one sum over all examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.cpu.products import Factor, Ordered, Products
from nnlib.cpu.scratch import SCRATCH
from nnlib.cpu.sink import Sink
from nnlib.shards.tree import Tree, tree_sum
from nnlib.util.arrays import Floats


def filled(shards: Sequence[slice]) -> tuple[slice, ...]:
    """Return the shards that have examples."""
    return tuple(some for some in shards if some.start < some.stop)


def by_shard(find: Callable[[slice], Floats], shards: Sequence[slice]) -> Floats:
    """Return the sum of what `find` gives of some examples, which may be overwritten."""
    return _add(lambda some, _: find(some), shards) if shards else find(slice(None))


def weight_gradient(products: Products, x: Factor, delta: Factor, shards: Sequence[slice], dtype: Any) -> Floats:
    """Return x^T delta (n, m), of x (b, n) and delta (b, m); by shards until this thread asks for the next one."""
    if not shards:
        return products.multiply(x.T, delta)
    shape = x.shape[1], delta.shape[1]
    if isinstance(products, Ordered):
        ends = [some.stop for some in shards]
        return products.multiply_shards(x.T, delta, ends, SCRATCH.get("gradient 0", shape, dtype))

    def part(some: slice, kept: int) -> Floats:
        return products.multiply(x[some].T, delta[some], SCRATCH.get(f"gradient {kept}", shape, dtype))

    return _add(part, shards)


class PartSums:
    """A sink (see `sink.Sink`) that gives another one sums over `shards`, of which some `parts` have examples.

    Parts give it the same pieces, one after the other; several threads may give different pieces at once.
    """

    def __init__(self, sink: Sink, shards: int, parts: int) -> None:
        self._sink, self._shards, self._parts = sink, shards, parts
        self._trees: dict[tuple[object, ...], list[Floats]] = {}

    def rows(self, edge: int, low: int, gradient: Floats) -> None:
        """See `Sink`."""
        self._take(self._sink.rows, edge, low, gradient)

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """See `Sink`."""
        self._take(self._sink.bias, edge, low, gradient)

    def touched(self, edge: int, low: int, rows: NDArray[np.int64], gradient: Floats) -> None:
        """Not called: batches of sparse inputs are not cut."""
        raise NotImplementedError

    def norm(self, layer: int, scale: Floats, bias: Floats) -> None:
        """Not called: no layer of blocks is normalized."""
        raise NotImplementedError

    def _take(self, give: Callable[[int, int, Floats], None], edge: int, low: int, gradient: Floats) -> None:
        key = give.__name__, edge, low
        parts = self._trees.setdefault(key, [])
        parts.append(gradient.copy())
        if len(parts) == self._parts:
            del self._trees[key]
            give(edge, low, tree_sum([*parts, *[np.zeros_like(gradient)] * (self._shards - len(parts))]))


def _add(find: Callable[[slice, int], Floats], shards: Sequence[slice]) -> Floats:
    """Return the sum of what `find` gives of each shard, which is told how many parts are kept meanwhile."""
    tree = Tree[Floats]()
    for some in filled(shards):
        tree.add(find(some, tree.kept))
    for _ in shards[len(filled(shards)) :]:
        tree.add(np.zeros_like(tree.first))
    return tree.total()
