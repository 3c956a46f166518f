"""Days as numbers, counted from 1970-01-01."""

from __future__ import annotations

import datetime

EPOCH = datetime.date(1970, 1, 1).toordinal()


def day_of(date: datetime.date) -> int:
    """Return the number of a day."""
    return date.toordinal() - EPOCH


def show_day(day: int) -> str:
    """Return a day as people write it, `2011-12-09`; its number where a calendar has no such day."""
    try:
        return datetime.date.fromordinal(day + EPOCH).isoformat()
    except (ValueError, OverflowError):
        return f"day {day}"
