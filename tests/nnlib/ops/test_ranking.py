import numpy as np
import pytest

from nnlib.data.rows import from_rows
from nnlib.ops.ranking import NO_ITEM, best_of, top

pytestmark = pytest.mark.usefixtures("backend")


def test_ties_go_by_item_and_minus_infinity_has_no_rank():
    scores = np.array([[0.0, -0.0, 2.0, -1.5, 2.0, -np.inf, 1e-30]])
    items, best = top(scores, 7)
    assert items.tolist() == [[2, 4, 6, 0, 1, 3, NO_ITEM]]
    assert best.tolist() == [[2, 2, 1e-30, 0, 0, -1.5, -np.inf]]


@pytest.mark.parametrize("k", [1, 11, 29, 30, 31])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_as_a_stable_sort(k, dtype):
    scores = np.random.default_rng(0).integers(-3, 4, (50, 30)).astype(dtype) / 4
    items, best = top(scores.copy(), k)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(items, order)
    np.testing.assert_array_equal(best, np.take_along_axis(scores, order, axis=1))


@pytest.mark.parametrize("k", [1, 7, 30])
def test_the_best_of_parts_are_those_of_all(k):
    scores = np.random.default_rng(0).integers(-3, 4, (50, 30)).astype(np.float32) / 4
    scores[:, 3] = -np.inf
    parts = [(low, *top(scores[:, low : low + 10].copy(), min(k, 10))) for low in (0, 10, 20)]
    items = np.hstack([np.where(items == NO_ITEM, NO_ITEM, items + low) for low, items, _ in parts])
    found, wanted = best_of(items, np.hstack([best for *_, best in parts]), k), top(scores.copy(), k)
    for some, others in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(some, others)


def test_more_than_all_items_cannot_be_had():
    items, best = top(np.array([[1.0, 3.0, 2.0]]), 10)
    assert items.tolist() == [[1, 2, 0]]
    assert best.shape == (1, 3)


def test_excluded_items_have_no_rank():
    scores = np.array([[1.0, 3.0, 2.0, 0.0]] * 4)
    items, best = top(scores, 3, from_rows([[], [1], [0, 1, 3], [0, 1, 2, 3]], 4))
    assert items.tolist() == [[1, 2, 0], [2, 0, 3], [2, NO_ITEM, NO_ITEM], [NO_ITEM] * 3]
    assert best[2].tolist() == [2, -np.inf, -np.inf]


@pytest.mark.parametrize("items", [3, 5])
def test_what_could_be_excluded_has_its_scores(items):
    with pytest.raises(ValueError, match=f"6 items could be excluded, and scores are of {items}"):
        top(np.zeros((1, items)), 2, from_rows([[5]], 6))


def test_infinite_scores_are_the_best():
    assert top(np.array([[0.0, np.inf, 1.0]]), 2)[0].tolist() == [[1, 2]]


def test_no_examples():
    items, best = top(np.zeros((0, 5), np.float32), 2)
    assert items.shape == best.shape == (0, 2)
