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
from regiondag.champions.chance import MANY
from regiondag.champions.choose import Incumbent, Rule, choose
from regiondag.study.space import Choice, Integer, Real
from tests.workflows.champions.test_choose import NAN, made, noisy, parts


def test_a_test_window_that_says_otherwise():
    valid = made((200,), floor=0, g=noisy(200, 0.1))
    choice = choose(valid, "floor")
    assert doubt_test(choice, valid) == []
    assert doubt_test(choice, made((150,), floor=0, g=noisy(150, 0.09, seed=1))) == []
    (less,) = doubt_test(choice, made((200,), floor=0, g=noisy(200, 0.02)))
    (worse,) = doubt_test(choice, made((20,), floor=0, g=noisy(20, -0.001)))
    assert less.kind == "disagree" and "against recent popularity +0.1000 on validation (200 customers)" in less.text
    assert "-0.0010 on test (20)" in worse.text and worse.text.startswith("all regions: ")


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
        Choice("kind", ("a", "b")),
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
