"""Rows of databases that are there: SQLite's. Another test has PostgreSQL."""

import importlib.util
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib.errors import DataError
from regiondag.util import databases
from regiondag.util.databases import open_rows

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


def run(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for sql, *values in statements:
            connection.execute(sql, values)


@pytest.fixture
def shop(tmp_path):
    rows = [("INSERT INTO sales VALUES (?, ?, ?)", f"c{n}", n, None) for n in range(25_000)]
    run(tmp_path / "shop.db", ("CREATE TABLE sales (customer TEXT, item INTEGER, day TEXT)",), *rows)
    return f"sqlite:///{tmp_path / 'shop.db'}"


def read(url, wanted=None, **what):
    with open_rows(url, **what) as rows:
        blocks = [list(map(tuple, block)) for block in rows.read(wanted or rows.header)]
        return rows.header, blocks


def test_a_table_comes_in_blocks(shop):
    header, blocks = read(shop, ["item", "customer"], table="sales")
    assert header == ("customer", "item", "day")
    assert list(map(len, blocks)) == [10_000, 10_000, 5_000]
    assert blocks[2][-1] == (24_999, "c24999")


def test_a_query_without_parameters(shop):
    query = "SELECT customer AS c, ':x' AS colon FROM sales WHERE customer LIKE 'c1%' AND item % 2 = 0 ORDER BY item"
    header, blocks = read(shop, ["colon", "c"], query=query)
    assert header == ("c", "colon") and blocks[0][:2] == [(":x", "c10"), (":x", "c12")]


def test_names_with_a_point(shop):
    header, blocks = read(shop, query='SELECT customer AS "a.b", item AS "c.b" FROM sales LIMIT 1')
    assert header == ("a.b", "c.b") and blocks == [[("c0", 0)]]


def test_a_view_and_a_schema(shop, tmp_path):
    run(tmp_path / "shop.db", ("CREATE VIEW few AS SELECT * FROM sales LIMIT 3",))
    assert len(read(shop, table="few")[1][0]) == 3
    assert len(read(shop, table="main.few")[1][0]) == 3


def test_nothing_is_written(shop, tmp_path):
    before = (tmp_path / "shop.db").read_bytes()
    with pytest.raises(DataError, match=r"readonly|read-only|no rows"):
        read(shop, query="DELETE FROM sales")
    assert (tmp_path / "shop.db").read_bytes() == before
    with pytest.raises(DataError, match="there is no such file"):
        read(f"sqlite:///{tmp_path}/none.db", table="sales")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"table": "slaes"}, "no table 'slaes', there are: sales; did you mean 'sales'?"),
        ({"table": "other.sales"}, "no table 'other.sales', there are: sales"),
        ({"query": "SELECT nme FROM sales"}, "no such column: nme"),
        ({"query": "SELECT 'a FROM sales"}, "'a FROM sales"),
    ],
)
def test_refusals(shop, what, said):
    with pytest.raises(DataError) as caught:
        read(shop, **what)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_urls_that_no_driver_takes(monkeypatch):
    with pytest.raises(DataError, match=r"the URL is not legal .*'abc'.*user@host:port"):
        read("postgresql://host:abc/shop", table="t")

    def refuse(**_):
        raise TypeError("unexpected keyword 'foo' beside geheim")

    monkeypatch.setattr(databases, "_make_engine", lambda url, password: SimpleNamespace(connect=refuse, dispose=int))
    with pytest.raises(DataError, match=r"does not take what the URL says: .*'foo' beside \*\*\*$"):
        read("mysql://host/shop?foo=bar", table="t", password="geheim")  # noqa: S106


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "x.db").write_text("region,customer\n" * 100)
    with pytest.raises(DataError, match="not a database"):
        read(f"sqlite:///{tmp_path}/x.db", table="t")
    with pytest.raises(DataError, match="is a folder"):
        read(f"sqlite:///{tmp_path}", table="t")


def test_a_dialect_or_driver_that_is_not_there(monkeypatch):
    with pytest.raises(DataError, match="no dialect 'oops' is installed; install its package"):
        read("oops://host/x", table="t")
    monkeypatch.setitem(databases.DRIVERS, "oracle", {"oracledb": "oracledb"})
    if importlib.util.find_spec("oracledb") is None:
        with pytest.raises(DataError, match="is not installed; install it: pip install oracledb"):
            read("oracle+oracledb://host/x", table="t")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"SQLAlchemy, which is not installed; .*pip install .*\[sql\]"):
        read("sqlite:////x.db", table="t")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(table=NAMES, columns=st.lists(NAMES, min_size=1, max_size=4, unique_by=str.lower), value=NAMES)
def test_names_of_tables_and_columns_are_quoted(tmp_path_factory, table, columns, value):
    if table.lower().startswith("sqlite_"):
        return
    path = tmp_path_factory.mktemp("names") / "x.db"

    def quote(name):
        return '"' + name.replace('"', '""') + '"'

    try:
        run(
            path,
            (f"CREATE TABLE {quote(table)} ({', '.join(f'{quote(name)} TEXT' for name in columns)})",),
            (f"INSERT INTO {quote(table)} VALUES ({', '.join('?' * len(columns))})", *[value] * len(columns)),  # noqa: S608
        )
    except sqlite3.Error:
        return  # SQLite's lower case knows ASCII alone, Python's more
    header, blocks = read(f"sqlite:///{path}", columns[::-1], table=table)
    assert header == tuple(columns) and blocks == [[(value,) * len(columns)]]


def test_a_file_of_duckdb(tmp_path):
    pytest.importorskip("duckdb_engine")
    import duckdb

    with closing(duckdb.connect(str(tmp_path / "x.duckdb"))) as connection:
        connection.execute("CREATE TABLE sales AS SELECT 'c' || i AS customer, i AS item FROM range(3) t(i)")
    assert read(f"duckdb:///{tmp_path}/x.duckdb", table="sales") == (
        ("customer", "item"), [[("c0", 0), ("c1", 1), ("c2", 2)]],
    )  # fmt: skip
