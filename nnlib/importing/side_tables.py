"""What is known of items and customers beside their purchases: columns of further tables, kept for whoever reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.errors import DataError
from nnlib.importing.purchase_lines import UNREADABLE, count_lines_read, explain_unreadable
from nnlib.importing.table_source import TableFormat, open_text, separator_of

ITEM, DESCRIPTION = "item", "description"
REGION, CUSTOMER = "region", "customer"
USUAL = TableFormat()


@dataclass(frozen=True, slots=True)
class SideTable:
    """Columns of a table by the texts that its rows are found by."""

    columns: tuple[str, ...]  # but for those of the keys
    rows: dict[tuple[str, ...], tuple[str, ...]]

    def get(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """Return what the table says of a key; empty texts where it does not know it."""
        return self.rows.get(key) or ("",) * len(self.columns)


def read_side_table(path: Path, keys: Sequence[str]) -> SideTable:
    """Read a table whose header has the columns `keys`; of several rows of one key the last counts.

    DataError names file and line of what is wrong.
    """
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    line, legal = 0, f"a header with {', '.join(keys)}"
    try:
        with open_text(path, USUAL) as file:
            rows = csv.reader(file, delimiter=separator_of(path, USUAL))
            header = next(rows, [])
            line = rows.line_num
            if not all(key in header for key in keys) or len(set(header)) < len(header):
                raise DataError(f"{path}:1: the columns {', '.join(header) or 'none'}, legal: {legal}, each once")
            places = [header.index(key) for key in keys]
            others = [n for n in range(len(header)) if n not in places]
            for row in rows:
                line = rows.line_num
                if row and len(row) != len(header):
                    raise DataError(f"{path}:{line}: {len(row)} fields, the header has {len(header)}")
                if row:
                    found[tuple(row[n] for n in places)] = tuple(row[n] for n in others)
    except UNREADABLE as error:
        raise DataError(
            f"{path}:{line + 1 + count_lines_read(error)}: cannot be read: {explain_unreadable(error)}; "
            f"legal: UTF-8 text, {legal}"
        ) from error
    return SideTable(tuple(header[n] for n in others), found)


def items_csv(names: Sequence[str], known: SideTable | None) -> str:
    """Return a table of the items in the order of their units, with a description whether or not one is known."""
    known = known or SideTable((), {})
    if DESCRIPTION not in known.columns:
        known = SideTable((DESCRIPTION, *known.columns), {key: ("", *row) for key, row in known.rows.items()})
    rows = ((unit, name, *known.get((name,))) for unit, name in enumerate(names))
    return _csv(("unit", ITEM, *known.columns), rows)


def customers_csv(customers: Iterable[tuple[str, str]], known: SideTable) -> str:
    """Return a table of the customers, as (region, name), in their order."""
    return _csv((REGION, CUSTOMER, *known.columns), ((*customer, *known.get(customer)) for customer in customers))


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
