"""What a region may use of others, and which point of the common sequence is its own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regiondag.tuning.sharing import (
    MOST_BLOCKS,
    Neighbour,
    Observation,
    Shared,
    count_first_trials,
    index_in_sequence,
    is_from_block,
    rank_key,
    select_best_and_first,
)


def history_of(*losses):
    return [Observation({"x": number}, loss) for number, loss in enumerate(losses)]


def test_trials_are_sorted_from_the_best_to_the_worst_and_failures_last():
    history = history_of(3.0, None, -1.0, 3.0, None, 0.0, 1e300)
    assert sorted(range(7), key=lambda index: rank_key(history, index)) == [2, 5, 0, 3, 6, 1, 4]


def test_a_neighbours_best_point_is_that_with_the_least_loss():
    assert Neighbour("a", history_of(None, 3.0, -2.0, 0.0)).best == {"x": 2}
    assert Neighbour("a", history_of(None, 3.0, 0.0, 0.5)).best == {"x": 2}
    assert Neighbour("a", history_of(1.0, 1.0)).best == {"x": 0}
    assert not Neighbour("a", []).earlier and Shared(3).neighbours == ()
    with pytest.raises(ValueError):
        _ = Neighbour("a", history_of(None)).best


@pytest.mark.parametrize("most", [1, 4, 5, 24])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 23, 24, 25, 60])
def test_the_best_and_the_first_are_kept_in_their_order(count, most):
    losses = [None if number % 5 == 2 else float(number * 37 % 61) for number in range(count)]
    history = history_of(*losses)
    kept = select_best_and_first(history, most)
    if count <= most:
        assert kept == history
        return
    by_loss = sorted(history, key=lambda o: math.inf if o.loss is None else o.loss)
    best = by_loss[: most // 2]
    first = [o for o in history if o not in best][: most - most // 2]
    assert kept == [o for o in history if o in best or o in first] and len(kept) == most


def test_a_region_starts_with_a_batch_of_two_to_eight():
    assert [count_first_trials(parallel) for parallel in (1, 2, 3, 7, 8, 9, 100)] == [2, 2, 3, 7, 8, 8, 8]


@pytest.mark.parametrize("parallel", [1, 2, 3, 4, 6, 8, 20])
def test_the_first_batch_and_half_of_the_second_come_from_the_block(parallel):
    first = min(max(parallel, 2), 8)
    expected = [number for number in range(40) if number < first or (number < 2 * first and number % 2)]
    strangers = (Neighbour("a", history_of(1.0)), Neighbour("run-1", [], earlier=True))
    for shared in (Shared(0), Shared(0, strangers)):
        assert [number for number in range(40) if is_from_block(number, parallel, shared)] == expected
    earlier = Shared(0, (*strangers, Neighbour("run-2", history_of(1.0), earlier=True)))
    found = [number for number in range(40) if is_from_block(number, parallel, earlier)]
    assert found == [number for number in range(first) if number % 2]  # a run of its own says more


@pytest.mark.parametrize(("parallel", "size"), [(1, 2), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (30, 8)])
def test_blocks_are_neighbours_and_no_two_trials_share_a_point(parallel, size):
    indices = np.array(
        [[index_in_sequence(number, parallel, block) for number in range(3 * size)] for block in range(6)]
    )
    assert len(np.unique(indices)) == indices.size
    assert sorted(indices[:, :size].ravel()) == list(range(6 * size))  # first trials: the sequence's beginning
    for row in indices.reshape(6, 3, size).reshape(-1, size):
        assert row[0] % size == 0 and (np.diff(row) == 1).all()  # each turn is one aligned block of it
    assert index_in_sequence(size, parallel, 0) == MOST_BLOCKS * size == 4096 * size  # beyond all first ones
    assert index_in_sequence(size - 1, parallel, MOST_BLOCKS - 1) == MOST_BLOCKS * size - 1
