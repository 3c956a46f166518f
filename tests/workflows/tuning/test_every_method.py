"""What every method promises, by way of the one function."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real, grid_point
from regiondag.tuning import domain, methods, skopt_method, sobol
from regiondag.tuning.propose import count_initial_trials, propose
from regiondag.tuning.sharing import Observation

SPACE = (
    Real("learning_rate", 1e-4, 1e-1, log=True),
    Integer("hidden", 8, 64, log=True),
    Choice("optimizer", ("adam", "rmsprop", "sgd")),
    Real("momentum", 0.0, 0.9, step=0.1, when=(("optimizer", ("sgd", "rmsprop")),)),
    Choice("epochs", (5,)),
)
SKOPT = pytest.param("skopt", marks=pytest.mark.slow)  # seconds
METHODS = [SKOPT if name == "skopt" else name for name in methods.METHODS if name != "grid"]


def loss(point):
    there = (math.log10(point["learning_rate"]) + 2) ** 2 + (point["hidden"] / 64 - 0.5) ** 2
    return there + (point["optimizer"] != "adam") + point.get("momentum", 0)


def few(method):
    """Trials of a search that asks its model at least once; scikit-optimize takes a second for each time."""
    return 8 if method == "skopt" else 16


def run(method, trials, parallel, space=SPACE, seed=1, objective=loss, **more):
    search = Search(method, space, (parallel,) * (trials // parallel), **more)
    history = []
    while len(history) < trials:
        points = propose(search, history, [], parallel, seed)
        if not points:
            break
        history += [Observation(point, objective(point), 1.0) for point in points]
    return history


def identities(history):
    return {json.dumps(observation.point, sort_keys=True) for observation in history}


@pytest.mark.parametrize("method", METHODS)
def test_same_history_same_points_and_all_of_it_is_json(method):
    trials = few(method)
    first, second = run(method, trials, 4), run(method, trials, 4)
    assert first == second and first[:4] != run(method, 4, 4, seed=2)
    assert len(identities(first)) == trials
    for observation in first:
        point = observation.point
        assert json.loads(json.dumps(point)) == point and point["epochs"] == 5
        assert ("momentum" in point) == (point["optimizer"] != "adam")
        assert point.get("momentum", 0.3) in [n / 10 for n in range(10)]
        assert type(point["hidden"]) is int and type(point["learning_rate"]) is float


@pytest.mark.parametrize("method", METHODS)
def test_constraints_are_never_broken(method):
    history = run(method, few(method), 4, constraints=("hidden * learning_rate <= 0.2", "optimizer != 'sgd'"))
    assert len(history) == few(method)
    assert all(o.point["hidden"] * o.point["learning_rate"] <= 0.2 for o in history)
    assert all(o.point["optimizer"] != "sgd" for o in history)


def test_a_small_legal_part_is_searched_without_countless_draws(monkeypatch):
    drawn = []
    space = (Real("x", 0.0, 1.0), Real("y", 0.0, 1.0))
    random_point = domain.random_point
    monkeypatch.setattr(domain, "random_point", lambda *of: drawn.append(of) or random_point(*of))
    history = [Observation({"x": 0.001 * n, "y": 0.002}, abs(n - 4.5)) for n in range(8)]
    search = Search("bayes", space, (4,) * 8, constraints=("x + y < 0.02",))
    points = propose(search, history, [], 4, 1)
    assert len(points) == 4 and all(p["x"] + p["y"] < 0.02 for p in points)
    assert len(drawn) <= 4 * 4000


def test_that_a_large_space_has_no_other_legal_points_is_found_out_once(monkeypatch):
    drawn = []
    space = (Integer("a", 1, 10**6), Integer("b", 1, 10**6))
    random_point = domain.random_point
    monkeypatch.setattr(domain, "random_point", lambda *of: drawn.append(of) or random_point(*of))
    history = [Observation({"a": a, "b": b}, 1.0) for a, b in ((1, 1), (1, 2), (2, 1))]
    search = Search("bayes", space, (4,) * 8, constraints=("a + b <= 3",))
    assert propose(search, history, [], 4, 1) == [] and len(drawn) <= domain.TRIES


def test_scikit_optimize_compares_fewer_candidates_where_few_points_are_legal():
    space = (Real("x", 0.0, 1.0), Real("y", 0.0, 1.0))

    def candidates(*constraints):
        search = Search("skopt", space, (4,), constraints=constraints)
        return skopt_method._candidates(domain.domain_of(search), 1)

    assert candidates() == 10_000 and 4000 < candidates("x < 0.5") < 6000 and candidates("x + y < 0.01") == 50


@pytest.mark.parametrize("method", ["bayes", SKOPT])
def test_options_that_are_equal_but_not_the_same_are_told_apart(method):
    space = (Choice("a", (1, True, 1.0, "1")), Real("x", 0.0, 1.0))

    def objective(point):
        return 2.0 * (type(point["a"]) is not float) + point["x"]

    history = run(method, few(method), 4, space=space, objective=objective)
    assert len(identities(history)) == few(method)
    assert sum(type(o.point["a"]) is float for o in history[4:]) >= len(history[4:]) // 2


ORDERED = (Choice("size", ("small", "medium", "large"), ordered=True), Choice("batch", (64, 32, 16), ordered=True))


@pytest.mark.parametrize("method", METHODS)
def test_ordered_options_are_proposed_as_they_stand(method):
    space = (*ORDERED, Real("x", 0.0, 1.0))
    history = run(method, few(method), 4, space=space, objective=lambda p: p["batch"] + p["x"])
    assert {o.point["size"] for o in history} == {"small", "medium", "large"}
    assert {o.point["batch"] for o in history} == {64, 32, 16} and type(history[-1].point["batch"]) is int


def test_a_grid_of_ordered_options_goes_through_them_as_they_stand():
    points = propose(Search("grid", ORDERED, (9,)), [], [], 9, 0)
    assert [tuple(point.values()) for point in points][:4] == [
        ("small", 64),
        ("small", 32),
        ("small", 16),
        ("medium", 64),
    ]


def test_the_model_learns_from_neighbours_in_an_order():
    words = tuple(f"{'aeiou'[n * 7 % 5]}{n}" for n in range(40))

    def best(ordered):
        space = (Choice("word", words, ordered=ordered),)
        found = run("bayes", 16, 4, space=space, objective=lambda p: (words.index(p["word"]) - 26.0) ** 2)
        return min(observation.loss for observation in found)

    assert best(True) == 0.0 < best(False)


@pytest.mark.parametrize("method", METHODS)
def test_small_spaces_are_searched_without_repeats_to_their_end(method):
    space = (Choice("a", (1, 2)), Integer("b", 1, 3), Choice("c", (True, 1), when=(("a", (2,)),)))
    history = run(method, 12, 6, space=space, objective=lambda p: p["a"] + p["b"])
    assert len(history) == len(identities(history)) == 9
    assert propose(Search(method, space, (4,)), history, [], 4, 1) == []


def test_a_space_of_fixed_values_has_one_point():
    assert len(run("bayes", 8, 2, space=SPACE[-1:], objective=lambda p: 0.0)) == 1


@pytest.mark.parametrize("method", ["bayes", SKOPT])
def test_pending_points_are_not_proposed_again(method):
    history = run(method, 8, 4)
    search = Search(method, SPACE, (4,) * 4)
    first = propose(search, history, [], 4, 1)
    again = propose(search, history, first, 4, 1)
    assert not identities([Observation(p, 0.0) for p in first]) & identities([Observation(p, 0.0) for p in again])


def test_the_grid_goes_on_where_it_stopped():
    space = (Choice("a", (1, 2)), Choice("b", ("x", "y")))
    search = Search("grid", space, (4,))
    assert propose(search, [], [], 4, 0) == [grid_point(space, i) for i in range(4)]
    tried = [Observation(grid_point(space, 0), 1.0)]
    assert propose(search, tried, [grid_point(space, 2)], 4, 0) == [grid_point(space, i) for i in (1, 3)]


def test_a_grid_leaves_out_what_is_illegal_or_inactive():
    space = (Choice("a", (1, 2, 3)), Integer("b", 1, 3, when=(("a", (2, 3)),)))
    points = propose(Search("grid", space, (9,), constraints=("a + b < 6",)), [], [], 9, 0)
    assert points == [{"a": 1}, *({"a": a, "b": b} for a in (2, 3) for b in (1, 2, 3) if a + b < 6)]


@pytest.mark.parametrize("method", [name for name, of in methods.METHODS.items() if name != "grid" and not of.ask])
def test_points_that_no_outcome_decides_do_not_depend_on_how_they_are_asked_for(method):
    assert identities(run(method, 6, 6)) == identities(run(method, 6, 2))


def test_the_sobol_matrices_are_made_once(monkeypatch):
    made = []
    columns = sobol._columns
    sobol._dimension.cache_clear()  # of whatever ran before
    monkeypatch.setattr(sobol, "_columns", lambda dimension: made.append(dimension) or columns(dimension))
    propose(Search("sobol", SPACE, (50,)), [], [], 50, seed=987)
    assert made == [0, 1, 2, 3]


def test_sobol_fills_the_space_evenly():
    space = (Real("x", 0.0, 1.0), Real("y", 0.0, 1.0))
    points = [o.point for o in run("sobol", 16, 4, space=space, objective=lambda p: 0.0)]
    for name in ("x", "y"):
        assert len({int(point[name] * 16) for point in points}) == 16


@pytest.mark.slow
def test_the_model_finds_more_than_chance():
    def found(method):
        return sum(min(o.loss for o in run(method, 24, 4, seed=seed)) for seed in range(3))

    assert found("bayes") < found("random") / 2


@pytest.mark.parametrize(
    ("method", "bad"),
    [
        ("bayes", None),
        ("bayes", math.nan),
        ("bayes", -math.inf),
        ("bayes", 1e308),
        pytest.param("skopt", None, marks=pytest.mark.slow),
        pytest.param("skopt", math.inf, marks=pytest.mark.slow),
        pytest.param("skopt", 1e308, marks=pytest.mark.slow),
    ],
)
def test_failures_of_every_kind_are_survived(method, bad):
    def failing(point):
        return bad if point["learning_rate"] > 0.01 else loss(point)

    trials = few(method)
    history = run(method, trials, 4, objective=failing)
    assert len(history) == len(identities(history)) == trials
    assert sum(o.point["learning_rate"] > 0.012 for o in history[8:]) <= (trials - 8) // 2


@pytest.mark.parametrize("outcomes", [[None] * 12, [None] * 11 + [1.0], [0.5] * 12, [0.0, 1e300] * 6, [1e-300, 0] * 6])
def test_histories_that_say_little(outcomes):
    points = [o.point for o in run("random", 12, 4)]
    history = [Observation(point, value) for point, value in zip(points, outcomes, strict=True)]
    assert len(propose(Search("bayes", SPACE, (4,) * 4), history, [], 4, 1)) == 4


def test_a_history_with_the_same_point_many_times_and_values_out_of_range():
    space = (Real("x", 0.0, 1.0), Integer("n", 1, 5))
    history = [Observation({"x": 0.5, "n": 3}, float(n % 2)) for n in range(20)]
    history += [Observation({"x": 7.0, "n": -4}, 0.1)]
    for point in propose(Search("bayes", space, (4,) * 9), history, [], 4, 1):
        assert 0 <= point["x"] <= 1 and 1 <= point["n"] <= 5


def test_the_first_trials_are_spread():
    assert [count_initial_trials(Search("bayes", SPACE, (4,) * rounds)) for rounds in (1, 2, 3, 20)] == [2, 2, 3, 8]


@pytest.mark.slow
def test_improvement_per_second_prefers_cheap_trials():
    space = (Real("x", 0.0, 1.0), Real("cost", 0.0, 1.0))

    def spent(acquisition):
        search = Search("bayes", space, (4,) * 8, acquisition=acquisition)
        history = []
        for _ in range(8):
            points = propose(search, history, [], 4, 3)
            history += [Observation(p, (p["x"] - 0.3) ** 2, 1.0 + 99 * p["cost"]) for p in points]
        return sum(o.seconds for o in history)

    assert spent("improvement_per_second") < 0.7 * spent("improvement")


units = st.floats(0, 1)
parameters = st.one_of(
    st.builds(lambda n, log: Real(n, 0.5, 8.0, log=log), st.just("p"), st.booleans()),
    st.builds(lambda n, step: Real(n, -1.0, 1.0, step=step), st.just("p"), st.sampled_from([0.25, 1.0, 2.0])),
    st.builds(lambda n, high, log: Integer(n, 1, high, log=log), st.just("p"), st.integers(2, 9), st.booleans()),
    st.builds(lambda n, k: Choice(n, tuple("abcdef"[:k])), st.just("p"), st.integers(1, 6)),
)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(parameters, min_size=1, max_size=4), st.lists(st.one_of(st.none(), st.floats(-10, 10)), min_size=2))
def test_any_space_and_any_history(found, values):
    from dataclasses import replace

    space = tuple(replace(parameter, name=f"p{number}") for number, parameter in enumerate(found))
    tried = propose(Search("random", space, (len(values),)), [], [], len(values), 0)
    history = [Observation(point, value) for point, value in zip(tried, values, strict=False)]
    points = propose(Search("bayes", space, (3, 3)), history, [], 3, 0)
    assert len(points) <= 3 and len(identities([*history, *(Observation(p, 0.0) for p in points)])) == len(
        history
    ) + len(points)
