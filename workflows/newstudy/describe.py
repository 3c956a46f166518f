"""What was seen in a table of purchases, for people and as JSON. Pure."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nnlib.importing.purchase_lines import explain_left_out
from nnlib.importing.purchase_query import Counted, RegionCount
from nnlib.importing.sniffing.dates import explain_form
from nnlib.importing.sniffing.look import Look, show_day
from nnlib.util.memory import show_bytes
from nnlib.util.terminal import format_table, measure
from regiondag.util.text import list_some, make_printable

LEAST, MOST = 50, 120  # columns that the text is made for
LABEL = 11
FEW_DAYS = 28
FEW_ROWS = 2.0  # of a customer
MUCH = 0.2  # of the rows left out
LONGEST = 40  # of a value in a line of text


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a table of purchases holds, and what it was taken for."""

    table: str  # its path
    bytes: int  # of all its files; 0: a database, as are 0 files
    files: int
    columns: Mapping[str, str]  # by what they mean: region, customer, item, time, description, quantity
    why: Mapping[str, str]  # likewise: why it was taken for that
    unused: tuple[str, ...]  # columns that mean nothing to a study
    encoding: str  # empty: Parquet or a database, as is the separator
    separator: str
    dates: str  # form of the times as strptime has it; empty: ISO 8601, or seconds since 1970
    decimal: str  # what stands before the decimals
    sampled_rows: int  # the figures below are of so many rows; 0: of all
    rows: int  # of the table; estimated where they are sampled
    purchases: int  # rows that are whole
    left_out: Mapping[str, int]  # other rows, by what they lack; amount: quantities of 0 or below
    first_day: str | None
    last_day: str | None
    regions: tuple[RegionCount, ...]  # the largest first
    customers: int
    items: int
    sample: tuple[Mapping[str, str], ...]  # the first rows, as understood
    doubts: tuple[str, ...]  # what may be wrong


def describe_look(look: Look, today: int, width: int = 80) -> str:
    """Return all that a person should see before the table is used; `today` is in days since 1970-01-01."""
    width = min(max(width, LEAST), MOST)
    parts = [
        _wrap("", _describe_file(look), width),
        _describe_columns(look, width),
        *([_wrap("not used: ", list_some([_show(name) for name in look.unused], 8), width)] if look.unused else []),
        "",
        *(_wrap(label, text, width, LABEL) for label, text in _list_facts(look, today)),
        "",
        f"The first {len(look.rows)} rows, as understood:",
        _describe_rows(look.rows, width),
    ]
    return "\n".join(parts)


def find_doubts(look: Look, today: int) -> list[str]:
    """Return what may be wrong with the table or with what was guessed of it."""
    counted = look.counted
    return [*_doubt_days(counted, today, bool(look.columns.time)), *_doubt_counts(look), *_doubt_regions(look)]


def facts_of(look: Look, today: int) -> TableFacts:
    """Return the same for programs."""
    counted, form = look.counted, look.columns.format
    first, last = (None if day is None else show_day(day) for day in (counted.first, counted.last))
    return TableFacts(
        str(look.source.path),
        look.source.size,
        len(look.source.files),
        look.roles.columns,
        look.roles.why,
        look.unused,
        look.encoding.value,
        look.separator.value,
        form.dates,
        form.decimal,
        look.sampled,
        look.about,
        counted.purchases,
        counted.left_out,
        first,
        last,
        counted.regions,
        counted.customers,
        counted.items,
        look.rows,
        tuple(find_doubts(look, today)),
    )


def _describe_file(look: Look) -> str:
    files = f" in {len(look.source.files)} files" if len(look.source.files) > 1 else ""
    about = "about " * bool(look.sampled)
    if not (look.encoding.value or look.source.parquet):
        return f"{make_printable(str(look.source.path))}: {look.about:,} rows of a database"
    text = f"{make_printable(str(look.source.path))}: {about}{look.about:,} rows{files}, {show_bytes(look.source.size)}"
    if look.source.parquet:
        return f"{text}, Parquet"
    names = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
    separator = names.get(look.separator.value, repr(look.separator.value))
    return f"{text}, separator {separator}, encoding {look.encoding.value} ({_show(look.encoding.why, 90)})"


def _describe_columns(look: Look, width: int) -> str:
    order = ("region", "customer", "item", "time", "description", "quantity")
    rows = [
        (_show(look.roles.columns[one], 24), one, look.roles.why[one]) for one in order if one in look.roles.columns
    ]
    return _table(("column", "means", "because"), rows, width)


