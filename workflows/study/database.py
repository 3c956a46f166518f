"""A database as the table of purchases: where it is, and what may be said of it. Pure, and without its library."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

LEGAL_URL = "dialect://user@host/database, such as postgresql://me@db.example.org/shop, or sqlite:///shop.db"
LEGAL_QUERY = "one SELECT, also with WITH before it, as a statement that only reads"
REFUSED = (
    "it holds a password; leave it out, and say where it is kept by `password`: env:NAME or file:PATH, or keep it in a "
    "file of the driver's own such as ~/.pgpass"
)
FILES = ("sqlite", "duckdb")  # databases that are a file
SECRET_NAMES = re.compile(r"passw|passphrase|pwd|secret|token", re.IGNORECASE)
SECRET_VALUES = re.compile(r"(pwd|password)\s*=", re.IGNORECASE)
# What is no word of SQL: texts, quoted names, comments.
QUOTED = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
WRITING = ("insert", "update", "delete", "merge", "replace", "into", "create", "drop", "alter", "truncate")


@dataclass(frozen=True, slots=True)
class Database:
    """A table of a database, or what a query finds there. Its password is named by where it is kept, never held."""

    url: str  # without a password
    table: str = ""
    query: str = ""
    password: str = ""  # env:NAME or file:PATH; empty: none, or the driver knows it

    @property
    def name(self) -> str:
        """What people call it."""
        dialect, rest = _cut(self.url)
        if dialect in FILES:
            where = f"in {posixpath.basename(rest.partition('?')[0])}"
        else:
            host, _, database = rest.partition("?")[0].rpartition("@")[2].partition("/")
            where = f"in {database or dialect}" + f" on {host}" * bool(host)
        return f"{self.table or 'query'} {where}"


def check_url(url: str) -> str:
    """Return an URL that may stand in study.yaml; ValueError, which does not show it, says what is wrong."""
    if not re.match(r"[A-Za-z][A-Za-z0-9_+]*://", url):
        raise ValueError(f"it is no URL of a database, legal: {LEGAL_URL}")
    dialect, rest = _cut(url)
    place, _, options = rest.partition("?")
    if re.match(r"[^:/]*:[^@]*@", rest):
        raise ValueError(REFUSED)
    for name, value in parse_qsl(options, keep_blank_values=True):
        if SECRET_NAMES.search(name) or SECRET_VALUES.search(value):
            raise ValueError(REFUSED)
    if dialect in FILES and (not place.startswith("/") or place in ("/", "/:memory:")):
        raise ValueError(f"it names no file, legal: {dialect}:///shop.db, or {dialect}:////home/me/shop.db")
    return url


def check_query(query: str) -> str:
    """Return a query that only reads; ValueError says what is wrong with it.

    >>> check_query("SELECT 'a; DELETE' FROM t;")
    "SELECT 'a; DELETE' FROM t"
    """
    query = query.strip().rstrip(";").rstrip()
    bare = QUOTED.sub(" ", query).lower()
    words = re.findall(r"[a-z_]\w*|;", bare)
    if ";" in words:
        raise ValueError("it holds several statements, or an open quote")
    if words[:1] not in (["select"], ["with"]) or "select" not in words:
        raise ValueError(f"it begins with {words[0].upper() if words else 'nothing'}")
    calls = set(re.findall(r"([a-z_]\w*)\s*\(", bare)) & {"replace", "insert", "truncate"}  # functions of these names
    found = [word for word in WRITING if word in words and word not in calls]
    if found:
        raise ValueError(f"it holds {found[0].upper()}; a column of that name needs quotes")
    return query


def resolve_url(url: str, folder: Path) -> str:
    """Return the URL with the path of a database that is a file, which was relative to `folder`, from the root on."""
    dialect, rest = _cut(url)
    if dialect not in FILES:
        return url
    path, mark, options = rest[1:].partition("?")
    head = url[: url.index("://")]
    return f"{head}:///{folder.absolute() / path}{mark}{options}"


def path_of(url: str) -> Path | None:
    """Return the file that a database is; None for one that is a server's."""
    dialect, rest = _cut(url)
    return Path(rest[1:].partition("?")[0]) if dialect in FILES else None


def with_path(url: str, path: str) -> str:
    """Return the URL with another path of its file."""
    mark, options = url.partition("?")[1:]
    return f"{url[: url.index('://')]}:///{path}{mark}{options}"


def _cut(url: str) -> tuple[str, str]:
    """Return the dialect, without a driver, and what stands behind ://."""
    head, _, rest = url.partition("://")
    return head.partition("+")[0].lower(), rest
