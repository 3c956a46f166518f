"""Collectives of processes of one machine, over memory without a name that all of them map.

Every rank has two slots, which it fills in turn, and a line of words. An exchange is: fill the own slot, arrive, wait
for all others, copy what is wanted of theirs. Who enters exchange n + 2 has seen all arrive at n + 1, who had therefore
read everything of n: so two slots and one barrier an exchange are enough. What does not fit into a slot goes in pieces.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.shards.collectives import Ranks
from nnlib.util.arrays import Longs

SLOT = 4 << 20  # bytes
HEAD = 4096  # bytes before the slots: the words
LINE = 8  # words of a rank: a line of the cache, so that nobody writes into another's
ARRIVED, PHASE, SIZES = 0, 1, 2  # places in it; of two sizes in turn
AT_REST, PREPARING, COMPUTING = range(3)  # phases
LOOKS, YIELDS = 20, 200  # at the others before a rank lets go of its processor, and before it sleeps
FIRST_NAP, LONGEST_NAP = 5e-5, 1e-3  # seconds


def create_board(ranks: int, slot: int = SLOT) -> int:
    """Return the descriptor of memory for so many ranks, all zero; what nobody writes takes no room."""
    memory = os.memfd_create("nnlib-ranks")
    os.ftruncate(memory, HEAD + 2 * ranks * slot)
    return memory


def map_words(memory: int, ranks: int) -> Longs:
    """Return the words of all ranks, (ranks, LINE), as they change."""
    head = mmap.mmap(memory, HEAD)
    return np.frombuffer(head, np.int64, ranks * LINE).reshape(ranks, LINE)


class Host(Ranks):
    """See `collectives.Ranks`; arrays are NumPy's. A rank whose peers never arrive waits until it is ended."""

    def __init__(self, rank: int, ranks: int, memory: int, slot: int = SLOT) -> None:
        """Join the ranks that share the memory of `create_board`."""
        super().__init__(rank, ranks)
        self._slot = slot
        self._words = map_words(memory, ranks)
        self._slots = np.frombuffer(mmap.mmap(memory, HEAD + 2 * ranks * slot), np.uint8, offset=HEAD)
        self._fence = threading.Lock()
        self._fence.acquire()
        self._turn = 0
        self.waited = 0.0  # seconds of processor time, of this thread

    def swap(self, slices: Any) -> Any:
        """See `collectives.Ranks`."""
        given = _bytes_of(slices, self.ranks)
        taken = np.empty_like(given)
        piece = self._slot // self.ranks
        for low in range(0, given.shape[1], piece):
            some = given[:, low : low + piece]
            size = some.shape[1]
            self._slot_of(self.rank, some.size).reshape(self.ranks, size)[...] = some
            self._meet(some.size)
            for other in range(self.ranks):
                taken[other, low : low + size] = self._slot_of(other, some.size)[self.rank * size :][:size]
            self._turn += 1
        return taken.view(slices.dtype).reshape(slices.shape)

    def gather(self, part: Any) -> Any:
        """See `collectives.Ranks`."""
        [given] = _bytes_of(part, 1)
        taken = np.empty((self.ranks, given.size), np.uint8)
        for low in range(0, given.size, self._slot):
            some = given[low : low + self._slot]
            self._slot_of(self.rank, some.size)[...] = some
            self._meet(some.size)
            for other in range(self.ranks):
                taken[other, low : low + some.size] = self._slot_of(other, some.size)
            self._turn += 1
        return taken.view(part.dtype).reshape(self.ranks, *part.shape)

    def enter(self, phase: int) -> None:
        """Let whoever watches know what this rank does now."""
        self._words[self.rank, PHASE] = phase

    def _slot_of(self, rank: int, size: int) -> NDArray[np.uint8]:
        """Return a rank's slot of the exchange that goes on, as far as it is used."""
        low = (2 * rank + self._turn % 2) * self._slot
        return self._slots[low : low + size]

    def _meet(self, size: int) -> None:
        """Wait until all have filled their slots with so many bytes; RuntimeError when they do not agree on that."""
        column = SIZES + self._turn % 2
        self._words[self.rank, column] = size
        self._order()
        self._words[self.rank, ARRIVED] = self._turn + 1
        begun = time.thread_time()
        self._wait(self._turn + 1)
        self.waited += time.thread_time() - begun
        self._order()
        sizes = self._words[:, column].tolist()
        if min(sizes) != max(sizes):
            raise RuntimeError(f"ranks give {sizes} bytes in one exchange, number {self._turn + 1}")

    def _wait(self, turn: int) -> None:
        """Look at the others, then let others have the processor, then sleep: who waits long takes no time."""
        arrived, looks, nap = self._words[:, ARRIVED], 0, FIRST_NAP
        while int(arrived.min()) < turn:
            looks += 1
            if looks > YIELDS:
                time.sleep(nap)
                nap = min(2 * nap, LONGEST_NAP)
            elif looks > LOOKS:
                os.sched_yield()

    def _order(self) -> None:
        """Let no write or read of memory be seen before, or be done after, those on this line's other side.

        On x86 stores are seen in their order. Elsewhere they are not, but to give a lock back and take it keeps it.
        """
        self._fence.release()
        self._fence.acquire()


def _bytes_of(array: Any, rows: int) -> NDArray[np.uint8]:
    """Return an array's bytes, (rows, n)."""
    return np.ascontiguousarray(array).reshape(rows, -1).view(np.uint8)
