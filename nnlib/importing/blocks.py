"""Large files of text read in blocks, one being read while the last one is worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from nnlib.importing.string_ids import WORD

Bytes = NDArray[np.uint8]
T = TypeVar("T")

AHEAD = 4  # blocks
ROOM = 3 * WORD  # zero bytes behind a block, so that words may be read beyond its end
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_ahead(source: Iterator[T]) -> Iterator[T]:
    """Yield the same, made in a thread of its own and some ahead."""
    end = object()
    with ThreadPoolExecutor(1) as thread:
        try:
            waiting = deque(thread.submit(next, source, end) for _ in range(AHEAD))
            while (thing := waiting.popleft().result()) is not end:
                waiting.append(thread.submit(next, source, end))
                yield cast(T, thing)
        finally:
            thread.shutdown(cancel_futures=True)
