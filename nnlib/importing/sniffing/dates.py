"""How the times of a column are written, guessed of its texts. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime

from nnlib.importing.timestamps import parse_timestamp

ISO = ""  # dates as `parse_timestamp` knows them by itself
_DATES = (
    *(f"%d{s}%m{s}%Y" for s in "/.-"),
    *(f"%m{s}%d{s}%Y" for s in "/.-"),
    *(f"%Y{s}%m{s}%d" for s in "/."),
    *(f"%d{s}%m{s}%y" for s in "/.-"),
    *(f"%m{s}%d{s}%y" for s in "/.-"),
    *(f"%y{s}%m{s}%d" for s in "/.-"),
    *("%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%b %d %Y", "%d %B %Y", "%B %d, %Y", "%B %d %Y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", ", %H:%M", ", %H:%M:%S")
FORMS = (*(date + time for date in _DATES for time in _TIMES), "%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d %H:%M:%S")
_SHAPES = {
    "Y": r"\d{4}",
    "y": r"\d{2}",
    "b": r"[A-Za-z]{3}",
    "B": r"[A-Za-z]{3,9}",
    "p": r"[AaPp][Mm]",
    "f": r"\d{1,6}",
}
NEARLY = 0.95  # of the texts have a form; of the others the first is told as wrong
FEW, MANY = 20, 50  # texts
NAMES = {"d": "day", "m": "month", "y": "year", "Y": "year", "b": "month", "B": "month"}


def list_forms(texts: Collection[str]) -> list[str]:
    """Return all forms that every text has, or that most have where a few texts are wrong; ISO alone if it is one."""
    if not texts:
        return []
    iso = sum(map(_is_iso, texts))
    if iso >= NEARLY * len(texts):
        return [ISO]
    some = [text for _, text in zip(range(FEW), texts, strict=False)]
    likely = [form for form in FORMS if any(fits(form, (text,)) for text in some)]
    counts = {form: sum(fits(form, (text,)) for text in texts) for form in likely}
    most = max(counts.values(), default=0)
    best = [form for form, count in counts.items() if count == most]
    return _drop_unlikely(best, texts) if most >= NEARLY * len(texts) else []


def fits(form: str, texts: Iterable[str]) -> bool:
    """Whether all texts are dates of a form."""
    shape = re.compile(
        re.sub(
            r"%(\w)", lambda part: _SHAPES.get(part[1], r"\d{1,2}" if "%Y%m" not in form else r"\d{2}"), _escape(form)
        )
    )
    return all(shape.fullmatch(text) and _parses(text, form) for text in texts)


def _drop_unlikely(forms: list[str], texts: Collection[str]) -> list[str]:
    """Leave out what reads many years and few days, such as 13.2.24 of a table of one year as of the year 2013."""
    if len(forms) < 2 or len(texts) < MANY:
        return forms
    read = {form: [datetime.strptime(text, form) for text in texts if fits(form, (text,))] for form in forms}
    years = {form: len({moment.year for moment in moments}) for form, moments in read.items()}
    return [form for form in forms if years[form] <= 2 * min(years.values())]


def explain_form(form: str) -> str:
    """Return the order in which a form has its parts, in words.

    >>> explain_form("%d/%m/%Y %H:%M")
    'day/month/year'
    """
    return re.sub(r"%(\w)", lambda part: NAMES.get(part[1], part[0]), re.split(r"[ T,]*%[HI]", form)[0])


def _escape(form: str) -> str:
    return form.replace(".", r"\.")


def _is_iso(text: str) -> bool:
    try:
        parse_timestamp(text)
    except ValueError:
        return False
    return True


def _parses(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True
