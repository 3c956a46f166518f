"""Files as others make them: every stored type, the engine's own spelling, dense classes, ranges anywhere."""

import netCDF4
import numpy as np
import pytest

from nnlib.cli import main
from nnlib.data.file import read_data, write_data
from nnlib.data.rows import Csr, Dense, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError

TYPES = ("UInt", "Int", "LLInt", "ULLInt", "Float", "Double", "RGB8", "RGB16", "UChar", "Char")
FILE_TYPES = ("u4", "i4", "i8", "u8", "f4", "f8", "u1", "u2", "u1", "i1")


def make(path, attributes, variables, dimensions=()):
    """Write a file as another program would; every variable gets a dimension of its own length."""
    with netCDF4.Dataset(path, "w") as file:
        for name, value in {"datasets": 1, "name0": "input", "attributes0": 1, "dimensions0": 1, **attributes}.items():
            file.setncattr(name, value if isinstance(value, str) else np.uint32(value))
        for name, length in dict(dimensions).items():
            file.createDimension(name, length)
        for name, (kind, values) in variables.items():
            if f"{name}Dim" not in file.dimensions:
                file.createDimension(f"{name}Dim", len(values))
            endian = "big" if kind == ">f4" else "native"
            values = np.array(values, dtype=object) if kind is str else values
            file.createVariable(name, kind, (f"{name}Dim",), endian=endian)[:] = values
    return path


def sparse(kind="u4", values=None, value_kind="f4", start=(0, 2), end=(2, 3), units=(2, 0, 1)):
    variables = {"sparseStart0": (kind, start), "sparseEnd0": (kind, end), "sparseIndex0": (kind, units)}
    return variables if values is None else variables | {"sparseData0": (value_kind, values)}


@pytest.mark.parametrize(
    ("code", "name", "kind"), [(*pair, k) for pair, k in zip(enumerate(TYPES), FILE_TYPES, strict=True)]
)
def test_every_stored_type_dense_and_sparse(tmp_path, code, name, kind):
    make(tmp_path / "d.nc", {"attributes0": 0, "dataType0": code, "width0": 3}, {"data0": (kind, [1, 2, 3, 4, 5, 6])})
    rows = read_data(tmp_path / "d.nc").sets[0].rows
    assert rows.values.dtype == kind
    assert rows.values.tolist() == [[1, 2, 3], [4, 5, 6]]
    make(tmp_path / "s.nc", {"dataType0": code, "width0": 3}, sparse(values=[1, 2, 3], value_kind=kind))
    rows = read_data(tmp_path / "s.nc").sets[0].rows
    scale = {"RGB8": 256, "UChar": 256, "Char": 128}.get(name, 1)
    assert rows.values.dtype == np.float32
    assert rows.values.tolist() == [1 / scale, 2 / scale, 3 / scale]


def test_the_engines_own_files(tmp_path):
    """It spells datatype, which it cannot read, and narrows or widens the integers."""
    make(tmp_path / "e.nc", {"datatype0": 4, "width0": 3}, sparse("u8", [0.5, 1, 2]))
    rows = read_data(tmp_path / "e.nc").sets[0].rows
    assert (rows.indices.dtype, rows.indices.tolist()) == (np.int32, [2, 0, 1])


def test_values_of_another_type_that_holds_the_same(tmp_path):
    make(tmp_path / "a.nc", {"attributes0": 0, "dataType0": 8, "width0": 2}, {"data0": ("i4", [0, 255])})
    assert read_data(tmp_path / "a.nc").sets[0].rows.values.dtype == np.uint8
    make(tmp_path / "a.nc", {"attributes0": 0, "dataType0": 9, "width0": 2}, {"data0": ("S1", [b"a", b"\xff"])})
    assert read_data(tmp_path / "a.nc").sets[0].rows.values.tolist() == [[97, -1]]
    make(tmp_path / "a.nc", {"attributes0": 0, "dataType0": 4, "width0": 2}, {"data0": (">f4", [0.5, 2])})
    assert read_data(tmp_path / "a.nc").sets[0].rows.values.tolist() == [[0.5, 2]]
    make(tmp_path / "a.nc", {"attributes0": 0, "dataType0": 8, "width0": 2}, {"data0": ("i4", [0, 256])})
    with pytest.raises(DataError, match=r"a.nc: variable data0 holds int32 values that dataType0 \(uint8\) cannot"):
        read_data(tmp_path / "a.nc")


