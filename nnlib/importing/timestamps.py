"""Dates and times as microseconds since 1970, UTC: one by one, and whole columns of the usual forms.

They are ISO 8601, or whole seconds or milliseconds since 1970, which their numbers of digits tell apart.
"""

from __future__ import annotations

import datetime
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import Ints
from nnlib.importing.csv_blocks import Fields, NotPlainError
from nnlib.importing.string_ids import TextValues, Words
from nnlib.util.arrays import Longs

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
SECOND, DAY = 1_000_000, 86_400_000_000
# Where the digits of YYYY-MM-DD HH:MM:SS are in its three words of eight bytes, and what stands between.
DIGITS = ((0, 1, 2, 3, 5, 6), (0, 1, 3, 4, 6, 7), (1, 2))
BETWEEN = (((4, b"-"), (7, b"-")), ((2, b" T"), (5, b":")), ((0, b":"),))
FORMS = (10, 16, 19)  # lengths of the usual forms: a date, with minutes, with seconds
UNITS = {9: SECOND, 10: SECOND, 13: 1_000}  # of a number since 1970, by its digits
LAST = 1_900_000_000 * SECOND  # in 2030: a larger number is a date without dashes, such as 2011120918


def parse_timestamp(text: str) -> int:
    """Return a date or time as microseconds since 1970, without a zone taken for UTC; ValueError for another text."""
    if text.isdecimal() and len(text) in UNITS and int(text) * UNITS[len(text)] < LAST:
        return int(text) * UNITS[len(text)]
    moment = datetime.datetime.fromisoformat(text)
    try:
        return (moment.replace(tzinfo=moment.tzinfo or datetime.UTC).astimezone(datetime.UTC) - EPOCH) // MICROSECOND
    except OverflowError as error:
        raise ValueError(text) from error


class Moments:
    """The moments of a column, block by block."""

    def __init__(self) -> None:
        self._others = TextValues(parse_timestamp, np.int64)  # those of other forms than the usual

    def of(self, fields: Fields, column: int) -> Longs:
        """Return the microseconds of each row; NotPlainError when one is no date or time."""
        words, starts, lengths = fields.words, fields.starts[column], fields.lengths[column]
        if len(starts) and np.all(lengths == lengths[0]) and int(lengths[0]) in FORMS:
            found, good = _usual(words, starts, int(lengths[0]))
            if np.all(good):
                return found
        found = np.zeros(len(starts), dtype=np.int64)
        other = np.ones(len(starts), dtype=np.bool_)
        for length in FORMS:
            rows = np.flatnonzero(lengths == length)
            if len(rows):
                found[rows], good = _usual(words, starts[rows], length)
                other[rows] = ~good
        for length in UNITS:
            rows = np.flatnonzero(other & (lengths == length))
            if len(rows):
                found[rows], good = _since_1970(words, starts[rows], length)
                other[rows] = ~good
        rows = np.flatnonzero(other)
        if len(rows):
            try:
                found[rows] = self._others.of(words, starts[rows], lengths[rows])
            except ValueError as error:
                raise NotPlainError from error
        return found


def _usual(words: Words, starts: Longs, length: int) -> tuple[Longs, NDArray[np.bool_]]:
    """Return the moments of texts of one usual form, and which of them are."""
    good = np.ones(len(starts), dtype=np.bool_)
    digits: list[Ints] = []
    for n, (places, between) in enumerate(zip(DIGITS, BETWEEN, strict=True)):
        if length <= 8 * n:
            break
        letters = words[starts + 8 * n].astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
        for place in places:
            if 8 * n + place < length:
                digit = letters[:, place] - np.uint8(ord("0"))  # what is no digit is beyond 9
                good &= digit <= 9
                digits.append(digit.astype(np.int32))
        for place, legal in between:
            if 8 * n + place < length:
                good &= (letters[:, place] == legal[0]) | (letters[:, place] == legal[-1])
    pairs = [10 * tens + ones for tens, ones in zip(digits[::2], digits[1::2], strict=True)]
    century, year, month, day, hour, minute, second = pairs + [np.zeros_like(pairs[0])] * (7 - len(pairs))
    first = _first_days()
    at = (100 * century + year) * 12 + month - 1
    good &= (month >= 1) & (month <= 12) & (at >= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 60)
    at[~good] = 12
    good &= day <= first[at + 1] - first[at]
    days = first[at] + day - 1
    return days * DAY + (hour * 3600 + minute * 60 + second).astype(np.int64) * SECOND, good


def _since_1970(words: Words, starts: Longs, length: int) -> tuple[Longs, NDArray[np.bool_]]:
    """Return the moments of whole numbers of so many digits, and which of the texts are such."""
    good = np.ones(len(starts), dtype=np.bool_)
    number = np.zeros(len(starts), dtype=np.int64)
    for n in range(0, length, 8):
        letters = words[starts + n].astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
        for place in range(min(8, length - n)):
            digit = letters[:, place] - np.uint8(ord("0"))  # what is no digit is beyond 9
            good &= digit <= 9
            number = 10 * number + digit
    moments = number * UNITS[length]
    return moments, good & (moments < LAST)


@cache
def _first_days() -> Longs:
    """Return the day, since 1970, on which each month since the year 0 begins, up to the one after the year 9999."""
    return np.arange("0000-01", "10000-02", dtype="datetime64[M]").astype("datetime64[D]").astype(np.int64)
