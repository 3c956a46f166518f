"""Reads `data.database`: where the table of purchases is, if it is no file. What may hold a password is never shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nnlib.spec.checks import Check, Schema
from regiondag.config.notify_section import PLACE, read_place, settle_place
from regiondag.study.database import LEGAL_QUERY, LEGAL_URL, Database, check_query, check_url, resolve_url
from regiondag.util.schema import TEXT, Key, Keys, Section, object_of

LEGAL_PLACE = "env:NAME or file:PATH, where it is kept"


def _query(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return check_query(value)


DATABASE: Keys = {
    "url": Key(
        "",
        Check(TEXT.of, LEGAL_URL, TEXT.schema),
        "Where the database is, without a password; a path of SQLite is relative to study.yaml's folder.",
    ),
    "table": Key("", TEXT, "Name of the table or view, also with its schema: sales.purchases."),
    "query": Key(
        "",
        Check(_query, LEGAL_QUERY, {"type": "string", "pattern": r"\S"}),
        "What finds the purchases, in the place of `table`; it may only read.",
    ),
    "password": Key(
        "",
        Check(read_place, LEGAL_PLACE, PLACE),
        "Where the password is kept: env:NAME, or file:PATH of one line; by default the driver knows it.",
    ),
}
DATABASE_SCHEMA: Schema = {
    **object_of(DATABASE, ["url"]),
    "oneOf": [{"required": ["table"]}, {"required": ["query"]}],
}


def read_database(section: Section, folder: Path) -> Database | None:
    """Read the section; None where it is wrong. Paths are relative to `folder`, that of study.yaml."""
    before = len(section.problems.found)
    url = _read_unseen(section, "url", check_url)
    password = _read_unseen(section, "password", read_place)
    table, query = (section.value(name, DATABASE) for name in ("table", "query"))
    section.finish()
    if "url" not in section:
        section.problems.add(section.where("url"), f"missing, legal: {LEGAL_URL}")
    if ("table" in section) == ("query" in section):
        seen = "both" if "table" in section else "neither"
        section.problems.add(section.where("table"), f"seen {seen}, legal: one of `table` and `query`")
    if len(section.problems.found) > before:
        return None
    return Database(resolve_url(url, folder), table, query, settle_place(password, folder))


def _read_unseen(section: Section, name: str, check: Callable[[str], str]) -> str:
    """Return a value that a password may stand in, so that no mistake shows it."""
    value = section.raw(name)
    if name not in section:
        return ""
    try:
        return check(TEXT.of(value))
    except ValueError as error:
        said = str(error) or "what stands here is not that, and is not shown"
        section.problems.add(section.where(name), f"{said}, legal: {DATABASE[name].check.legal}")
        return ""
