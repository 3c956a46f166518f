"""Brings batches to the GPU: the next one is copied while the one before is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nnlib.gpu.runtime import Array, Runtime

Words = NDArray[np.int32]
S = TypeVar("S")
T = TypeVar("T")

SLOTS = 2  # batches on their way
GROWTH = 1.5  # times what a batch needs is taken when it does not fit, so that this becomes rare at once


def prepare_ahead(prepare: Callable[[S], T], items: Iterable[S], threads: int) -> Generator[T, None, None]:
    """Yield prepare(item) for every item, in order; a few are prepared ahead of time, on `threads` threads."""
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(prepare, item))
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


class Feed:
    """Batches go from pinned memory to a slot on the GPU, on the stream that copies, and from there to `words`.

    Captured graphs read `words`, which moves when a batch does not fit: `generation` counts how often it did.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.words: Array = runtime.zeros(0, np.int32)
        self.generation = 0
        self._pinned: list[Words] = []
        self._slots: list[Array] = []
        self._copied = [runtime.event() for _ in range(SLOTS)]  # the pinned memory may be filled again
        self._taken = [runtime.event() for _ in range(SLOTS)]  # the slot may be
        self._next = 0

    def put(self, batch: Words) -> None:
        """Let `words` hold a batch, for everything that is launched from now on."""
        if batch.size > self.words.size:
            self._grow(int(batch.size * GROWTH))
        runtime, slot = self._runtime, self._next
        self._next = (slot + 1) % SLOTS
        self._copied[slot].synchronize()
        pinned = self._pinned[slot][: batch.size]
        pinned[...] = batch
        runtime.copy.wait_event(self._taken[slot])
        runtime.begin_upload(self._slots[slot], pinned)
        self._copied[slot].record(runtime.copy)
        runtime.compute.wait_event(self._copied[slot])
        runtime.move(self.words, self._slots[slot], batch.size)
        self._taken[slot].record(runtime.compute)

    def _grow(self, size: int) -> None:
        self._runtime.compute.synchronize()
        self.generation += 1
        self.words = self._runtime.zeros(size, np.int32)
        self._slots = [self._runtime.zeros(size, np.int32) for _ in range(SLOTS)]
        self._pinned = [self._runtime.pinned(size) for _ in range(SLOTS)]
        self._runtime.compute.synchronize()  # the zeros must not come after what `copy` brings
