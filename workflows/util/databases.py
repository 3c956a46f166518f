"""Rows of a database, a block at a time, through SQLAlchemy: the one module that imports it. It only reads."""

from __future__ import annotations

import importlib.util
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nnlib.errors import DataError
from nnlib.util.process import install_line
from regiondag.util.schema import nearest
from regiondag.util.text import list_some, make_printable

PATIENCE = 10  # seconds to connect, and for a lock of SQLite
BLOCK = 10_000  # rows in memory at a time
STREAM = {"stream_results": True, "max_row_buffer": BLOCK, "sqlite_raw_colnames": True}  # names with a point, too
SHOWN = 12  # tables
LONGEST = 500  # of what a driver says
# Of a dialect the drivers that are taken before its usual one, if they are there: the module, and what pip calls it.
DRIVERS = {
    "postgresql": {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary"},
    "mysql": {"pymysql": "PyMySQL", "MySQLdb": "mysqlclient"},
    "mariadb": {"pymysql": "PyMySQL", "MySQLdb": "mysqlclient"},
    "oracle": {"oracledb": "oracledb"},
    "mssql": {"pyodbc": "pyodbc", "pymssql": "pymssql"},
    "duckdb": {"duckdb_engine": "duckdb-engine"},
    "snowflake": {"snowflake": "snowflake-sqlalchemy"},
    "bigquery": {"sqlalchemy_bigquery": "sqlalchemy-bigquery"},
}
NAMED = {"MySQLdb": "mysqldb"}  # drivers that SQLAlchemy calls otherwise than their module
CHOSEN = ("postgresql", "mysql", "mariadb", "mssql")  # dialects of several drivers
# What drivers call the time that connecting may take.
TIMEOUTS = {
    "psycopg": "connect_timeout",
    "psycopg2": "connect_timeout",
    "pymysql": "connect_timeout",
    "mysqldb": "connect_timeout",
    "mysqlconnector": "connection_timeout",
    "oracledb": "tcp_connect_timeout",
    "pyodbc": "timeout",
    "pymssql": "login_timeout",
}
DENIED = re.compile(r"password|authenticat|access denied|logon|login|28P01|28000", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that can be read once: the columns there are, and blocks of rows of some of them."""

    header: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[Sequence[Sequence[Any]]]]


@contextmanager
def open_rows(url: str, *, table: str = "", query: str = "", password: str = "") -> Iterator[Rows]:
    """Connect and give the rows of a table, or those of a query, in a transaction that is never committed.

    DataError says what the database refuses. `query` must be one that reads, see `regiondag.study.database`.
    """
    import_sqlalchemy()
    import sqlalchemy
    from sqlalchemy.exc import SQLAlchemyError

    try:
        engine = _make_engine(url, password)
        try:
            with _connect(engine, password) as connection, ExitStack() as results:
                _make_read_only(connection)
                execute = _Execute(connection, results)
                yield _rows_of_query(execute, query) if query else _rows_of_table(execute, table, sqlalchemy)
        finally:
            engine.dispose()
    except SQLAlchemyError as error:
        raise DataError(_explain(error, password)) from None  # whose context may hold what nobody should see
    except UnicodeError:
        raise DataError("a text there is not in the encoding that the database says") from None


def import_sqlalchemy() -> None:
    """DataError where SQLAlchemy is not installed, with what to type."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise DataError(f"a database is read by SQLAlchemy, which is not installed; {install_line('sql')}")


def _make_engine(url: str, password: str) -> Any:
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import NoSuchModuleError
    from sqlalchemy.pool import NullPool

    try:
        made = make_url(url)
    except ValueError as error:  # a port that is none
        raise DataError(f"the URL is not legal ({error}), legal: dialect://user@host:port/database") from None
    dialect, driver = made.get_backend_name(), made.drivername.partition("+")[2]
    if not driver and dialect in CHOSEN:
        there = next((module for module in DRIVERS[dialect] if _is_there(module)), None)
        if there:
            made = made.set(drivername=f"{dialect}+{NAMED.get(there, there)}")
    if password:
        made = made.set(password=password)
    options: dict[str, Any] = {"poolclass": NullPool, "hide_parameters": True}
    try:
        if dialect == "sqlite":
            return create_engine("sqlite://", creator=_open_sqlite(made.database or ""), **options)
        driver = made.get_dialect().driver
        arguments = {TIMEOUTS[driver]: PATIENCE} if driver in TIMEOUTS and TIMEOUTS[driver] not in made.query else {}
        if dialect == "duckdb":
            _find_file(made.database or "")
            arguments["read_only"] = True
        engine = create_engine(made, connect_args=arguments, **options)
    except NoSuchModuleError:
        raise DataError(f"no dialect {made.drivername!r} is installed; {_advise_driver(dialect)}") from None
    except ImportError as error:
        raise DataError(
            f"the driver {make_printable(str(error.name))} is not installed; {_advise_driver(dialect)}"
        ) from None
    if engine.dialect.is_async:
        raise DataError(f"the driver {made.drivername} is an asynchronous one; name another, or none")
    return engine


def _connect(engine: Any, password: str) -> Any:
    """Connect; drivers have many ways to refuse an option that the URL gives them."""
    try:
        return engine.connect()
    except (TypeError, ValueError) as error:
        raise DataError(f"the driver does not take what the URL says: {_hide(str(error), password)}") from None


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _advise_driver(dialect: str) -> str:
    names = list(DRIVERS.get(dialect, {}).values())
    return f"install it: pip install {quote_shell(names[0])}" if names else "install its package with pip"


def quote_shell(text: str) -> str:
    """Return a word for a shell."""
    import shlex

    return shlex.quote(text)


def _open_sqlite(name: str) -> Callable[[], sqlite3.Connection]:
    """Return what opens a file to be read only: as it is usually opened, one that is not there would be made."""
    path = _find_file(name)
    address = f"file:{quote(str(path))}?mode=ro"
    return lambda: sqlite3.connect(address, uri=True, timeout=PATIENCE, check_same_thread=False)


def _find_file(name: str) -> Path:
    path = Path(name).absolute()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "there is no such file"
        raise DataError(f"{path}: {what}; legal: a file that is a database")
    return path


def _make_read_only(connection: Any) -> None:
    if connection.dialect.name == "postgresql":
        connection.execution_options(postgresql_readonly=True)
    elif connection.dialect.name in ("mysql", "mariadb"):
        connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
        connection.rollback()


@dataclass(frozen=True, slots=True)
class _Execute:
    """Executes statements, whose results are closed in time: a cursor of the server is not left to chance."""

    connection: Any
    results: ExitStack

    def __call__(self, statement: Any) -> Any:
        self.connection.execution_options(**STREAM)
        return self.results.enter_context(self.connection.execute(statement))

    def as_it_is(self, query: str) -> Any:
        """Execute a text without parameters, so that % and : mean what they mean in SQL."""
        self.connection.execution_options(**STREAM, no_parameters=True)
        return self.results.enter_context(self.connection.exec_driver_sql(query))


def _rows_of_query(execute: _Execute, query: str) -> Rows:
    result = execute.as_it_is(query)
    if not result.returns_rows:
        raise DataError("the query returns no rows; legal: one SELECT")
    header = tuple(map(str, result.keys()))

    def read(wanted: Sequence[str]) -> Iterator[Sequence[Sequence[Any]]]:
        places = [header.index(name) for name in wanted]
        for block in result.partitions(BLOCK):
            yield [[row[place] for place in places] for row in block]

    return Rows(header, read)


def _rows_of_table(execute: _Execute, name: str, sqlalchemy: Any) -> Rows:
    table, schema = _find_table(sqlalchemy.inspect(execute.connection), name)
    source = sqlalchemy.table(table, schema=schema)
    nothing = sqlalchemy.select(sqlalchemy.literal_column("*")).select_from(source).where(sqlalchemy.false())
    header = tuple(map(str, execute(nothing).keys()))

    def read(wanted: Sequence[str]) -> Iterator[Sequence[Sequence[Any]]]:
        chosen = [sqlalchemy.column(name) for name in wanted]
        yield from execute(sqlalchemy.select(*chosen).select_from(source)).partitions(BLOCK)

    return Rows(header, read)


def _find_table(inspector: Any, name: str) -> tuple[str, str | None]:
    """Return a table's name and its schema, if one is named; DataError with those that there are."""
    if inspector.has_table(name):
        return name, None
    schema, _, table = name.rpartition(".")
    known = schema and schema in inspector.get_schema_names()
    if known and inspector.has_table(table, schema=schema):
        return table, schema
    within = schema if known else None
    names = sorted({*inspector.get_table_names(schema=within), *inspector.get_view_names(schema=within)})
    there = [f"{schema}.{one}" for one in names] if known else names
    listed = make_printable(list_some(there, SHOWN)) if there else "none that this user may see"
    raise DataError(f"no table {name!r}, there are: {listed}{nearest(name, there)}")


def _explain(error: Exception, password: str) -> str:
    """Return what the driver says in one line without the password, and what to do."""
    said = str(getattr(error, "orig", None) or error)
    lines = [line.strip() for line in said.splitlines() if line.strip() and not set(line.strip()) <= {"^"}]
    text = "; ".join(line for line in lines if not line.startswith("(Background on this error"))
    text = _hide(text, password)
    return f"{text or type(error).__name__}{_advise(error, text, password)}"


def _hide(text: str, password: str) -> str:
    """Return what a driver says without the password, and so that a terminal can show it."""
    for secret in {password, quote(password, safe=""), repr(password)[1:-1]} - {""}:
        text = text.replace(secret, "***")
    return make_printable(text[:LONGEST])


def _advise(error: Exception, text: str, password: str) -> str:
    from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, ProgrammingError

    if isinstance(error, ArgumentError):
        return "; legal: dialect://user@host/database"
    if not isinstance(error, DBAPIError) or error.statement is not None:
        return "; mend the table's or the query's names" if isinstance(error, ProgrammingError) else ""
    if DENIED.search(text):
        known = "is the password that was read the right one?" if password else "it may need a password"
        return f"; {known} Say where it is kept, env:NAME or file:PATH, or put it into the driver's own file"
    if isinstance(error, OperationalError):
        return f"; is the host right, does it answer within {PATIENCE} s, and is there such a database?"
    return ""
