import errno
import hashlib
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnlib.data.file import SetSummary, begin_data, check_data_file, read_all, read_data, write_data
from nnlib.data.rows import Csr, Dense, from_rows
from nnlib.data.sets import Data, DataSet, kind_of
from nnlib.errors import DataError
from nnlib.util import netcdf
from tests.nnlib.isolation import own_process

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


STORED = ("uint8", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")


@st.composite
def any_rows(draw, examples, width):
    """Rows of every kind; units twice in a row and in any order are legal."""
    kind = draw(st.sampled_from(["boolean", "analog", "dense"]))
    if kind == "dense":
        stored = draw(st.sampled_from(STORED))
        elements = st.floats(-100, 100, width=32) if stored.startswith("float") else None
        return Dense(draw(hnp.arrays(stored, (examples, width), elements=elements)))
    lists = st.lists(st.integers(0, width - 1), max_size=6)
    rows = from_rows([draw(lists) for _ in range(examples)], width)
    if kind == "boolean":
        return rows
    return Csr(
        rows.indptr, rows.indices, width, draw(hnp.arrays("f4", rows.nonzeros, elements=st.floats(-9, 9, width=16)))
    )


@st.composite
def any_set(draw, name, examples, texts):
    dimensions = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple))
    width = math.prod(dimensions)
    indexed = draw(st.booleans())
    unique = draw(st.integers(1, 4)) if indexed else examples
    return DataSet(
        name,
        draw(any_rows(unique, width)),
        draw(st.sampled_from([(), ("a",) * width]) | st.tuples(*[NAMES] * width)) if texts else (),
        draw(st.none() | hnp.arrays("f4", examples, elements=st.floats(0, 9, width=16))),
        draw(hnp.arrays("i4", examples, elements=st.integers(0, unique - 1))) if indexed else None,
        dimensions if len(dimensions) > 1 else (),
        draw(st.booleans()),
    )


@st.composite
def any_data(draw, texts=True):
    examples = draw(st.integers(1, 5))
    set_names = draw(st.lists(st.sampled_from(["input", "output", "é"]), min_size=1, max_size=3, unique=True))
    sets = tuple(draw(any_set(name, examples, texts)) for name in set_names)
    as_of = draw(st.none() | st.just(15_000))
    if as_of is not None:
        sets = tuple(draw(with_days(one, as_of)) for one in sets)
    return Data(sets, draw(st.just(()) | st.tuples(*[NAMES] * examples)) if texts else (), draw(NAMES), as_of)


@st.composite
def with_days(draw, data_set, as_of):
    """The same with a day for each entry, if there are entries, or without."""
    if not data_set.sparse or draw(st.booleans()):
        return data_set
    days = draw(hnp.arrays("i4", data_set.rows.nonzeros, elements=st.integers(-(2**31), as_of - 1)))
    return replace(data_set, days=days)


def assert_same(ours, theirs):
    assert (ours is None) == (theirs is None)
    if ours is not None:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def assert_same_sets(ours, theirs):
    for field in ("name", "features", "dimensions", "ignore_zero", "examples", "width"):
        assert getattr(ours, field) == getattr(theirs, field)
    for field in ("weights", "index", "days"):
        assert_same(getattr(ours, field), getattr(theirs, field))
    assert type(ours.rows) is type(theirs.rows)
    for field in ("indptr", "indices") if ours.sparse else ():
        assert_same(getattr(ours.rows, field), getattr(theirs.rows, field))
    assert_same(ours.rows.values, theirs.rows.values)


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_data())
def test_round_trip(tmp_path, data):
    write_data(tmp_path / "a.nc", data)
    seen = read_data(tmp_path / "a.nc")
    assert (seen.region, seen.samples, seen.as_of) == (data.region, data.samples, data.as_of)
    for ours, theirs in zip(data.sets, seen.sets, strict=True):
        assert_same_sets(ours, theirs)
    for ours, summary in zip(data.sets, check_data_file(tmp_path / "a.nc").sets, strict=True):
        assert (summary.name, summary.examples, summary.width) == (ours.name, ours.examples, ours.width)
        assert summary.kind == kind_of(ours)
        assert (summary.weighted, summary.indexed) == (ours.weights is not None, ours.index is not None)
        stored = ours.rows.nonzeros if ours.sparse else np.count_nonzero(ours.rows.values)
        assert summary.nonzeros == stored
        assert summary.density == stored / (ours.rows.examples * ours.width)
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]