def _list_facts(look: Look, today: int) -> Iterator[tuple[str, str]]:
    counted = look.counted
    of = f" (of a sample of {look.sampled:,} rows)" if look.sampled else ""
    yield "purchases", f"{counted.purchases:,}{of}"
    if counted.first is not None and counted.last is not None:
        form = look.columns.format.dates
        written = f"; written {explain_form(form)}" if form else ""
        days = counted.last - counted.first + 1
        yield "days", f"{days:,}, {show_day(counted.first)} to {show_day(counted.last)}{written}"
    yield "regions", _describe_regions(look)
    yield "customers", f"{counted.customers:,}{' at least' * bool(look.sampled)}"
    yield "items", f"{counted.items:,}{' at least' * bool(look.sampled)}"
    left_out = explain_left_out(counted.left_out, look.columns)
    for n, line in enumerate(left_out or ["nothing"]):
        yield "" if n else "left out", _show(line, 160)
    for n, line in enumerate(find_doubts(look, today)):
        yield "" if n else "doubtful", line


def _describe_regions(look: Look) -> str:
    regions = look.counted.regions
    if not look.columns.region:
        return f"1, {_show(look.columns.one_region)}: no column says it"
    if len(regions) == 1:
        return f"1, {_show(regions[0].name)}"
    ends = (("largest", regions[0]), ("smallest", regions[-1]))
    said = [
        f"{what} {_show(one.name)} ({_count(one.customers, 'customer')}, {_count(one.rows, 'row')})"
        for what, one in ends
    ]
    return f"{len(regions):,}; {', '.join(said)}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _describe_rows(rows: Sequence[Mapping[str, str]], width: int) -> str:
    headings = tuple(rows[0]) if rows else ()
    return _table(headings, [tuple(_show(text) for text in row.values()) for row in rows], width)


def _doubt_days(counted: Counted, today: int, timed: bool) -> Iterator[str]:
    if not timed:
        yield "no column of times: what is held back is drawn by chance, so that figures promise more than you will see"
    if counted.first is None or counted.last is None:
        return
    if counted.last > today + 1:
        yield f"the last day, {show_day(counted.last)}, is in the future: is the order of day and month right?"
    if counted.first < 0:
        yield f"the first day, {show_day(counted.first)}, is long ago: some tables have such dates where none is known"
    if counted.last - counted.first + 1 < FEW_DAYS:
        yield f"fewer than {FEW_DAYS} days: there is little to hold back; more history makes better models"


def _doubt_counts(look: Look) -> Iterator[str]:
    counted, whole = look.counted, not look.sampled  # in a sample each has fewer rows than in all
    if whole and counted.purchases < FEW_ROWS * counted.customers:
        yield f"a customer has {counted.purchases / counted.customers:.1f} rows on average: is it an order's number?"
    if whole and counted.items > 0.5 * counted.purchases:
        yield "most items were bought once: is it a number of the row's?"
    if sum(counted.left_out.values()) > MUCH * counted.rows:
        share = sum(counted.left_out.values()) / counted.rows
        yield f"{share:.0%} of the rows are left out"


def _doubt_regions(look: Look) -> Iterator[str]:
    others = look.roles.others.get("region", ())
    if others and look.columns.region:
        names = list_some([repr(make_printable(name)) for name in others])
        yield f"regions could also be {names}: --region COLUMN"
    same: dict[str, list[str]] = {}
    for one in look.counted.regions:
        plain = " ".join(unicodedata.normalize("NFKC", one.name).casefold().split())
        same.setdefault(plain, []).append(one.name)
    twins = [names for names in same.values() if len(names) > 1]
    for alike in twins[:3]:
        yield f"regions {' and '.join(repr(make_printable(name)) for name in alike[:3])} look like one"


def _show(text: str, longest: int = LONGEST) -> str:
    text = make_printable(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _wrap(label: str, text: str, width: int, indent: int = 2) -> str:
    begin = label.ljust(indent) if indent > 2 else label
    return textwrap.fill(
        text, width, initial_indent=begin, subsequent_indent=" " * indent, break_long_words=True, break_on_hyphens=False
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Return a table whose widest columns are cut until it fits."""
    if not headings:
        return ""
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(map(measure, column)) for column in columns]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > 3:
        widths[widths.index(max(widths))] -= 1
    cells = [[_cut(cell, size) for cell, size in zip(row, widths, strict=True)] for row in (headings, *rows)]
    return format_table(cells[0], cells[1:], [False] * len(widths))


def _cut(text: str, width: int) -> str:
    if measure(text) <= width:
        return text
    while text and measure(text) > width - 1:
        text = text[:-1]
    return f"{text}…"
