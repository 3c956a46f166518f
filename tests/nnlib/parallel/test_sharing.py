"""Examples of one process in another: the same rows, those in memory not copied once more."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from nnlib.data.file import write_data
from nnlib.data.rows import Csr, Dense, Joined, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.data.stream import Cache, open_data
from nnlib.errors import DataError
from nnlib.model.examples import Examples
from nnlib.parallel.sharing import describe, mapped, restore, share

ROWS = from_rows([[0, 4], [], [1, 2, 3], [4]], 5)
VALUES = Csr(ROWS.indptr, ROWS.indices, 5, np.arange(6, dtype=np.float32))


def through(examples):
    plain, arrays = describe(examples)
    with share(arrays) as (places, memory):
        found = mapped(places, os.dup(memory))
    return restore(plain, found, Cache(1 << 20)), found


def assert_same(one, other):
    assert one.sets.keys() == other.sets.keys()
    for layer, wanted in one.sets.items():
        found = other.sets[layer]
        assert (found.name, found.width, found.examples) == (wanted.name, wanted.width, wanted.examples)
        assert (found.ignore_zero, found.dimensions) == (wanted.ignore_zero, wanted.dimensions)
        a, b = wanted.take(np.array([3, 0, 0])), found.take(np.array([3, 0, 0]))
        for name in ("indptr", "indices", "values"):
            np.testing.assert_array_equal(getattr(a.rows, name, None), getattr(b.rows, name, None))
        np.testing.assert_array_equal(a.weights, b.weights)


def test_rows_in_memory_are_the_same_and_cannot_be_changed():
    shared = DataSet("x", ROWS, weights=np.arange(4, dtype=np.float32))
    examples = Examples(
        {
            0: shared,
            1: DataSet("dense", Dense(np.arange(20, dtype=np.uint8).reshape(4, 5)), dimensions=(5, 1)),
            2: DataSet("indexed", VALUES, index=np.array([3, 0, 1, 2], np.int32), ignore_zero=True),
            3: DataSet("joined", Joined((ROWS.take(np.array([0, 1])), ROWS.take(np.array([2, 3]))))),
            4: shared,
        },
        "train.nc",
    )
    found, arrays = through(examples)
    assert found.file == "train.nc"
    assert_same(examples, found)
    assert found.sets[0].rows is found.sets[4].rows
    with pytest.raises(ValueError, match="read-only"):
        found.sets[0].rows.indices[0] = 1
    assert sum("_indptr" in name for name in arrays) == 4


def test_rows_in_files_are_opened_by_their_path(tmp_path, monkeypatch):
    paths = [tmp_path / "one.nc", tmp_path / "two.nc"]
    for path in paths:
        write_data(path, Data((DataSet("x", ROWS), DataSet("y", VALUES))))
    monkeypatch.chdir(tmp_path)
    data = open_data([Path(path.name) for path in paths], limit_bytes=0)
    examples = Examples(dict(enumerate(data.sets)))
    found, arrays = through(examples)
    assert not arrays
    assert_same(examples, found)
    found.sets[0].take(np.array([7]))


def test_a_file_that_is_another_one_by_now_is_refused(tmp_path):
    path = tmp_path / "one.nc"
    write_data(path, Data((DataSet("x", ROWS),)))
    data = open_data([path], limit_bytes=0)
    plain, _ = describe(Examples({0: data.sets[0]}))
    write_data(path, Data((DataSet("x", from_rows([[1]], 5)),)))
    with pytest.raises(DataError, match=r"one\.nc: has changed"):
        restore(plain, {}, 1 << 20)


def test_nothing_stays_open():
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        through(Examples({0: DataSet("x", ROWS)}))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
