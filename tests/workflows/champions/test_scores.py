"""What candidates are compared by."""

from __future__ import annotations

import numpy as np
import pytest

from regiondag.champions.scores import Scores, best_of
from regiondag.errors import RegiondagError

NAN = float("nan")


def scores(*rows, counts=(2, 1), names="abcdef", minimize=False):
    values = np.array(rows, float)
    regions = tuple("RSTU"[: len(counts)])
    return Scores(values, tuple(names[: len(rows)]), regions, counts, minimize)


def test_regions_stand_one_after_the_other():
    made = scores([1, 2, 3], [4, 5, 6])
    assert made.of("b", "R").tolist() == [4, 5] and made.of("b", "S").tolist() == [6]
    assert made.of("a").tolist() == [1, 2, 3] and made.of("a", "nowhere").tolist() == []


def test_a_rival_has_a_metric_of_every_customer_that_is_asked():
    made = scores([1, NAN, 3], [1, 2, 3], [1, 2, NAN], [NAN, 1, 1], [1, np.inf, 3])
    assert made.rivals("a").tolist() == [0, 1, 4]
    assert made.rivals("b").tolist() == [1]
    assert made.rivals("a", made.columns("R")).tolist() == [0, 1, 2, 4]


def test_the_best_is_found_over_all_regions_and_in_both_directions():
    assert best_of(scores([1, 1, 0], [0, 0, 5], [9, 9, 9]), ["a", "b"]) == "b"
    assert best_of(scores([1, 1, 0], [0, 0, 5], minimize=True), ["a", "b"]) == "a"
    assert best_of(scores([2, 2, 2], [2, 2, 2]), ["b", "a"]) == "b"
    assert best_of(scores([1, 1, NAN], [0, 0, 5]), ["a", "b"]) == "a"  # of the customers that both have
    assert best_of(scores([NAN] * 3, [NAN] * 3), ["b", "a"]) == "b"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: scores([1, 2]), r"scores are \(1, 2\)"),
        (lambda: Scores(np.zeros((1, 3)), ("a",), ("R",), (1, 2)), "1 regions, but customers of 2"),
        (lambda: Scores(np.zeros((2, 1)), ("a", "a"), ("R",), (1,)), "twice: a"),
        (lambda: scores([1, 2, 3]).of("z"), "no scores of 'z': candidates are a"),
        (lambda: best_of(scores([1, 2, 3]), []), "no candidate to choose from"),
    ],
)
def test_what_does_not_fit_is_refused(make, said):
    with pytest.raises(RegiondagError, match=said):
        make()
