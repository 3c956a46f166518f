"""Ranks as threads of one process, for tests: a transport that copies between them, and fails where calls differ."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from nnlib.shards.collectives import Alone, Collectives, Ranks

T = TypeVar("T")
PATIENCE = 240  # seconds after which a rank that waits for others fails: they may compile, with much else beside them


class Board:
    """What the ranks of one training give each other: one place a rank, and a barrier before and after each look."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=PATIENCE)
        self.given: list[Any] = [None] * ranks


class Threads(Ranks):
    """See `collectives.Ranks`."""

    def __init__(self, rank: int, ranks: int, board: Board) -> None:
        super().__init__(rank, ranks)
        self._board = board
        self.calls: list[tuple[object, ...]] = []

    def swap(self, slices):
        return np.stack([given[self.rank] for given in self._exchange("swap", slices)])

    def gather(self, part):
        return np.stack(self._exchange("gather", part))

    def _exchange(self, kind: str, array: Any) -> list[Any]:
        array = np.ascontiguousarray(array).copy()
        call = (kind, array.shape, array.dtype.str)
        self.calls.append(call)
        board = self._board
        board.given[self.rank] = call, array
        board.barrier.wait()
        given = list(board.given)
        board.barrier.wait()
        assert {found for found, _ in given} == {call}, "all ranks ask for the same exchange"
        return [array for _, array in given]


def run_ranks(ranks: int, work: Callable[[Collectives], T]) -> list[T]:
    """Return what `work` gave on each of so many ranks; one alone has no transport. The first error is raised."""
    if ranks == 1:
        return [work(Alone())]
    board, found, errors = Board(ranks), list[Any]([None] * ranks), list[BaseException]()

    def run(rank: int) -> None:
        try:
            found[rank] = work(Threads(rank, ranks, board))
        except BaseException as error:
            errors.append(error)
            board.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    if errors:
        raise errors[0]
    return found
