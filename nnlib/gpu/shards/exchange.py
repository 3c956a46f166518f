"""What a GPU does together with those of the other ranks of its training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.gpu.runtime import Array, CapturedGraph, Runtime
from nnlib.gpu.shards.nccl import Nccl, tree_sum
from nnlib.shards.collectives import Collectives
from nnlib.util.arrays import Floats

Graph = tuple[CapturedGraph, Counter[str]]


class Exchange:
    """Collectives for arrays of a GPU, in the order of its stream `compute`.

    NCCL's take its arrays, and a captured graph may have them in it. Any others work in this machine's memory: what is
    exchanged is copied there and back, which nothing captured can do.
    """

    def __init__(self, runtime: Runtime, together: Collectives) -> None:
        self._runtime, self.together = runtime, together
        self.own, self.ranks = together.own, together.ranks
        self._nccl = together if isinstance(together, Nccl) else None
        self._sent = self._nccl.sent if self._nccl else Counter[str]()

    @property
    def captured(self) -> bool:
        """Whether a graph may have exchanges in it."""
        return self.ranks == 1 or self._nccl is not None

    def capture(self, work: Callable[[], None]) -> Graph:
        """Return `work` as a graph, and the bytes that each of its launches sends to other ranks."""
        before = self._sent.copy()
        graph = self._runtime.capture(work)
        sent = self._sent - before
        self._sent -= sent
        return graph, sent

    def replay(self, graph: Graph) -> None:
        """Launch what was captured."""
        captured, sent = graph
        self._runtime.replay(captured)
        self._sent += sent

    def add_up(self, parts: Array, out: Array) -> None:
        """Set `out` to the tree's sum of parts (own shards, ...) over all shards, on every rank; both contiguous."""
        tree_sum(self._runtime, parts, out)
        self.sum_ranks(out)

    def sum_ranks(self, mine: Array) -> None:
        """Replace the sum over the own shards by that over all, on every rank."""
        if self.ranks == 1:
            return
        if self._nccl is not None:
            self._nccl.sum_ranks(mine)
        else:
            self._runtime.upload(mine, self.together.sum_ranks(self._runtime.download(mine)))

    def scatter_sum(self, mine: Array) -> None:
        """Replace this rank's row of a sum over the own shards, (ranks, n), by that of the sum over all; float32."""
        if self.ranks == 1:
            return
        if self._nccl is not None:
            self._nccl.scatter_sum(mine)
        else:
            self._runtime.upload(mine[self.together.rank], self.together.scatter_sum(self._runtime.download(mine)))

    def collect(self, whole: Array) -> None:
        """Replace the rows of the other ranks in an array (ranks, n) by what they have in them."""
        if self.ranks == 1:
            return
        if self._nccl is not None:
            self._nccl.collect_rows(whole)
        else:
            own = self._runtime.download(whole[self.together.rank])
            self._runtime.upload(whole, self.together.collect(own))

    def gather(self, part: Array, out: Array) -> None:
        """Set `out` to the parts of all ranks, in their order; numbers of four or eight bytes."""
        if self.ranks == 1:
            self._runtime.move(out, part, part.nbytes // 4)
        elif self._nccl is not None:
            self._runtime.move(out, self._nccl.gather(part), out.nbytes // 4)
        else:
            self._runtime.upload(out, self.together.share(self._runtime.download(part)))

    def numbers(self, values: Sequence[float] | Floats) -> Floats:
        """See `Collectives`; never within a graph."""
        return self.together.numbers([float(value) for value in values])

    def gather_here(self, part: NDArray[Any]) -> NDArray[Any]:
        """As `gather`, of an array in this machine's memory, (ranks, ...); never within a graph."""
        host = self._nccl.host if self._nccl else self.together
        return np.asarray(host.gather(np.ascontiguousarray(part)))
