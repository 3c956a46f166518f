from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real, random_point
from regiondag.tuning.champion_point import fit_champion_point
from regiondag.tuning.propose import propose

SPACE = (
    Choice("optimizer", ("sgd", "adam")),
    Integer("hidden", 2, 8, log=True),
    Real("dropout", 0.0, 0.9, step=0.3),
    Real("momentum", 0.0, 0.9, when=(("optimizer", ("sgd",)),)),
)
GOOD = {"optimizer": "sgd", "hidden": 4, "dropout": 0.3, "momentum": 0.5}


def search(method="bayes", space=SPACE, **more):
    return Search(method, space, (2, 2), **more)


def test_a_champions_hyperparameters_are_a_point():
    assert fit_champion_point(search(), {**GOOD, "gone": 3}) == GOOD
    assert fit_champion_point(search(), {**GOOD, "optimizer": "adam"}) == {
        "optimizer": "adam", "hidden": 4, "dropout": 0.3,
    }  # fmt: skip
    assert fit_champion_point(search(constraints=("hidden < 5",)), GOOD) == GOOD


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "adamw"}, {"hidden": 9}, {"hidden": 4.0}, {"hidden": True}, {"dropout": 0.2}, {"dropout": 1.2},
        {"momentum": "x"}, {"momentum": None}, {"optimizer": ["sgd"]},
    ],
)  # fmt: skip
def test_what_the_space_does_not_hold_is_no_point(change):
    assert fit_champion_point(search(), {**GOOD, **change}) is None


def test_missing_and_forbidden_points():
    assert fit_champion_point(search(), {}) is None
    assert fit_champion_point(search(), {name: GOOD[name] for name in ("optimizer", "hidden", "dropout")}) is None
    assert fit_champion_point(search(constraints=("hidden > 4",)), GOOD) is None


def test_a_grid_begins_with_its_own_points_only():
    grid = search("grid", (Integer("hidden", 2, 8, step=2), Real("rate", 0.1, 0.5, points=3)))
    assert fit_champion_point(grid, {"hidden": 4, "rate": 0.5}) == {"hidden": 4, "rate": 0.5}
    assert fit_champion_point(grid, {"hidden": 4, "rate": 0.4}) is None


@given(st.integers(0, 2**32))
def test_whatever_was_proposed_can_be_proposed_first(seed):
    point = random_point(SPACE, seed)
    assert fit_champion_point(search(), point) == point
    assert point not in propose(search(), [], [point], 3, seed)
