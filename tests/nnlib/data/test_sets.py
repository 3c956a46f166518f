import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnlib.data.rows import Csr, Dense, Joined, from_rows, one_hot
from nnlib.data.sets import Data, DataSet, as_data_set, from_scipy, join, kind_of
from nnlib.errors import DataError

VALUES = np.array([1, 2, -3, 0.5, 4], dtype=np.float32)


def analog():
    return Csr(np.array([0, 2, 2, 5]), np.array([3, 0, 1, 1, 2], dtype=np.int32), 4, VALUES)


def dense_of(rows):
    full = np.zeros((rows.examples, rows.width))
    np.add.at(full, (np.repeat(np.arange(rows.examples), np.diff(rows.indptr)), rows.indices), dense_values(rows))
    return full


def dense_values(rows):
    return np.ones(rows.nonzeros) if rows.values is None else rows.values


@st.composite
def csrs(draw):
    width = draw(st.integers(1, 6))
    lists = draw(st.lists(st.lists(st.integers(0, width - 1), max_size=6), min_size=1, max_size=6))
    rows = from_rows(lists, width)
    if draw(st.booleans()):
        numbers = draw(hnp.arrays(np.float32, rows.nonzeros, elements=st.integers(-4, 4)))
        rows = Csr(rows.indptr, rows.indices, width, numbers)
    return rows


@given(csrs(), st.data())
def test_sparse_rows_are_taken_kept_and_made_sets_as_their_dense_twin(rows, data):
    numbers = np.array(data.draw(st.lists(st.integers(0, rows.examples - 1), max_size=8)), dtype=np.int64)
    np.testing.assert_array_equal(dense_of(rows.take(numbers)), dense_of(rows)[numbers])
    mask = data.draw(hnp.arrays(bool, rows.nonzeros))
    zeroed = Csr(rows.indptr, rows.indices, rows.width, (dense_values(rows) * mask).astype(np.float32))
    np.testing.assert_array_equal(dense_of(rows.keep(mask)), dense_of(zeroed))
    low, high = sorted(data.draw(st.tuples(*2 * [st.integers(0, rows.width)])))
    np.testing.assert_array_equal(dense_of(rows.units(low, high)), dense_of(rows)[:, low:high])
    sets = rows.sets()
    for i in range(rows.examples):
        units = sets.indices[sets.indptr[i] : sets.indptr[i + 1]]
        assert np.all(np.diff(units) > 0)
    expected = dense_of(rows) if rows.values is not None else dense_of(rows) > 0
    np.testing.assert_array_equal(dense_of(sets), expected)
    assert sets.boolean == rows.boolean


@pytest.mark.parametrize(
    ("stored", "as_input", "floats"),
    [
        ("uint8", True, [0 / 256 - 0.5, 200 / 256 - 0.5]),
        ("uint8", False, [0, 200 / 256]),
        ("int8", True, [0, 100 / 128]),
        ("uint16", True, [0, 200]),
        ("int32", False, [0, 200]),
        ("float64", True, [0, 200]),
    ],
)
def test_dense_values_are_converted_as_dsstne_does(stored, as_input, floats):
    rows = Dense(np.array([[0, 100 if stored == "int8" else 200]], dtype=stored))
    seen = rows.floats(as_input)
    assert seen.dtype == np.float32
    assert seen.tolist() == [floats]
    assert rows.floats(as_input, np.float64).dtype == np.float64
    assert rows.values.dtype == stored


def test_examples_of_an_indexed_and_weighted_set():
    weights = np.array([1, 2, 3, 4], dtype=np.float32)
    data_set = DataSet("input", analog(), weights=weights, index=np.array([2, 0, 2, 1], dtype=np.int32))
    assert (data_set.examples, data_set.width, data_set.sparse, data_set.boolean) == (4, 4, True, False)
    taken = data_set.take(np.array([3, 0]))
    assert taken.index is None
    assert taken.weights.tolist() == [4, 1]
    np.testing.assert_array_equal(dense_of(taken.rows), dense_of(analog())[[1, 2]])


