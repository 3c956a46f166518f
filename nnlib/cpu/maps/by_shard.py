"""Sums over the examples of a batch that is cut: of each shard alone, and these in the order of the tree.

So a sum has the bits that it has where each shard is another rank's. The first shards have examples, at least one of
them; the others count as zeros. A batch that is not cut has no shards, and one sum over all examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnlib.cpu.products import Factor, Ordered, Products
from nnlib.cpu.scratch import SCRATCH
from nnlib.shards.tree import Tree
from nnlib.util.arrays import Floats


def filled(shards: Sequence[slice]) -> tuple[slice, ...]:
    """Return the shards that have examples."""
    return tuple(some for some in shards if some.start < some.stop)


def by_shard(find: Callable[[slice], Floats], shards: Sequence[slice]) -> Floats:
    """Return the sum of what `find` gives of some examples, which may be overwritten."""
    return _add(lambda some, _: find(some), shards) if shards else find(slice(None))


def weight_gradient(products: Products, x: Factor, delta: Factor, shards: Sequence[slice], dtype: Any) -> Floats:
    """Return x^T delta (n, m), of x (b, n) and delta (b, m), until this thread asks for the next one."""
    shape = x.shape[1], delta.shape[1]
    if not shards:
        return products.multiply(x.T, delta, SCRATCH.get("gradient 0", shape, dtype))
    if isinstance(products, Ordered):
        ends = [some.stop for some in shards]
        return products.multiply_shards(x.T, delta, ends, SCRATCH.get("gradient 0", shape, dtype))

    def part(some: slice, kept: int) -> Floats:
        return products.multiply(x[some].T, delta[some], SCRATCH.get(f"gradient {kept}", shape, dtype))

    return _add(part, shards)


def _add(find: Callable[[slice, int], Floats], shards: Sequence[slice]) -> Floats:
    """Return the sum of what `find` gives of each shard, which is told how many parts are kept meanwhile."""
    tree = Tree[Floats]()
    for some in filled(shards):
        tree.add(find(some, tree.kept))
    for _ in shards[len(filled(shards)) :]:
        tree.add(np.zeros_like(tree.first))
    return tree.total()
