"""Which column of a table means what, guessed by its name and by what it holds. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nnlib.errors import DataError
from nnlib.importing.sniffing.ambiguous import AmbiguousError
from nnlib.importing.sniffing.column_names import rate_name
from nnlib.importing.sniffing.dates import ISO, NEARLY, explain_form, fits, list_forms

MEANINGS = ("time", "customer", "item", "region", "description", "quantity")  # in the order in which they are found
NEEDED = ("customer", "item")
MOST_REGIONS = 2_000
DATES = 5_000  # different texts by which the form of dates is found
NUMBER = re.compile(r"[-+]?\d{1,3}(?:[.,' ]?\d{3})*(?:[.,]\d+)?|[-+]?\d*[.,]?\d+")
FRACTION = re.compile(r"[-+]?\d*[.,]\d+")


@dataclass(frozen=True, slots=True)
class ColumnSample:
    """What was seen of a column: of each row looked at its text, empty for none."""

    name: str
    texts: Sequence[str]
    kind: str = "VARCHAR"  # its type in SQL
    said: list[str] = field(default_factory=list)
    distinct: frozenset[str] = frozenset()
    forms: tuple[str, ...] = ()  # of dates

    @property
    def share_filled(self) -> float:
        """Which part of the rows has a text."""
        return len(self.said) / max(1, len(self.texts))

    @property
    def timed(self) -> bool:
        """Whether all of it are dates or times."""
        return bool(self.forms) or self.kind.startswith(("DATE", "TIMESTAMP"))


def sample_column(name: str, texts: Sequence[str], kind: str = "VARCHAR", dates: str = "") -> ColumnSample:
    """Return what is asked of a column of a sample; `dates` is the form of times that a person has named."""
    said = [text for text in texts if text]
    distinct = frozenset(said)
    forms = () if kind.startswith(("DATE", "TIMESTAMP")) else tuple(list_forms(list(dict.fromkeys(said))[:DATES]))
    if dates and distinct and sum(fits(dates, (text,)) for text in distinct) >= NEARLY * len(distinct):
        forms = (dates,)
    return ColumnSample(name, texts, kind, said, distinct, forms)


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns that were found by their meaning, why, and what else could have been meant."""

    columns: Mapping[str, str]
    why: Mapping[str, str]
    others: Mapping[str, tuple[str, ...]]


def find_roles(columns: Sequence[ColumnSample], named: Mapping[str, str]) -> Roles:
    """Return which column means what; `named` are those that a person has named.

    DataError where customers or items are in no column, AmbiguousError where they may be in several.
    """
    found = {meaning: name for meaning, name in named.items() if name}
    why = dict.fromkeys(found, "named by you")
    others: dict[str, tuple[str, ...]] = {}
    for meaning in MEANINGS:
        if meaning in named:  # an empty name: there is none
            continue
        free = [column for column in columns if column.name not in found.values() and column.name]
        rated = sorted(((_rate(meaning, column), column.name) for column in free), key=lambda one: -one[0])
        good = [(rate, name) for rate, name in rated if rate > 0]
        if good and not (meaning in (*NEEDED, "time") and len(good) > 1 and good[0][0] == good[1][0]):
            found[meaning], why[meaning] = good[0][1], f"by its name{_and_content(meaning, good[0][1], columns)}"
            others[meaning] = tuple(name for _, name in good[1:])
        elif good:
            _ask(meaning, [name for _, name in good], columns)
    _find_by_content(columns, found, why, named)
    for meaning in NEEDED:
        if meaning not in found:
            names = ", ".join(repr(column.name) for column in columns)
            raise DataError(f"no column that could be the {meaning}'s, there are: {names}; name it: --{meaning} COLUMN")
    return Roles(found, why, others)


def _rate(meaning: str, column: ColumnSample) -> int:
    rate = rate_name(meaning, column.name)
    return rate if rate and _may_be(meaning, column) else 0


