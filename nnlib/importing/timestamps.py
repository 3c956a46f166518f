"""Dates and times of a table: ISO 8601, seconds or milliseconds since 1970, or of a form that was named.

`parse_timestamp` reads one text; `day_expression` is the same for a whole column, as SQL.
"""

from __future__ import annotations

import datetime

from nnlib.util.tables import quote

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
SECOND, DAY = 1_000_000, 86_400_000_000
UNITS = {9: SECOND, 10: SECOND, 13: 1_000}  # microseconds in a number since 1970, by its digits
LAST = 1_900_000_000 * SECOND  # in 2030: a larger number is a date without dashes, such as 2011120918
TIMED = ("DATE", "TIMESTAMP")  # how the types begin of columns that are times already


def parse_timestamp(text: str, form: str = "") -> int:
    """Return a date or time as microseconds since 1970, without a zone taken for UTC; ValueError for another text.

    `form` is that of strptime; empty: ISO 8601, or whole seconds or milliseconds since 1970.
    """
    if form:
        moment = datetime.datetime.strptime(text, form)
    elif text.isdecimal() and len(text) in UNITS and int(text) * UNITS[len(text)] < LAST:
        return int(text) * UNITS[len(text)]
    else:
        moment = datetime.datetime.fromisoformat(text)
    try:
        return (moment.replace(tzinfo=moment.tzinfo or datetime.UTC).astimezone(datetime.UTC) - EPOCH) // MICROSECOND
    except OverflowError as error:
        raise ValueError(text) from error


def day_expression(column: str, kind: str, form: str = "") -> str:
    """Return SQL for the days since 1970 of a column of the type `kind`, NULL where it holds no date or time.

    Of texts, all of the usual forms are known, not all that `parse_timestamp` knows.
    """
    if kind.startswith(TIMED):
        return _days(f"{column}::TIMESTAMP")
    text = f"(({column})::VARCHAR)"
    if form:
        moment = f"try_strptime({text}, {quote(form)})::TIMESTAMP"
        # DuckDB takes 25 for a year in full, the year 25; strptime does not.
        return _days(f"CASE WHEN year({moment}) > 999 THEN {moment} END" if "%Y" in form else moment)
    since = " ".join(
        f"WHEN length({text}) = {digits} AND try_cast({text} AS BIGINT) * {unit} < {LAST} AND {text}[1] BETWEEN '0' "
        f"AND '9' THEN make_timestamp(try_cast({text} AS BIGINT) * {unit})"
        for digits, unit in UNITS.items()
    )
    return _days(
        f"CASE WHEN length({text}) = 10 AND {text}[5] = '-' THEN try_cast({text} AS DATE)::TIMESTAMP "
        f"WHEN {text}[5] = '-' THEN try_cast({text} AS TIMESTAMPTZ)::TIMESTAMP "
        f"WHEN length({text}) = 8 THEN try_strptime({text}, '%Y%m%d') {since} END"
    )


def _days(moment: str) -> str:
    return f"({moment})::DATE - DATE '1970-01-01'"
