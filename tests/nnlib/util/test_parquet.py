"""Parquet as other libraries read it: DuckDB's reader is the reference."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.util import parquet
from nnlib.util.parquet import Chosen, write_parquet

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=40, unique=True)


def read(path):
    return duckdb.connect().execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()


def rows_of(count, width, seed=1):
    random = np.random.default_rng(seed)
    customers = Chosen([f"c {n} é" for n in range(width)], np.sort(random.integers(0, width, count)))
    items = Chosen([f"i{n}" for n in range(7)], random.integers(0, 7, count))
    rank = random.integers(-3, 9, count).astype(np.int32)
    return {"customer": customers, "rank": rank, "item": items, "score": random.random(count, np.float32)}


def as_tuples(columns):
    lists = (
        [column.texts[n] for n in column.numbers] if isinstance(column, Chosen) else column.tolist()
        for column in columns.values()
    )
    return list(zip(*lists, strict=True))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 1000])
@pytest.mark.parametrize("width", [1, 2, 3, 255, 256, 257, 1000])
def test_any_number_of_rows_and_of_entries(tmp_path, count, width):
    columns = rows_of(count, width)
    with write_parquet(tmp_path / "x.parquet") as file:
        file.add(columns)
    assert read(tmp_path / "x.parquet") == as_tuples(columns)


@settings(max_examples=25)
@given(TEXTS, st.data())
def test_any_text(tmp_path_factory, texts, data):
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    numbers = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=60))
    with write_parquet(path) as file:
        file.add({"any name ;\n'": Chosen(texts, np.array(numbers))})
    assert [row[0] for row in read(path)] == [texts[n] for n in numbers]


def test_several_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "MOST_ROWS", 100)
    first, second = rows_of(250, 20), rows_of(30, 20, 2)
    with write_parquet(tmp_path / "x.parquet") as file:
        file.add(first)
        file.add(second)
        assert file.rows == 280
    assert read(tmp_path / "x.parquet") == as_tuples(first) + as_tuples(second)
    groups = duckdb.connect().execute(
        "SELECT count(DISTINCT row_group_id) FROM parquet_metadata(?)", [str(tmp_path / "x.parquet")]
    )
    assert groups.fetchall() == [(4,)]


def test_it_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), write_parquet(path) as file:
        file.add(rows_of(9, 3))
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="without rows"), write_parquet(path):
        pass
    with pytest.raises(ValueError, match="column rank was of another type"), write_parquet(path) as file:
        file.add(rows_of(9, 3))
        file.add({"rank": Chosen(["a"], np.zeros(3, int))})
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["x.parquet"]
