"""What a running trial said of itself last. A worker says it, so all of it is checked and bounded here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnlib.progress import (
    AT,
    CURVE,
    DOING,
    EPOCH,
    EPOCHS,
    LONGEST,
    LONGEST_DOING,
    LOSS,
    MOST_POINTS,
    SECONDS_LEFT,
    VALUE,
)
from regiondag.run.layout import NodeName
from regiondag.util.text import make_printable

MOST_EPOCHS = 100_000
LONGEST_TIME = 10 * 365 * 86400  # seconds that a training may say to have left
LATEST = 2**32  # of Unix times


@dataclass(frozen=True, slots=True)
class Live:
    """What a running trial said last; what it did not say, or wrongly, is None, 0 or empty."""

    node: NodeName
    epoch: int  # epochs that have ended
    epochs: int  # how many there will be at most; 0: it has none, or did not say
    loss: float | None
    value: float | None  # of the validation metric
    curve: tuple[float, ...]  # the validation metric of the epochs so far, thinned to 100 at most
    seconds_left: float | None
    at: float  # when it was said, Unix time by the worker's clock
    doing: str = ""  # in words, where it is no epoch

    def age(self, now: float) -> float:
        """Return for how long this has been said; a worker's clock may be ahead."""
        return max(0.0, now - self.at)


def parse_live(node: NodeName, said: Mapping[str, object]) -> Live | None:
    """Read the attributes of a job's ad; None for a job that has said nothing yet, or not when."""
    at = _number(said.get(AT), 0, LATEST)
    if at is None:
        return None
    epoch, epochs = (_count(said.get(name)) for name in (EPOCH, EPOCHS))
    return Live(
        node=node,
        epoch=min(epoch, epochs),
        epochs=epochs,
        loss=_number(said.get(LOSS)),
        value=_number(said.get(VALUE)),
        curve=_curve(said.get(CURVE)),
        seconds_left=_number(said.get(SECONDS_LEFT), 0, LONGEST_TIME),
        at=at,
        doing=_text(said.get(DOING)),
    )


def _number(value: Any, low: float = -math.inf, high: float = math.inf) -> float | None:
    """Return a finite number within its bounds; neither truth values nor HTCondor's `undefined` are numbers."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and low <= number <= high else None


def _count(value: object) -> int:
    number = _number(value, 0, MOST_EPOCHS)
    return 0 if number is None else int(number)


def _text(value: object) -> str:
    return make_printable(value[:LONGEST_DOING]) if isinstance(value, str) else ""


def _curve(value: object) -> tuple[float, ...]:
    """Return a curve; nothing of one that is not whole."""
    if not isinstance(value, str) or not value or len(value) > LONGEST:
        return ()
    try:
        points = [_number(float(word)) for word in value.split(",")]
    except ValueError:
        return ()
    known = tuple(point for point in points if point is not None)
    return known if len(known) == len(points) <= MOST_POINTS else ()