def test_dense_classes_become_sparse_ones(tmp_path):
    make(tmp_path / "c.nc", {"attributes0": 2, "dataType0": 0, "width0": 10}, {"data0": ("u4", [3, 0, 9])})
    data_set = read_data(tmp_path / "c.nc").sets[0]
    assert data_set.boolean
    assert (data_set.rows.indptr.tolist(), data_set.rows.indices.tolist()) == ([0, 1, 2, 3], [3, 0, 9])
    make(tmp_path / "c.nc", {"attributes0": 2, "dataType0": 0, "width0": 9}, {"data0": ("u4", [3, 0, 9])})
    with pytest.raises(DataError, match="data0: example 2 has unit 9, legal: 0 to 8"):
        read_data(tmp_path / "c.nc")


@pytest.mark.parametrize("scattered", [False, True])
def test_ranges_may_lie_anywhere_and_overlap(tmp_path, scattered, monkeypatch):
    if scattered:
        monkeypatch.setattr("nnlib.data.file_rows.GAP", -100)
    variables = sparse(start=(4, 0, 3, 1), end=(6, 2, 3, 3), units=(0, 1, 2, 3, 4, 5))
    make(tmp_path / "a.nc", {"attributes0": 3, "dataType0": 0, "width0": 6}, variables)
    rows = read_data(tmp_path / "a.nc").sets[0].rows
    assert (rows.indptr.tolist(), rows.indices.tolist()) == ([0, 2, 4, 4, 6], [4, 5, 0, 1, 1, 2])


def test_an_indexed_weighted_file_of_three_dimensions(tmp_path):
    attributes = {"attributes0": 64 | 128, "dataType0": 4, "dimensions0": 3, "width0": 1, "height0": 2, "length0": 1}
    variables = {"data0": ("f4", [1, 2, 3, 4]), "index0": ("u4", [1, 1, 0]), "dataWeight0": ("f4", [1, 2, 0.5])}
    dimensions = {"examplesDim0": 3, "uniqueExamplesDim0": 2}
    data_set = read_data(make(tmp_path / "a.nc", attributes, variables, dimensions)).sets[0]
    assert (data_set.dimensions, data_set.examples, data_set.width) == ((1, 2, 1), 3, 2)
    taken = data_set.take(np.array([2, 0]))
    assert taken.rows.values.tolist() == [[1, 2], [3, 4]]
    assert taken.weights.tolist() == [0.5, 1]


def test_a_set_without_entries_has_a_dimension_that_dsstne_can_read(tmp_path):
    write_data(tmp_path / "a.nc", Data((DataSet("input", from_rows([[], []], 3)),)))
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert len(file.dimensions["sparseDataDim0"]) == 1
        assert not any(dimension.isunlimited() for dimension in file.dimensions.values())
    assert read_data(tmp_path / "a.nc").sets[0].rows.nonzeros == 0


@pytest.mark.parametrize("dimensions", [(2, 2), (1, 1, 1, 4), (0, 4)])
def test_dimensions_that_are_not_the_width_are_not_written(tmp_path, dimensions):
    with pytest.raises(DataError, match=r"data set 'x': dimensions .* are not legal, legal: 1 to 3 whose product"):
        write_data(tmp_path / "a.nc", Data((DataSet("x", Dense(np.zeros((1, 3))), dimensions=dimensions),)))
    assert not list(tmp_path.iterdir())


def test_inspect_tells_the_kinds(tmp_path, capsys):
    rows = Csr(np.array([0, 1, 2]), np.array([0, 5], dtype=np.int32), 6, np.array([0.5, 1], dtype=np.float32))
    weights, index = np.ones(3, np.float32), np.array([0, 1, 1], dtype=np.int32)
    sets = (DataSet("a", rows, (), weights, index, (2, 3), True), DataSet("b", Dense(np.zeros((3, 4), np.uint8))))
    write_data(tmp_path / "a.nc", Data(sets))
    assert main(["inspect", str(tmp_path / "a.nc")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "data file",
        "  a: sparse analog, 3 examples that share 2 rows, width 6 (2 x 3), 2 nonzeros (16.667%), weighted, "
        "zeros ignored",
        "  b: dense uint8, 3 examples, width 4, 0 nonzeros (0.000%)",
    ]
