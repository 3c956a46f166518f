"""Examples a block at a time, results in their order, so that neither of them has to fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import Csr
from nnlib.util.arrays import Longs
from nnlib.util.threads import Each, map_in_turn

Lookup = Callable[[Longs], Csr]  # numbers of examples -> a row for each: items to leave out, or values to multiply by
Watch = Callable[[int], None]  # takes how many more examples are done
T = TypeVar("T")

BATCH = 256  # examples computed at a time,
MOST_OUTPUTS = 1 << 24  # or fewer, so that a block of outputs has no more numbers than this
WINDOW = 16  # blocks under way at a time


def choose_block_size(width: int, most: int = 0) -> int:
    """Return how many examples of so many outputs are computed at a time, `most` of them, 0: BATCH."""
    return max(1, min(most or BATCH, MOST_OUTPUTS // width))


def run_in_order(
    function: Callable[[Longs], T],
    count: int,
    width: int,
    each: Each = map_in_turn,
    watch: Watch | None = None,
    at_once: int = 0,
) -> Iterator[T]:
    """Yield function(numbers of examples) for blocks of `count` examples, some blocks at a time, in their order.

    A block has `at_once` examples, 0: as many as `choose_block_size` says of the width.
    `watch` is called with how many examples each block has.
    """
    size = at_once or choose_block_size(width)

    def block(low: int) -> T:
        return function(np.arange(low, min(low + size, count)))

    starts = range(0, count, size)
    for n in range(0, len(starts), WINDOW):
        some = starts[n : n + WINDOW]
        for low, found in zip(some, each(block, some), strict=True):
            yield found
            if watch is not None:
                watch(min(size, count - low))


def collect(found: Iterator[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return what the blocks gave by name, one after the other."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for block in found:
        for name, values in block.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}
