"""NCCL as CuPy has it, played by threads of this process, a rank each: it fails where NCCL would hang or give nonsense.

What is asked goes to the stream and is done in its turn. A send or a receive ends only when its group is done on both
sides: so a receive that is not in the group of its send, a peer that does something else, another size, type or order,
all of which NCCL waits for for ever, or copies wrongly, end with a PlayedError.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tests.kernels.standin import Stream

NCCL_INT32, NCCL_FLOAT32, NCCL_FLOAT64 = 2, 7, 8  # as in nccl.h
SIZES = {NCCL_INT32: 4, NCCL_FLOAT32: 4, NCCL_FLOAT64: 8}
PATIENCE = 20.0  # seconds: what waits longer would wait for ever
IDENTITY = 128  # bytes


class PlayedError(AssertionError):
    """Ranks do not do the same."""


@dataclass(frozen=True)
class Message:
    """What a rank gives to another one in one call."""

    call: tuple[Any, ...]  # what it is, how long and of which type
    data: bytes


class Fabric:
    """What joins the ranks of one communicator: a line for each pair."""

    known: ClassVar[dict[bytes, Fabric]] = {}
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, ranks: int) -> None:
        self.ranks, self.joined = ranks, set[int]()
        pairs = [(a, b) for a in range(ranks) for b in range(ranks)]
        self.lines: dict[tuple[int, int], queue.Queue[Message]] = {pair: queue.Queue() for pair in pairs}
        self.taken: dict[tuple[int, int], queue.Queue[bool]] = {pair: queue.Queue() for pair in pairs}


class Group(threading.local):
    """The calls of this thread that wait for the end of their group."""

    depth = 0

    def __init__(self) -> None:
        self.calls: list[tuple[Stream, Callable[[], None], Callable[[], None], Callable[[], None]]] = []


GROUP = Group()


def get_unique_id() -> bytes:
    """Return what the ranks of a new communicator know it by."""
    return uuid.uuid4().bytes * (IDENTITY // 16)


def groupStart() -> None:
    """The calls of this thread up to `groupEnd` are one."""
    GROUP.depth += 1


def groupEnd() -> None:
    """Ask the stream for all sends, then all receives; it goes on when all that was sent has been received."""
    GROUP.depth -= 1
    if GROUP.depth:
        return
    calls, GROUP.calls = GROUP.calls, []
    if len({id(stream) for stream, *_ in calls}) > 1:
        raise PlayedError("calls of a group on several streams")

    def work() -> None:
        for step in zip(*(steps for _, *steps in calls), strict=True):
            for do in step:
                do()

    if calls:
        calls[0][0].ask(work)


class NcclCommunicator:
    """One rank of a communicator; pointers are addresses of this process's memory."""

    def __init__(self, ndev: int, commId: bytes, rank: int) -> None:
        assert isinstance(commId, bytes) and len(commId) == IDENTITY, "as get_unique_id gives it"
        with Fabric.lock:
            self._fabric = Fabric.known.setdefault(commId, Fabric(ndev))
            if self._fabric.ranks != ndev or rank in self._fabric.joined or not 0 <= rank < ndev:
                raise PlayedError(f"rank {rank} of {ndev} where {sorted(self._fabric.joined)} have joined")
            self._fabric.joined.add(rank)
        self._rank = rank
        self.calls: list[tuple[Any, ...]] = []

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Give `count` numbers to a peer."""
        self._note("send", count, datatype, peer)
        call = "send", count, datatype
        self._ask(
            stream,
            lambda: self._give(peer, Message(call, ctypes.string_at(sendbuf, count * SIZES[datatype]))),
            lambda: None,
            lambda: self._wait(self._fabric.taken[self._rank, peer], f"rank {peer} takes nothing of rank {self._rank}"),
        )

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Take `count` numbers from a peer."""
        self._note("recv", count, datatype, peer)
        self._ask(stream, lambda: None, lambda: self._take(peer, ("send", count, datatype), recvbuf), lambda: None)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        """Give `count` numbers to all, and take those of all in the order of ranks."""
        self._note("allGather", count, datatype)
        size, call, peers = count * SIZES[datatype], ("allGather", count, datatype), range(self._fabric.ranks)

        def give() -> None:
            own = ctypes.string_at(sendbuf, size)
            for peer in peers:
                self._give(peer, Message(call, own))

        def take() -> None:
            for peer in peers:
                self._take(peer, call, recvbuf + peer * size)

        def wait() -> None:
            for peer in peers:
                self._wait(self._fabric.taken[self._rank, peer], f"rank {peer} does not gather")

        self._ask(stream, give, take, wait)

    def _note(self, *call: Any) -> None:
        self.calls.append(call)

    def _ask(self, stream: int, *steps: Callable[[], None]) -> None:
        groupStart()
        GROUP.calls.append((Stream.by_pointer[stream], *steps))
        groupEnd()

    def _give(self, peer: int, message: Message) -> None:
        self._fabric.lines[self._rank, peer].put(message)

    def _take(self, peer: int, call: tuple[Any, ...], place: int) -> None:
        message = self._wait(self._fabric.lines[peer, self._rank], f"rank {peer} gives nothing to rank {self._rank}")
        if message.call != call:
            raise PlayedError(f"rank {self._rank} asks for {call}, rank {peer} for {message.call}")
        ctypes.memmove(place, message.data, len(message.data))
        self._fabric.taken[peer, self._rank].put(True)

    @staticmethod
    def _wait(line: queue.Queue[Any], why: str) -> Any:
        try:
            return line.get(timeout=PATIENCE)
        except queue.Empty:
            raise PlayedError(f"after {PATIENCE} s {why}") from None
