"""Studies from Python: made of a table, found, checked."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

import regiondag
from nnlib.errors import DataError
from regiondag.errors import ConfigError, UsageError

ROWS = [f"North,c{n % 30},i{n % 17},{n % 28 + 1:02d}.{n % 12 + 1:02d}.2024,Item {n % 17}" for n in range(400)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "sales.csv"
    path.write_text("\n".join(["shop,client,sku,when,name", *ROWS]) + "\n")
    return path


def test_a_study_is_made_of_a_table(table, tmp_path):
    study = regiondag.Study.create(tmp_path / "shop", table, region="shop", customer="client", item="sku")
    assert study.name == "shop" and study.runs() == []
    text = (tmp_path / "shop" / "study.yaml").read_text()
    assert "purchases: ../sales.csv" in text and "time: when" in text and "%d.%m.%Y" in text
    with pytest.raises(UsageError, match="is not an empty folder"):
        regiondag.Study.create(tmp_path / "shop", table)


def test_what_is_wrong_is_said(table, tmp_path):
    with pytest.raises(UsageError, match="'colour' says nothing of a table, legal: region, customer"):
        regiondag.Study.create(tmp_path / "shop", table, colour="red")
    with pytest.raises(DataError, match="no column 'city'"):
        regiondag.Study.create(tmp_path / "shop", table, region="city")
    with pytest.raises(UsageError, match="one of table and query is needed"):
        regiondag.Study.create(tmp_path / "shop", "postgresql://me@host/shop")
    with pytest.raises(UsageError) as caught:
        regiondag.Study.create(tmp_path / "shop", "postgresql://me:geheim@host/shop", table="sales")
    assert "geheim" not in str(caught.value)
    assert not (tmp_path / "shop").exists()
    with pytest.raises(UsageError, match="no study there"):
        regiondag.Study.load(tmp_path / "nothing")


def test_a_study_is_made_of_a_database(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE sales (shop TEXT, client TEXT, sku TEXT, day TEXT)")
        rows = [
            (f"North {n % 2}", f"c{n % 30}", f"i{n % 17}", f"2024-{n % 12 + 1:02d}-{n % 28 + 1:02d}")
            for n in range(400)
        ]
        connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", rows)
        connection.commit()
    study = regiondag.Study.create(tmp_path / "shop", f"sqlite:///{tmp_path}/shop.db", table="sales", region="shop")
    text = study.folder.study.read_text()
    assert "sqlite:///../shop.db" in text and "table: sales" in text and "time: day" in text


def test_mistakes_of_a_study_come_with_their_lines(table, tmp_path):
    study = regiondag.Study.create(tmp_path / "shop", table)
    path = study.folder.study
    path.write_text(path.read_text() + "search: {rounds: two}\n")
    with pytest.raises(ConfigError, match=r"search.rounds: seen 'two'"):
        study.validate()
