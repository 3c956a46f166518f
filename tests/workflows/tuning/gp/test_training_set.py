"""What the model is told: which trials, and how their losses are warped."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regiondag.study.model import Search
from regiondag.study.space import Choice, Real
from regiondag.tuning.domain import domain_of
from regiondag.tuning.encoding import Encoding
from regiondag.tuning.gp import training_set
from regiondag.tuning.gp.process import NOISE_CENTRE
from regiondag.tuning.gp.training_set import (
    choose_most_telling,
    compare,
    leave_out_failures,
    scale_of,
    select_usable,
    tell,
    warp,
)
from regiondag.tuning.sharing import Neighbour, Observation

SPACE = (Real("x", 0.0, 1.0), Choice("kind", ("a", "b", "c")))
DOMAIN = domain_of(Search("bayes", SPACE, (4,), share="model"))


def tried(count, start=0.0, failed=()):
    points = [{"x": (start + 0.137 * n) % 1, "kind": "abc"[n % 3]} for n in range(count)]
    return [Observation(p, None if n in failed else (p["x"] - 0.4) ** 2 + n / 100) for n, p in enumerate(points)]


def standard(values):
    values = np.array(values)
    return (values - values.mean()) / values.std()


def known(monkeypatch, alike, chance):
    """Say how alike the neighbours are, and how much of each region's targets is chance."""
    monkeypatch.setattr(training_set, "estimate_noises", lambda regions: np.array(chance[: len(regions)]))
    monkeypatch.setattr(
        training_set, "estimate_similarities", lambda own, others, earlier, chance: np.array(alike[: len(others)])
    )


def test_losses_are_linear_below_the_median_and_logarithmic_above():
    above = [math.log1p((loss - 3) / 2) for loss in (4, 9)]
    expected = standard([-1.0, -0.5, 0.0, *above])
    assert warp([1.0, 2.0, 3.0, 4.0, 9.0]) == pytest.approx(expected)
    assert warp([-10.0, -8.0, -6.0, -4.0, 6.0]) == pytest.approx(expected)  # whatever their scale and place
    assert warp([0.01, 0.02, 0.03, 0.04, 0.09]) == pytest.approx(expected)
    assert warp([9.0, 3.0, 1.0]) == pytest.approx(standard([math.log1p(3), 0.0, -1.0]))  # in any order


@pytest.mark.parametrize("losses", [[1.0, 2.0, 3.0, 4.0, 9.0], [-0.3, None, -0.1, -0.25], [7.0, 7.0, 9.0]])
def test_a_scale_goes_both_ways_and_is_that_of_the_targets(losses):
    scale, seen = scale_of(losses), np.array([loss for loss in losses if loss is not None])
    assert scale.targets(seen) == pytest.approx(warp(losses)[[loss is not None for loss in losses]])
    others = np.array([*seen, seen.min() - 3, seen.max() + 30])
    assert scale.losses(scale.targets(others)) == pytest.approx(others)


def test_a_scale_keeps_to_finite_losses_and_is_none_where_nothing_differs():
    scale = scale_of([0.0, 1.0, 2.0])
    assert (
        np.isfinite(scale.losses(np.array([-1e6, 1e6]))).all() and np.isfinite(scale.targets(np.array([1e305]))).all()
    )
    assert scale_of([]) is None and scale_of([None]) is None and scale_of([0.5, 0.5]) is None


def test_what_is_beyond_the_largest_is_as_bad():
    for worst in (1e300, 1e305):
        expected = standard([-1.0, -0.5, 0.0, math.log1p(0.5), math.log1p(1e300 / 2)])
        assert warp([0.0, 1.0, 2.0, 3.0, worst]) == pytest.approx(expected, rel=1e-12)
    expected = standard([-1.0, -0.5, 0.0, math.log1p(0.5), math.log1p(1e300)])  # in units of the lower half, too
    assert warp([0.0, 1e-20, 2e-20, 3e-20, 1e300]) == pytest.approx(expected, rel=1e-12)


def test_failures_count_as_the_worst_that_was_seen():
    assert warp([1.0, None, 3.0, 2.0]) == pytest.approx(warp([1.0, 3.0, 3.0, 2.0]))
    assert warp([None, None, None]).tolist() == [1.0] * 3 and warp([]).tolist() == []


def test_where_half_are_equally_good_the_worst_says_how_wide_losses_spread():
    assert warp([2.0, 2.0, 2.0, 12.0, 7.0]) == pytest.approx(standard([0, 0, 0, math.log1p(1), math.log1p(0.5)]))


