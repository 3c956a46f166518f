"""Metrics of every customer, by hand and on several threads."""

from dataclasses import replace

import numpy as np
import pytest

from nnlib.data import blockwise
from nnlib.data.events import Window
from nnlib.data.rows import from_rows
from nnlib.families import ease
from nnlib.families.measure import measure
from nnlib.util.threads import workers
from tests.nnlib.families.made_up import drawn, events, window
from tests.nnlib.families.test_blend import Fixed


def test_each_customer_has_his_own_and_without_targets_none():
    """Ranked are items 3, 2, 1, 0 without those that he has: the second customer's 3."""
    asked = events([[], [3], [], [0, 1, 2, 3]], region=[1, 0, 1, 0])
    found = measure(
        Fixed(np.tile([0, 1, 2, 3], (4, 1))),
        Window(asked, from_rows([[3], [1], [], [0]], 4)),
        ["ndcg@2", "Precision@1", "recall@2", "mrr@2"],
    )
    assert set(found) == {"ndcg@2", "p@1", "recall@2", "mrr@2"}
    assert all(values.dtype == np.float32 and values.shape == (4,) for values in found.values())
    assert found["p@1"].tolist()[:2] == [1, 0]
    assert found["ndcg@2"][:2] == pytest.approx([1, 1 / np.log2(3)])
    assert found["mrr@2"][:2] == pytest.approx([1, 0.5])
    assert np.isnan(found["recall@2"][2])
    assert found["recall@2"][3] == 0  # what he wants he has: it has no rank


def test_where_buying_again_counts_what_a_customer_has_is_ranked():
    asked = replace(events([[], [3], [], [0, 1, 2, 3]]), repeats=True)
    part = Window(asked, from_rows([[3], [3], [], [0]], 4))
    model = Fixed(np.tile([0, 1, 2, 3], (4, 1)))
    assert measure(model, part, ["mrr@4"])["mrr@4"].tolist()[:2] == [1, 1]
    assert measure(model, part, ["mrr@4"])["mrr@4"][3] == 0.25
    assert measure(model, part, ["mrr@4"], excluded=asked.bought.take)["mrr@4"].tolist()[:2] == [1, 0]  # if asked for


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_the_bits_are_the_same_on_any_number_of_threads(monkeypatch, weight):
    monkeypatch.setattr(blockwise, "BATCH", 7)
    asked = drawn(customers=100, items=40, regions=("a", "b", "c", "d", "e"))
    model = ease.fit(asked, {**ease.DEFAULTS, "l2": 10.0, "own_weight": weight}, 1)
    found, done = [], []
    for count in (1, 2, 8):
        with workers(count) as each:
            found.append(measure(model, window(asked), each=each, watch=done.append)["ndcg@20"].tobytes())
    assert found[0] == found[1] == found[2]
    assert sum(done) == 3 * (np.diff(window(asked).wanted.indptr) > 0).sum()


def test_a_window_in_which_nobody_takes_anything_has_no_metrics():
    found = measure(Fixed(np.zeros((2, 2))), Window(events([[0], [1]]), from_rows([[], []], 2)), ["p@1"])
    assert np.isnan(found["p@1"]).all()


@pytest.mark.parametrize("name", ["loss", "hti@10", "ndcg"])
def test_what_is_no_metric_at_k_is_said(name):
    with pytest.raises(ValueError, match="is not legal, legal: "):
        measure(Fixed(np.zeros((1, 1))), Window(events([[0]]), from_rows([[]], 1)), [name])
