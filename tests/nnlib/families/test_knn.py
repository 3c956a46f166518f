"""Item cosine against a dense reference."""

import numpy as np
import pytest
from scipy import sparse

from nnlib.families import knn
from nnlib.families.common import products
from nnlib.families.common.products import times_sparse
from tests.nnlib.families.made_up import dense, drawn, events, everybody, from_last

HISTORY = drawn()
ONLY = {"k": 5, "q": 0.35, "fit_half_life": 30.0, "ask_half_life": 50.0}
ONLY |= {"own_weight": 1.0, "bias": 0.0, "bias_scale": "raw"}


def formula(history, k=5, q=0.35, factors=1.0):
    counts = dense(history, 30.0) * np.reshape(factors, (-1, 1))
    gram = counts.T @ counts
    norms = np.maximum(np.diag(gram), 1e-9) ** q
    likeness = gram / np.outer(norms, norms)
    np.fill_diagonal(likeness, 0)
    for column in likeness.T:
        column[np.argsort(-column, kind="stable")[k:]] = 0
    return from_last(history, 50.0) @ likeness


def scores(history=HISTORY, **changed):
    return knn.fit(history, ONLY | changed, 1).scores(history, everybody(history))


@pytest.mark.parametrize(("k", "q"), [(5, 0.35), (1, 0.5), (100, 0.0)])
def test_the_scores_are_sums_over_the_nearest_items(k, q):
    assert scores(k=k, q=q) == pytest.approx(formula(HISTORY, k, q), rel=1e-4, abs=1e-5)


def test_of_equally_near_items_the_first_ones_count():
    """All three others go with item 3 once; so few have ties in real numbers that only whole ones show it."""
    history = events([[0, 3], [1, 3], [2, 3]])
    matrix = knn.find_neighbours(history.aged(1e9), 2, 0.5).matrix
    assert matrix.toarray()[:, 3] == pytest.approx([3**-0.5, 3**-0.5, 0, 0])


def test_items_that_nobody_has_have_no_neighbours():
    history = events([[0, 1], [0, 1]], items=4)
    assert scores(history)[0] == pytest.approx([2**0.3, 2**0.3, 0, 0])
    assert not scores(events([[], []], items=3)).any()


def test_the_size_of_blocks_changes_nothing(monkeypatch):
    whole, counts = scores(), HISTORY.aged(1e9)
    monkeypatch.setattr(products, "ENTRIES", 30)
    assert len(list(products.product_blocks(counts, counts))) > 5
    assert scores().tobytes() == whole.tobytes()


def test_rows_of_a_region_count_so_many_times_for_it():
    found = scores(own_weight=4.0)
    for region in (0, 1):
        some = HISTORY.region == region
        wanted = formula(HISTORY, factors=np.where(some, 2.0, 1.0))
        assert found[some] == pytest.approx(wanted[some], rel=1e-4, abs=1e-5)


def test_many_items_take_no_matrix_of_items_by_items():
    history = events([[0, 999_999], [5, 999_999]])
    found = scores(history)
    assert found.shape == (2, 1_000_000)
    assert np.flatnonzero(found[0]).tolist() == [0, 5, 999_999]
    assert knn.bytes_needed(knn.Size(10**6, 10**6, 10**7), knn.DEFAULTS) < 8 << 30


@pytest.mark.usefixtures("backend")
def test_a_product_of_sparse_matrices_has_the_bits_of_scipys():
    random = np.random.default_rng(4)
    x, y = (
        sparse.random_array(shape, density=0.2, rng=random, dtype=np.float32).tocsr() for shape in ((30, 40), (40, 50))
    )
    assert times_sparse(x, y).tobytes() == (x @ y).toarray().tobytes()
    assert times_sparse(x[:0], y).shape == (0, 50)
