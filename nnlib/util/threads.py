"""Work on several threads whose result does not depend on how many they are.

BLAS splits a product differently for each number of threads, which changes the last bits of the sums. So BLAS is
held to one thread, and whole pieces of fixed size go to threads of our own; results come back in order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from itertools import count as count_up
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")

# Products and sums of pieces together from which help is asked for: some 90 us on one thread in float32, 50 in
# bfloat16. Help takes about as long to come, and less work with it took longer by what it takes to ask, 2 to 4 us.
LEAST_WORK = 1 << 22
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


def choose_threads(each: Each, work: float) -> Each:
    """Return `each`, or what uses this thread alone where all pieces are less than LEAST_WORK products and sums.

    Results never depend on it.
    """
    return each if work >= LEAST_WORK else map_in_turn


def consume(results: Iterable[Any]) -> None:
    """Wait for every result; an error in one is raised here."""
    for _ in results:
        pass


class _Job(Generic[T]):
    """Pieces of work, of which whoever is free takes the next one."""

    def __init__(self, function: Callable[[int], T], items: list[int]) -> None:
        self._function, self.items = function, items
        self._next = count_up()  # one step is one instruction: no two threads get the same number
        self._found: SimpleQueue[tuple[int, T | None, BaseException | None]] = SimpleQueue()

    def help(self) -> None:
        """Do pieces until none is left."""
        while (place := next(self._next)) < len(self.items):
            self._do(place)

    def _do(self, place: int) -> None:
        try:
            self._found.put((place, self._function(self.items[place]), None))
        except BaseException as error:  # raised where its result is asked for
            self._found.put((place, None, error))

    def results(self) -> Iterator[T]:
        """Give the results in order; while one is missing, do pieces here."""
        known: dict[int, tuple[T | None, BaseException | None]] = {}
        try:
            for wanted in range(len(self.items)):
                while wanted not in known:
                    if (place := next(self._next)) < len(self.items):
                        self._do(place)
                    place, result, error = self._found.get()
                    known[place] = result, error
                result, error = known.pop(wanted)
                if error is not None:
                    raise error
                yield cast(T, result)
        finally:
            self.items = []  # nobody starts another piece


class Team:
    """Threads that help the one that has work, which does not wait for those that have not begun.

    To wake a thread takes as long as a small product. So what is little is done before help comes, and never takes
    longer than on one thread; several may have work at once, also from within a piece of another's.
    """

    def __init__(self, helpers: int) -> None:
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._helpers = [Thread(target=self._help, daemon=True) for _ in range(helpers)]
        for helper in self._helpers:
            helper.start()

    def _help(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.help()

    def each(self, function: Callable[[int], T], items: Iterable[int]) -> Iterator[T]:
        """See `Each`; the work begins at once."""
        job = _Job(function, list(items))
        for _ in range(min(len(self._helpers), len(job.items) - 1)):
            self._jobs.put(job)
        return job.results()

    def end(self) -> None:
        """Wait for the pieces that have begun."""
        for _ in self._helpers:
            self._jobs.put(None)
        for helper in self._helpers:
            helper.join()


@contextmanager
def workers(count: int) -> Iterator[Each]:
    """Give an `Each` that uses `count` threads, this one among them."""
    with _blas_on_one_thread():
        if count == 1:
            yield map_in_turn
            return
        team = Team(count - 1)
        try:
            yield team.each
        finally:
            team.end()


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
