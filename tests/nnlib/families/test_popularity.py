"""Recent popularity, by hand."""

import numpy as np
import pytest

from nnlib.families import popularity
from tests.nnlib.families.made_up import events, everybody

HISTORY = events([[0, 1], [0], [2], []], region=[0, 0, 1, 1], days=[[90, 100], [100], [80], []])
ASKED = events([[0], [1], []], region=[1, 0, 2], items=3, regions=("North", "South", "Nowhere"))


def scores(own, asked=ASKED):
    return popularity.fit(HISTORY, {"half_life": 10.0, "own": own}, 1).scores(asked, everybody(asked))


def test_a_purchase_of_a_half_life_ago_counts_half():
    """Three customers have bought: 1.5 times the first item, once the second, a quarter of the third."""
    assert scores(0.0) == pytest.approx(np.tile([1.5 / 3, 1 / 3, 0.25 / 3], (3, 1)))


def test_a_region_has_its_own_share_and_an_unknown_one_that_of_all():
    assert scores(1.0)[:2] == pytest.approx(np.array([[0, 0, 0.25], [0.75, 0.5, 0]]))  # one customer; two
    assert scores(0.25)[0] == pytest.approx([0.375, 0.25, 0.125])
    assert scores(0.25)[2] == pytest.approx([0.5, 1 / 3, 0.25 / 3])


def test_regions_are_found_by_name_whatever_their_order():
    swapped = events([[0], [1]], region=[0, 1], items=3, regions=("South", "North"))
    assert np.array_equal(scores(1.0, swapped), scores(1.0)[:2])


def test_a_region_whose_customers_have_nothing_yet_is_as_all():
    history = events([[0], []], region=[0, 1], items=2)
    model = popularity.fit(history, {"half_life": 10.0, "own": 1.0}, 1)
    assert model.scores(history, np.array([1])).tolist() == [[1, 0]]
