"""The one order in which sums over shards are added: a binary tree, which a few ranks cut at its branches.

((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). A rank that has 4, 2 or 1 neighbouring shards has a branch of it, so one
array a rank travels, whatever the number of ranks, and the sum has the same bits. As a + b = b + a in bits, only the
pairs count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

SHARDS = 8  # of a layer, however many ranks there are
RANKS = (1, 2, 4, 8)  # among which they can be dealt out

A = TypeVar("A")  # an array, whose memory may be added to, or a number


class Tree(Generic[A]):
    """A sum of parts that come one after the other: as soon as two branches of one height are there, they are added.

    So at most one part a height is kept. Arrays are added in the memory of the left one.
    """

    def __init__(self) -> None:
        self._branches: list[A] = []
        self._count = 0

    @property
    def kept(self) -> int:
        """How many parts are kept: the next one becomes the last of so many and one."""
        return len(self._branches)

    @property
    def first(self) -> A:
        """What is kept of the first parts."""
        return self._branches[0]

    def add(self, part: A) -> None:
        """Take the next part, in the order of shards."""
        self._count += 1
        height = self._count
        while height % 2 == 0:
            left: Any = self._branches.pop()
            left += part
            part, height = left, height // 2
        self._branches.append(part)

    def total(self) -> A:
        """Return the sum of a power of two of parts."""
        if len(self._branches) != 1:
            raise ValueError(f"{self._count} parts are no tree, legal: a power of two")
        return self._branches[0]


def tree_sum(parts: Iterable[A]) -> A:
    """Return the sum of a power of two of parts; arrays are overwritten."""
    tree = Tree[A]()
    for part in parts:
        tree.add(part)
    return tree.total()


def shards_of(rank: int, ranks: int) -> range:
    """Return the shards of a rank: neighbours, a branch of the tree."""
    if ranks not in RANKS or not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks} is not legal, legal: one of {', '.join(map(str, RANKS))} ranks")
    each = SHARDS // ranks
    return range(rank * each, (rank + 1) * each)
