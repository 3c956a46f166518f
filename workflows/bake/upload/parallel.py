"""The same work on many items, by several threads."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

GRACE = 5.0  # seconds that threads get to end what they are at when nobody wants the rest


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Generator[tuple[Item, Result], None, None]:
    """Yield each item with its result, as they come.

    After the first failure nothing new is begun; what is under way is still yielded, then the failure is raised.
    Whoever stops reading (Ctrl-C) waits for GRACE seconds at most: the threads do not keep the process alive, which
    those of concurrent.futures would.
    """
    todo, taking = iter(items), threading.Lock()
    ended: queue.SimpleQueue[tuple[Item, Result] | BaseException | None] = queue.SimpleQueue()
    stop = threading.Event()

    def take_turns() -> None:
        try:
            while not stop.is_set():
                with taking:
                    item = next(todo)
                ended.put((item, work(item)))
        except StopIteration:
            pass
        except BaseException as error:  # raised again by the reader
            stop.set()
            ended.put(error)
        ended.put(None)

    running = [threading.Thread(target=take_turns, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    failure: BaseException | None = None
    try:
        left = threads
        while left:
            match ended.get():
                case None:
                    left -= 1
                case BaseException() as error:
                    failure = failure or error
                case pair:
                    yield pair
    finally:
        stop.set()
        until = time.monotonic() + GRACE
        for thread in running:
            thread.join(max(until - time.monotonic(), 0))
    if failure:
        raise failure
