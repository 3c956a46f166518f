"""A look at a table of purchases: what it is guessed to be, and what it then holds, before anything is made of it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from nnlib.errors import DataError
from nnlib.importing.purchase_lines import UNREADABLE, Columns, Report, read_purchases
from nnlib.importing.purchase_query import Counted, PurchaseQuery, RegionCount
from nnlib.importing.sniffing.ambiguous import AmbiguousError
from nnlib.importing.sniffing.column_roles import ColumnSample, Roles, find_roles, sample_column
from nnlib.importing.sniffing.dates import explain_form
from nnlib.importing.sniffing.samples import Sample, check_regular, sample_parquet, sample_text, telling
from nnlib.importing.sniffing.text_form import Guess
from nnlib.importing.table_source import Reading, Source, TableFormat, find_source, separator_of
from nnlib.importing.timestamps import DAY, day_expression, parse_timestamp
from nnlib.spec.json_section import nearest
from nnlib.util.days import show_day
from nnlib.util.tables import TableError, Tables, quote, quote_name

COUNTED_WHOLE = 2 << 30  # bytes of text; of larger tables only a sample is counted
PACKED = 6  # about so many bytes of text are in one of a compressed file
SHOWN = 5
SAMPLED = 1_000_000  # rows of Parquet


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person has said of a table; all else is guessed."""

    columns: Mapping[str, str] = field(default_factory=dict)  # by meaning; an empty name: there is none
    one_region: str = "all"  # what the region is called where no column says it
    separator: str = ""
    encoding: str = ""
    dates: str = ""
    decimal: str = ""
    whole: bool = False  # whether a large table is counted whole


@dataclass(frozen=True, slots=True)
class Look:
    """What a table was found to be."""

    source: Source
    columns: Columns
    roles: Roles
    header: tuple[str, ...]
    encoding: Guess
    separator: Guess
    rows: tuple[Mapping[str, str], ...]  # the first few, by meaning
    counted: Counted
    sampled: int  # rows that `counted` is of; 0: all
    about: int  # how many rows there are, about that many where they are sampled

    @property
    def unused(self) -> tuple[str, ...]:
        """The columns that mean nothing to a study."""
        return tuple(name for name in self.header if name not in self.roles.columns.values())


def look_at(path: Path, wishes: Wishes, scratch: Path, report: Report = lambda _position, _rows: None) -> Look:
    """Guess what `wishes` leave open of a table and count what it holds; `scratch` is an empty folder.

    DataError for what is no table of purchases, AmbiguousError where only a person can tell.
    """
    named = TableFormat(wishes.separator, wishes.encoding or "utf-8", wishes.dates, wishes.decimal or ".")
    source = find_source(path, named)
    check_regular(source.files)
    with closing(Tables(scratch)) as tables:
        sample = _sample(source, tables, scratch, wishes.encoding)
        columns_of = [
            sample_column(name, [row[n] for row in sample.rows], sample.kinds[n], wishes.dates)
            for n, name in enumerate(sample.header)
        ]
        _check_names(sample.header, source.files[0], wishes.columns)
        with telling(source.files[0]):
            roles = find_roles(columns_of, wishes.columns)
        by_name = {column.name: column for column in columns_of}
        form = _form_of(source, sample, roles, by_name, wishes)
        source = replace(source, format=form)
        columns = _columns_of(roles, form, wishes)
        reading = _Reader(source, tables, scratch)
        form = replace(form, dates=_settle_dates(reading, columns, by_name, wishes))
        columns = replace(columns, format=form)
        source = replace(source, format=form)
        return _count(source, sample, columns, roles, reading, wishes, report)


def _check_names(header: Sequence[str], file: Path, named: Mapping[str, str]) -> None:
    for meaning, name in named.items():
        if name and name not in header:
            there = ", ".join(header)
            raise DataError(f"{file}:1: no column {name!r} (--{meaning}), there are: {there}{nearest(name, header)}")
    twice = [name for name, count in Counter(header).items() if count > 1 and name]
    if twice:
        raise DataError(f"{file}:1: {header.count(twice[0])} columns are called {twice[0]!r}; rename all but one")


class _Reader:
    """The whole table, opened for queries when it is first asked for."""

    def __init__(self, source: Source, tables: Tables, scratch: Path) -> None:
        self.source, self.tables, self.scratch = source, tables, scratch
        self._opened: Reading | None = None

    def __call__(self) -> Reading:
        if self._opened is None:
            folder = self.scratch / "whole"
            folder.mkdir()
            self._opened = Reading(self.source, self.tables, folder)
        return self._opened