SMALL = Data(
    (
        DataSet("input", from_rows([[0, 2], [1], []], 3), ("a", "b", "c")),
        DataSet("output", from_rows([[1], [], [2, 0]], 3)),
    ),
    ("x", "y", "z"),
    "Saint-Barthélemy",
)


def test_same_data_give_the_same_bytes(tmp_path):
    digests = set()
    for name in ("one.nc", "two.nc"):
        write_data(tmp_path / name, SMALL)
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1


def test_summary(tmp_path):
    write_data(tmp_path / "a.nc", SMALL)
    summary = check_data_file(tmp_path / "a.nc")
    assert summary.region == "Saint-Barthélemy"
    assert summary.sets == (SetSummary("input", 3, 3, 3), SetSummary("output", 3, 3, 3))


def test_layout_is_dsstnes(tmp_path):
    write_data(tmp_path / "a.nc", SMALL)
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        names = ("datasets", "attributes0", "dataType0", "kind0", "dimensions0", "width0")
        assert [int(file.getncattr(name)) for name in names] == [2, 3, 0, 0, 1, 3]
        assert all(file.getncattr(name).dtype == np.uint32 for name in names)
        assert file.name0 == "input"
        assert {name: v.dtype for name, v in file.variables.items() if v.dtype is not str} == {
            f"{name}{n}": np.dtype(kind)
            for n in (0, 1)
            for name, kind in (("sparseStart", "u8"), ("sparseEnd", "u8"), ("sparseIndex", "u4"))
        }
        assert {"examplesDim0", "sparseDataDim0", "examplesDim1", "sparseDataDim1"} <= set(file.dimensions)


def test_legacy_32_bit_ranges_in_any_order(tmp_path):
    with netCDF4.Dataset(tmp_path / "old.nc", "w") as file:
        file.setncatts({"datasets": np.uint32(1), "name0": "gl_input", "attributes0": np.uint32(3)})
        file.setncatts({"kind0": np.uint32(0), "dataType0": np.uint32(0), "dimensions0": np.uint32(1)})
        file.setncatts({"width0": np.uint32(128)})
        file.createDimension("examplesDim0", 2)
        file.createDimension("sparseDataDim0", 5)
        file.createVariable("sparseStart0", "u4", ("examplesDim0",))[:] = [3, 0]
        file.createVariable("sparseEnd0", "u4", ("examplesDim0",))[:] = [5, 2]
        file.createVariable("sparseIndex0", "u4", ("sparseDataDim0",))[:] = [9, 8, 7, 6, 5]
    rows = read_data(tmp_path / "old.nc").sets[0].rows
    assert (rows.indptr.tolist(), rows.indices.tolist()) == ([0, 2, 4], [6, 5, 9, 8])


@own_process
def test_not_netcdf_and_truncated(tmp_path):
    path = tmp_path / "a.nc"
    path.write_text("region,customer\n")
    with pytest.raises(DataError, match=r"a.nc: not a readable NetCDF file"):
        read_data(path)
    write_data(path, SMALL)
    whole = path.read_bytes()
    for length in [0, 1, 8, *range(100, len(whole), len(whole) // 12), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"a.nc"):
            read_data(path)
    with pytest.raises(FileNotFoundError):
        read_data(tmp_path / "none.nc")


def edit(path, change):
    write_data(path, SMALL)
    with netCDF4.Dataset(path, "a") as file:
        change(file)


def put(name, index, value):
    def change(file):
        file.variables[name][index] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("sparseIndex0", 2, 3), "sparseIndex0: example 1 has unit 3, legal: 0 to 2"),
        (put("sparseStart1", 0, 2), "example 0 has the range 2 to 1"),
        (put("sparseEnd1", 2, 4), "example 2 has the range 1 to 4"),
        (put("sparseEnd1", 2, 2**63), "example 2 has the range 1 to 4611686018427387904"),
        (lambda file: file.renameVariable("sparseEnd0", "gone"), "variable sparseEnd0 is missing"),
        (lambda file: file.delncattr("width1"), "attribute width1 is missing"),
        (lambda file: file.delncattr("datasets"), "not a DSSTNE data file"),
        (lambda file: file.setncattr("datasets", np.uint32(0)), "datasets: 0 is not legal"),
        (lambda file: file.setncattr("width0", "wide"), "width0: 'wide' is not legal"),
        (lambda file: file.setncattr("attributes0", np.uint32(1)), "variable sparseData0 is missing"),
        (lambda file: file.setncattr("attributes0", np.uint32(256)), "has the bits 256, legal: a sum of"),
        (lambda file: file.setncattr("width0", np.uint32(4)), "3 names, width0 is 4"),
        (lambda file: file.setncattr("namesOf0", np.uint32(1)), "namesOf0: 1 is not legal, legal: 0 to 0"),
        (lambda file: file.setncatts({"namesOf1": 0, "width1": np.uint32(5)}), "indToFeature0: 3 names, width1 is 5"),
    ],
)
def test_damaged_files_are_named(tmp_path, change, words):
    edit(tmp_path / "bad.nc", change)
    with pytest.raises(DataError, match=r"bad\.nc") as caught:
        read_data(tmp_path / "bad.nc")
    assert words in str(caught.value)


