"""Make the regions' data sets anew where the table of purchases, or how it is split, has changed."""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnlib.contract import sha256_of
from nnlib.errors import DataError
from nnlib.util.files import write_atomically
from nnlib.util.terminal import is_quiet
from regiondag.config.load import load_purchases
from regiondag.errors import ConfigError
from regiondag.study.database import Database
from regiondag.study.model import Purchases

if TYPE_CHECKING:
    from nnlib.importing.purchase_lines import Columns

IMPORTED = ".imported.json"  # in the folder of the data sets: of what they were made
VERSION = 5  # of what an import makes of a table
DAY = 86_400
OPTIONS = "in study.yaml its options are keys of data.split, --split is by, and of data.columns"


def refresh_data(study: Path) -> bool:
    """Import the table that study.yaml names, unless that has been done, or it names none; return whether it was.

    Raises ConfigError for a table that cannot be read, with its line.
    """
    try:
        purchases = load_purchases(study)
    except ConfigError:
        return False  # `load_config` tells that with all other mistakes
    if purchases is None:
        return False
    if isinstance(purchases.table, Path):
        return _refresh(study, purchases, purchases.table, _describe(purchases, _digest_named(purchases.table)))
    try:
        return _refresh_from(study, purchases, purchases.table)
    except DataError as error:
        raise _explain(study, error) from error


def _refresh_from(study: Path, purchases: Purchases, database: Database) -> bool:
    """Read a database, which cannot say whether it has changed, and import its rows where they are others."""
    from regiondag.generate.database_rows import fetch

    columns = _columns_of(purchases)

    def choose(header: tuple[str, ...]) -> list[str]:
        return sorted({header[place] for place in columns.find(header, Path(database.name)).values()})

    if not is_quiet():
        print(f"reading {database.name}, to see whether it has changed", file=sys.stderr, flush=True)
    with fetch(database, purchases.folder, choose) as found:
        imported = _refresh(study, purchases, found.file, _describe(purchases, found.digest))
        if not is_quiet():
            said = "which were imported" if imported else "as they were"
            print(f"{database.name}: {found.rows:,} rows, {said}", file=sys.stderr, flush=True)
        return imported


def _refresh(study: Path, purchases: Purchases, table: Path, wanted: dict[str, Any]) -> bool:
    """Import `table`, unless the data sets are made of just what is `wanted`."""
    record = purchases.folder / IMPORTED
    (known, files), before = _read(record), _states_in(purchases.folder)
    if known == wanted and files <= before.keys():
        return False
    from nnlib.importing.regions import import_purchases
    from nnlib.importing.splits import Split

    split = Split(purchases.split, purchases.test, purchases.validate, purchases.min_history, purchases.repeats)
    try:
        with redirect_stdout(sys.stderr):  # standard output has the run's path alone
            import_purchases(table, purchases.folder, int(time.time() // DAY), _columns_of(purchases), split)
    except DataError as error:
        if not isinstance(purchases.table, Path):
            raise  # by who knows what the database is called
        raise _explain(study, error) from error
    written = sorted(dict(_states_in(purchases.folder).items() - before.items()))
    for name in files & before.keys() - set(written):  # of a region that is not in the table any more
        (purchases.folder / name).unlink(missing_ok=True)
    write_atomically(record, json.dumps({"of": wanted, "files": written}, indent=1) + "\n")
    return True


def _columns_of(purchases: Purchases) -> Columns:
    from nnlib.importing.purchase_lines import Columns
    from nnlib.importing.table_source import TableFormat

    names = purchases.columns
    return Columns(
        names["region"],
        names["customer"],
        names["item"],
        names["time"],
        stage=purchases.column,
        time_needed=purchases.split in ("time", "leave-one-out"),
        description=names["description"],
        one_region=purchases.region,
        format=TableFormat(**purchases.format),
        amount=names["quantity"],
    )


def _explain(study: Path, error: DataError) -> ConfigError:
    hint = f"; {OPTIONS}" if " --" in str(error) or "(--" in str(error) else ""
    return ConfigError([f"{study}: data: {error}{hint}"])


def _describe(purchases: Purchases, digest: str | list[list[str]]) -> dict[str, Any]:
    """Return of what data sets are made; of equal rows elsewhere they would be the same."""
    said = {field.name: getattr(purchases, field.name) for field in fields(purchases)}
    return {"version": VERSION, "sha256": digest} | {n: v for n, v in said.items() if n not in ("table", "folder")}


def _digest_named(table: Path) -> str | list[list[str]]:
    try:
        return _digest(table)
    except OSError as error:
        raise ConfigError(
            [f"{table}: {error.strerror}; legal for data.purchases: a table, or a folder of such"]
        ) from error


def _digest(table: Path) -> str | list[list[str]]:
    """Return what tells a table from the one that it was: the SHA-256 of the file, of a folder that of each."""
    if not table.is_dir():
        return sha256_of(table)
    return [[file.name, sha256_of(file)] for file in sorted(table.iterdir()) if file.is_file()]


def _read(record: Path) -> tuple[Any, set[str]]:
    """Return of what the data sets were made, and their files; nothing where that is not known."""
    try:
        raw = json.loads(record.read_text(encoding="utf-8"))
        return raw["of"], set(map(str, raw["files"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None, set()


def _states_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the data files of a folder, each with what tells it from the one that takes its place."""
    facts = {path.name: path.stat() for path in folder.glob("*.nc")}
    return {name: (fact.st_ino, fact.st_mtime_ns) for name, fact in facts.items()}