def _sample(source: Source, tables: Tables, scratch: Path, encoding: str) -> Sample:
    if source.parquet:
        folder = scratch / "sampled"
        folder.mkdir()
        reading = Reading(source, tables, folder)
        try:
            return sample_parquet(reading)
        except TableError as error:
            raise DataError(f"{source.path}: {reading.explain(error)}") from error
    samples = []
    for file in source.files[:: max(1, len(source.files) // 8)]:
        try:
            samples.append(sample_text(file, source, tables, encoding))
        except TableError as error:
            raise DataError(f"{file}: {error}") from error
    first = samples[0]
    for file, other in zip(source.files[:: max(1, len(source.files) // 8)], samples, strict=True):
        if other.separator.value != first.separator.value:
            raise DataError(f"{file}: fields are cut by {other.separator.value!r}, in other files of the folder not")
        if other.encoding.value not in (first.encoding.value, "utf-8"):
            first = replace(first, encoding=other.encoding)
    rows = list(first.rows)
    for other in samples[1:]:
        if set(first.header) <= set(other.header):
            places = [other.header.index(name) for name in first.header]
            rows += [tuple(row[place] for place in places) for row in other.rows]
    return replace(first, rows=tuple(rows), whole=first.whole and len(source.files) == 1)


def _form_of(
    source: Source, sample: Sample, roles: Roles, by_name: Mapping[str, ColumnSample], wishes: Wishes
) -> TableFormat:
    """Return how the texts are to be read, but for dates; empty where it is what is usual for such a file."""
    decimal = wishes.decimal or _guess_decimal(roles, by_name, source)
    if source.parquet:
        return TableFormat(dates=wishes.dates, decimal=decimal)
    usual = separator_of(source.files[0], TableFormat())
    separator = "" if sample.separator.value == usual else sample.separator.value
    return TableFormat(separator, sample.encoding.value, wishes.dates, decimal)


def _guess_decimal(roles: Roles, by_name: Mapping[str, ColumnSample], source: Source) -> str:
    column = by_name.get(roles.columns.get("quantity", ""))
    if column is None or column.kind != "VARCHAR":
        return "."
    for decimal in ".,":
        if all(_is_number(text, decimal) for text in column.distinct):
            return decimal
    wrong = next(text for text in sorted(column.distinct) if not _is_number(text, ","))
    raise DataError(f"{source.files[0]}: {column.name}: {wrong!r} is no number; mend it, or name no --quantity")


def _is_number(text: str, decimal: str) -> bool:
    plain = text if decimal == "." else text.replace(".", "").replace(",", ".")
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", plain) is not None


def _columns_of(roles: Roles, form: TableFormat, wishes: Wishes) -> Columns:
    names = {meaning: roles.columns.get(meaning, "") for meaning in ("region", "customer", "item", "time")}
    one = "" if names["region"] else wishes.one_region
    told, amount = (roles.columns.get(meaning, "") for meaning in ("description", "quantity"))
    return Columns(**names, time_needed=False, description=told, one_region=one, format=form, amount=amount)


def _settle_dates(reader: _Reader, columns: Columns, by_name: Mapping[str, ColumnSample], wishes: Wishes) -> str:
    """Return the form of the times: of those that a sample leaves open the one that all of the table has."""
    column = by_name.get(columns.time)
    if column is None or wishes.dates or column.kind.startswith(("DATE", "TIMESTAMP")):
        return wishes.dates
    where = f"{reader.source.files[0]}: {column.name}"
    if not column.forms:
        wrong = next(iter(column.said), "")
        raise DataError(
            f"{where}: {wrong!r} is no date of a form that all others have; say how they are written, as in strptime: "
            "--dates '%d/%m/%Y'"
        )
    forms = column.forms
    if len(forms) > 1:
        query = reader().select({"time": column.name})
        forms = tuple(form for form in forms if not _any_other(reader(), query, form))
        if not forms:
            raise DataError(f"{where}: no order of day and month is right for all dates; mend the table")
    if len(forms) > 1:
        some = next((text for text in column.said if not text.startswith(text[3:5])), column.said[0])
        answers = [(form, f"{some} is {explain_form(form)}") for form in forms]
        raise AmbiguousError(f"{where}: {some!r} may be several days, and no other date tells which", "dates", answers)
    return forms[0]


def _any_other(reading: Reading, query: str, form: str) -> bool:
    days = day_expression("time", "VARCHAR", form)
    try:
        sql = f"SELECT 1 FROM ({query}) WHERE coalesce(time, '') <> '' AND ({days}) IS NULL LIMIT 1"
        return bool(reading.tables.run(sql))
    except TableError as error:
        raise DataError(f"{reading.source.path}: {reading.explain(error)}") from error


def _count(
    source: Source,
    sample: Sample,
    columns: Columns,
    roles: Roles,
    reader: _Reader,
    wishes: Wishes,
    report: Report,
) -> Look:
    packed = source.parquet or any(file.suffix in (".gz", ".zst") for file in source.files)
    large = source.size * (PACKED if packed else 1) > COUNTED_WHOLE and not wishes.whole and not sample.whole
    if large:
        reading, about = _sampled_reading(source, sample, columns, reader)
        counted = _count_by_query(PurchaseQuery(reading, _as_sampled(columns, source)), report)
    else:
        reader.source = source
        try:
            counted = _count_by_query(PurchaseQuery(reader(), columns), report)
        except (TableError, *UNREADABLE) as error:
            counted = _count_by_lines(source, columns, reader, error)
        about = counted.rows
    if counted.wrong:
        _explain_wrong(source, columns, PurchaseQuery(reader(), columns))
    if not counted.purchases:
        lacking = ", ".join(f"{count:,} without {name}" for name, count in counted.left_out.items())
        raise DataError(f"{source.path}: no purchase is whole{': ' * bool(lacking)}{lacking}; name the right columns")
    rows = tuple(_understood(sample, columns, row) for row in _whole_rows(sample, columns))
    return Look(
        source, columns, roles, sample.header, sample.encoding, sample.separator, rows, counted,
        counted.rows if large else 0, about,
    )  # fmt: skip


def _count_by_query(query: PurchaseQuery, report: Report) -> Counted:
    size = query.reading.source.size
    with query.reading.tables.watched(lambda share: report(int(share * size), 0)):
        query.count()
    return query.counted()


def _as_sampled(columns: Columns, source: Source) -> Columns:
    """Return the columns of a sample that was written anew: UTF-8 and commas."""
    form = TableFormat(dates=columns.format.dates, decimal=columns.format.decimal)
    return columns if source.parquet else replace(columns, format=form)


def _sampled_reading(source: Source, sample: Sample, columns: Columns, reader: _Reader) -> tuple[Reading, int]:
    """Return a sample as a table of its own, and about how many rows the whole has."""
    folder = reader.scratch / "some"
    folder.mkdir()
    if source.parquet:
        reading = reader()
        [(about,)] = reading.tables.run(f"SELECT count(*) FROM {reading.whole}")
        file = folder / "sample.parquet"
        names = ", ".join(
            quote_name(name) for name in columns.find(reading.header, source.path) for name in [getattr(columns, name)]
        )
        reading.tables.run(
            f"COPY (SELECT {names} FROM {reading.whole} USING SAMPLE {SAMPLED} ROWS (system, 1)) "
            f"TO {quote(str(file))} (FORMAT parquet)"
        )
    else:
        file = folder / "sample.csv"
        with file.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([sample.header, *sample.rows])
        packed = PACKED if any(one.suffix in (".gz", ".zst") for one in source.files) else 1
        about = int(source.size * packed / max(1, file.stat().st_size) * len(sample.rows))
    below = folder / "links"
    below.mkdir()
    return Reading(find_source(file, TableFormat()), reader.tables, below), about


def _explain_wrong(source: Source, columns: Columns, query: PurchaseQuery) -> None:
    """Raise DataError with the first value that is wrong, and where it stands."""
    if source.has_lines:
        for file in source.files:
            for _ in read_purchases(file, columns):
                pass
    raise DataError(query.find_wrong())


def _count_by_lines(source: Source, columns: Columns, reader: _Reader, error: Exception) -> Counted:
    """Count what DuckDB cannot read, or tell its first line that nobody can."""
    if not source.has_lines:
        explain: Callable[[TableError], str] = reader().explain
        said = explain(error) if isinstance(error, TableError) else str(error)
        raise DataError(f"{source.path}: {said}") from error
    left_out: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    items: set[str] = set()
    days: list[int] = []
    for file in source.files:
        for one in read_purchases(file, columns, left_out):
            pairs[one.region, one.customer] += 1
            items.add(one.item)
            if one.day is not None:
                days = [min(days[0], one.day), max(days[1], one.day)] if days else [one.day, one.day]
    customers = Counter(region for region, _ in pairs)
    rows: Counter[str] = Counter()
    for (region, _), count in pairs.items():
        rows[region] += count
    regions = tuple(RegionCount(name, customers[name], count) for name, count in rows.most_common())
    total = sum(rows.values()) + sum(left_out.values())
    first, last = days or (None, None)
    return Counted(total, dict(left_out), {}, regions, len(pairs), len(items), first, last)


def _whole_rows(sample: Sample, columns: Columns) -> list[tuple[str, ...]]:
    needed = [name for name in (columns.region, columns.customer, columns.item, columns.time) if name]
    places = [sample.header.index(name) for name in needed]
    return [row for row in sample.rows if all(row[place] for place in places)][:SHOWN]


def _understood(sample: Sample, columns: Columns, row: tuple[str, ...]) -> dict[str, str]:
    found = dict(zip(sample.header, row, strict=True))
    names = {"region": columns.region, "customer": columns.customer, "item": columns.item}
    understood = {meaning: found[name] if name else columns.one_region for meaning, name in names.items()}
    if columns.time:
        understood["date"] = _day(found[columns.time], columns.format.dates)
    for meaning, name in (("quantity", columns.amount), ("description", columns.description)):
        if name:
            understood[meaning] = found[name]
    return understood


def _day(text: str, form: str) -> str:
    try:
        return show_day(parse_timestamp(text, form) // DAY)
    except ValueError:
        return text


__all__ = ["Look", "Wishes", "look_at", "show_day"]
