"""Make the regions' data sets anew where the table of purchases, or how it is split, has changed."""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nnlib.contract import sha256_of
from nnlib.util.files import write_atomically
from regiondag.config.load import load_purchases
from regiondag.errors import ConfigError
from regiondag.study.model import Purchases

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
    wanted, record = _describe(purchases), purchases.folder / IMPORTED
    (known, files), before = _read(record), _states_in(purchases.folder)
    if known == wanted and files <= before.keys():
        return False
    from nnlib.errors import DataError
    from nnlib.importing.purchase_lines import Columns
    from nnlib.importing.regions import import_purchases
    from nnlib.importing.splits import Split
    from nnlib.importing.table_source import TableFormat

    names = purchases.columns
    column = purchases.column
    columns = Columns(
        names["region"],
        names["customer"],
        names["item"],
        names["time"],
        stage=column,
        time_needed=purchases.split in ("time", "leave-one-out"),
        description=names["description"],
        one_region=purchases.region,
        format=TableFormat(**purchases.format),
        amount=names["quantity"],
    )
    split = Split(purchases.split, purchases.test, purchases.validate, purchases.min_history, purchases.repeats)
    try:
        with redirect_stdout(sys.stderr):  # standard output has the run's path alone
            import_purchases(purchases.table, purchases.folder, int(time.time() // DAY), columns, split)
    except DataError as error:
        hint = f"; {OPTIONS}" if " --" in str(error) or "(--" in str(error) else ""
        raise ConfigError([f"{study}: data: {error}{hint}"]) from error
    written = sorted(dict(_states_in(purchases.folder).items() - before.items()))
    for name in files & before.keys() - set(written):  # of a region that is not in the table any more
        (purchases.folder / name).unlink(missing_ok=True)
    write_atomically(record, json.dumps({"of": wanted, "files": written}, indent=1) + "\n")
    return True


def _describe(purchases: Purchases) -> dict[str, Any]:
    try:
        digest = _digest(purchases.table)
    except OSError as error:
        raise ConfigError(
            [f"{purchases.table}: {error.strerror}; legal for data.purchases: a table, or a folder of such"]
        ) from error
    said = asdict(purchases)
    return {"version": VERSION, "sha256": digest} | {n: v for n, v in said.items() if n not in ("table", "folder")}


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
