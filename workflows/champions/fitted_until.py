"""The one place that refuses to compare candidates of which one has seen what it is asked."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from regiondag.errors import RegiondagError

EPOCH = datetime.date(1970, 1, 1)


def check_fitted_until(first_day: int | None, fitted_until: Mapping[str, int | None]) -> None:
    """Refuse candidates that know days of the window on which they are compared.

    Days are counted since 1970-01-01. `fitted_until` is the first day that a candidate has not seen; it may be the
    window's `first_day`, not later. Data without times have None for both. RegiondagError names all that are refused.
    """
    if first_day is None:
        return
    unknown = sorted(name for name, day in fitted_until.items() if day is None)
    late = {name: day for name, day in sorted(fitted_until.items()) if day is not None and day > first_day}
    if not unknown and not late:
        return
    said = [f"{name} was fitted until {_date(day)}" for name, day in late.items()]
    said += [f"{name} does not say until when it was fitted" for name in unknown]
    raise RegiondagError(
        f"these cannot be compared on a window that begins on {_date(first_day)}: {'; '.join(said)}. A candidate may "
        "know the days before the window alone: fit its recipe again on the history before it"
    )


def _date(day: int) -> str:
    return (EPOCH + datetime.timedelta(days=day)).isoformat()
