"""The units that occur in a batch: the same whether entries are sorted or all units are counted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from nnlib.ops import touched
from nnlib.ops.touched import touched_columns

ROWS = st.lists(st.lists(st.integers(0, 999), max_size=9, unique=True).map(sorted), min_size=1, max_size=9)


def matrix(rows: list[list[int]], width: int = 1000) -> sparse.csr_array:
    starts = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    units = np.array([unit for row in rows for unit in row], np.int32)
    return sparse.csr_array((np.arange(len(units), dtype=np.float32) + 1, units, starts), shape=(len(rows), width))


@given(ROWS, st.sampled_from([0, 10**9]))
def test_it_is_the_transpose_without_empty_rows(rows, spread):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(touched, "SPREAD", spread)
        units, columns = touched_columns(matrix(rows))
    whole = matrix(rows).toarray().T
    assert units.dtype == np.int64
    assert units.tolist() == np.flatnonzero(whole.any(axis=1)).tolist()
    np.testing.assert_array_equal(columns.toarray(), whole[units])
    assert all(np.all(np.diff(columns.indices[a:b]) > 0) for a, b in pairwise(columns.indptr))


def test_its_memory_does_not_grow_with_the_width():
    units, columns = touched_columns(matrix([[3, 2**31 - 2], [3]], 2**31 - 1))
    assert units.tolist() == [3, 2**31 - 2]
    assert columns.toarray().tolist() == [[1, 3], [2, 0]]
    assert len(columns.indptr) == 3
