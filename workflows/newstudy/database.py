"""A database in the place of a table's file: what names it, and a look at its rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nnlib.importing.sniffing.look import Look
from nnlib.importing.sniffing.text_form import Guess
from regiondag.config.notify_section import read_place, settle_place
from regiondag.errors import UsageError
from regiondag.generate.database_rows import fetch
from regiondag.study.database import LEGAL_QUERY, Database, check_query, check_url, resolve_url


def name_database(
    url: str, table: str | None = None, query: str | None = None, password: str | None = None, mark: str = ""
) -> Database:
    """Return the database that is meant; `password` says where it is kept, `mark` begins options in messages.

    UsageError, which shows no password, for what is no URL, query or place, and for both or none of table and query.
    """
    if (table is None) == (query is None):
        raise UsageError(f"of a database one of {mark}table and {mark}query is needed")
    here = Path.cwd()
    try:
        found = resolve_url(check_url(url), here)
    except ValueError as error:
        raise UsageError(f"{mark}data: {error}") from None
    try:
        place = settle_place(read_place(password), here) if password is not None else ""
    except ValueError:
        raise UsageError(
            f"{mark}password: is no place, legal: env:NAME or file:PATH, where the password is kept"
        ) from None
    try:
        checked = check_query(query) if query is not None else ""
    except ValueError as error:
        raise UsageError(f"{mark}query: {error}, legal: {LEGAL_QUERY}") from None
    return Database(found, table or "", checked, place)


def look_at_database(database: Database, look_at_file: Callable[[Path], Look]) -> Look:
    """Read all rows of a database into a file, once, and look at that."""
    with tempfile.TemporaryDirectory(prefix="regiondag-") as scratch, fetch(database, Path(scratch) / "of") as found:
        look = look_at_file(found.file)
        none = Guess("", "it is a database")
        source = replace(look.source, path=Path(database.name), files=())
        return replace(look, source=source, encoding=none, separator=none)
