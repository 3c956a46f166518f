"""Whatever a data file holds, it is read whole and legal, or refused by name; memory is taken for what is there."""

import re

import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nnlib.data import file_rows
from nnlib.data.file import check_data_file, read_data, write_data
from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError
from tests.nnlib.data.test_file import any_data
from tests.nnlib.data.test_file_kinds import make, sparse
from tests.nnlib.isolation import own_process, survives

# Files without texts: libhdf5 does not check sums of texts, and after several broken files it may crash on them.
WITHOUT_TEXTS = any_data(texts=False)
MANY = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ODD = st.sampled_from([0, 1, 2, 3, 4, 9, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1])


@own_process
def assert_legal_or_refused(path):
    """The whole file is legal, or DataError names it; reading and checking agree."""
    try:
        data = read_data(path)
    except DataError as error:
        assert path.name in str(error)
        with pytest.raises(DataError):
            check_data_file(path)
        return
    assert len(check_data_file(path).sets) == len(data.sets)
    for data_set in data.sets:
        assert 1 <= data_set.examples == data.sets[0].examples
        assert data_set.weights is None or np.all(np.isfinite(data_set.weights))
        taken = data_set.take(np.arange(data_set.examples)).rows
        if isinstance(taken, Csr):
            assert np.all((taken.indices >= 0) & (taken.indices < data_set.width))
        assert taken.values is None or np.all(np.isfinite(taken.values))


def read_all_of_it(path):
    """What any reader does with a file."""
    with netCDF4.Dataset(path) as file:
        for name in file.ncattrs():
            file.getncattr(name)
        for variable in file.variables.values():
            variable[:]


@own_process
def assert_refused(path):
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}: "):
        read_data(path)


@MANY
@given(WITHOUT_TEXTS, st.data())
def test_truncated(tmp_path, data, draw):
    path = tmp_path / "cut.nc"
    write_data(path, data)
    whole = path.read_bytes()
    path.write_bytes(whole[: draw.draw(st.integers(0, len(whole) - 1))])
    assert_refused(path)


@MANY
@given(WITHOUT_TEXTS, st.data())
def test_flipped_bits(tmp_path, data, draw):
    path = tmp_path / "flipped.nc"
    write_data(path, data)
    changed = bytearray(path.read_bytes())
    used = [place for place, byte in enumerate(changed) if byte]
    for place in draw.draw(st.lists(st.sampled_from(used), min_size=1, max_size=4)):
        changed[place] ^= 1 << draw.draw(st.integers(0, 7))
    path.write_bytes(changed)
    # A rare one crashes libhdf5, or keeps it busy for ever, whoever asks it to read the file.
    assume(survives(read_all_of_it, path))
    assert_legal_or_refused(path)


@pytest.mark.slow
@MANY
@given(WITHOUT_TEXTS, st.data())
def test_attributes_and_values_that_lie(tmp_path, data, draw):
    path = tmp_path / "lies.nc"
    write_data(path, data)
    with netCDF4.Dataset(path, "a") as file:
        numbers = [name for name in file.ncattrs() if not isinstance(file.getncattr(name), str)]
        for name in draw.draw(st.lists(st.sampled_from(numbers), max_size=2, unique=True)):
            value = draw.draw(ODD | st.text("ab", max_size=3) | st.lists(ODD, min_size=2, max_size=2) | st.floats())
            file.setncattr(name, np.uint32(value) if isinstance(value, int) else value)
        for name in draw.draw(st.lists(st.sampled_from(sorted(file.variables)), max_size=2)):
            variable = file.variables[name]
            whole = draw.draw(ODD).to_bytes(8, "little")
            odd = np.frombuffer(whole, "f8" if variable.dtype.kind == "f" else "u8")
            with np.errstate(all="ignore"):
                variable[draw.draw(st.integers(0, len(variable) - 1))] = odd.astype(variable.dtype)[0]
    assert_legal_or_refused(path)


@pytest.mark.parametrize("options", [{}, {"chunksizes": (1 << 20,)}, {"compression": "zlib"}, {"compression": "zstd"}])
@pytest.mark.parametrize("kind", ["u4", str])
def test_a_declared_size_takes_no_memory(tmp_path, options, kind):
    path = tmp_path / "huge.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name, value in {"datasets": 1, "attributes0": 3, "dimensions0": 1, "width0": 9, "dataType0": 0}.items():
            file.setncattr(name, np.uint32(value))
        file.name0 = "input"
        file.createDimension("huge", 1 << 44 if options else 1 << 33)
        file.createDimension("examplesDim0", 1)
        file.createVariable("sparseStart0", "u8", ("examplesDim0",))[:] = 0
        file.createVariable("sparseEnd0", "u8", ("examplesDim0",))[:] = 1 << 44
        file.set_fill_off()
        file.createVariable("sparseIndex0", kind, ("huge",), **(options if kind == "u4" else {}))
    for read in (read_data, check_data_file):
        with pytest.raises(DataError, match=r"huge.nc: variable sparseIndex0 declares \d+ values, a file of"):
            read(path)


