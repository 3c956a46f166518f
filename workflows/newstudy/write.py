"""The study of a table: a few lines of YAML, each with what it is for, and the schema that an editor checks it by."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

from nnlib.families.family import Size
from nnlib.families.fit import bytes_needed
from nnlib.families.legal import complete_recipe
from nnlib.importing.sniffing.look import Look
from nnlib.util.files import appearing, write_atomically
from regiondag.config.keys import COLUMNS, describe_study
from regiondag.config.memory_check import before
from regiondag.errors import UsageError
from regiondag.run.layout import STUDY_FILE
from regiondag.study.database import Database, path_of, with_path
from regiondag.study.families import FIRST, recipe_at
from regiondag.util.text import holds_control_character

SCHEMA = Path(".regiondag") / "study.schema.json"
GB = 1 << 30
A_PURCHASE = 200  # bytes of disk in a job: the data sets of all parts, and what is made of them
MARGIN = 1.25
WORDS = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~", ".nan", ".inf"])
COMMENTED = 44  # where comments begin, if there is room


def name_study(folder: Path) -> str:
    """Return a legal name like that of a folder.

    >>> name_study(Path("my shop/"))
    'my-shop'
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-")[:60] or "study"


def write_study(folder: Path, look: Look, machine: int, database: Database | None = None) -> Path:
    """Write study.yaml and its schema so that `folder` appears whole or not at all; return the file's path.

    `machine` is the memory in bytes that a job may have at most.
    """
    table = name_database(database, folder) if database else name_file(find_path(look.source.path, folder))
    text = compose_study(name_study(folder), table, look, machine)
    with appearing(folder) as part:
        (part / SCHEMA.parent).mkdir()
        write_atomically(part / SCHEMA, json.dumps(describe_study(), indent=1) + "\n")
        write_atomically(part / STUDY_FILE, text)
    return folder / STUDY_FILE


def find_path(table: Path, folder: Path) -> str:
    """Return what study.yaml calls a table: relative to it where both lie in one folder, else absolute."""
    # Not Path.resolve(), which raises RuntimeError where links go in a circle.
    table, folder = (Path(os.path.realpath(one)) for one in (table, folder))
    return os.path.relpath(table, folder) if table.is_relative_to(folder.parent) else str(table)


def compose_study(name: str, table: Sequence[tuple[str, str]], look: Look, machine: int) -> str:
    """Return the text of study.yaml; `table` is the lines that name it, each with a comment."""
    columns = look.columns
    lines = [(f"study: {name}", "what runs and champions are called by"), ("data:", ""), *table]
    if not columns.region:
        lines.append((f"  region: {quote_yaml(columns.one_region)}", "no column says it, so all are of one"))
    meanings = ("region", "customer", "item", "time", "description", "quantity")
    named = {one: look.roles.columns[one] for one in meanings if one in look.roles.columns}
    named = {one: column for one, column in named.items() if column != COLUMNS.get(one)}
    if named:
        lines.append(("  columns:", "what the table calls them"))
        told = {"description": "recommendations show it", "quantity": "rows of 0 or below came back: left out"}
        lines += [(f"    {one}: {quote_yaml(column)}", told.get(one, "")) for one, column in named.items()]
    if form := _form_of(look):
        written = ", ".join(f"{key}: {quote_yaml(value)}" for key, value in form.items())
        lines.append((f"  format: {{{written}}}", "how its texts are to be read"))
    if not columns.time:
        lines.append(("  split: random", "no column of times; with one, the last days are held back"))
    lines.append((_job(look, machine), "no GPU needed; memory by the size of the data"))
    lines.append(("# search: {rounds: 2}", "for a first look: fewer trials than usual"))
    schema = f"# yaml-language-server: $schema={SCHEMA.as_posix()}"
    return "\n".join([schema, *(_with_comment(*line) for line in lines)]) + "\n"


def name_file(path: str) -> list[tuple[str, str]]:
    """Return the line that names a file as the table, with a comment."""
    return [(f"  purchases: {quote_yaml(path)}", "stays where it is; each run looks whether it has changed")]


def name_database(database: Database, folder: Path) -> list[tuple[str, str]]:
    """Return the lines that name a database in the study of `folder`."""
    file, place = path_of(database.url), database.password
    said = {
        "url": database.url if file is None else with_path(database.url, find_path(file, folder)),
        "table": database.table,
        "query": database.query,
        "password": f"file:{find_path(Path(place[5:]), folder)}" if place.startswith("file:") else place,
    }
    lines = [
        f"    {key}: {json.dumps(value) if key == 'query' else quote_yaml(value)}"
        for key, value in said.items()
        if value
    ]
    return [("  database:", "is only read; each run looks whether its rows have changed"), *((x, "") for x in lines)]


def quote_yaml(text: str) -> str:
    """Return a text as YAML has it; UsageError for one that no line can hold."""
    if holds_control_character(text) or not text.strip():
        raise UsageError(f"{text!r} cannot stand in study.yaml: it holds a control character, or nothing; rename it")
    if re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./-]*", text) and text.lower() not in WORDS and not text.startswith("---"):
        return text
    return json.dumps(text, ensure_ascii=False)


def _form_of(look: Look) -> dict[str, str]:
    form = look.columns.format
    usual = {"separator": "", "encoding": "utf-8", "dates": "", "decimal": "."}
    said = {key: getattr(form, key) for key in usual}
    return {key: value for key, value in said.items() if value != usual[key]}


def _job(look: Look, machine: int) -> str:
    counted, share = look.counted, look.about / max(1, look.counted.rows)
    size = Size(counted.customers, counted.items, int(counted.purchases * share))
    needed = [
        before(size) + sum(bytes_needed(complete_recipe(recipe_at({"family": family, **settings}, 0)), size))
        for family, settings in FIRST
    ]
    memory = max((count for count in needed if count * MARGIN <= machine), default=min(needed))
    disk = math.ceil((A_PURCHASE * size.entries + GB // 2) / GB)
    return f"job: {{gpus: 0, cpus: 1, memory: {math.ceil(memory * MARGIN / GB)}GB, disk: {disk}GB}}"


def _with_comment(text: str, comment: str) -> str:
    return f"{text:{COMMENTED}}  # {comment}" if comment else text
