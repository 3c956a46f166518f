"""What to doubt, and what not to."""

from __future__ import annotations

import numpy as np
import pytest

from regiondag.champions.cautions import (
    doubt_customers,
    doubt_differences,
    doubt_incumbent,
    doubt_ranges,
    doubt_test,
)
from regiondag.champions.chance import MANY, estimate
from regiondag.champions.choose import Choice, Decision, Incumbent, Rule, choose
from regiondag.study.space import Choice as Options
from regiondag.study.space import Integer, Real
from tests.workflows.champions.test_choose import NAN, made, noisy, parts


def exactly(n, mean, sd=0.1):
    """n differences with exactly that mean and standard deviation."""
    drawn = noisy(n, 0)
    return mean + drawn * sd / drawn.std(ddof=1)


@pytest.mark.parametrize(
    ("n", "valid", "test", "said"),
    [
        # Of 200 customers and .1 both means are within 1.972 * .1 / sqrt(200) = .0139, their difference within .0197
        # in 95 % and .0259 in 99 % of the cases.
        (200, 0.05, 0.05, False),
        (200, 0.05, 0.027, False),  # more than half is left
        (200, 0.05, 0.0245, False),  # less, but chance may take .0255
        (200, 0.05, 0.0238, True),
        (200, 0.02, -0.005, False),  # the other sign, by chance
        (200, 0.02, -0.0065, True),
        (17182, 0.1931, 0.1798, False),  # 12 standard errors, and of no interest
        (17182, 0.1931, 0.097, False),
        (17182, 0.1931, 0.096, True),
        (17182, 0.01, -0.001, True),
    ],
)
def test_a_test_window_that_says_otherwise(n, valid, test, said):
    choice = choose(made((n,), floor=0, g=exactly(n, valid)), "floor")
    found = doubt_test(choice, made((n,), floor=0, g=exactly(n, test)))
    assert [one.kind for one in found] == ["disagree"] * said
    words = f"all regions: validation and test disagree about g: against floor {valid:+.4f} on validation "
    assert all(one.text.startswith(f"{words}({n:,} customers), {test:+.4f} on test ({n:,});") for one in found)


def test_one_customer_of_the_test_says_nothing():
    choice = choose(made((200,), floor=0, g=exactly(200, 0.1)), "floor")
    assert doubt_test(choice, made((1,), floor=0, g=-1.0)) == []


@pytest.mark.parametrize(
    ("customers", "left", "least", "most"),
    [(30, 1, 0, 0.05), (100, 1, 0, 0.03), (1000, 1, 0, 0), (30, 0, 0.3, 0.5), (100, 0, 0.8, 1), (300, 0, 0.99, 1)],
)
def test_how_often_the_luckiest_of_many_is_doubted(customers, left, least, most):
    """Of 17 candidates, as good as each other but for .01, with sd .1: `left` of the winner's gain is there on test."""
    random, said, repeats = np.random.default_rng(3), 0, 600
    for _ in range(repeats):
        true = random.normal(0.03, 0.01, 17)
        shared = random.normal(0, 0.1 * 0.5**0.5, customers)
        seen = true[:, None] + shared + random.normal(0, 0.1 * 0.5**0.5, (17, customers))
        best = int(seen.mean(axis=1).argmax())
        gain = estimate(seen[best])
        served = Choice("floor", Decision("g", "common", "", gain.mean, gain.low, gain.high, customers), {})
        test = made((customers,), floor=0, g=random.normal(left * true[best], 0.1, customers))
        said += len(doubt_test(served, test))
    assert least <= said / repeats <= most


def test_a_regions_own_recipe_is_doubted_by_itself():
    counts = (300, 100)
    valid = made(counts, floor=0, g=0.1, own=parts(counts, -0.2, 0.3))
    test = made(counts, floor=0, g=0.1, own=parts(counts, -0.2, -0.1))
    assert [one.text[:4] for one in doubt_test(choose(valid, "floor"), test)] == ["r1: "]
    assert doubt_test(choose(made((50,), floor=0), "floor"), test) == []  # the floor cannot be worse than itself
    assert doubt_test(choose(valid, "floor"), made(counts, floor=0, other=1)) == []  # not judged there


