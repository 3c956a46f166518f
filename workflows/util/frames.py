"""Rows as a table of pandas or polars, through Arrow: the one module that imports pyarrow, pandas and polars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnlib.util.process import install_line
from regiondag.errors import UsageError

LIBRARIES = ("pandas", "polars", "arrow")


def make_frame(rows: Sequence[Mapping[str, object]], columns: Sequence[str], library: str = "pandas") -> Any:
    """Return rows as a DataFrame of pandas or polars, or as Arrow's own Table; values are those of the rows.

    A column that holds texts and numbers is text. UsageError for another library, or one that is not installed.
    """
    if library not in LIBRARIES:
        raise UsageError(f"{library!r} is no library of tables, legal: {', '.join(LIBRARIES)}")
    try:
        import pyarrow

        table = pyarrow.table({name: _column(pyarrow, [row.get(name) for row in rows]) for name in columns})
        if library == "arrow":
            return table
        if library == "polars":
            import polars

            return polars.from_arrow(table)
        return table.to_pandas()
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed, which tables go through; {install_line('frames')}") from error


def _column(pyarrow: Any, values: Sequence[Any]) -> Any:
    """Return values as an array of one type."""
    kinds = {type(value) for value in values} - {type(None)}
    if len(kinds) > 1 and str in kinds:
        values = [None if value is None else str(value) for value in values]
    elif len(kinds) > 1 and kinds <= {int, float}:
        values = [None if value is None else float(value) for value in values]
    return pyarrow.array(values)
