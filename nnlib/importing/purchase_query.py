"""What the rows of a table say, asked of DuckDB: who bought, what and when, how often, and what is wrong with a row.

The table is read twice and its texts are never kept: first its customers and items are counted, which is all that a
look at it needs, then each purchase becomes the numbers of its customer and item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.importing.purchase_lines import NEEDED, Columns, explain_value
from nnlib.importing.splits import STAGES
from nnlib.importing.table_source import Reading
from nnlib.importing.timestamps import day_expression
from nnlib.util.tables import quote

WRONG_DAY = 2**31 - 1  # in place of what a text did not mean
WRONG_STAGE = 255
RETURNED = "amount"  # the flaw of a row that is no purchase, as nothing stayed with the customer
PARSED = ("time", "stage", "quantity", "amount")  # what is not text alone
# What `seen` counts by, as the number that GROUPING_ID gives it.
BY_CUSTOMER, BY_ITEM, BY_FLAW = 1, 6, 7


class WrongValueError(Exception):
    """A column holds what it may not."""


@dataclass(frozen=True, slots=True)
class RegionCount:
    """A region as it stands in a table."""

    name: str
    customers: int
    rows: int  # that are whole


@dataclass(frozen=True, slots=True)
class Counted:
    """What the whole of a table holds; `left_out` and `wrong` are rows, by what they lack or where they are wrong."""

    rows: int
    left_out: Mapping[str, int]
    wrong: Mapping[str, int]
    regions: tuple[RegionCount, ...]  # the largest first
    customers: int
    items: int
    first: int | None  # day since 1970-01-01; None without times
    last: int | None

    @property
    def purchases(self) -> int:
        """How many rows are whole."""
        return sum(region.rows for region in self.regions)


class PurchaseQuery:
    """The rows of `reading` as `columns` mean them."""

    def __init__(self, reading: Reading, columns: Columns) -> None:
        self.reading, self.columns = reading, columns
        places = columns.find(reading.header, reading.source.path)
        self.wanted = {meaning: getattr(columns, meaning) for meaning in places}
        self.needed = [name for name in NEEDED if name in self.wanted]

    @property
    def timed(self) -> bool:
        """Whether the table says when."""
        return "time" in self.wanted

    def count(self) -> None:
        """Read the table and make `seen`: how often each customer and each item is there, and each flaw."""
        time = "min(time), max(time)" if self.timed else "NULL::INTEGER, NULL::INTEGER"
        self.reading.tables.run(
            "CREATE TABLE seen AS SELECT * FROM (SELECT grouping_id(region, customer, item), flaw, region, customer, "
            f"item, count(*), {time} FROM ({self.select()}) GROUP BY GROUPING SETS "
            "((flaw), (flaw, region, customer), (flaw, item))) "
            "AS seen(grouped, flaw, region, customer, item, count, first, last)"
        )

    def counted(self) -> Counted:
        """Return what `count` found."""
        tables = self.reading.tables
        flaws = tables.run(f"SELECT flaw, count, first, last FROM seen WHERE grouped = {BY_FLAW} AND count > 0")
        by_flaw = {flaw: count for flaw, count, _, _ in flaws}
        regions = tables.run(
            "SELECT region, count(*), sum(count)::BIGINT AS rows FROM seen "
            f"WHERE grouped = {BY_CUSTOMER} AND flaw = '' GROUP BY region ORDER BY rows DESC, region"
        )
        [(items,)] = tables.run(f"SELECT count(*) FROM seen WHERE grouped = {BY_ITEM} AND flaw = ''")
        days = next(((first, last) for flaw, _, first, last in flaws if not flaw), (None, None))
        return Counted(
            sum(by_flaw.values()),
            {name: by_flaw[name] for name in (*NEEDED, RETURNED) if name in by_flaw},
            {flaw.removeprefix("!"): count for flaw, count in by_flaw.items() if flaw.startswith("!")},
            tuple(RegionCount(*region) for region in regions),
            sum(region[1] for region in regions),
            items,
            *days,
        )

    def number(self) -> None:
        """Make `customers` and `items`, each with its number in the order of the texts, and of all rows `numbered`."""
        tables = self.reading.tables
        tables.run(
            "CREATE TABLE customers AS SELECT (row_number() OVER (ORDER BY region, customer) - 1)::INTEGER AS number, "
            f"region, customer FROM seen WHERE grouped = {BY_CUSTOMER} AND flaw = ''"
        )
        tables.run(
            "CREATE TABLE items AS SELECT (row_number() OVER (ORDER BY item) - 1)::INTEGER AS number, item "
            f"FROM seen WHERE grouped = {BY_ITEM} AND flaw = ''"
        )
        others = "".join(f", {name}" for name in ("stage", "quantity") if name in self.wanted)
        order = " ORDER BY quantity" * ("quantity" in self.wanted)  # so that sums of equal ones have the same bits
        tables.run(
            f"CREATE TABLE numbered AS SELECT customers.number AS customer, items.number AS item, "
            f"{'time' if self.timed else '0'} AS day{others} FROM ({self.select()}) said "
            f"JOIN customers USING (region, customer) JOIN items USING (item) WHERE flaw = ''{order}"
        )

    def describe_items(self) -> list[str]:
        """Return of each of `items` what most of its purchases call it, of several the first in the order of texts."""
        rows = self.reading.tables.run(
            "SELECT coalesce(description, '') FROM items LEFT JOIN (SELECT item, description FROM "
            f"({self.select()}) WHERE flaw = '' AND description IS NOT NULL "
            "GROUP BY item, description QUALIFY row_number() OVER (PARTITION BY item ORDER BY count(*) DESC, "
            "description) = 1) USING (item) ORDER BY number"
        )
        return [text for (text,) in rows]

    def find_wrong(self) -> str:
        """Return file, row and value of the first row that is wrong."""
        for file in self.reading.source.files:
            rows = f"SELECT *, row_number() OVER () AS row FROM ({self.select(files=(file,), raw=True)})"
            found = self.reading.tables.run(f"SELECT * FROM ({rows}) WHERE flaw LIKE '!%' LIMIT 1")
            for flaw, *values, row in found:
                meaning = flaw.removeprefix("!")
                text = values[[name for name in PARSED if name in self.wanted].index(meaning)]
                return f"{file}: row {row}: {explain_value(self.columns, meaning, text or '')}"
        return f"{self.reading.source.path}: has changed while it was read; start again"

    def select(self, files: Sequence[Path] = (), raw: bool = False) -> str:
        """Return the query of what each row says, with NULL for what it does not say, and of its `flaw`.

        That is empty, what it lacks, RETURNED, or `!` and where it is wrong. With `raw` only of the flaw and of the
        texts that are not text alone.
        """
        kinds = {meaning: self.reading.kinds[name] for meaning, name in self.wanted.items()}
        texts = {meaning: _text(f"raw.{meaning}", kind) for meaning, kind in kinds.items()}
        said: dict[str, str] = {
            name: texts[name] for name in ("region", "customer", "item", "description") if name in texts
        }
        said.setdefault("region", quote(self.columns.one_region))
        if "time" in texts:
            days = day_expression("raw.time", kinds["time"], self.columns.format.dates)
            said["time"] = f"CASE WHEN {texts['time']} IS NOT NULL THEN coalesce({days}, {WRONG_DAY}) END::INTEGER"
        if "stage" in texts:
            cases = " ".join(f"WHEN {quote(name)} THEN {stage}" for name, stage in STAGES.items())
            said["stage"] = f"(CASE {texts['stage']} {cases} ELSE {WRONG_STAGE} END)::UTINYINT"
        for name in ("quantity", "amount"):
            if name in texts:
                said[name] = f"CASE WHEN {texts[name]} IS NOT NULL THEN {self._number(texts[name])} END"
        if "quantity" in said:
            said["quantity"] = f"coalesce({said['quantity']}, 'nan'::FLOAT)"
        named = ", ".join(f"{expression} AS {meaning}" for meaning, expression in said.items())
        below = f"SELECT {named}{self._raw(texts) if raw else ''} FROM ({self.reading.select(self.wanted, files)}) raw"
        columns = ", ".join(f"raw_{name}" for name in PARSED if name in texts)
        return f"SELECT {self._flaw()} AS flaw, {columns if raw else '*'} FROM ({below})"

    def _raw(self, texts: Mapping[str, str]) -> str:
        return "".join(f", {texts[name]} AS raw_{name}" for name in PARSED if name in texts)

    def _number(self, text: str) -> str:
        decimal = self.columns.format.decimal
        if decimal != ".":
            text = f"replace(replace({text}, '.', ''), {quote(decimal)}, '.')"
        return f"coalesce(try_cast(try_cast({text} AS DOUBLE) AS FLOAT), 'nan'::FLOAT)"

    def _flaw(self) -> str:
        wrong = {
            "time": f"time = {WRONG_DAY}",
            "stage": f"stage = {WRONG_STAGE}",
            "quantity": "NOT isfinite(quantity)",
            "amount": "NOT isfinite(amount)",
        }
        cases = [f"WHEN {name} IS NULL THEN {quote(name)}" for name in self.needed]
        cases += [f"WHEN {what} THEN '!{name}'" for name, what in wrong.items() if name in self.wanted]
        cases += [f"WHEN amount <= 0 THEN '{RETURNED}'"] * ("amount" in self.wanted)
        return f"CASE {' '.join(cases)} ELSE '' END"


def _text(column: str, kind: str) -> str:
    """Return SQL for the text of a column; whole numbers that are stored as fractions are whole all the same."""
    text = f"{column}::VARCHAR"
    if kind in ("DOUBLE", "FLOAT"):
        whole = f"{column} = floor({column}) AND abs({column}) < 1e15"
        text = f"CASE WHEN {whole} THEN {column}::BIGINT::VARCHAR ELSE {text} END"
    return f"nullif({text}, '')"