def test_candidates_that_are_alike():
    equal = {f"c{number}": noisy(300, 0.001 * number, seed=number) for number in range(8)}
    (caution,) = doubt_differences(made((300,), **equal), tuple(equal))
    assert caution.kind == "alike" and "all 8 candidates" in caution.text and "differ by 0.0070" in caution.text
    apart = {**equal, "far": noisy(300, 0.06, seed=9)}
    assert doubt_differences(made((300,), **apart), tuple(apart)) == []
    assert doubt_differences(made((300,), **equal), ("c1",)) == []


def test_equal_candidates_are_told_so_nineteen_times_in_twenty():
    said = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        rows = {f"c{number}": random.normal(0, 0.1, 80) for number in range(5)}
        said += len(doubt_differences(made((80,), **rows), tuple(rows)))
    assert 50 <= said <= 60


def test_likeness_of_many_customers_is_drawn_from_some_of_them():
    n = 3 * MANY
    rows = {f"c{number}": noisy(n, 0.0, seed=number) for number in range(3)}
    bar = 0.1 * 3.3 / np.sqrt(n)  # about where the range of three equal means ends
    assert doubt_differences(made((n,), **rows, a=noisy(n, 0.5 * bar, 7)), ("c0", "c1", "a"))
    assert not doubt_differences(made((n,), **rows, a=noisy(n, 2 * bar, 7)), ("c0", "c1", "a"))


def test_too_few_customers():
    rule = Rule()
    assert doubt_customers(choose(made((150,), floor=0, g=0.1), "floor"), rule) == []
    (all_few,) = doubt_customers(choose(made((40,), floor=0, g=0.1), "floor"), rule)
    assert "40 customers were asked" in all_few.text
    counts = (200, *[3] * 7)
    (regions,) = doubt_customers(choose(made(counts, floor=0, g=0.1), "floor"), rule)
    assert regions.text.startswith("7 of 8 regions have fewer than 10") and regions.text.endswith("r5 and 2 more")


def test_a_winner_at_the_edge_of_its_range():
    space = (
        Real("half_life", 10, 1000, log=True),
        Real("ridge", 100, 500),
        Integer("width", 16, 256),
        Options("kind", ("a", "b")),
        Real("absent", 0, 1),
        Integer("fixed", 3, 3),
    )
    middle = {"half_life": 60, "ridge": 300, "width": 64, "kind": "a", "fixed": 3}
    assert doubt_ranges("ease", middle, space) == []
    ends = doubt_ranges("ease", {**middle, "half_life": 10.5, "width": 256}, space)
    assert [one.text for one in ends] == [
        "ease: half_life = 10.5 is at the lower end of its range (10 to 1000): widen it",
        "ease: width = 256 is at the upper end of its range (16 to 256): widen it",
    ]
    assert doubt_ranges("ease", {**middle, "half_life": 1000}, space) == []  # what hardly grows old
    assert doubt_ranges("popularity", {"popularity_own": 0}, (Real("popularity_own", 0, 1),)) == []  # a share


def test_a_winner_at_the_end_of_its_options():
    space = (
        Options("batch", (16, 32, 64), ordered=True),
        Options("size", ("small", "large", "huge"), ordered=True),
        Options("two", (1, 2), ordered=True),
        Options("kind", (1, 2, 3)),
    )
    point = {"batch": 16, "size": "huge", "two": 2, "kind": 3}
    assert [one.text for one in doubt_ranges("net", point, space)] == [
        "net: batch = 16 is the first of its options (16, 32, 64): add some beyond"
    ]
    assert "is the last of" in doubt_ranges("net", {**point, "batch": 64}, space)[0].text
    assert doubt_ranges("net", {**point, "batch": 32}, space) == doubt_ranges("net", {}, space) == []


@pytest.mark.parametrize(
    ("incumbent", "said"),
    [
        (Incumbent("gone"), "all regions: the incumbent gone is not comparable, it was not fitted and judged tonight"),
        (Incumbent("holed"), "all regions: the incumbent holed is not comparable, it has no metric of some customers"),
        (Incumbent("g", {"r1": "holed"}), "r1: the incumbent holed"),
    ],
)
def test_an_incumbent_that_cannot_be_compared(incumbent, said):
    table = made((20, 20), floor=0, g=0.1, holed=np.where(np.arange(40) == 30, NAN, 1))
    (caution,) = doubt_incumbent(incumbent, table, "floor")
    assert caution.text.startswith(said)
    assert doubt_incumbent(Incumbent("g", {"r0": "holed"}), table, "floor") == []
    assert doubt_incumbent(Incumbent(), table, "floor") == []
