"""What ranks do together. Transports copy; all that is added is added here, in the order of `tree`.

Every rank asks for the same exchanges in the same order, with arrays of one shape and type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from nnlib.shards.tree import shards_of, tree_sum
from nnlib.util.arrays import Floats

Array = Any  # of float32 or float64, row-contiguous, NumPy's or where else the rank computes


class Collectives(Protocol):
    """The ranks of one training, seen from one of them."""

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""

    @property
    def ranks(self) -> int:
        """How many there are."""

    @property
    def own(self) -> range:
        """The shards that this rank computes."""

    def tree_sum(self, parts: Sequence[Array]) -> Array:
        """Return the sum over all shards, on every rank, of a part for each own one; the parts may be overwritten."""

    def sum_ranks(self, mine: Array) -> Array:
        """As `tree_sum`, of the sum over the own shards in the order of the tree."""

    def scatter_sum(self, mine: Array) -> Array:
        """As `sum_ranks`, of an array (ranks, n); return this rank's row of the sum, (n,)."""

    def collect(self, part: Array) -> Array:
        """As `gather`, of what was made of such a row."""

    def gather(self, part: Array) -> Array:
        """Return the parts (...) of all ranks, (ranks, ...), in their order."""

    def share(self, part: Array) -> Array:
        """As `gather`, of so little that one exchange is worth more than fewer bytes."""

    def numbers(self, values: Sequence[float]) -> Floats:
        """Return a few float64 of every rank, (ranks, n), in their order; in this machine's memory."""


class Alone:
    """One rank, which has all shards."""

    rank, ranks, own = 0, 1, shards_of(0, 1)

    def tree_sum(self, parts: Sequence[Array]) -> Array:
        """See `Collectives`."""
        return tree_sum(parts)

    def sum_ranks(self, mine: Array) -> Array:
        """See `Collectives`."""
        return mine

    def scatter_sum(self, mine: Array) -> Array:
        """See `Collectives`."""
        return mine[0]

    def collect(self, part: Array) -> Array:
        """See `Collectives`."""
        return part[None]

    def gather(self, part: Array) -> Array:
        """See `Collectives`."""
        return part[None]

    def share(self, part: Array) -> Array:
        """See `Collectives`."""
        return part[None]

    def numbers(self, values: Sequence[float]) -> Floats:
        """See `Collectives`."""
        return np.asarray(values, np.float64)[None]


ALONE = Alone()


class Ranks(ABC):
    """Several ranks over a transport, which has `swap` and `gather`: copies only.

    A sum takes as many bytes as a ring's all-reduce, 2 (ranks - 1) / ranks of the array from each rank: every rank gets
    a slice of what all others have, adds it, and gives it to all.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks, self.own = rank, ranks, shards_of(rank, ranks)
        self.sent: dict[str, int] = {}  # bytes that left this rank, by kind of exchange

    @abstractmethod
    def swap(self, slices: Array) -> Array:
        """Give slices[j] of an array (ranks, n) to rank j; return what each rank gave to this one, (ranks, n)."""

    @abstractmethod
    def gather(self, part: Array) -> Array:
        """See `Collectives`."""

    def pad(self, flat: Array, size: int) -> Array:
        """Return a flat array with zeros up to a size; for other arrays than NumPy's a transport has its own."""
        return np.pad(flat, (0, size - flat.size))

    def tree_sum(self, parts: Sequence[Array]) -> Array:
        """See `Collectives`."""
        return self.sum_ranks(tree_sum(parts))

    def sum_ranks(self, mine: Array) -> Array:
        """See `Collectives`."""
        size = -(-mine.size // self.ranks)
        flat = mine.reshape(-1)
        if size * self.ranks > flat.size:
            flat = self.pad(flat, size * self.ranks)
        own = self.scatter_sum(flat.reshape(self.ranks, size))
        return self.collect(own).reshape(-1)[: mine.size].reshape(mine.shape)

    def scatter_sum(self, mine: Array) -> Array:
        """See `Collectives`."""
        self._count("sum", (self.ranks - 1) * mine[0].nbytes)
        return tree_sum(list(self.swap(mine)))

    def collect(self, part: Array) -> Array:
        """See `Collectives`."""
        self._count("sum", (self.ranks - 1) * part.nbytes)
        return self.gather(part)

    def share(self, part: Array) -> Array:
        """See `Collectives`."""
        self._count("gather", (self.ranks - 1) * part.nbytes)
        return self.gather(part)

    def numbers(self, values: Sequence[float]) -> Floats:
        """See `Collectives`; a transport that gathers elsewhere than in this machine's memory has its own."""
        row = np.asarray(values, np.float64)
        self._count("numbers", (self.ranks - 1) * row.nbytes)
        return np.asarray(self.gather(row))

    def _count(self, kind: str, size: int) -> None:
        self.sent[kind] = self.sent.get(kind, 0) + size
