"""Rows of a database as a file of text: what stands in it, and the digest that knows no order."""

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.errors import DataError
from regiondag.generate.database_rows import fetch, show_value, write_rows
from regiondag.study.database import Database

VALUES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.integers() | st.floats()
ROWS = st.lists(st.tuples(VALUES, VALUES), max_size=8)


def digest_of(folder, rows, header=("a", "b")):
    return write_rows(folder / "rows.csv", header, iter([rows[:3], rows[3:]])).digest


@given(rows=ROWS, data=st.data())
def test_the_digest_knows_no_order_but_every_row(tmp_path_factory, rows, data):
    folder = tmp_path_factory.mktemp("digest")
    whole = digest_of(folder, rows)
    assert digest_of(folder, data.draw(st.permutations(rows))) == whole
    assert digest_of(folder, rows, ("a", "c")) != whole
    if rows:
        assert digest_of(folder, rows[1:]) != whole
        assert digest_of(folder, [*rows, rows[0]]) != whole  # a row that comes twice counts twice


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", "a\nb"),
        (None, ""),
        (7, "7"),
        (17850.0, "17850"),
        (0.5, "0.5"),
        (Decimal("17850.00"), "17850"),
        (Decimal("1E+3"), "1000"),
        (Decimal("0.50"), "0.50"),
        (Decimal("9" * 60), "9" * 60),
        (date(2026, 1, 31), "2026-01-31"),
        (datetime(2026, 1, 31, 23, 59, 1, 5), "2026-01-31 23:59:01"),
        (datetime(2026, 1, 31, 23, 0, tzinfo=timezone(timedelta(hours=-2))), "2026-02-01 01:00:00"),
        (datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31 00:00:00"),
        (b"\xc3\xa9\xff", "é\ufffd"),
        (memoryview(b"x"), "x"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (float("nan"), "nan"),
    ],
)
def test_values_as_text(value, text):
    assert show_value(value) == text


@pytest.fixture
def database(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE sales (a, b, c)")
        connection.executemany("INSERT INTO sales VALUES (?, ?, ?)", [(1, 'x"y', None), (2, "z", "w")])
    return Database(f"sqlite:///{tmp_path / 'shop.db'}", "sales")


def test_a_file_is_there_for_the_block(tmp_path, database):
    with fetch(database, tmp_path / "data", lambda header: header[:2]) as found:
        assert found.file.read_text() == 'a,b\n1,"x""y"\n2,z\n' and found.rows == 2
        folder = found.file.parent
    assert not folder.exists()


def test_errors_speak_of_the_database(tmp_path, database, monkeypatch):
    with pytest.raises(DataError, match=r"^sales in shop.db:3: bad$"), fetch(database, tmp_path / "data") as found:
        raise DataError(f"{found.file}:3: bad")
    with pytest.raises(DataError, match=r"^sales in shop.db: bad$"), fetch(database, tmp_path / "data") as found:
        raise DataError(f"{found.file.name}: bad")
    monkeypatch.delenv("NOTHING", raising=False)
    held = Database(database.url, "sales", password="env:NOTHING")  # noqa: S106 - a place
    with (
        pytest.raises(DataError, match=r"^sales in shop.db: the password: the variable NOTHING is not set"),
        fetch(held, tmp_path / "data"),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.db"]
