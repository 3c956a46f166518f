"""Files of any content come back as they were written; whatever damages them ends in DataError."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnlib.errors import DataError
from nnlib.training import checkpoint
from nnlib.util import netcdf
from tests.nnlib.isolation import own_process

KINDS = st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXTS = st.text(LETTERS, max_size=8)
NAMES = st.from_regex("[a-z][a-zA-Z0-9_]{0,5}", fullmatch=True)
SCALARS = KINDS.flatmap(lambda kind: hnp.from_dtype(np.dtype(kind)))
SIZES = {"few": 1, "some": 3, "many": 70}


@st.composite
def contents(draw):
    variables = {}
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        dimension = draw(st.sampled_from(sorted(SIZES)))
        if draw(st.booleans()):
            values = draw(hnp.arrays(draw(KINDS), SIZES[dimension]))
        else:
            values = tuple(draw(st.lists(TEXTS, min_size=SIZES[dimension], max_size=SIZES[dimension])))
        variables[name] = netcdf.Variable(dimension, values)
    return netcdf.Content(draw(st.dictionaries(NAMES, SCALARS | TEXTS, max_size=4)), variables)


def assert_same(ours, theirs):
    assert ours.attributes.keys() == theirs.attributes.keys()
    for name, value in ours.attributes.items():
        np.testing.assert_array_equal(np.asarray(theirs.attributes[name]), np.asarray(value), strict=True)
    assert list(ours.variables) == list(theirs.variables)
    for name, variable in ours.variables.items():
        seen = theirs.variables[name]
        assert seen.dimension == variable.dimension and type(seen.values) is type(variable.values)
        if isinstance(variable.values, tuple):
            assert seen.values == variable.values
        else:
            np.testing.assert_array_equal(seen.values, variable.values, strict=True)


@settings(max_examples=15)
@given(contents(), st.integers(0, 70), st.integers(0, 70))
def test_what_is_written_is_read(content, first, last):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.nc")
        netcdf.write(path, content)
        assert_same(content, netcdf.read(path))
        with netcdf.File(path) as file:
            for name, variable in content.variables.items():
                read = file.strings if isinstance(variable.values, tuple) else file.values
                assert list(map(str, read(name, first, last))) == list(map(str, variable.values[first:last]))


@settings(max_examples=8)
@given(contents(), st.integers(1, 70))
def test_what_is_filled_part_by_part_is_what_is_written_at_once(content, step):
    kinds = {name: None if isinstance(v.values, tuple) else v.values.dtype for name, v in content.variables.items()}
    plans = {
        name: netcdf.VariableShape({variable.dimension: len(variable.values)}, kinds[name])
        for name, variable in content.variables.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        with netcdf.fill(Path(folder, "b.nc"), content.attributes, plans) as put:
            for name, variable in content.variables.items():
                for first in range(0, len(variable.values), step):
                    put(name, first, variable.values[first : first + step])
        assert_same(content, netcdf.read(Path(folder, "b.nc")))


@settings(max_examples=8)
@given(
    st.dictionaries(
        NAMES, KINDS.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(max_dims=2, max_side=4))), max_size=3
    ),
    st.dictionaries(st.text(max_size=4), st.integers() | st.floats(allow_nan=False), max_size=3),
)
def test_checkpoints_of_any_numbers(arrays, numbers):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.nc")
        checkpoint.write(path, arrays, numbers, "this one")
        seen, said = checkpoint.load(path, "this one")
    assert said == numbers and seen.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(seen[name], array.reshape(-1), strict=True)


@pytest.mark.slow
@settings(max_examples=15)
@given(contents(), st.data())
def test_a_damaged_file_of_texts_and_numbers(tmp_path_factory, content, data):
    path = tmp_path_factory.mktemp("torn") / "torn.nc"  # a name is never used twice: HDF5 may keep a damaged file open
    netcdf.write(path, content)
    damaged = bytearray(path.read_bytes())
    used = [place for place, byte in enumerate(damaged) if byte]
    for place in data.draw(st.lists(st.sampled_from(used), max_size=3)):
        damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    path.write_bytes(damaged)
    read_or_refuse(path)


@own_process
def read_or_refuse(path):
    try:
        netcdf.read(path)
    except DataError as error:
        assert str(error).startswith(f"{path}: ")


@pytest.mark.parametrize(("region", "texts"), [("", ("a", "b\0c")), ("u\0k", ("a", "b"))])
def test_a_text_that_netcdf_would_cut_is_refused(tmp_path, region, texts):
    content = netcdf.Content({"region": region}, {"names": netcdf.Variable("two", texts)})
    with pytest.raises(DataError, match=r"holds a zero byte.*\((attribute region|variable names)\)"):
        netcdf.write(tmp_path / "a.nc", content)
    plans = {"names": netcdf.VariableShape({"two": 2}, None)}
    with (
        pytest.raises(DataError, match="holds a zero byte"),
        netcdf.fill(tmp_path / "a.nc", content.attributes, plans) as put,
    ):
        put("names", 0, texts)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_open_once_however_many_read_it(tmp_path):
    """Opened twice, the first closed, opened again: HDF5 crashed of a variable of texts."""
    path = tmp_path / "a.nc"
    netcdf.write(path, netcdf.Content({}, {"names": netcdf.Variable("row", ("one", "two"))}))
    before = set(netcdf.HANDLES)
    first = netcdf.File(path)
    second = netcdf.File(path)
    [key] = set(netcdf.HANDLES) - before
    first.close()
    first.close()  # once is enough
    with netcdf.File(path) as third:
        assert third.strings("names") == second.strings("names") == ("one", "two")
    netcdf.write(path, netcdf.Content({}, {"names": netcdf.Variable("row", ("three",))}))
    with netcdf.File(path) as other:  # what takes its place is another file
        assert other.strings("names") == ("three",)
        assert second.strings("names") == ("one", "two")
    second.close()
    assert set(netcdf.HANDLES) == before and key not in netcdf.HANDLES


def test_a_file_that_cannot_be_described_is_not_left_open(tmp_path, monkeypatch):
    path = tmp_path / "a.nc"
    netcdf.write(path, netcdf.Content({}, {"numbers": netcdf.Variable("row", np.arange(3))}))
    before = set(netcdf.HANDLES)

    def refuse(*_):
        raise RuntimeError("damaged")

    monkeypatch.setattr(netcdf.File, "_shape", refuse)
    with pytest.raises(DataError, match="damaged") as caught:
        netcdf.File(path)
    assert set(netcdf.HANDLES) == before, caught