def test_names_that_are_the_same_are_written_once(tmp_path):
    sets = tuple(DataSet(name, from_rows([[0]], 2), features) for name, features in zip("abcd", NAMED, strict=True))
    write_data(tmp_path / "a.nc", Data(sets))
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert {name for name in file.variables if name.startswith("ind")} == {"indToFeature0", "indToFeature2"}
        assert (file.namesOf1, file.namesOf3) == (0, 0)
    assert [data_set.features for data_set in read_data(tmp_path / "a.nc").sets] == NAMED
    begun = begin_data(tmp_path / "names.nc", Data(sets))
    for some in (sets, sets[::-1][1:]):  # the latter have other names in other places
        write_data(tmp_path / "b.nc", Data(some, ("x",)), begun)
        seen = read_data(tmp_path / "b.nc")
        assert [data_set.features for data_set in seen.sets] == [data_set.features for data_set in some]
        assert seen.samples == ("x",)


NAMED = [("x", "y"), ("x", "y"), ("y", "x"), ("x", "y")]


def test_zero_examples(tmp_path):
    write_data(tmp_path / "a.nc", Data((DataSet("input", from_rows([], 3)),)))
    with pytest.raises(DataError, match="zero examples"):
        read_data(tmp_path / "a.nc")


def test_several_files_follow_one_another(tmp_path):
    write_data(tmp_path / "a.nc", SMALL)
    write_data(tmp_path / "b.nc", SMALL)
    data = read_all([tmp_path / "a.nc", tmp_path / "b.nc"])
    assert data.samples == SMALL.samples * 2
    assert data.sets[0].rows.indptr.tolist() == [0, 2, 3, 3, 5, 6, 6]
    write_data(tmp_path / "c.nc", Data((DataSet("input", from_rows([[0]], 2)), SMALL.sets[1])))
    with pytest.raises(DataError, match="examples"):
        read_data(tmp_path / "c.nc")
    write_data(tmp_path / "c.nc", Data((DataSet("input", from_rows([[0]], 2)),)))
    with pytest.raises(DataError, match="does not continue"):
        read_all([tmp_path / "a.nc", tmp_path / "c.nc"])


@pytest.mark.parametrize("error", [RuntimeError("NetCDF: HDF error"), PermissionError(13, "Permission denied", "x")])
@pytest.mark.parametrize(
    ("free", "code", "words"),
    [
        (100, errno.ENOSPC, "the disk is full: 100 bytes are free; make room and try again"),
        (10**9, None, "(1000000000 bytes are free); check the disk"),
    ],
)
def test_a_failed_write_names_the_file_and_the_free_space(tmp_path, monkeypatch, error, free, code, words):
    def fails(*_arguments):
        raise error

    write_data(tmp_path / "a.nc", SMALL)
    before = (tmp_path / "a.nc").read_bytes()
    monkeypatch.setattr(netcdf, "_fill", fails)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    with pytest.raises(OSError, match="are free") as caught:
        write_data(tmp_path / "a.nc", SMALL)
    assert caught.value.filename == str(tmp_path / "a.nc")
    assert caught.value.errno == (code or getattr(error, "errno", None) or errno.EIO)
    assert words in caught.value.strerror
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]
    assert (tmp_path / "a.nc").read_bytes() == before


def test_a_missing_folder_is_the_systems_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_data(tmp_path / "none" / "a.nc", SMALL)
