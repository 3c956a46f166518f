"""A database as the table of purchases, as a person types it: init, generate, and an update that finds nothing new."""

import csv
import json
import random
import sqlite3
from contextlib import closing

import pytest

from regiondag.cli import main
from regiondag.generate.fresh_data import refresh_data
from tests.workflows.shop import write_table


def fill(path, rows, table="sales"):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f'DROP TABLE IF EXISTS "{table}"')
        connection.execute(
            f'CREATE TABLE "{table}" (store TEXT, client TEXT, sku TEXT, bought TEXT, note TEXT, qty REAL)'
        )
        connection.executemany(f'INSERT INTO "{table}" VALUES (?, ?, ?, ?, NULL, 1.0)', rows)  # noqa: S608 - made up here


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "shop.csv")
    with (tmp_path / "shop.csv").open() as lines:
        found = list(csv.reader(lines))[1:]
    fill(tmp_path / "shop.db", found)
    return found


def init(*words):
    return main(["init", "--data", "sqlite:///shop.db", *words, "shop"])


def test_from_a_database_to_a_run_and_to_nothing_new(rows, tmp_path, capsys):
    assert init("--table", "sales") == 0
    printed = capsys.readouterr()
    assert "sales in shop.db: 1,499 rows of a database" in printed.err and "quantity" in printed.err
    text = (tmp_path / "shop" / "study.yaml").read_text()
    assert 'url: "sqlite:///../shop.db"' in text and "table: sales" in text and "time: bought" in text
    (tmp_path / "shop" / "study.yaml").write_text(text + "search: {rounds: 1}\n")

    study = tmp_path / "shop" / "study.yaml"
    assert main(["generate", str(study)]) == 0
    said = capsys.readouterr().err
    assert "reading sales in shop.db" in said and "sales in shop.db: 1,499 rows, which were imported" in said
    kept = {path.name: path.read_bytes() for path in (tmp_path / "shop/data").glob("*")}
    of_database = (tmp_path / "shop/data/avon.train.nc").read_bytes()
    assert refresh_data(study) is False
    assert "1,499 rows, as they were" in capsys.readouterr().err

    random.Random(1).shuffle(rows)
    fill(tmp_path / "shop.db", rows)  # the same in another order
    assert refresh_data(study) is False
    assert {path.name: path.read_bytes() for path in (tmp_path / "shop/data").glob("*")} == kept
    fill(tmp_path / "shop.db", [*rows, ("Avon", "c0", "new", "2026-06-01")])
    assert refresh_data(study) is True
    assert (tmp_path / "shop/data/avon.train.nc").read_bytes() != of_database
    assert not list((tmp_path / "shop").glob(".*.rows"))


def test_rows_are_what_a_file_of_them_would_be(rows, tmp_path):
    assert init("--query", "SELECT store, client, sku, bought FROM sales WHERE qty > 0", "-q") == 0
    refresh_data(tmp_path / "shop/study.yaml")
    assert main(["init", "-q", "--data", "shop.csv", "other"]) == 0
    refresh_data(tmp_path / "other/study.yaml")
    ours, theirs = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "data").glob("*.csv")}
        for name in ("shop", "other")
    )
    assert ours == theirs and ours
    names = [sorted(path.name for path in (tmp_path / name / "data").glob("*.nc")) for name in ("shop", "other")]
    assert names[0] == names[1]


def test_json_and_a_dry_run(rows, tmp_path, capsys):
    assert init("--table", "sales", "--dry-run", "--json") == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["table"], seen["rows"], seen["encoding"], seen["separator"]) == ("sales in shop.db", 1499, "", "")
    assert not (tmp_path / "shop").exists()


def test_a_query_of_several_lines_and_where_the_password_is(rows, tmp_path):
    (tmp_path / "secret").write_text("geheim\n")
    query = "SELECT store, client, sku, -- \"who\"\n  'a  b' AS x, bought\nFROM sales"
    assert init("--query", query, "--password", "file:secret", "-q") == 0
    from regiondag.config.load import load_purchases

    table = load_purchases(tmp_path / "shop/study.yaml").table
    assert table.query == query and table.password == f"file:{tmp_path}/shop/../secret"
    assert "file:../secret" in (tmp_path / "shop/study.yaml").read_text()
    assert "geheim" not in (tmp_path / "shop/study.yaml").read_text()


def test_what_is_ambiguous_speaks_of_the_database(rows, tmp_path, capsys):
    fill(tmp_path / "shop.db", [(*row[:3], "03/04/2025") for row in rows])
    assert init("--table", "sales") == 1
    error = capsys.readouterr().err
    assert "sales in shop.db: bought: '03/04/2025' may be several days" in error and "--dates %d/%m/%Y" in error


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--data", "sqlite:///shop.db", "shop"], 2, "one of --table and --query is needed"),
        (["--data", "shop.csv", "--table", "x", "shop"], 2, "--table: only with --data URL"),
        (["retail", "shop", "--query", "x"], 2, "--query: only with --data"),
        (["--data", "sqlite:///shop.db", "--table", "sale", "shop"], 1, "no table 'sale', there are: sales; did you"),
        (["--data", "sqlite:///no.db", "--table", "sales", "shop"], 1, "there is no such file"),
        (["--data", "sqlite:///shop.db", "--query", "DROP TABLE sales", "shop"], 2, "--query: it begins with DROP"),
        (["--data", "postgresql://me:geheim@h/d", "--table", "t", "shop"], 2, "--data: it holds a password"),
        (["--data", "postgresql://h/d", "--table", "t", "--password", "geheim", "shop"], 2, "--password: is no place"),
        (["--data", "sqlite:///shop.db", "--table", "sales", "--item", "skew", "shop"], 1, "no column 'skew' (--item)"),
    ],
)
def test_refusals(rows, tmp_path, argv, code, said, capsys):
    try:
        assert main(["init", *argv]) == code
    except SystemExit as end:
        assert end.code == code
    error = capsys.readouterr().err
    assert said in error and "geheim" not in error and "Traceback" not in error
    assert not (tmp_path / "shop").exists()


def test_a_study_whose_database_has_changed_its_names(rows, tmp_path, capsys):
    assert init("--table", "sales", "-q") == 0
    study = tmp_path / "shop/study.yaml"
    study.write_text(study.read_text().replace("client", "cleint"))
    assert main(["generate", str(study)]) == 2
    error = capsys.readouterr().err
    assert "sales in shop.db:1: no column 'cleint', there are: store, client" in error and "data.columns" in error
