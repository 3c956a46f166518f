"""Work on several threads whose result does not depend on how many they are.

BLAS splits a product differently for each number of threads, which changes the last bits of the sums. So BLAS is
held to one thread, and whole pieces of fixed size go to threads of our own; results come back in order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

THREADS = "OMP_NUM_THREADS"  # HTCondor sets it to the job's CPUs
BLAS_THREADS = (THREADS, "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def count_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Each(Protocol):
    """Apply a function to every item; the results come in the order of the items."""

    def __call__(self, function: Callable[[int], T], items: Iterable[int], /) -> Iterable[T]:
        """Return function(item) for every item."""


def map_in_turn(function: Callable[[int], T], items: Iterable[int]) -> Iterator[T]:
    """Apply `function` on this thread, to each item when its result is asked for."""
    return map(function, items)


def consume(results: Iterable[Any]) -> None:
    """Wait for every result; an error in one is raised here."""
    for _ in results:
        pass


@contextmanager
def workers(count: int) -> Iterator[Each]:
    """Give an `Each` that uses `count` threads."""
    with _blas_on_one_thread():
        if count == 1:
            yield map_in_turn
            return
        with ThreadPoolExecutor(count) as pool:
            yield pool.map


def _blas_on_one_thread() -> AbstractContextManager[object]:
    """Hold the BLAS that is loaded to one thread; workers without threadpoolctl have it from `take_over_blas`."""
    controller = _find_blas(len(sys.modules))
    return controller.limit(limits=1, user_api="blas") if controller else nullcontext()


@lru_cache(maxsize=1)
def _find_blas(modules: int) -> Any:  # noqa: ARG001
    """Return what controls the libraries that are loaded, None where nothing does.

    To look for them takes milliseconds, more than a question about one customer; no others come but with new modules.
    """
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def take_over_blas() -> int:
    """Hold BLAS to one thread and return how many there may be; call it before NumPy is imported."""
    wanted = os.environ.get(THREADS, "1")
    for name in BLAS_THREADS:
        os.environ[name] = "1"
    return max(1, int(wanted)) if wanted.isdecimal() else 1
