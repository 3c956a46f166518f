"""The choice: reference values by hand, and what holds for all scores."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regiondag.champions.chance import probability_better
from regiondag.champions.choose import Incumbent, Rule, choose, choose_floor, show
from regiondag.champions.scores import Scores
from regiondag.errors import RegiondagError

NAN = float("nan")


def made(counts, /, minimize=False, **rows):
    """Scores whose candidates differ from the floor by what is given: a number, or one a customer."""
    n = sum(counts)
    level = np.random.default_rng(1).random(n)  # customers differ more than candidates do, and in the same way
    values = np.stack([np.broadcast_to(row, n) + level for row in rows.values()])
    names = tuple(f"r{number}" for number in range(len(counts)))
    return Scores(-values if minimize else values, tuple(rows), names, tuple(counts), minimize)


def parts(counts, *values):
    return np.repeat(np.array(values, float), counts)


def noisy(n, mean, seed=0, sd=0.1):
    """Return n differences with exactly that mean."""
    drawn = np.random.default_rng(seed).normal(0, sd, n)
    return drawn - drawn.mean() + mean


@pytest.mark.parametrize("minimize", [False, True])
def test_the_best_over_all_regions_serves(minimize):
    found = choose(made((40, 20), floor=0, good=0.1, better=noisy(60, 0.2), minimize=minimize), "floor")
    assert (found.floor, found.common.candidate, found.common.kind, found.common.n) == ("floor", "better", "common", 60)
    assert found.common.difference == pytest.approx(0.2) and found.common.low < 0.2 < found.common.high
    assert "better than recent popularity with P > .999 (60 customers)" in found.common.reason
    assert [one.candidate for one in found.regions.values()] == ["better", "better"]
    assert found.regions["r1"].reason == "common choice" and found.regions["r1"].n == 20


def test_a_blend_must_be_worth_its_fits():
    """The level of the metric is about .5, so a two-hundredth of what the ridge has, .6, is .003."""
    for gain, served in ((0.0025, "ridge"), (0.0035, "mix")):
        table = made((3000,), floor=0, ridge=0.1, mix=0.1 + gain)
        assert choose(table, "floor", blends=["mix"]).common.candidate == served
        assert choose(table, "floor").common.candidate == "mix"
    assert choose(made((60,), floor=0, mix=0.1), "floor", blends=["mix"]).common.candidate == "mix"
    kept = choose(
        made((3000,), floor=0, ridge=0.1, mix=0.1 + noisy(3000, 0.0025)), "floor", Incumbent("mix"), blends=["mix"]
    )
    assert kept.common.candidate == "mix" and kept.common.reason.startswith("common choice: kept")


def test_it_must_beat_the_floor_surely():
    unsure = choose(made((50, 50), floor=0, other=noisy(100, 0.01)), "floor")  # one standard error: P about .84
    assert unsure.common.kind == "floor" and unsure.common.candidate == "floor"
    assert 0.7 < unsure.common.probability < 0.95
    assert "nothing beat recent popularity (best: other, P = .8" in unsure.common.reason
    assert all(one.candidate == "floor" and one.difference == 0 for one in unsure.regions.values())
    assert choose(made((50, 50), floor=0, other=noisy(100, 0.03)), "floor").common.candidate == "other"


def test_a_region_where_it_is_worse_is_served_the_floor():
    # (n d + 20 D) / (n + 20) with D = (80 * .1 + 20 * d) / 100: below 0 from d = -.0667 on for 20 customers.
    for d, kind in ((-0.05, "common"), (-0.066, "common"), (-0.067, "floor"), (-0.2, "floor")):
        found = choose(made((80, 20), floor=0, g=parts((80, 20), 0.1, d)), "floor").regions
        assert found["r1"].kind == kind and found["r0"].kind == "common"
    assert found["r1"].reason == "floor: nothing beat recent popularity here (20 customers)"


def test_few_customers_are_not_judged():
    counts = (80, 9, 10, 0)
    found = choose(made(counts, floor=0, g=parts(counts, 0.4, -0.9, -0.9, 0)), "floor").regions
    assert [one.kind for one in found.values()] == ["common", "common", "floor", "common"]
    assert found["r1"].reason == "too few customers to judge (9): served by the group's choice"
    assert found["r3"].reason == "common choice: no customers to judge here" and np.isnan(found["r3"].difference)


def test_nothing_is_judged_by_a_handful_of_all():
    found = choose(made((5, 4), floor=0, g=0.5), "floor")
    assert found.common.candidate == "floor" and "too few customers to judge anything (9)" in found.common.reason
    assert choose(made((0, 0), floor=0, g=0.5), "floor").regions["r0"].candidate == "floor"


def test_its_own_best_serves_a_large_region_where_it_is_surely_better():
    counts = (400, 100)
    for mean, kind in ((0.01, "common"), (0.04, "own")):  # one and four standard errors
        own = np.concatenate([np.full(400, -0.5), 0.1 + noisy(100, mean)])
        found = choose(made(counts, floor=0, g=0.1, own=own), "floor").regions
        assert (found["r0"].candidate, found["r1"].kind) == ("g", kind)
    assert found["r1"].reason.startswith("own: P ") and found["r1"].probability > 0.99
    fewer = choose(made((401, 99), floor=0, g=0.1, own=own), "floor").regions
    assert fewer["r1"].kind == "common"


def test_the_best_of_many_that_are_alike_is_no_regions_own():
    """Of 30 candidates in 8 regions some look better by 2.33 standard errors, P > .99 if each were the only one."""
    counts = (120,) * 8
    rows = {f"c{number}": np.random.default_rng(number).normal(0, 0.1, 960) for number in range(30)}
    table = made(counts, floor=0, **rows)
    lucky = [
        region
        for region in table.regions
        if max(probability_better(table.of(name, region), 1000, 0) for name in rows) > 0.99
    ]
    assert len(lucky) >= 2
    assert {one.kind for one in choose(table, "floor").regions.values()} <= {"common", "floor"}


def test_a_regions_own_trial_counts_there_alone():
    own = np.concatenate([np.full(100, NAN), np.full(100, 0.9)])
    found = choose(made((100, 100), floor=0, g=0.1, own=own), "floor")
    assert (found.common.candidate, found.regions["r0"].candidate) == ("g", "g")
    assert found.regions["r1"].candidate == "own"


def test_own_serves_even_where_nothing_serves_all():
    counts = (200, 100)
    found = choose(made(counts, floor=0, own=parts(counts, -0.5, 0.3)), "floor")
    assert found.common.kind == "floor" and found.regions["r0"].kind == "floor"
    assert found.regions["r0"].reason == "floor: nothing beat recent popularity over all regions"
    assert found.regions["r1"].candidate == "own"


def test_a_candidate_without_some_customers_is_not_compared():
    broken = np.full(60, 9.0)
    broken[17] = NAN
    found = choose(made((60,), floor=0, g=0.1, broken=broken), "floor")
    assert found.common.candidate == "g"


def test_customers_that_the_floor_was_not_asked_do_not_count():
    floor = np.zeros(60)
    floor[:20] = NAN
    found = choose(made((30, 30), floor=floor, g=0.1), "floor")
    assert (found.common.n, found.regions["r0"].n, found.regions["r1"].n) == (40, 10, 30)


def test_the_incumbent_stays_unless_the_other_is_better_with_p_above_8():
    for mean, winner in ((0.005, "old"), (0.02, "new")):  # .5 and 2 standard errors
        table = made((100,), floor=0, old=0.1, new=0.1 + noisy(100, mean))
        found = choose(table, "floor", Incumbent("old"))
        assert found.common.candidate == winner
        assert choose(table, "floor").common.candidate == "new"
        assert choose(table, "floor", Incumbent("unknown")).common.candidate == "new"
    table = made((100,), floor=0, old=0.1, new=0.1 + noisy(100, 0.005))
    changed = choose(made((100,), floor=0, old=0.1, new=0.1 + noisy(100, 0.02)), "floor", Incumbent("old")).common
    assert changed.reason.endswith("(100 customers); than old, which served until now, with P = .981")
    assert "; new is better with P = .7" in choose(table, "floor", Incumbent("old")).common.reason


def test_an_incumbent_stays_while_the_floor_is_not_surely_better():
    """It has won once; to win every night anew costs more than it saves (docs/concepts/champions.md)."""
    for mean, winner in ((0.005, "old"), (-0.005, "old"), (-0.02, "floor")):  # .5, .5 and 2 standard errors
        table = made((100,), floor=0, old=noisy(100, mean))
        assert choose(table, "floor", Incumbent("old")).common.candidate == winner
        assert choose(table, "floor").common.candidate == "floor"
    assert choose(table, "floor", Incumbent("floor")).common.kind == "floor"


def test_a_popularity_in_office_is_the_floor_until_another_is_better_with_p_above_8():
    for mean, winner in ((0.005, "old"), (-0.005, "old"), (0.02, "new")):  # .5, .5 and 2 standard errors
        table = made((100,), old=0.1, new=0.1 + noisy(100, mean), model=0.0)
        floor = choose_floor(table, ["new", "old"], "old")
        found = choose(table, floor, Incumbent("old")).common
        assert (floor, found.candidate, found.kind) == (winner, winner, "floor")
        assert choose_floor(table, ["new", "old"], "model") == choose_floor(table, ["new", "old"])
    assert choose_floor(table, ["new", "old"]) == "new"


def test_a_newcomer_has_to_beat_both_the_incumbent_and_the_floor():
    table = made((100,), floor=0, old=noisy(100, -0.03, 1), new=noisy(100, 0.01, 2))
    assert choose(table, "floor", Incumbent("old")).common.candidate == "floor"


def test_a_region_leaves_what_served_only_for_a_floor_that_is_surely_better_there():
    table = made((80, 20), floor=0, g=np.concatenate([np.full(80, 0.1), noisy(20, -0.2, sd=0.2)]))
    assert choose(table, "floor", Incumbent("g")).regions["r1"].kind == "floor"
    table = made((80, 20), floor=0, g=np.concatenate([np.full(80, 0.01), noisy(20, -0.02, sd=0.2)]))
    kept = choose(table, "floor", Incumbent("g")).regions["r1"]
    assert kept.kind == "common" and kept.reason.startswith(
        "common choice: kept, recent popularity is better here with"
    )
    assert choose(table, "floor", Incumbent("g"), rule=Rule(change=0.0)).regions["r1"].kind == "floor"


def test_a_regions_own_incumbent_stays_likewise():
    counts = (400, 100)
    own = np.concatenate([np.full(400, -0.5), 0.1 + noisy(100, 0.01)])
    table = made(counts, floor=0, g=0.1, own=own)
    kept = choose(table, "floor", Incumbent("g", {"r1": "own"})).regions["r1"]
    assert (kept.candidate, kept.kind) == ("own", "own") and kept.reason.startswith(
        "own, kept: g is better with P = .1"
    )
    worse = made(counts, floor=0, g=0.1, own=np.concatenate([np.full(400, -0.5), 0.1 + noisy(100, -0.02)]))
    assert choose(worse, "floor", Incumbent("g", {"r1": "own"})).regions["r1"].candidate == "g"
    new = np.concatenate([np.full(400, -0.5), 0.1 + noisy(100, 0.04)])
    newer = made(counts, floor=0, g=0.1, own=new, new=new + 1e-9)
    assert choose(newer, "floor", Incumbent("g", {"r1": "own"})).regions["r1"].candidate == "new"


def test_past_windows_count_half_as_much_each():
    now = made((80, 20), floor=0, g=parts((80, 20), 0.1, -0.05))
    bad, good = (made((80, 20), floor=0, g=parts((80, 20), 0.1, d)) for d in (-0.15, 0.05))
    assert choose(now, "floor").regions["r1"].kind == "common"
    # 20 * -.05 + 10 * -.15 = -2.5 of 30; D = (80 * .1 * 1.5 - 2.5) / 150 = .0633: -2.5 + 20 * .0633 < 0.
    assert choose(now, "floor", past=[bad]).regions["r1"].kind == "floor"
    assert choose(now, "floor", past=[good, bad]).regions["r1"].kind == "common"
    assert choose(now, "floor", past=[bad]).regions["r1"].n == 20
    without = Scores(bad.values, ("floor", "another"), bad.regions, bad.counts)
    assert choose(now, "floor", past=[without]).regions["r1"].kind == "common"


def test_past_windows_may_make_a_region_large_enough_to_judge():
    few, before = (made((80, n), floor=0, g=parts((80, n), 0.1, -0.3)) for n in (6, 8))
    assert choose(few, "floor").regions["r1"].kind == "common"
    assert choose(few, "floor", past=[before]).regions["r1"].kind == "floor"  # 6 + 8 / 2 customers


def test_identical_regions_are_served_alike():
    """They may look different on a few customers each; a rule that believes that is wrong about most of them."""
    random = np.random.default_rng(0)
    counts = (30,) * 40
    found = choose(made(counts, floor=0, g=random.normal(0.03, 0.11, 1200), h=random.normal(0, 0.11, 1200)), "floor")
    served = [one.candidate for one in found.regions.values()]
    assert found.common.candidate == "g" and served.count("g") >= 37 and "h" not in served
    means = np.array([one.difference for one in found.regions.values() if one.candidate == "g"])
    assert (means < 0).any()  # looks worse than the floor by itself, and is still served the common choice


def test_a_floor_that_is_no_candidate_is_refused():
    with pytest.raises(RegiondagError, match="no scores of 'popularity'"):
        choose(made((20,), floor=0), "popularity")


@st.composite
def tables(draw):
    counts = tuple(draw(st.lists(st.integers(0, 130), min_size=1, max_size=4)))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    spread = draw(st.sampled_from([0.0, 0.02, 0.2]))
    values = random.random((4, sum(counts))) * spread + random.random(sum(counts))
    values[0] = values[3]  # a candidate equal to the floor
    if draw(st.booleans()):
        values[2, random.random(sum(counts)) < 0.1] = NAN
    names = tuple(f"r{number}" for number in range(len(counts)))
    return Scores(values, ("twin", "a", "b", "floor"), names, counts, draw(st.booleans()))


@settings(max_examples=60)
@given(tables())
def test_what_holds_for_all_scores(table):
    found = choose(table, "floor", Incumbent("a", {"r0": "b"}))
    assert found == choose(table, "floor", Incumbent("a", {"r0": "b"})) or any(
        np.isnan(one.difference) for one in (found.common, *found.regions.values())
    )
    assert set(found.regions) == set(table.regions)
    for region, one in found.regions.items():
        assert one.candidate != "twin" and one.candidate in table.candidates and one.reason
        assert (one.kind == "floor") == (one.candidate == "floor")
        assert one.n == np.isfinite(table.of("floor", region)).sum()
        assert one.n >= 100 or one.kind != "own"
        assert one.n == 0 or one.candidate == "floor" or np.isfinite(table.of(one.candidate, region)).all()
        assert one.n < 2 or one.low <= one.difference <= one.high


@settings(max_examples=40)
@given(tables(), st.integers(0, 1000))
def test_the_order_of_customers_changes_only_what_the_bootstrap_leaves_open(table, seed):
    random = np.random.default_rng(seed)
    order = np.concatenate(
        [
            random.permutation(np.arange(*table.columns(region).indices(sum(table.counts))[:2]))
            for region in table.regions
        ]
    ).astype(int)
    shuffled = dataclasses.replace(table, values=table.values[:, order])
    one, other = (choose(each, "floor", rule=Rule(draws=4000)) for each in (table, shuffled))
    assert one.common.difference == pytest.approx(other.common.difference, nan_ok=True) or near_bar(one.common, 0.95)
    for region in table.regions:
        same = one.regions[region].candidate == other.regions[region].candidate
        doubt = near_bar(one.common, 0.95) or any(near_bar(each.regions[region], 0.99) for each in (one, other))
        assert same or doubt or one.common.candidate != other.common.candidate


def near_bar(decision, bar):
    return decision.probability is not None and abs(decision.probability - bar) < 0.03


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "> .999"), (0.9931, "= .993"), (0.5, "= .500"), (0.05, "= .050"), (0.0, "< .001")]
)
def test_probabilities_in_words(value, text):
    assert show(value) == text
