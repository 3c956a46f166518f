"""The processes of a job's ranks: started, told the same things in the same order, watched, and ended together.

The job computes nothing itself: it tells all ranks what to do, and waits for what they answer. When one of them dies,
stands still or fails, all are killed, as they hold nothing that is not in a checkpoint; what was wrong is raised here.
When the job is killed the kernel kills its ranks (see `rank`), and their memory without a name goes with them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

import nnlib
from nnlib.errors import DataError, DivergedError, MachineError, NnlibError, NotFiniteError
from nnlib.parallel.host import create_board, map_words
from nnlib.parallel.places import environment_of, threads_of
from nnlib.parallel.watch import Watch, describe_end
from nnlib.parallel.wire import NOTHING, SILENT, TICK, Channel, GoneError, Message, pack

Arrays = Callable[[int], Mapping[str, NDArray[Any]]]  # what a rank is told, by its number

ERROR = "error"  # the operation of a message that says what went wrong
GO = pack(SILENT)
GRACE = 2.0  # seconds in which ranks leave by themselves
TOLD_BY_PARENT = (signal.SIGTERM, signal.SIGINT)  # ranks leave when the job does
EXPECTED: Mapping[str, type[NnlibError]] = {
    kind.__name__: kind for kind in (NnlibError, DataError, DivergedError, MachineError)
}


class RankError(Exception):
    """A bug in a rank, which has printed where."""


class Crew:
    """The ranks of a job; used by several threads, each of which has them for as long as a question takes."""

    def __init__(self, device: str, ranks: int, threads: int, gpus: tuple[str, ...] = ()) -> None:
        """Start them; each has a GPU of its own where `gpus` names some, and its share of `threads`."""
        self.ranks = ranks
        self._lock = threading.RLock()
        self._board = create_board(ranks)
        self._torn = False
        self._poll, self._places = select.poll(), dict[int, int]()  # socket -> rank
        self.unasked: list[Message] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        try:
            for rank in range(ranks):
                self._start(rank, device, threads_of(ranks, threads), environment_of(rank, gpus, os.environ))
        except BaseException:
            self.end(grace=0)
            raise
        self._watch = Watch([process.pid for process in self._processes], map_words(self._board, ranks))
        self._ready = False

    def _start(self, rank: int, device: str, threads: int, environment: dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            environment["PYTHONPATH"] = os.pathsep.join(
                [str(Path(nnlib.__file__).parents[1]), *filter(None, [environment.get("PYTHONPATH")])]
            )
            numbers = (rank, self.ranks, theirs.fileno(), self._board, os.getpid(), threads)
            command = [sys.executable, "-P", "-m", "nnlib.parallel.rank", device, *map(str, numbers)]
            with _blocked_signals():
                process = subprocess.Popen(
                    command,
                    env=environment,
                    pass_fds=(theirs.fileno(), self._board),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
        self._places[ours.fileno()] = rank
        self._poll.register(ours, select.POLLIN)
        self._processes.append(process)
        self._channels.append(Channel(ours, self._look))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def listens(self) -> bool:
        """Whether ranks can be told more: they have not ended, and nothing was broken off in the middle."""
        return bool(self._channels) and not self._torn

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other threads from the ranks; note when what is said is broken off, as by Ctrl-C."""
        with self._lock:
            try:
                yield
            except DivergedError:  # an answer
                raise
            except BaseException:
                self._torn = True
                raise

    def go(self) -> None:
        """Have all ranks train on their next batch."""
        with self.alone():
            for rank, channel in enumerate(self._channels):
                with self._naming(rank):
                    channel.tell(GO)

    def ask(
        self,
        operation: str,
        fields: Mapping[str, Any] = NOTHING,
        arrays: Arrays = lambda _: NOTHING,
        shared: int | None = None,
    ) -> list[Message]:
        """Have all ranks do something; return what each answers.

        `shared` is a file descriptor for all of them, which stays open here. Raises what a rank raised: DivergedError,
        which is an answer, and anything else when all ranks are gone.
        """
        with self.alone():
            if not self.listens:
                raise MachineError("the ranks of this training have ended")
            for rank, channel in enumerate(self._channels):
                with self._naming(rank):
                    channel.send(operation, fields, arrays(rank), shared)
            return self.collect(set(range(self.ranks)))

    def wait_ready(self) -> Mapping[str, Any]:
        """Wait until all ranks have their libraries and their device; return what the first says of these."""
        about = self.collect(set(range(self.ranks)))[0].fields
        self._ready = True
        return about

    def collect(self, waiting: set[int], patient: bool = True) -> list[Message]:
        """Return a message of each rank in `waiting`, in their order; of none when not `patient` and none is there.

        What others say meanwhile is kept in `unasked`; errors are raised.
        """
        found: dict[int, Message] = {}
        self._watch.forget()
        while waiting - found.keys():
            ready = self._readable(TICK if patient or found else 0)
            if not ready and not patient and not found:
                return []
            for rank in ready:
                with self._naming(rank):
                    message = self._channels[rank].receive()
                if message.operation == ERROR and not message.fields["answer"]:
                    self._fail(_error_of(message.fields, self._name(rank)))
                if rank not in waiting or rank in found or (rank and message.operation == SILENT):
                    self.unasked.append(message)
                else:
                    found[rank] = message
            if not ready:
                self._look()
        answers = [found[rank] for rank in sorted(found)]
        for rank, message in zip(sorted(found), answers, strict=True):
            if message.operation == ERROR:
                raise _error_of(message.fields, self._name(rank))
        return answers

    def end(self, grace: float = GRACE) -> None:
        """Let the ranks leave, and kill those that do not; nothing of them is left."""
        for channel in self._channels:
            channel.close()
        until = time.monotonic() + grace
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        if self._board >= 0:
            os.close(self._board)
        self._channels, self._board = [], -1

    def _readable(self, seconds: float) -> list[int]:
        return sorted(self._places[number] for number, _ in self._poll.poll(1000 * seconds))

    def _look(self) -> None:
        """Raise when a rank has ended or gets nowhere; called every TICK while something is waited for."""
        for rank, process in enumerate(self._processes):
            if process.poll() is not None:
                self._hear_last(rank)
        found = self._watch.look()
        if found is not None:
            rank, what = found
            self._fail(MachineError(f"{self._name(rank)} {what}; all ranks were ended"))

    def _hear_last(self, rank: int) -> None:
        """Raise what a rank that has ended said last, or that it has."""
        with self._naming(rank):
            while True:
                message = self._channels[rank].receive()
                if message.operation == ERROR:
                    self._fail(_error_of(message.fields, self._name(rank)))

    @contextmanager
    def _naming(self, rank: int) -> Iterator[None]:
        """Raise MachineError with a rank's name when it turns out to be gone."""
        try:
            yield
        except GoneError:
            self._fail(self._death(rank))

    def _death(self, rank: int) -> MachineError:
        process = self._processes[rank]
        try:
            how = describe_end(process.wait(GRACE))
        except subprocess.TimeoutExpired:
            how = "does not answer any more"
        before = "" if self._ready else " before it was ready; what it said stands above"
        return MachineError(f"{self._name(rank)} {how}{before}; all ranks were ended")

    def _fail(self, error: Exception) -> None:
        """Kill all ranks, and raise why."""
        self.end(grace=0)
        raise error

    def _name(self, rank: int) -> str:
        return f"rank {rank} of {self.ranks} (process {self._processes[rank].pid})"


def _error_of(fields: Mapping[str, Any], name: str) -> Exception:
    """Return what a rank has raised, with its name where the rank matters."""
    kind, text = fields["kind"], fields["text"]
    if kind == NotFiniteError.__name__:
        return NotFiniteError(fields["example"])
    if kind in EXPECTED:
        return EXPECTED[kind](f"{name}: {text}" if kind == MachineError.__name__ else text)
    if kind == MemoryError.__name__:
        return MachineError(f"{name}: out of memory{': ' * bool(text)}{text}; all ranks were ended")
    if kind == OSError.__name__:
        return OSError(fields["errno"], f"{name}: {text}", fields["file"] or None)
    if kind == ImportError.__name__:
        return MachineError(f"{name} cannot start: {text}; install it on this machine")
    return RankError(f"{name}: {kind}: {text}")


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Start a process deaf to the signals that its job answers: until it says so itself, they wait."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TOLD_BY_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
