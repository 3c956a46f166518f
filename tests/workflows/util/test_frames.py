"""Rows become tables of pandas, polars and Arrow, with the values that they have."""

from __future__ import annotations

import math

import pandas
import polars
import pyarrow
import pytest

from regiondag.errors import UsageError
from regiondag.util.frames import make_frame

ROWS = [
    {"region": "Côte d'Ivoire", "trial": 0, "value": 0.25, "optimizer": "adam", "hidden": 64},
    {"region": "North", "trial": 1, "value": None, "optimizer": 3, "hidden": 0.5},
]
COLUMNS = ("region", "trial", "value", "optimizer", "hidden", "lacking")


def test_pandas():
    frame = make_frame(ROWS, COLUMNS)
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == list(COLUMNS)
    assert frame["trial"].tolist() == [0, 1] and frame["trial"].dtype == "int64"
    assert frame["value"][0] == 0.25 and math.isnan(frame["value"][1])
    assert frame["optimizer"].tolist() == ["adam", "3"] and frame["hidden"].tolist() == [64.0, 0.5]
    assert frame["lacking"].isna().all()


def test_polars_and_arrow_hold_the_same():
    frame = make_frame(ROWS, COLUMNS, "polars")
    assert isinstance(frame, polars.DataFrame)
    table = make_frame(ROWS, COLUMNS, "arrow")
    assert isinstance(table, pyarrow.Table)
    assert frame.to_dicts() == table.to_pylist()
    assert table.to_pylist()[1]["value"] is None


def test_no_rows_are_a_table_with_columns():
    assert list(make_frame([], COLUMNS).columns) == list(COLUMNS)


def test_another_library_is_refused_with_those_that_are_legal():
    with pytest.raises(UsageError, match="'dask' is no library of tables, legal: pandas, polars, arrow"):
        make_frame(ROWS, COLUMNS, "dask")


def test_a_missing_library_says_what_to_type(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pyarrow is not installed.*frames"):
        make_frame(ROWS, COLUMNS)