def test_overlapping_ranges_take_no_more_than_there_is(tmp_path, monkeypatch):
    attributes = {"attributes0": 3, "dataType0": 0, "width0": 6}
    make(tmp_path / "a.nc", attributes, sparse(start=[0] * 999, end=[6] * 999, units=(0, 1, 2, 3, 4, 5)))
    assert read_data(tmp_path / "a.nc").sets[0].rows.nonzeros == 5994
    monkeypatch.setattr(file_rows, "SMALL", 1000)
    monkeypatch.setattr(file_rows, "available_bytes", lambda: 20_000)
    with pytest.raises(DataError, match=r"a.nc: examples 0 to 998 of 'input' would take 23.4 KiB of memory, 19.5 KiB"):
        read_data(tmp_path / "a.nc")


ANALOG = sparse(values=[1, 2, 3])


@pytest.mark.parametrize(
    ("attributes", "variables", "words"),
    [
        ({}, sparse(values=[1, np.nan, 3]), "variable sparseData0: example 0 has a value that is not a finite float32"),
        ({"dataType0": 5}, sparse(values=[1, 2, 1e300], value_kind="f8"), "sparseData0: example 1 has a value"),
        ({}, sparse(values=[1, 2]), "variable sparseData0 has 2 values, there are 3 units"),
        ({"attributes0": 0}, {"data0": ("f4", [0, 1, 2, 3, np.inf, 5])}, "variable data0: example 1 has a value"),
        ({"attributes0": 0}, {"data0": ("f4", [0, 1])}, "data0 has 2 values, legal: a multiple of 3"),
        ({"attributes0": 0}, {"data0": (str, ["a"] * 3)}, "variable data0 is of strings, legal: numbers"),
        (
            {"attributes0": 129},
            ANALOG | {"dataWeight0": ("f4", [1, -np.inf])},
            "dataWeight0: example 1 has the weight -inf",
        ),
        ({"attributes0": 129}, ANALOG | {"dataWeight0": ("f4", [1])}, "dataWeight0 has 1 values, there are 2 examples"),
        ({"attributes0": 129}, ANALOG, "variable dataWeight0 is missing"),
        ({"attributes0": 65}, ANALOG | {"index0": ("u4", [0, 1, 2])}, "index0: example 2 has the row 2, legal: 0 to 1"),
        ({"attributes0": 65}, ANALOG | {"index0": ("i4", [0, -1])}, "index0: example 1 has the row -1, legal: 0 to 1"),
        ({"dataType0": 10}, ANALOG, "dataType0: 10 is not legal, legal: 0 UInt, 1 Int, 2 LLInt"),
        ({"dimensions0": 4}, ANALOG, "dimensions0: 4 is not legal, legal: 1 to 3"),
        ({"dimensions0": 2, "height0": 0}, ANALOG, "height0: 0 is not legal, legal: 1 to 2147483647"),
        ({"dimensions0": 2, "height0": 2**30}, ANALOG, "dimensions0: 3 x 1073741824 units are not legal"),
        ({"name0": 3}, ANALOG, "attribute name0: np.uint32(3) is not legal, legal: the data set's name"),
        ({}, sparse("f4", values=[1, 2, 3]), "variable sparseStart0 is of float32, legal: integers"),
        (
            {},
            sparse("i4", values=[1, 2, 3], start=(-1, 2)),
            "example 0 has the range -1 to 2, legal: start <= end <= 3",
        ),
        ({}, sparse("i4", values=[1, 2, 3], units=(0, -2, 1)), "example 0 has unit -2, legal: 0 to 2"),
        ({}, sparse(values=[1, 2, 3], end=(2, 3, 3)), "variable sparseEnd0 has 3 values, there are 2 ranges"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, attributes, variables, words):
    make(tmp_path / "a.nc", {"dataType0": 4, "width0": 3} | attributes, variables)
    for read in (read_data, check_data_file):
        with pytest.raises(DataError, match=f"^{re.escape(str(tmp_path))}/a.nc: ") as caught:
            read(tmp_path / "a.nc")
        assert words in str(caught.value)


def test_dimensions_that_contradict_the_variables(tmp_path):
    make(tmp_path / "a.nc", {"dataType0": 4, "width0": 3}, ANALOG, {"examplesDim0": 7})
    with pytest.raises(DataError, match="dimension examplesDim0 of data set 'input' is 7, its variables hold 2"):
        read_data(tmp_path / "a.nc")


def test_variables_of_two_dimensions(tmp_path):
    write_data(tmp_path / "a.nc", Data((DataSet("input", Dense(np.zeros((2, 3)))),)))
    with netCDF4.Dataset(tmp_path / "a.nc", "a") as file:
        file.renameVariable("data0", "gone")
        file.createDimension("x", 2)
        file.createVariable("data0", "f8", ("x", "x"))
    with pytest.raises(DataError, match="variable data0 has 2 dimensions, legal: one"):
        read_data(tmp_path / "a.nc")
