"""Errors of batches: the same sum on any number of ranks, whenever it is asked for."""

import numpy as np
import pytest

from nnlib.shards import errors
from nnlib.shards.collectives import Alone
from nnlib.shards.errors import Errors
from nnlib.shards.tree import RANKS, tree_sum
from tests.nnlib.shards.together import run_ranks

STEPS = 11
WHOLE = np.random.default_rng(1).random(STEPS) * 1e3
PARTS = np.random.default_rng(2).random((STEPS, 8)) * 10.0 ** np.arange(8)


def in_turn(first=0.0):
    total = first
    for whole, parts in zip(WHOLE.tolist(), PARTS.tolist(), strict=True):
        total += whole + tree_sum(parts)
    return total


@pytest.mark.parametrize("most", [1, 3, 1024])
@pytest.mark.parametrize("asked", [(), (4,), (0, 1, 9)])
@pytest.mark.parametrize("ranks", RANKS)
def test_a_sum_is_the_same_on_any_number_of_ranks(monkeypatch, ranks, asked, most):
    monkeypatch.setattr(errors, "MOST", most)

    def work(together):
        found = Errors(together)
        found.add(1e9, {})
        found.begin(0.25)
        for step in range(STEPS):
            found.add(float(WHOLE[step]), {shard: float(PARTS[step, shard]) for shard in together.own})
            if step in asked:
                found.total()
        return found.total(), found.total()

    assert run_ranks(ranks, work) == [(in_turn(0.25),) * 2] * ranks


def test_without_shards_it_is_the_plain_sum():
    found = Errors(Alone())
    for whole in WHOLE.tolist():
        found.add(whole, {})
    assert found.total() == sum(WHOLE.tolist())
    assert Errors(Alone()).total() == 0.0


def test_what_is_not_finite_stays():
    found = Errors(Alone())
    found.add(1.0, {3: float("nan"), 4: 2.0})
    found.add(1.0, {4: 2.0})
    assert np.isnan(found.total())