def test_equal_losses_say_nothing_unless_some_failed():
    assert warp([7.0] * 4).tolist() == [0.0] * 4
    assert warp([7.0, None, 7.0, 7.0]) == pytest.approx(standard([0, 1, 0, 0]))
    assert warp([0.5]).tolist() == [0.0] and warp([0.5, 0.5 + 1e-15]).std() == pytest.approx(1)


def test_losses_without_end_are_clipped():
    huge = warp([1.0, 2.0, 3.0, 1e301, 1e307])
    assert huge[4] == huge[3] > huge[2] > huge[1] > huge[0] and np.isfinite(huge).all()
    low = warp([-1e307, -1e301, 1.0, 2.0, 3.0])
    assert low[0] == low[1] < low[2] and np.isfinite(low).all()
    apart = warp([-1.7e308, 1.7e308, 0.0])
    assert apart[0] < apart[2] < apart[1] and np.isfinite(apart).all()


def test_failures_are_left_out_once_three_trials_succeeded():
    for failed, apart in (((), True), ((0,), True), ((0, 1, 2), True), ((0, 1, 2, 3), False), (range(6), False)):
        history = tried(6, failed=failed)
        assert list(leave_out_failures(history)) == [o for o in history if not apart or o.loss is not None]
    assert list(leave_out_failures([])) == []


@pytest.mark.parametrize("count", [0, 150, 300, 399, 400, 401, 700])
def test_of_a_long_history_the_latest_200_and_the_best_200_before_them_are_kept(count):
    random = np.random.default_rng(0)
    losses = random.permutation(count)
    history = [Observation({"x": n}, None if losses[n] % 5 == 0 else float(losses[n])) for n in range(count)]
    kept = choose_most_telling(history)
    if count <= 400:
        assert kept == history
        return
    older, latest = history[:-200], history[-200:]
    best = sorted(older, key=lambda o: math.inf if o.loss is None else o.loss)[:200]
    assert kept == [o for o in older if o in best] + latest and len(kept) == 400


def test_neighbours_are_usable_with_two_successes_in_this_space():
    other = [Observation({"depth": 3}, 0.1), Observation({"x": 2.0, "kind": "a"}, 0.1)]
    found = select_usable(
        DOMAIN,
        [
            Neighbour("two", [*other, *tried(3, failed=(1,))], earlier=True),
            Neighbour("one", [*other, *tried(3, failed=(0, 1))]),
            Neighbour("none", other),
            Neighbour("all", tried(5)),
        ],
    )
    assert [(n.name, n.earlier) for n in found] == [("two", True), ("all", False)]
    assert found[0].history == tried(3, failed=(1,)) and found[1].history == tried(5)


def test_what_the_model_sees_of_a_region_alone():
    history = tried(6, failed=(2,))
    encoding = Encoding(SPACE)
    for neighbours in ((), (Neighbour("one", tried(1)),)):
        compared = compare(DOMAIN, history, neighbours)
        assert compared.neighbours == () and compared.own.noise == 0.0
        assert compared.own.rows == pytest.approx(encoding.coordinates(o.point for o in history))
        assert compared.own.data.targets == pytest.approx(warp([o.loss for o in history]))
        features = encoding.features(compared.own.rows) * encoding.weights
        assert compared.own.data.features == pytest.approx(features)
        found = tell(DOMAIN, history, neighbours)
        assert found.own == 6 and found.data.sources is None and found.rows is not None and len(found.rows) == 6


def test_neighbours_are_ordered_by_how_their_values_correlate_with_the_regions(monkeypatch):
    alike, chance = [0.5, 0.9, 0.14, 0.15, 0.8], [0.2, 0.0, 0.75, 0.0, 0.0, 0.1]
    known(monkeypatch, alike, chance)
    neighbours = [Neighbour(str(n), tried(30, n / 10), earlier=n == 1) for n in range(5)]
    compared = compare(DOMAIN, tried(8), neighbours)
    telling = {str(n): s * math.sqrt(1 - c) for n, (s, c) in enumerate(zip(alike, chance[1:], strict=True))}
    names = [neighbour.name for neighbour, _, _ in compared.neighbours]
    assert names == sorted("0134", key=telling.__getitem__, reverse=True) == ["4", "0", "1", "3"]
    assert [similarity for _, _, similarity in compared.neighbours] == [0.8, 0.5, 0.9, 0.15]
    assert [part.noise for _, part, _ in compared.neighbours] == [0.1, 0.0, 0.75, 0.0] and compared.own.noise == 0.2
    assert [len(part.rows) for _, part, _ in compared.neighbours] == [24] * 4  # the best and the first of 30
    assert [neighbour.earlier for neighbour, _, _ in compared.neighbours] == [False, False, True, False]


