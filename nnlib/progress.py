"""What a running job says of itself: attributes of its ad in HTCondor's queue, which the worker writes.

HTCondor takes attributes of any job that are called Chirp..., each an expression of at most `LONGEST` characters, and
keeps what an earlier start of the job said until it is said anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

EPOCH = "ChirpEpoch"  # epochs that have ended; 0 before the first, and of what has none
EPOCHS = "ChirpEpochs"  # how many there will be at most; 0 where there are none
LOSS = "ChirpLoss"
VALUE = "ChirpValue"  # of the validation metric
CURVE = "ChirpCurve"  # that metric after each epoch so far, as `pack_curve` writes it
SECONDS_LEFT = "ChirpSecondsLeft"
DOING = "ChirpDoing"  # in words, where it is no epoch: fitting ease
AT = "ChirpAt"  # when it was said, Unix time by the worker's clock
ATTRIBUTES = (EPOCH, EPOCHS, LOSS, VALUE, CURVE, SECONDS_LEFT, DOING, AT)

LONGEST = 993  # characters of an expression
MOST_POINTS = 100  # of a curve
LONGEST_DOING = 60  # characters


def pack_curve(values: Sequence[float]) -> str:
    """Return a curve as numbers with commas: the first, the last and, as even as may be, those between.

    >>> pack_curve([0.123456, 0.2, 1e-7])
    '0.1235,0.2,1e-07'
    """
    count = min(len(values), MOST_POINTS)
    while True:
        text = ",".join(f"{values[place]:.4g}" for place in spread(len(values), count))
        if len(text) <= LONGEST - 2:  # with its quotes
            return text
        count -= 1


def spread(length: int, count: int) -> list[int]:
    """Return `count` of the places 0 ... length - 1, evenly and with both ends; all where there are no more.

    >>> spread(11, 3), spread(2, 3), spread(0, 3)
    ([0, 5, 10], [0, 1], [])
    """
    if count >= length:
        return list(range(length))
    if count == 1:
        return [length - 1]
    return [round(place * (length - 1) / (count - 1)) for place in range(count)]


def literal(value: float | str | None) -> str:
    """Return a value as an expression of HTCondor's. A backslash, which its versions read differently, becomes a slash.

    >>> literal(0.5), literal(None), literal('a "b"')
    ('0.5', 'undefined', '"a \\\\"b\\\\""')
    """
    if isinstance(value, str):
        quoted = value.replace("\\", "/").replace('"', '\\"')
        return f'"{quoted}"'
    return "undefined" if value is None or not math.isfinite(value) else repr(value)
