"""Ages of purchases: from the day that is asked about, and from each customer's last."""

from __future__ import annotations

import numpy as np
import pytest

from tests.nnlib.families.made_up import events


def test_ages_are_counted_from_the_day_that_is_asked_about():
    found = events([[0, 1], [2]], days=[[90, 80], [70]], as_of=100).aged(10.0).toarray()
    assert found == pytest.approx(np.array([[0.5, 0.25, 0], [0, 0, 0.125]]))


def test_what_each_customer_took_last_counts_one():
    found = events([[0, 1], [2], []], days=[[90, 80], [70], []], as_of=100).aged_from_last(10.0).toarray()
    assert found == pytest.approx(np.array([[1, 0.5, 0], [0, 0, 1], [0, 0, 0]]))


def test_a_customer_of_long_ago_keeps_his_history():
    history = events([[0, 1]], days=[[20, 10]], as_of=10_000)
    assert not history.aged(1.0).toarray().any()
    assert history.aged_from_last(1.0).toarray()[0, :2] == pytest.approx([1, 2**-10])


def test_nobody_and_data_without_days():
    assert events([[], []], items=3).aged_from_last(5.0).shape == (2, 3)
    assert events([[0, 2]], items=3).aged_from_last(5.0).toarray().tolist() == [[1, 0, 1]]
