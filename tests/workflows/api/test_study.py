"""Studies from Python: made of a table, found, checked."""

from __future__ import annotations

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
    with pytest.raises(UsageError, match="regiondag init --data URL") as caught:
        regiondag.Study.create(tmp_path / "shop", "postgresql://me:geheim@host/shop")
    assert "geheim" not in str(caught.value)
    assert not (tmp_path / "shop").exists()
    with pytest.raises(UsageError, match="no study there"):
        regiondag.Study.load(tmp_path / "nothing")


def test_mistakes_of_a_study_come_with_their_lines(table, tmp_path):
    study = regiondag.Study.create(tmp_path / "shop", table)
    path = study.folder.study
    path.write_text(path.read_text() + "search: {rounds: two}\n")
    with pytest.raises(ConfigError, match=r"search.rounds: seen 'two'"):
        study.validate()