def test_scipy_matrices():
    matrix = sp.csr_array(([1, 1, 1], ([0, 0, 2], [3, 1, 0])), shape=(3, 4))
    rows = from_scipy(matrix)
    assert rows.boolean
    np.testing.assert_array_equal(dense_of(rows), matrix.toarray())
    rows = from_scipy(sp.csc_matrix(matrix * 2.5))
    assert rows.values.dtype == np.float32
    np.testing.assert_array_equal(dense_of(rows), matrix.toarray() * 2.5)


def test_what_callers_have_becomes_a_data_set():
    kept = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert as_data_set("a", kept).rows.values.dtype == np.uint8
    assert as_data_set("a", kept[:, ::2].T.astype("f2")).rows.values.dtype == np.float32
    assert as_data_set("a", kept > 2).rows.values.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert as_data_set("b", DataSet("a", analog())).name == "b"
    assert as_data_set("b", analog()).rows.width == 4


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros(3), "1 dimensions is not legal, legal: two"),
        (np.zeros((3, 0)), "0 columns is not legal"),
        (np.zeros((1, 1), dtype=complex), "type complex128 is not legal, legal: uint8"),
        (np.array([["a"]]), "is not legal, legal: uint8"),
        (np.array([[0.0], [np.nan]]), "row 1 has a value that is not a finite float32"),
        (np.array([[0.0, 1], [2, 3], [4, 1e300]]), "row 2 has a value that is not a finite float32"),
        (sp.csr_array(np.array([[1.0, 2], [0, -np.inf]])), "row 1 has a value that is not a finite float32"),
    ],
)
def test_what_cannot_become_a_data_set_is_refused(value, words):
    with pytest.raises(DataError, match="data set 'x': ") as caught:
        as_data_set("x", value)
    assert words in str(caught.value)


def test_a_scipy_matrix_with_columns_out_of_range_is_refused():
    matrix = sp.csr_array(([1, 1], ([0, 1], [0, 1])), shape=(2, 2))
    matrix.indices[1] = 7
    with pytest.raises(DataError, match="outside 0 to 1"):
        as_data_set("x", matrix)


KINDS = {
    "boolean": from_rows([[0, 2], [], [1]], 3),
    "analog": Csr(np.array([0, 2, 2, 3]), np.array([2, 0, 1], dtype=np.int32), 3, VALUES[:3]),
    "dense": Dense(np.arange(9, dtype=np.int8).reshape(3, 3)),
    "classes": one_hot(np.array([2, 0, 1]), 3),
}


def plain(data_set):
    """All examples with their weights, dense."""
    taken = data_set.take(np.arange(data_set.examples))
    values = taken.rows.values if isinstance(taken.rows, Dense) else dense_of(taken.rows)
    return values, np.ones(len(values)) if taken.weights is None else taken.weights


@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("loaded", [True, False])
def test_join_of_every_kind(rows, loaded):
    weights = np.array([5, 6, 7], dtype=np.float32)
    other = rows if loaded else Joined((rows,))
    sets = [
        DataSet("a", rows, weights=weights),
        DataSet("a", other),
        DataSet("a", other, index=np.array([2, 2, 0, 1], dtype=np.int32)),
    ]
    whole = join([(f"{n}.nc", Data((data_set,))) for n, data_set in enumerate(sets)]).sets[0]
    assert whole.examples == 10
    assert kind_of(whole) == kind_of(sets[0])
    order = np.array([9, 0, 3, 1, 1, 8])
    everything = [np.concatenate(part) for part in zip(*map(plain, sets), strict=True)]
    for seen, expected in zip(plain(whole.take(order)), everything, strict=True):
        np.testing.assert_array_equal(seen, expected[order])


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (DataSet("a", KINDS["analog"]), "is sparse analog, 3, in 0.nc it is sparse boolean, 3"),
        (DataSet("a", KINDS["dense"]), "is dense int8"),
        (DataSet("a", KINDS["boolean"], ignore_zero=True), "3, ignoring zeros, in"),
        (DataSet("a", KINDS["boolean"], dimensions=(1, 3)), "sparse boolean, 1 x 3"),
        (DataSet("b", KINDS["boolean"]), "does not continue 'a'"),
    ],
)
def test_join_of_sets_that_differ(second, words):
    with pytest.raises(DataError, match=r"^1\.nc") as caught:
        join([("0.nc", Data((DataSet("a", KINDS["boolean"]),))), ("1.nc", Data((second,)))])
    assert words in str(caught.value)