def _may_be(meaning: str, column: ColumnSample) -> bool:
    """Whether what a column holds does not contradict a meaning."""
    said, distinct = column.said, column.distinct
    if not said:
        return False
    if meaning == "time":
        return column.timed
    if meaning == "quantity":
        return column.kind != "VARCHAR" or all(NUMBER.fullmatch(text) for text in distinct)
    if meaning == "description":
        return not all(NUMBER.fullmatch(text) for text in distinct)
    if column.kind.startswith(("DATE", "TIMESTAMP", "BOOLEAN")):
        return False
    if column.forms and not (column.forms == (ISO,) and all(text.isdecimal() for text in distinct)):
        return False  # what only looks like seconds or 20111209 may be a number all the same
    if meaning == "region":
        return len(distinct) <= MOST_REGIONS and (len(said) < 50 or len(distinct) <= 0.2 * len(said))
    if any(FRACTION.fullmatch(text) for text in distinct) and column.kind == "VARCHAR":
        return False
    return len(distinct) > 1 or len(said) < 10


def _and_content(meaning: str, name: str, columns: Sequence[ColumnSample]) -> str:
    column = next(column for column in columns if column.name == name)
    if meaning == "time":
        return _describe_forms(column)
    many = f"{len(column.distinct):,} of them in {len(column.said):,} rows"
    return "" if meaning in ("description", "quantity") else f"; {many}"


def _describe_forms(column: ColumnSample) -> str:
    if len(column.forms) == 1 and column.forms[0]:
        return f"; written {explain_form(column.forms[0])}"
    return ""


def _ask(meaning: str, names: Sequence[str], columns: Sequence[ColumnSample]) -> None:
    """Raise AmbiguousError: which of some columns has a meaning?"""
    answers = []
    for name in names:
        column = next(column for column in columns if column.name == name)
        some = ", ".join(column.said[:3])
        answers.append((name, f"{len(column.distinct):,} values: {some[:40]} ..."))
    raise AmbiguousError(f"several columns may be the {meaning}'s", meaning, answers)


def _find_by_content(
    columns: Sequence[ColumnSample], found: dict[str, str], why: dict[str, str], named: Mapping[str, str]
) -> None:
    """Find what no name has told: the only column of dates, of what is bought again and again, of long texts."""

    def left(meaning: str) -> list[ColumnSample]:
        return [one for one in columns if one.name not in found.values() and one.name and _may_be(meaning, one)]

    if "time" not in found and "time" not in named:
        dates = [one for one in left("time") if one.forms != (ISO,) or not all(map(str.isdecimal, one.distinct))]
        if len(dates) > 1:
            _ask("time", [one.name for one in dates], columns)
        sounding = [one for one in columns if rate_name("time", one.name) and one.said]
        if not dates and sounding:
            raise DataError(
                f"the column {sounding[0].name!r} should be times, but holds {sounding[0].said[0]!r}; say how they are "
                "written, as in strptime: --dates '%d/%m/%Y', or that there are none: --time ''"
            )
        for one in dates:
            found["time"], why["time"] = one.name, f"the only column of dates{_describe_forms(one)}"
    for meaning in NEEDED:
        if meaning in found:
            continue
        some = [one for one in left(meaning) if _repeats(one) and not rate_name("quantity", one.name)]
        if len(some) > 1 or (some and any(other not in found for other in NEEDED if other != meaning)):
            _ask(meaning, [one.name for one in some], columns)
        for one in some:
            found[meaning], why[meaning] = one.name, "the only column left whose values come again and again"
    if "description" not in found and "description" not in named and "item" in found:
        for one in left("description"):
            if _is_told_by(found["item"], one, columns) and sum(" " in text for text in one.said) > len(one.said) / 2:
                found["description"], why["description"] = one.name, "texts of several words, one for each item"
                return


def _repeats(column: ColumnSample) -> bool:
    return column.share_filled > 0.5 and len(column.distinct) <= 0.9 * len(column.said)


def _is_told_by(key: str, column: ColumnSample, columns: Sequence[ColumnSample]) -> bool:
    """Whether nearly every value of the column `key` has one text of `column`."""
    keys = next(one for one in columns if one.name == key).texts
    pairs = {(one, text) for one, text in zip(keys, column.texts, strict=True) if one and text}
    count = len({one for one, _ in pairs})
    return 1 < count < 0.8 * len(column.said) and len(pairs) <= 1.1 * count
