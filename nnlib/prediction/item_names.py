"""What items are called: the `items.csv` that an import writes, or any table with the columns item and description."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from nnlib.errors import DataError
from nnlib.importing.side_tables import DESCRIPTION, ITEM, read_side_table


def read_descriptions(path: Path, items: Collection[str]) -> dict[str, str]:
    """Return the descriptions of those `items` that the table has one for; DataError names file and line."""
    table = read_side_table(path, (ITEM,))
    if DESCRIPTION not in table.columns:
        columns = ", ".join((ITEM, *table.columns))
        raise DataError(f"{path}:1: the columns {columns}, legal: with {DESCRIPTION}, what each item is called")
    column = table.columns.index(DESCRIPTION)
    wanted = set(items)
    found = {item: row[column].strip() for (item,), row in table.rows.items() if item in wanted}
    return {item: text for item, text in found.items() if text}
