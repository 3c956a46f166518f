"""Questions are answered by one thread; those that wait for the same champion with the same wishes go together.

A question of many customers costs little more than one of a single customer, so the more wait the faster it goes, and
nobody waits for others to come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from regiondag.serve.asking import HISTORY, answer_customers, answer_history
from regiondag.serve.messages import Answered, Wishes
from regiondag.serve.store import Serving

MOST_TOGETHER = 32  # customers; a region that is asked for more lets the others have their turn between
MOST_REASONED = 4  # the same, where each item's reasons are wanted: a customer is asked about once for each that he has


@dataclass(frozen=True, slots=True)
class Question:
    """What customers of one region are asked about together: by which champion, and what is wanted."""

    serving: Serving
    wishes: Wishes
    history: tuple[str, ...] = ()  # of somebody unknown

    @property
    def most(self) -> int:
        """How many customers go together."""
        return MOST_REASONED if self.wishes.because else MOST_TOGETHER


Waiting = tuple[Sequence[str], "asyncio.Future[list[Answered]]"]  # customers


class Desk:
    """Where questions wait; all but the answering is done on the event loop's thread."""

    def __init__(self) -> None:
        self._waiting: dict[Question, deque[Waiting]] = {}
        self._thread = ThreadPoolExecutor(1, "answers")
        self._busy = False

    async def ask(self, question: Question, customers: Sequence[str] = (HISTORY,)) -> list[Answered]:
        """Return the answers, in the order of the customers."""
        parts = [customers[low : low + question.most] for low in range(0, len(customers), question.most)]
        found = await asyncio.gather(*(self._put(question, part) for part in parts))
        return [one for answers in found for one in answers]

    def _put(self, question: Question, customers: Sequence[str]) -> asyncio.Future[list[Answered]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Answered]] = loop.create_future()
        self._waiting.setdefault(question, deque()).append((customers, future))
        if not self._busy:
            self._busy = True
            loop.call_soon(self._begin, loop)  # with those that came in the same moment
        return future

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take from the question that waits the longest as many customers as go together."""
        while self._waiting:
            question, waiting = next(iter(self._waiting.items()))
            del self._waiting[question]
            taken: list[Waiting] = []
            count = 0
            while waiting and count + len(waiting[0][0]) <= question.most:
                one = waiting.popleft()
                if not one[1].done():  # else nobody waits for it any more
                    taken.append(one)
                    count += len(one[0])
            if waiting:
                self._waiting[question] = waiting  # behind the others
            if taken:
                names = [name for one in taken for name in one[0]]
                done = self._thread.submit(_answer, question, names)
                done.add_done_callback(partial(self._pass_on, loop, taken))
                return
        self._busy = False

    def _pass_on(self, loop: asyncio.AbstractEventLoop, taken: list[Waiting], done: Future[list[Answered]]) -> None:
        """Give the answers from the thread that made them to the event loop's."""
        loop.call_soon_threadsafe(self._end, loop, taken, done)

    def _end(self, loop: asyncio.AbstractEventLoop, taken: list[Waiting], done: Future[list[Answered]]) -> None:
        error = done.exception()
        answers = [] if error else done.result()
        for customers, future in taken:
            some, answers = answers[: len(customers)], answers[len(customers) :]
            if future.done():
                continue
            if error:
                future.set_exception(error)
            else:
                future.set_result(some)
        self._begin(loop)


def _answer(question: Question, customers: list[str]) -> list[Answered]:
    recommender = question.serving.recommender
    if question.history:
        return answer_history(recommender, question.history, question.wishes) * len(customers)
    return answer_customers(recommender, customers, question.wishes)
