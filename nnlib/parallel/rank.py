"""One rank: a process that does what its job tells it, on its part of a network. See `crew` for the other side.

`python -m nnlib.parallel.rank DEVICE RANK RANKS SOCKET MEMORY JOB THREADS`: SOCKET and MEMORY are descriptors that were
handed on, JOB is the process that did it. The kernel kills a rank whose job has gone; signals that ask a job to leave
are the job's alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

from nnlib.errors import DivergedError, NnlibError, NotFiniteError
from nnlib.parallel.wire import SILENT, Channel, GoneError
from nnlib.util.threads import take_over_blas

PR_SET_PDEATHSIG = 1  # prctl's name for: have this process killed when the one that started it ends


def main(arguments: list[str]) -> None:
    """Be a rank until the job is gone, or something fails, which the job is told."""
    device = arguments[0]
    rank, ranks, number, memory, job, threads = map(int, arguments[1:])
    _belong_to(job)
    channel = Channel(socket.socket(fileno=number))
    try:
        _serve(channel, device, rank, ranks, memory, threads)
    except GoneError:  # the job has ended, or is about to
        pass
    except BaseException as error:
        try:
            channel.send("error", _plain(error) | {"answer": False})
        except (GoneError, OSError):
            pass
        _leave(1)
    _leave(0)


def _belong_to(job: int) -> None:
    """End with the job, and leave its signals to it."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != job:  # it ended before the line above
        _leave(1)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))


def _serve(channel: Channel, device: str, rank: int, ranks: int, memory: int, threads: int) -> None:
    """Do what the job says, one thing after the other. GoneError when it says nothing more."""
    take_over_blas()
    from nnlib.devices import open_device
    from nnlib.parallel.host import Host
    from nnlib.parallel.part import Part

    host = Host(rank, ranks, memory)
    with open_device(device, threads) as (backend, _):
        part = Part(backend, host)
        about = {"name": backend.name, "versions": dict(backend.versions), "device": dict(backend.device)}
        channel.send("ready", about)
        while True:
            message = channel.receive()
            try:
                fields, arrays = part.do(message)
            except DivergedError as error:  # of all ranks alike, and not the end
                channel.send("error", _plain(error) | {"answer": True})
                continue
            if message.operation != SILENT or rank == 0 or fields["failure"]:
                channel.send(message.operation, fields, arrays)


def _plain(error: BaseException) -> dict[str, Any]:
    """Return an error as the job can make it again; where a bug is, is printed here."""
    known = (NotFiniteError, NnlibError, MemoryError, ImportError, OSError)
    if not isinstance(error, known):
        traceback.print_exception(error)
    kind = next((kind.__name__ for kind in (MemoryError, ImportError, OSError) if isinstance(error, kind)), "")
    plain: dict[str, Any] = {"kind": kind or type(error).__name__, "text": str(error)}
    if isinstance(error, NotFiniteError):
        plain |= {"example": error.example}
    elif isinstance(error, OSError):
        plain |= {"errno": error.errno or 0, "file": str(error.filename or ""), "text": error.strerror or str(error)}
    return plain


def _leave(code: int) -> NoReturn:
    """End at once: what a rank has belongs to nobody else, and a device may be waiting for ranks that are gone."""
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
