"""Tables larger than memory, of many formats: DuckDB in a file of its own. The one module that imports it.

Nothing is fetched from elsewhere: the extensions that come with it have to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
from numpy.typing import NDArray

from nnlib.util.threads import count_processors

MEMORY = 1 << 30  # bytes that DuckDB may use before it goes to the disk
LOOK_EVERY = 0.25  # seconds between two looks at how far a statement is
SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "TimeZone": "UTC",
    # How many rows a text file has is not known, so that tables are joined as the statement says: the small one last.
    "disabled_optimizers": "join_order,build_side_probe_side",
}


# Without the first nothing is known of how far a statement is.
PROGRESS = {"enable_progress_bar": "true", "enable_progress_bar_print": "false"}

OF_INPUT = (duckdb.InvalidInputException, duckdb.IOException, duckdb.OutOfMemoryException)


class TableError(Exception):
    """DuckDB cannot read what it was given; the message is the first lines of its own."""


class Tables:
    """An empty database, whose file and all that does not fit into memory lie in `folder`."""

    def __init__(self, folder: Path, memory: int = MEMORY) -> None:
        limits = {"memory_limit": f"{memory >> 20}MiB", "threads": str(count_processors())}
        self._connection = duckdb.connect(
            str(folder / "tables.duckdb"), config={**limits, "temp_directory": str(folder / "spill")}
        )
        for name, value in SETTINGS.items():
            self._connection.execute(f"SET {name} = {quote(value)}")
        with suppress(duckdb.InvalidInputException):  # in a notebook, where it lacks what would draw the bar
            for name, value in PROGRESS.items():
                self._connection.execute(f"SET {name} = {quote(value)}")

    def run(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows; TableError where DuckDB refuses."""
        rows: list[tuple[Any, ...]] = self._execute(sql, values).fetchall()
        return rows

    def columns(self, sql: str) -> list[NDArray[Any]]:
        """Return the columns of a query as arrays."""
        return list(self._execute(sql).fetchnumpy().values())

    def describe(self, source: str) -> dict[str, str]:
        """Return the types of what a FROM names, by column."""
        return {str(row[0]): str(row[1]) for row in self.run(f"DESCRIBE SELECT * FROM {source}")}

    def add(self, name: str, columns: Mapping[str, NDArray[Any]]) -> None:
        """Let queries see arrays of one length as the table `name`."""
        self._connection.register(name, dict(columns))

    @contextmanager
    def watched(self, report: Callable[[float], None]) -> Iterator[None]:
        """Tell now and then how far the statements of a block are, from 0 to 1."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_EVERY):
                share = self._connection.query_progress()
                if share > 0:
                    report(min(1.0, share / 100))

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _execute(self, sql: str, values: Sequence[object] = ()) -> duckdb.DuckDBPyConnection:
        try:
            return self._connection.execute(sql, values or None)
        except duckdb.Error as error:
            if not isinstance(error, OF_INPUT) and type(error) is not duckdb.Error:  # as of a damaged Parquet file
                raise  # a mistake of ours
            raise TableError(_shorten(str(error))) from error


def quote(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Return the name of a column or table as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _shorten(text: str) -> str:
    """Return what happened and where, without the advice on options that our users do not set."""
    for advice in ("\nPossible", "\n\nLINE 1:"):
        text = text.split(advice, 1)[0]
    lines = text.splitlines()
    return "; ".join(line.strip() for line in lines if line.strip())
