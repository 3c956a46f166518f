"""What may be said of a database, and what holds a password or writes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.study.database import Database, check_query, check_url, path_of, resolve_url, with_path


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@db.example.org/shop",
        "postgresql+psycopg://db:5432/shop?sslmode=require&passfile=/x",
        "postgresql:///shop?host=/run/postgresql",
        "sqlite:///shop.db",
        "sqlite:////home/a:b@c/shop.db",
        "duckdb:///shop.duckdb",
    ],
)
def test_legal_urls(url):
    assert check_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:geheim@db/shop",
        "postgresql://me:@db/shop",
        "postgresql://me:ge/heim@db/shop",
        "postgresql://me@corp:geheim@db/shop",
        "postgresql://:geheim@db/shop",
        "postgresql://db/shop?password=geheim",
        "mysql://me@db/shop?PassWd=geheim",
        "mssql+pyodbc:///?odbc_connect=UID%3Dme%3BPWD%3Dgeheim",
        "snowflake://me@x/?token=geheim",
    ],
)
def test_a_password_is_refused_and_never_shown(url):
    with pytest.raises(ValueError, match=r"holds a password.*env:NAME or file:PATH") as caught:
        check_url(url)
    assert "geheim" not in str(caught.value) and "heim" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["shop.db", "://x", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://shop.db"]
)
def test_what_is_no_url(url):
    with pytest.raises(ValueError, match="legal: "):
        check_url(url)


@given(st.text(st.characters(exclude_characters="@"), min_size=1))
def test_no_text_is_taken_as_a_password_unseen(password):
    """Whatever SQLAlchemy takes for a password is refused."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    url = f"postgresql://me:{password}@db/shop"
    try:
        held = make_url(url).password
    except (ArgumentError, ValueError):
        return
    if held is not None:
        with pytest.raises(ValueError):
            check_url(url)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM t",
        "  select 'x; DELETE FROM t' FROM t -- ; drop\n",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        'SELECT "update", `into`, $a$ ; delete $a$ FROM t',
        "SELECT replace(a, 'x', 'y') /* ; insert */ FROM t",
        "SELECT updated, deleted_at FROM t;",
    ],
)
def test_queries_that_read(query):
    assert check_query(query) == query.strip().rstrip(";")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "begins with nothing"),
        ("DELETE FROM t", "begins with DELETE"),
        ("PRAGMA x", "begins with PRAGMA"),
        ("SELECT 1; DROP TABLE t", "several statements"),
        ("WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", "holds DELETE"),
        ("SELECT * INTO u FROM t", "holds INTO"),
        ("SELECT 1 FOR UPDATE", "holds UPDATE"),
    ],
)
def test_queries_that_do_more(query, said):
    with pytest.raises(ValueError, match=said):
        check_query(query)


def test_paths_of_files():
    assert resolve_url("sqlite:///a/b.db?x=1", Path("/s")) == "sqlite:////s/a/b.db?x=1"
    assert resolve_url("sqlite:////a/b.db", Path("/s")) == "sqlite:////a/b.db"
    assert resolve_url("postgresql://h/d", Path("/s")) == "postgresql://h/d"
    assert path_of("sqlite:////a/b.db?x=1") == Path("/a/b.db") and path_of("mysql://h/d") is None
    assert with_path("sqlite:////a/b.db?x=1", "../b.db") == "sqlite:///../b.db?x=1"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://me@db.example.org:5433/shop?sslmode=require", "t in shop on db.example.org:5433"),
        ("postgresql:///shop?host=/run", "t in shop"),
        ("mysql://", "t in mysql"),
        ("sqlite:////a/b.db", "t in b.db"),
    ],
)
def test_what_people_call_it(url, name):
    assert Database(url, "t").name == name
    assert Database(url, query="SELECT 1").name == f"query{name[1:]}"
