"""The service as a whole: its socket, its workers, its end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from nnlib.util.process import catch_signals
from nnlib.util.threads import take_over_blas
from regiondag.errors import RegiondagError, UsageError
from regiondag.registry.read import Champion, open_registry
from regiondag.serve.guard import Access, Guard, Rules, is_loopback
from regiondag.serve.metrics import LOADED, NOT_LOADED, Counters
from regiondag.serve.store import Place, Store
from regiondag.serve.workers import run_workers
from regiondag.util.text import spell_out

if TYPE_CHECKING:
    import socket

    from nnlib.prediction.recommender import Recommender

SWITCH_SECONDS = 0.001  # the thread that answers lets the one that reads and writes have its turn
PARENT_SECONDS = 1.0  # between two looks whether the process that began a worker is still there
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to serve."""

    places: Sequence[Place]
    host: str
    port: int
    rules: Rules
    memory: int  # bytes of champions, of each worker
    workers: int
    access_log: bool


def serve(settings: Settings, announce: Say, say: Say) -> int:
    """Serve until told to end, and finish what was asked; return 0. `announce` gets the address, `say` the log's lines.

    UsageError for a host that others reach, without tokens; RegiondagError for one where nothing can be listened to.
    """
    from regiondag.serve.http_server import listen

    if not settings.rules.tokens and not is_loopback(settings.host):
        raise UsageError(
            f"--host {settings.host}: others reach it, and there are no tokens; legal without --token-file: 127.0.0.1, "
            "::1, localhost. Next: openssl rand -hex 32 >tokens; chmod 600 tokens; --token-file tokens"
        )
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        raise RegiondagError(f"{settings.host}:{settings.port}: cannot be listened to: {error.strerror}") from error
    take_over_blas()
    counters = Counters(settings.workers)
    host, port = listener.getsockname()[:2]
    announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    if settings.workers == 1:
        return _work(settings, listener, counters, say)
    parent = os.getpid()

    def work(number: int) -> int:
        counters.take(number)
        return _work(settings, listener, counters, say, parent)

    return run_workers(settings.workers, work, say)


def _work(settings: Settings, listener: socket.socket, counters: Counters, say: Say, parent: int | None = None) -> int:
    """Serve in this process."""
    from regiondag.serve.app import Application, Service
    from regiondag.serve.http_server import HttpServer

    def loaded(well: bool) -> None:
        counters.add(LOADED if well else NOT_LOADED)

    store = Store(settings.places, settings.memory, open_champion, say, loaded)

    def note(access: Access) -> None:
        if settings.access_log:
            say(show_access(access))

    guard = Guard(Application(Service(store, counters)), settings.rules, counters, note, say)
    server = HttpServer(guard, listener)
    told: list[int] = []

    def tell(number: int, _: FrameType | None) -> None:
        told.append(number)
        server.stop()

    sys.setswitchinterval(SWITCH_SECONDS)
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent, server.stop), daemon=True).start()
    with catch_signals((signal.SIGTERM, signal.SIGINT), tell):
        store.start()
        server.run()
        store.stop()
    if signal.SIGINT in told and parent is None:
        raise KeyboardInterrupt
    return 0


def open_champion(runs: Path, study: str, slug: str) -> tuple[Champion, Recommender]:
    """Return the champion in office with what recommends by it; RegiondagError where there is none, or a bad one."""
    from regiondag.recommend import open_region

    for _ in range(3):  # it may be promoted meanwhile
        champion = open_registry(runs, study).current(slug)
        if champion is None:
            raise RegiondagError("no champion is in office")
        champion.check()
        recommender = open_region(runs, study, slug)
        now = open_registry(runs, study).current(slug)
        if now is not None and now.version == champion.version:
            return now, recommender
    raise RegiondagError("champions were promoted faster than they can be loaded")


def show_access(access: Access) -> str:
    """Return the log's line of a request: what others wrote in it is spelled out."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    what = spell_out(f"{access.client} {access.method} {access.address}")
    return f"{now} {what} {access.status} {access.size} {1000 * access.seconds:.1f} ms"


def _end_with(parent: int, stop: Callable[[], None]) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    stop()
