"""Related tasks: strangers have the space of the others, and their best points elsewhere."""

from __future__ import annotations

import math

import pytest

from scripts.bench.sharing.related import Key, Run, ground_of
from scripts.bench.sharing.related_run import draw, run
from scripts.bench.sharing.related_tasks import invert, is_stranger, reflect
from scripts.bench.tuner.problem import Parameter, Problem

SPACE = (
    Parameter("rate", 0.01, 1.0, log=True),
    Parameter("depth", 2, 9, whole=True),
    Parameter("kind", options=("a", "b", "c")),
    Parameter("way", options=("x", "y")),
    Parameter("drop", 0.0, 0.5, when=(("way", ("y",)),)),
)


def loss(point) -> float:
    kind = {"a": 0.0, "b": 1.0, "c": 2.0}[point["kind"]]
    return math.log10(point["rate"]) + point["depth"] + 10 * kind + 100 * point.get("drop", 0.25)


HERE = Problem("made up", "test", SPACE, loss)


def test_in_an_inverted_problem_what_was_worst_is_best():
    point = {"rate": 0.1, "depth": 3, "kind": "b", "way": "x"}
    assert invert(HERE).true(point) == -loss(point) and is_stranger(invert(HERE).name)


def test_in_a_reflected_problem_ranges_run_the_other_way_and_conditions_stay():
    found = reflect(HERE)
    assert is_stranger(found.name) and not is_stranger(HERE.name) and found.space == SPACE
    there = {"rate": 0.01, "depth": 2, "kind": "c", "way": "y", "drop": 0.1}
    back = {"rate": 1.0, "depth": 9, "kind": "a", "way": "y", "drop": 0.4}
    assert found.true(there) == pytest.approx(loss(back))
    without = {"rate": 0.1, "depth": 5, "kind": "a", "way": "x"}
    assert found.true(without) == pytest.approx(loss({"rate": 0.1, "depth": 6, "kind": "b", "way": "x"}))


@pytest.mark.parametrize("share", ["off", "warm", "model"])
def test_regions_are_tuned_side_by_side(share):
    found = run([HERE, invert(HERE)], share, seed=1, trials=12)
    assert {name: len(values) for name, values in found["values"].items()} == {HERE.name: 12, invert(HERE).name: 12}
    assert found["values"] == run([HERE, invert(HERE)], share, seed=1, trials=12)["values"]


def test_regrets_are_of_the_best_value_so_far():
    def made(share, values):
        return Run(Key("some", "alike", 0, share, 0), {"here": [*values, *[9.0] * 28]}, 1.0)

    assert len(draw([HERE], "random", 0, 5)["values"][HERE.name]) == 5
    runs = [made("random", [8.0] * 4), made("off", [7.0, 3.0, 5.0, 6.0]), made("model", [2.0, 4.0, 5.0, 6.0])]
    regrets = ground_of(runs, 8).regrets["some:here"]
    assert regrets == {"random": {0: 6.0}, "off": {0: 1.0}, "model": {0: 0.0}}