def test_who_is_compared_with_whom(monkeypatch):
    asked = []
    monkeypatch.setattr(
        training_set, "estimate_noises", lambda regions: asked.append(regions) or np.array([0.1, 0.2, 0.3])
    )
    monkeypatch.setattr(training_set, "estimate_similarities", lambda *of: asked.append(of) or np.array([0.5, 0.6]))
    neighbours = [Neighbour("a", tried(3, 0.2)), Neighbour("b", tried(4, 0.3), earlier=True)]
    compare(DOMAIN, tried(8), neighbours)
    regions, (own, others, earlier, chance) = asked
    assert [len(region.targets) for region in regions] == [8, 3, 4] and own is regions[0]
    assert [len(other.targets) for other in others] == [3, 4] and earlier == [False, True]
    assert chance.tolist() == [0.1, 0.2, 0.3]


def test_the_model_is_told_how_sources_relate(monkeypatch):
    known(monkeypatch, [0.4, 0.9], [0.19, 0.64, 0.0])
    found = tell(DOMAIN, tried(5), [Neighbour("a", tried(3, 0.2)), Neighbour("b", tried(4, 0.3))])
    assert found.own == 5 and found.data.sources.tolist() == [0] * 5 + [1] * 4 + [2] * 3  # b says more
    assert found.data.similarity.tolist() == [1.0, 0.9, 0.4]
    assert found.data.scales == pytest.approx([1.0, 1.0 / 0.9, 0.6 / 0.9])  # roots of what is no chance
    assert found.data.noises == pytest.approx(np.array([0.19, 0.0, 0.64]) / math.exp(NOISE_CENTRE))
    parts = [tried(5), tried(4, 0.3), tried(3, 0.2)]
    expected = [warp([o.loss for o in part]) for part in parts]
    assert found.data.targets == pytest.approx(np.concatenate(expected))
    encoding = Encoding(SPACE)
    rows = encoding.coordinates(o.point for part in parts for o in part)
    assert found.rows == pytest.approx(rows)
    assert found.data.features == pytest.approx(encoding.features(rows) * encoding.weights)
    assert found.data.groups.tolist() == encoding.groups.tolist()


@pytest.mark.parametrize(
    ("own", "sizes", "taken"),
    [
        (8, [30] * 12, [24] * 9),  # 240 less 8
        (8, [30] * 9 + [17, 16, 2], [24] * 9 + [16]),  # a smaller one fits where a larger one does not
        (24, [30] * 12, [24] * 9),  # 216 are 9 times 24
        (25, [30] * 12, [24] * 8),
        (350, [30, 30, 17, 16], [24, 16]),  # at least 40
    ],
)
def test_others_get_the_room_that_ones_own_trials_leave(monkeypatch, own, sizes, taken):
    known(monkeypatch, [0.9] * 12, [0.1] * 13)
    neighbours = [Neighbour(str(n), tried(size, n / 13)) for n, size in enumerate(sizes)]
    found = tell(DOMAIN, tried(own), neighbours)
    assert np.bincount(found.data.sources).tolist() == [own, *taken] and found.own == own
    assert len(found.data.similarity) == len(found.data.scales) == len(found.data.noises) == 1 + len(taken)


def test_of_a_region_whose_trials_are_all_equal_only_others_are_told(monkeypatch):
    known(monkeypatch, [0.9], [0.5, 0.1])
    flat = [Observation(o.point, 3.0) for o in tried(6)]
    found = tell(DOMAIN, flat, [Neighbour("a", tried(4, 0.2))])
    assert found.own == 0 and found.data.sources.tolist() == [1] * 4 and len(found.rows) == 4
    assert found.data.scales == pytest.approx([1.0, math.sqrt(0.9 / 0.5)])
    alone = tell(DOMAIN, flat)
    assert alone.own == 6 and alone.data.targets.tolist() == [0.0] * 6
    known(monkeypatch, [0.1], [0.5, 0.1])
    unlike = tell(DOMAIN, flat, [Neighbour("a", tried(4, 0.2))])
    assert unlike.own == 6 and unlike.data.sources is None
