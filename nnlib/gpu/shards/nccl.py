"""Ranks on GPUs of one machine: NCCL copies, over whatever connects them; what is added, our kernel adds.

NCCL's own sums depend on the number of GPUs, how they are connected and how long a message is, so none is asked for: a
sum is an exchange of slices (grouped sends and receives), the tree of `shards.tree` over what came, an all-gather. All
of it is in the order of the stream that computes, so that a captured graph has it too. NCCL sets up its connections at
the first call of each kind, which is why a kind of batch is launched once before it is captured.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnlib.gpu.runtime import Array, Runtime, grid_of
from nnlib.shards.collectives import Collectives
from nnlib.util.arrays import Floats

INTERFACE = "NCCL_SOCKET_IFNAME"  # over which ranks find each other; their data go another way
LOOPBACK = "lo"
IDENTITY = 128  # bytes by which the ranks of a communicator know each other


class Nccl:
    """See `Collectives`: arrays are those of the GPU, but for `numbers`, which go over `host`."""

    def __init__(self, host: Collectives, runtime: Runtime, communicator: Any) -> None:
        """`host`: the same ranks in this machine's memory; `communicator`: CuPy's, of this rank among them."""
        self.rank, self.ranks, self.own = host.rank, host.ranks, host.own
        self.host, self._runtime, self._communicator = host, runtime, communicator
        self._nccl = runtime.nccl
        self._types = {
            np.dtype(np.float32): self._nccl.NCCL_FLOAT32,
            np.dtype(np.float64): self._nccl.NCCL_FLOAT64,
            np.dtype(np.int32): self._nccl.NCCL_INT32,
        }
        self._rooms: dict[tuple[str, int, Any], Array] = {}
        self.sent = Counter[str]()  # bytes that left this GPU, by kind; a graph's are counted at each launch

    @property
    def _stream(self) -> int:
        return int(self._runtime.compute.ptr)

    def tree_sum(self, parts: Sequence[Array]) -> Array:
        """See `Collectives`."""
        first = parts[0]
        together = self._room("parts", first.size * len(parts), first.dtype).reshape(len(parts), -1)
        for own, part in zip(together, parts, strict=True):
            self._runtime.move(own, part)
        tree_sum(self._runtime, together, first)
        return self.sum_ranks(first)

    def sum_ranks(self, mine: Array) -> Array:
        """See `Collectives`; float32, in place."""
        whole = mine.reshape(-1)
        each = -(-whole.size // self.ranks)
        if each * self.ranks != whole.size:
            padded = self._room("padded", each * self.ranks, mine.dtype)
            self._runtime.clear(padded[whole.size :])
            self._runtime.move(padded, whole)
            self._sum(padded, each)
            self._runtime.move(whole, padded, whole.size)
        else:
            self._sum(whole, each)
        return mine

    def _sum(self, whole: Array, each: int) -> None:
        """Sum numbers, `each` for a rank to add."""
        rows = whole.reshape(self.ranks, each)
        self.scatter_sum(rows)
        self.collect_rows(rows)

    def scatter_sum(self, mine: Array) -> Array:
        """See `Collectives`; in place."""
        found, own = self.swap(mine), mine[self.rank]
        tree_sum(self._runtime, found, own, own, self.rank)
        self._count(own)
        return own

    def collect(self, part: Array) -> Array:
        """See `Collectives`."""
        return self.gather(part)

    def collect_rows(self, whole: Array) -> None:
        """As `collect` of this rank's row of an array (ranks, n), in place."""
        own = whole[self.rank]
        self._gather(own, whole)
        self._count(own)

    def _count(self, part: Array) -> None:
        self.sent["sum"] += (self.ranks - 1) * part.nbytes

    def swap(self, slices: Array) -> Array:
        """Give slices[r] of an array (ranks, n) to rank r; return (ranks, n): what each other one gave."""
        each, kind = slices.shape[1], self._types[slices.dtype]
        found = self._room("swap", slices.size, slices.dtype).reshape(slices.shape)
        others = [rank for rank in range(self.ranks) if rank != self.rank]
        self._nccl.groupStart()
        for other in others:
            self._communicator.send(slices[other].data.ptr, each, kind, other, self._stream)
            self._communicator.recv(found[other].data.ptr, each, kind, other, self._stream)
        self._nccl.groupEnd()
        return found

    def gather(self, part: Array) -> Array:
        """See `Collectives`; what is returned is overwritten by the next one of its size."""
        whole = self._room("gather", part.size * self.ranks, part.dtype).reshape(self.ranks, *part.shape)
        self._gather(part, whole)
        self.sent["gather"] += (self.ranks - 1) * part.nbytes
        return whole

    def share(self, part: Array) -> Array:
        """See `Collectives`."""
        return self.gather(part)

    def numbers(self, values: Sequence[float]) -> Floats:
        """See `Collectives`."""
        return self.host.numbers(values)

    def _gather(self, part: Array, whole: Array) -> None:
        kind = self._types[part.dtype]
        self._communicator.allGather(part.data.ptr, whole.data.ptr, part.size, kind, self._stream)

    def _room(self, use: str, size: int, dtype: Any) -> Array:
        """Return memory for a use, taken when it is first asked for: never during a capture, see the head."""
        key = use, size, np.dtype(dtype)
        if key not in self._rooms:
            self._rooms[key] = self._runtime.zeros(size, dtype)
        return self._rooms[key]


def tree_sum(runtime: Runtime, parts: Array, out: Array, own: Array | None = None, place: int = 0) -> None:
    """Set `out` (n numbers) to the tree's sum of parts (count, n), one of which may be `own` instead, at its place."""
    count = len(parts)
    apart = parts.size // count
    runtime.launch("tree_sum", grid_of(-(-out.size // 4)), parts, apart, count, own, place, out, out.size)


def connect(host: Collectives, runtime: Runtime) -> Nccl:
    """Return the collectives of ranks that have a GPU each, its process's first one; all ranks call it at once."""
    os.environ.setdefault(INTERFACE, LOOPBACK)
    nccl = runtime.nccl
    mine = list(nccl.get_unique_id()) if host.rank == 0 else [0] * IDENTITY
    identity = bytes(int(byte) for byte in host.numbers(mine)[0])
    return Nccl(host, runtime, nccl.NcclCommunicator(host.ranks, identity, host.rank))
