import numpy as np
import pytest
from nnlib_samples import random_rows

from nnlib import metrics
from nnlib.data import from_rows


def test_by_hand():
    """Scores rank 4, 2, 0, 1, 3; item 4 is the first example's own, the third has no target."""
    scores = np.array([0.5, 0.4, 0.7, 0.1, 0.9])
    inputs = from_rows([[4], [], [1]], 5)
    targets = from_rows([[0, 3], [4], []], 5)
    found = metrics.measure(lambda rows: np.tile(scores, (rows.examples, 1)), inputs, targets, (1, 2, 9))
    gain = 1 / np.log2(3)
    assert found == pytest.approx(
        {
            "p@1": (0 + 1) / 2,
            "recall@1": (0 + 1) / 2,
            "ndcg@1": (0 + 1) / 2,
            "p@2": (1 / 2 + 1 / 2) / 2,
            "recall@2": (1 / 2 + 1) / 2,
            "ndcg@2": (gain / (1 + gain) + 1) / 2,
            "p@9": (2 / 9 + 1 / 9) / 2,
            "recall@9": 1,
            "ndcg@9": ((gain + 1 / np.log2(5)) / (1 + gain) + 1) / 2,
        }
    )


def test_own_items_are_never_hits():
    inputs = from_rows([[0, 1, 2]], 3)
    found = metrics.measure(lambda _rows: np.ones((1, 3)), inputs, inputs, (3,))
    assert found["p@3"] == 0


def test_top_breaks_ties_by_item_and_orders_all_signs():
    scores = np.array([[0.0, -0.0, 2.0, -1.5, 2.0, -np.inf, 1e-30]])
    ranked, legal = metrics.top(scores, 7)
    assert ranked.tolist() == [[2, 4, 6, 0, 1, 3, 5]]
    assert legal.tolist() == [[True] * 6 + [False]]


def test_top_is_a_stable_sort():
    scores = np.random.default_rng(0).integers(-3, 4, (50, 30)).astype(np.float32) / 4
    ranked, _ = metrics.top(scores, 11)
    np.testing.assert_array_equal(ranked, np.argsort(-scores, axis=1, kind="stable")[:, :11])


def test_batches_do_not_matter(monkeypatch):
    inputs, targets = random_rows(40, 30, 1), random_rows(40, 30, 2)
    score = metrics.of_popularity(targets)
    whole = metrics.measure(score, inputs, targets)
    monkeypatch.setattr(metrics, "BATCH", 7)
    assert metrics.measure(score, inputs, targets) == pytest.approx(whole)


def test_popularity_counts_targets():
    score = metrics.of_popularity(from_rows([[1, 2], [2], [2, 0]], 4))
    assert score(from_rows([[], []], 4)).tolist() == [[1, 1, 3, 0]] * 2


@pytest.mark.parametrize("width", [3, 9])
def test_inputs_of_other_units_hide_no_item(width):
    """Input unit 2 is not item 2, whether the inputs are wider or narrower than the items."""
    inputs, targets = from_rows([[2], [0, width - 1]], width), from_rows([[2], [0]], 5)
    scores = np.array([0.5, 0.1, 0.9, 0.2, 0.3])
    found = metrics.measure(lambda rows: np.tile(scores, (rows.examples, 1)), inputs, targets, (1, 2), same_units=False)
    assert (found["p@1"], found["recall@2"]) == (1 / 2, 1.0)
    popular = metrics.of_popularity(from_rows([[2, 0], [2]], 5))
    found = metrics.measure(popular, inputs, targets, (1, 2), same_units=False)
    assert (found["p@1"], found["recall@2"]) == (1 / 2, 1.0)
