"""The five fields of a crontab line as HTCondor's cron commands. Pure.

Every field becomes `*` or a plain list of numbers, because HTCondor reads more than that in its own way: it counts
the steps of `1-59/2` from zero, passes over a step in the day of the week, takes a number that is out of bounds for
`*`, and its schedd never comes back from looking for the 31st of February.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

EXAMPLE = '"30 3 * * *" is 03:30 every night, "0 4 * * 1-5" is 04:00 from Monday to Friday'
SHORT = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}  # months without a 31st: their days, at most

_PART = re.compile(r"(?:\*|([0-9]{1,4})(?:-([0-9]{1,4}))?)(?:/([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True)
class _Field:
    command: str
    name: str
    low: int
    high: int


FIELDS = (
    _Field("cron_minute", "minute", 0, 59),
    _Field("cron_hour", "hour", 0, 23),
    _Field("cron_day_of_month", "day of the month", 1, 31),
    _Field("cron_month", "month", 1, 12),
    _Field("cron_day_of_week", "day of the week", 0, 7),
)


def cron_commands(text: str) -> dict[str, str]:
    """Return the submit commands for a crontab line; ValueError that says what is wrong with which field.

    >>> cron_commands("30 3 * * 1-5")["cron_day_of_week"]
    '1,2,3,4,5'
    """
    words = text.split()
    if len(words) != len(FIELDS):
        names = ", ".join(field.name for field in FIELDS)
        raise ValueError(f"{len(words)} fields; legal: five ({names}), {EXAMPLE}")
    times = {field.command: _numbers(field, word) for field, word in zip(FIELDS, words, strict=True)}
    days = times["cron_day_of_week"]
    if days is not None:
        times["cron_day_of_week"] = {day % 7 for day in days}  # 7 is Sunday, as 0 is
    elif not _has_a_date(times["cron_day_of_month"], times["cron_month"]):
        raise ValueError(f"{text!r}: no month of these has such a day; legal: a date that exists, {EXAMPLE}")
    return {command: _shown(numbers) for command, numbers in times.items()}


def list_times(text: str, after: datetime, until: datetime) -> list[datetime]:
    """Return the times of a crontab line after one moment, up to another; a day has to fit as a date and as a weekday.

    >>> list_times("30 3 * * *", datetime(2026, 11, 22, 3, 30), datetime(2026, 11, 24, 3, 0))
    [datetime.datetime(2026, 11, 23, 3, 30)]
    """
    words = cron_commands(text)
    minutes, hours, days, months, weekdays = (_of(words[field.command], field) for field in FIELDS)
    found, day = [], after.replace(hour=0, minute=0, second=0, microsecond=0)
    while day <= until:
        if day.day in days and day.month in months and day.isoweekday() % 7 in weekdays:
            found += [day.replace(hour=hour, minute=minute) for hour in sorted(hours) for minute in sorted(minutes)]
        day += timedelta(days=1)
    return [when for when in found if after < when <= until]


def _of(shown: str, field: _Field) -> set[int]:
    return set(range(field.low, field.high + 1)) if shown == "*" else set(map(int, shown.split(",")))


def _numbers(field: _Field, word: str) -> set[int] | None:
    """Return the numbers that a field names, or None for all of them."""
    found: set[int] = set()
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(_wrong(field, word))
        start, end, step = (None if group is None else int(group) for group in match.groups())
        low = field.low if start is None else start
        high = end if end is not None else field.high if start is None or step is not None else start
        if not field.low <= low <= high <= field.high or step == 0:
            raise ValueError(_wrong(field, word))
        found.update(range(low, high + 1, step or 1))
    return None if found >= set(range(field.low, field.high + 1)) else found


def _wrong(field: _Field, word: str) -> str:
    return (
        f"{field.name}: seen {word!r}, legal: *, numbers from {field.low} to {field.high}, ranges such as "
        f"{field.low}-{field.high}, steps such as */2, and lists of these with commas; no names. {EXAMPLE}"
    )


def _has_a_date(days: Iterable[int] | None, months: Iterable[int] | None) -> bool:
    return days is None or months is None or any(min(days) <= SHORT.get(month, min(days)) for month in months)


def _shown(numbers: set[int] | None) -> str:
    return "*" if numbers is None else ",".join(map(str, sorted(numbers)))
