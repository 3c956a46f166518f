import json

import pytest

from workflows.space import Choice, Integer, Real, grid_point
from workflows.suggest import MODEL_HISTORY, Observation, _most_telling, suggest

SPACE = (
    Real("learning_rate", 1e-4, 1e-1, log=True),
    Integer("hidden", 8, 64, log=True),
    Choice("optimizer", ("adam", "rmsprop")),
    Choice("epochs", (5,)),
)


def loss(point):
    return (point["learning_rate"] - 0.01) ** 2 + (point["hidden"] / 64 - 0.5) ** 2 + (point["optimizer"] != "adam")


def run(method, trials, parallel, space=SPACE, seed=1, objective=loss):
    history = []
    for first in range(0, trials, parallel):
        numbers = range(first, first + parallel)
        points = suggest(method, space, history, numbers, trials=trials, minimize=True, seed=seed)
        history += [Observation(point, objective(point)) for point in points]
    return history


def test_grid_ignores_the_history():
    space = (Choice("a", (1, 2)), Choice("b", ("x", "y")))
    points = suggest("grid", space, [], range(4), trials=4, minimize=True, seed=0)
    assert points == [grid_point(space, i) for i in range(4)]


def test_random_points_do_not_depend_on_how_they_are_asked_for():
    once = suggest("random", SPACE, [], range(6), trials=6, minimize=True, seed=3)
    twice = [
        p for n in range(6) for p in suggest("random", SPACE, [], range(n, n + 1), trials=6, minimize=True, seed=3)
    ]
    assert once == twice


def test_same_history_same_proposals_and_all_of_it_is_json():
    first, second = run("bayes", 6, 2), run("bayes", 6, 2)
    assert first == second
    for observation in first:
        assert json.loads(json.dumps(observation.point)) == observation.point
        assert list(observation.point) == [parameter.name for parameter in SPACE]
        assert observation.point["epochs"] == 5


def test_the_model_finds_more_than_chance():
    best = {method: min(o.value for o in run(method, 16, 4, seed=5)) for method in ("random", "bayes")}
    assert best["bayes"] < best["random"]


def test_a_long_history_is_cut_to_the_best_and_the_latest():
    history = [Observation({"x": n}, float(n % 60)) for n in range(200)]
    kept = _most_telling(history, minimize=True)
    assert len(kept) == MODEL_HISTORY and kept[-1] is history[-1]
    assert {o.value for o in kept} >= set(range(6)) and len(_most_telling(history[:50], minimize=True)) == 50


def test_failures_never_reach_the_model_as_nan():
    def failing(point):
        return None if point["learning_rate"] > 0.01 else loss(point)

    history = run("bayes", 12, 3, objective=failing)
    late = [o.point["learning_rate"] for o in history[6:]]
    assert len(history) == 12 and sum(rate > 0.01 for rate in late) < len(late)


def test_when_everything_failed_it_goes_on_at_random():
    history = run("bayes", 8, 2, objective=lambda point: None)
    assert len({json.dumps(o.point) for o in history}) == 8


def test_small_spaces_are_searched_without_repeats():
    space = (Choice("a", (1, 2, 3)), Choice("b", ("x", "y", "z")))
    history = run("bayes", 8, 2, space=space, objective=lambda p: p["a"])
    model_based = [json.dumps(o.point) for o in history[2:]]
    assert len(set(model_based)) == len(model_based)


@pytest.mark.parametrize("minimize", [True, False])
def test_both_directions(minimize):
    sign = 1 if minimize else -1
    history = []
    for first in range(0, 12, 4):
        points = suggest("bayes", SPACE, history, range(first, first + 4), trials=12, minimize=minimize, seed=2)
        history += [Observation(point, sign * loss(point)) for point in points]
    assert min(loss(o.point) for o in history[4:]) < 0.2


def test_a_space_of_fixed_values_only():
    points = suggest(
        "bayes", SPACE[3:], [Observation({"epochs": 5}, 0.1)] * 4, range(4, 6), trials=6, minimize=True, seed=0
    )
    assert points == [{"epochs": 5}] * 2
