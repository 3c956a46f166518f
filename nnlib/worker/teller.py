"""Tell HTCondor what a job is doing, for people who look while it runs: a comfort, which never harms a training."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from nnlib.epoch_log import Epoch
from nnlib.progress import (
    AT,
    CURVE,
    DOING,
    EPOCH,
    EPOCHS,
    LONGEST_DOING,
    LOSS,
    SECONDS_LEFT,
    VALUE,
    literal,
    pack_curve,
)
from nnlib.worker import chirp

BETWEEN = 3.0  # seconds between two messages at least; HTCondor sends them on every ten at the most
MOST_FAILURES = 3  # in a row, after which nothing is told any more
Say = Callable[[Mapping[str, str]], bool]


class Teller:
    """What a job says of itself. Where HTCondor does not run it, or cannot be told, nothing is said."""

    def __init__(
        self,
        say: Say = chirp.set_attributes,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Say nothing yet. `clock` counts seconds, `now` is Unix time."""
        self._say, self._clock, self._now = say, clock, now
        self._state: dict[str, float | str | None] = {EPOCH: 0, EPOCHS: 0, DOING: ""}
        self._state |= dict.fromkeys((LOSS, VALUE, SECONDS_LEFT))
        self._told: dict[str, str] = {}  # what HTCondor knows; nothing yet of this start of the job
        self._last = -BETWEEN
        self._failures = 0 if say is not chirp.set_attributes or chirp.CHIRP_CONFIG in os.environ else MOST_FAILURES
        self._values: list[float] = []
        self._first = self._started = 0.0  # where this start of the job took the training up, and when
        self._epochs_after = 0

    def begin(self, epochs: int, log: Sequence[Epoch] = (), which: str = "", epochs_after: int = 0) -> None:
        """Note that a training begins; its first batch says so, and which epoch of those in `log` it goes on from.

        `which` one it is of several, in words; `epochs_after` are those of the trainings that come after it.
        """
        values = [epoch.value for epoch in log if epoch.value is not None]
        self._values, self._epochs_after, self._started = values, epochs_after, 0.0
        self._state = {
            EPOCH: len(log),
            EPOCHS: epochs,
            LOSS: log[-1].loss if log else None,
            VALUE: values[-1] if values else None,
            SECONDS_LEFT: None,
            DOING: which[:LONGEST_DOING],
        }

    def do(self, text: str) -> None:
        """Say in words what the job does now."""
        self._state |= {DOING: text[:LONGEST_DOING], SECONDS_LEFT: None}
        self._tell()

    def batch(self, epoch: int, done: int, examples: int) -> None:
        """Note how far a training is within an epoch, and say it when it is time to."""
        now, position = self._clock(), epoch - 1 + done / examples
        if not self._started:  # the first batch of this start: now it is known where it went on
            self._first, self._started = position, now
            self._cut(epoch - 1)
            self._tell()
        elif now - self._last >= BETWEEN:
            self._estimate(position, now)
            self._tell()

    def epoch(self, epoch: Epoch) -> None:
        """Note what an epoch gave, and say it when it is time to."""
        self._cut(epoch.epoch - 1)
        self._values += [] if epoch.value is None else [epoch.value]
        self._state |= {EPOCH: epoch.epoch, LOSS: epoch.loss, VALUE: epoch.value}
        now = self._clock()
        if now - self._last >= BETWEEN:
            self._estimate(epoch.epoch, now)
            self._tell()

    def count(self, what: str, total: int) -> Callable[[int], None]:
        """Return what to call with how many more of `total` are done; `what` is what is done with them."""
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            if self._clock() - self._last >= BETWEEN:
                self.do(f"{what} {done:,} of {total:,}")

        self.do(f"{what} 0 of {total:,}")
        return advance

    def _cut(self, epochs: int) -> None:
        """Forget what an earlier start of the job said of epochs after these, which are done again."""
        if epochs < int(self._state[EPOCH] or 0):
            self._values = self._values[:epochs]
            value = self._values[-1] if self._values else None
            self._state |= {EPOCH: epochs, LOSS: None, VALUE: value}

    def _estimate(self, position: float, now: float) -> None:
        moved, left = position - self._first, float(self._state[EPOCHS] or 0) - position + self._epochs_after
        self._state[SECONDS_LEFT] = round((now - self._started) / moved * max(left, 0.0), 1) if moved > 0 else None

    def _tell(self) -> None:
        """Say what has changed."""
        self._last = self._clock()
        if self._failures >= MOST_FAILURES:
            return
        state = self._state | {CURVE: pack_curve(self._values), AT: round(self._now(), 1)}
        values = {name: literal(value) for name, value in state.items()}
        changed = {name: value for name, value in values.items() if self._told.get(name) != value}
        if self._say(changed):
            self._told, self._failures = values, 0
            return
        self._told, self._failures = {}, self._failures + 1
        if self._failures == MOST_FAILURES:
            print("nnlib: HTCondor takes no word of how far this job is: it goes on in silence", file=sys.stderr)
