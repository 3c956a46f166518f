"""What an output layer should give, by hand."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from nnlib.ops.losses import Entries
from nnlib.ops.targets import targets_of

ROWS = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [4, 0, 0, 4.0]])


def dense(entries: Entries, shape: tuple[int, int]) -> list[list[float]]:
    values = np.ones(len(entries.rows)) if entries.values is None else entries.values
    return sparse.coo_array((values, (entries.rows, entries.columns)), shape).toarray().tolist()


def test_dense_targets():
    weights = np.ones((3, 1))
    targets = targets_of(ROWS, False, weights)
    assert targets.shares.tolist() == [[3], [0], [8]] and targets.weights is weights and not targets.alone
    assert targets.block(1, 3, False).tolist() == [[2, 0], [0, 0], [0, 0]]


def test_sparse_targets_with_values():
    targets = targets_of(sparse.csr_array(ROWS), False)
    assert targets.shares.tolist() == [[3], [0], [8]] and targets.dense is None
    assert dense(targets.block(0, 4, False), (3, 4)) == ROWS.tolist()
    assert dense(targets.block(1, 4, False), (3, 3)) == ROWS[:, 1:].tolist()
    assert dense(targets.block(1, 3, False), (3, 2)) == ROWS[:, 1:3].tolist()
    assert dense(targets.block(0, 1, False), (3, 1)) == ROWS[:, :1].tolist()
    assert dense(targets.block(3, 4, True), (3, 1)) == ROWS[:, 3:].tolist()  # their values are shares already
    assert not targets.block(0, 4, False).alone


def test_boolean_targets():
    targets = targets_of(sparse.csr_array((ROWS > 0).astype(float)), True, alone=True)
    assert targets.shares.tolist() == [[1], [0], [1]]  # of a distribution, if there is one
    block = targets.block(0, 4, False)
    assert block.values is None and block.alone and dense(block, (3, 4)) == (ROWS > 0).astype(float).tolist()
    assert dense(targets.block(0, 4, True), (3, 4)) == [[0, 0.5, 0, 0.5], [0] * 4, [0.5, 0, 0, 0.5]]


def test_types_are_those_of_the_rows():
    rows = sparse.csr_array(ROWS.astype(np.float32))
    for boolean in (False, True):
        targets = targets_of(rows, boolean)
        assert targets.shares.dtype == targets.per_entry.dtype == np.float32


def test_one_entry_is_a_whole_share():
    targets = targets_of(sparse.csr_array(np.eye(2)), True)
    assert targets.shares.tolist() == targets.per_entry.tolist() == [[1], [1]]
