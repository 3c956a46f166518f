"""`nnlib merge` against a twin that puts examples into dictionaries by the names of their units."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.cli import main
from nnlib.data import file
from nnlib.data.file import check_data_file, read_all, read_data, write_data
from nnlib.data.merge import merge
from nnlib.data.rows import Csr, Dense, from_rows, offsets_of
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError

pytestmark = pytest.mark.slow

CATALOGUE = [f"i{n}" for n in range(8)]


@st.composite
def row_sets(draw, name, names, examples, analog, weighted, indexed):
    """A sparse data set of some examples."""
    rows = examples if not indexed else draw(st.integers(1, 4))
    units = st.lists(st.integers(0, len(names) - 1), max_size=4)
    lists = [draw(units) for _ in range(rows)]
    plain = from_rows(lists, len(names))
    values = np.arange(1, plain.nonzeros + 1, dtype=np.float32) / 4 if analog else None
    index = np.array([draw(st.integers(0, rows - 1)) for _ in range(examples)]) if indexed else None
    weights = np.arange(examples, dtype=np.float32) + 0.5 if weighted else None
    return DataSet(name, Csr(plain.indptr, plain.indices, len(names), values), tuple(names), weights, index)


@st.composite
def shops(draw):
    """Data of one shop: two data sets of one to three examples, each with some of the catalogue."""
    examples, sets = draw(st.integers(1, 3)), []
    for name, analog in (("input", False), ("output", True)):
        names = draw(st.lists(st.sampled_from(CATALOGUE), min_size=1, unique=True))
        sets.append(draw(row_sets(name, names, examples, analog, draw(st.booleans()), draw(st.booleans()))))
    samples = tuple(f"s{n}" for n in range(examples)) if draw(st.booleans()) else ()
    return Data(tuple(sets), samples, draw(st.sampled_from(["", "Spain"])))


def told(data):
    """Every example as what a person would say of it: by names, the entries in the order of their units."""
    found = []
    for s in data.sets:
        rows = s.take(np.arange(s.examples)).rows
        for n in range(s.examples):
            part = slice(rows.indptr[n], rows.indptr[n + 1])
            values = np.ones(rows.nonzeros) if rows.values is None else rows.values
            pairs = [
                (s.features[u], v) for u, v in zip(rows.indices[part].tolist(), values[part].tolist(), strict=True)
            ]
            found.append((s.name, n, sorted(pairs), 1.0 if s.weights is None else float(s.weights[n])))
    return found


def together(shop_list):
    """The twin: what is told of one shop after the other, examples counted on."""
    found, first = [], 0
    for data in shop_list:
        found += [(name, first + n, pairs, weight) for name, n, pairs, weight in told(data)]
        first += data.sets[0].examples
    return sorted(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("merge")


def written(folder, shop_list, prefix="shop"):
    paths = [folder / f"{prefix}{n}.nc" for n in range(len(shop_list))]
    for path, data in zip(paths, shop_list, strict=True):
        write_data(path, data)
    return paths


@settings(max_examples=20)
@given(st.lists(shops(), min_size=1, max_size=4), st.integers(1, 3))
def test_the_same_examples_one_file_after_the_other(folder, shop_list, block):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(file, "BLOCK", block)
        merge(written(folder, shop_list), folder / "all.nc")
    found = read_data(folder / "all.nc")
    assert sorted(told(found)) == together(shop_list)
    for n, s in enumerate(found.sets):
        assert s.features == tuple(dict.fromkeys(unit for data in shop_list for unit in data.sets[n].features))
        assert (s.index is not None) == any(data.sets[n].index is not None for data in shop_list)
        assert (s.weights is not None) == any(data.sets[n].weights is not None for data in shop_list)
    named = all(data.samples for data in shop_list)
    assert found.samples == (tuple(name for data in shop_list for name in data.samples) if named else ())
    assert found.region == (shop_list[0].region if len({data.region for data in shop_list}) == 1 else "")


@settings(max_examples=10)
@given(st.lists(shops(), min_size=2, max_size=3), st.lists(shops(), min_size=1, max_size=2))
def test_parts_of_one_vocabulary_fit_together(folder, learned, held_out):
    paths, others = written(folder, learned), written(folder, held_out, "held")
    merge(paths, folder / "train.nc", [*paths, *others])
    merge(others, folder / "valid.nc", [*paths, *others])
    train, valid = (read_data(folder / name) for name in ("train.nc", "valid.nc"))
    assert [s.features for s in train.sets] == [s.features for s in valid.sets]
    assert sorted(told(valid)) == together(held_out)


def shop(names=("a", "b", "c"), **changes):
    rows = from_rows([[0, 2], [1]], len(names))
    return Data((dataclasses.replace(DataSet("input", rows, tuple(names)), **changes),))


def test_files_of_the_same_units_stay_as_they_are(tmp_path):
    """Also the order of entries, units of one name, and padding."""
    rows = Csr(np.array([0, 3, 4]), np.array([2, 0, 2, 1], np.int32), 4)
    one, other = (shop(("a", "a", "b", ""), rows=r) for r in (rows, from_rows([[3]], 4)))
    paths = written(tmp_path, [one, other])
    merge(paths, tmp_path / "all.nc")
    found, wanted = read_data(tmp_path / "all.nc"), read_all(paths)
    for name in ("indptr", "indices"):
        assert np.array_equal(getattr(found.sets[0].rows, name), getattr(wanted.sets[0].rows, name))
    assert found.sets[0].features == ("a", "a", "b", "")


def test_one_file_gives_itself_and_the_same_bytes_each_time(tmp_path):
    (path,) = written(tmp_path, [shop()])
    for name in ("one.nc", "two.nc"):
        merge([path], tmp_path / name)
    assert (tmp_path / "one.nc").read_bytes() == (tmp_path / "two.nc").read_bytes()
    assert check_data_file(tmp_path / "one.nc") == check_data_file(path)


def test_names_are_written_once(tmp_path):
    data = Data((*shop().sets, dataclasses.replace(shop().sets[0], name="output")))
    merge(written(tmp_path, [data, data]), tmp_path / "all.nc")
    assert "indToFeature1" not in file.netcdf.read(tmp_path / "all.nc").variables
    assert read_data(tmp_path / "all.nc").sets[1].features == ("a", "b", "c")


@pytest.mark.parametrize("kind", ["uint8", "float32", "int32"])
def test_dense_data(tmp_path, kind):
    values = np.arange(12).reshape(2, 6).astype(kind)
    pictures = Data((DataSet("input", Dense(values), dimensions=(3, 2)), *shop().sets[:0]))
    merge(written(tmp_path, [pictures, pictures]), tmp_path / "all.nc")
    found = read_data(tmp_path / "all.nc").sets[0]
    assert found.rows.values.dtype == kind and found.dimensions == (3, 2)
    assert np.array_equal(found.rows.values, np.concatenate([values, values]))


def test_without_entries(tmp_path):
    empty = Csr(offsets_of(np.zeros(2, np.int64)), np.zeros(0, np.int32), 3)
    merge(written(tmp_path, [shop(rows=empty), shop(("c", "d", "e"), rows=empty)]), tmp_path / "all.nc")
    assert read_data(tmp_path / "all.nc").sets[0].rows.nonzeros == 0


DENSE = Dense(np.ones((2, 3), np.float32))
ANALOG = Csr(np.array([0, 1, 2]), np.array([0, 1], np.int32), 3, np.ones(2, np.float32))
WRONG = [
    (shop(), shop(name="other"), 'has the data sets "other", shop0.nc has "input"; legal: the same in all files'),
    (shop(), shop(rows=ANALOG), '"input" is sparse analog, in shop0.nc it is sparse boolean'),
    (shop(), shop(ignore_zero=True), '"input" is sparse boolean, ignoring zeros, in shop0.nc it is sparse boolean'),
    (shop(), shop(features=()), "shop0.nc has names of its units, shop1.nc has none by which to match them"),
    (shop(features=()), shop(("a", "b", "c", "d"), features=()), "is 4 wide, in shop0.nc 3, with no names to go by"),
    (shop(rows=DENSE), shop(("c", "b", "a"), rows=DENSE), "has other units than shop0.nc, legal in dense data"),
    (shop(), shop(("a", "d", "d")), 'shop1.nc: data set "input" has 2 units of the name "d"'),
    (
        shop(),
        shop(("a", "b", "")),
        'shop1.nc: data set "input": row 0 has unit 2, which has no name by which to match it',
    ),
]


@pytest.mark.parametrize(("one", "other", "message"), WRONG, ids=range(len(WRONG)))
def test_what_does_not_fit(tmp_path, one, other, message):
    paths = written(tmp_path, [one, other])
    with pytest.raises(DataError) as caught:
        merge(paths, tmp_path / "all.nc")
    assert message in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop0.nc", "shop1.nc"]


def test_a_unit_that_the_vocabulary_lacks(tmp_path):
    paths = written(tmp_path, [shop(), shop(("a", "b", "x"))])
    with pytest.raises(DataError, match=r'shop1\.nc: data set "input": row 0 has unit "x", which is not among those'):
        merge(paths[1:], tmp_path / "all.nc", paths[:1])
    unused = dataclasses.replace(shop(("a", "x", "c")), sets=shop(("a", "x", "c"), rows=from_rows([[0], [2]], 3)).sets)
    write_data(paths[1], unused)
    merge(paths[1:], tmp_path / "all.nc", paths[:1])
    assert read_data(tmp_path / "all.nc").sets[0].features == ("a", "b", "c")


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, [shop(), shop(("c", "d", "e"))])
    assert main(["merge", "shop0.nc", "shop1.nc", "--out", "all.nc"]) == 0
    assert capsys.readouterr().err == "all.nc: 4 examples of 2 files; input 5 units\n"
    assert main(["merge", "shop0.nc", "--out", "one.nc", "--units-of", "shop1.nc", "shop0.nc"]) == 0
    assert read_data(tmp_path / "one.nc").sets[0].features == ("c", "d", "e", "a", "b")
    assert main(["merge", "shop0.nc", "shop1.nc", "--out", "shop1.nc"]) == 4
    assert main(["merge", "shop0.nc", "none.nc", "--out", "all.nc"]) == 4
    assert "none.nc: No such file" in capsys.readouterr().err
