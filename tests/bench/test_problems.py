"""The tuner benchmark's problems: conditions, kinds, reference values, and which half is held out."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from scripts.bench.tuner import problems
from scripts.bench.tuner.problem import Parameter, Problem
from scripts.bench.tuner.problems import bbob, mixed, search

SVM = Problem(
    "svm",
    "tests",
    (
        Parameter("cost", 0.1, 10, log=True),
        Parameter("kernel", options=("linear", "radial", "poly")),
        Parameter("gamma", 0.1, 1, when=(("kernel", ("radial", "poly")),)),
        Parameter("degree", 2, 5, whole=True, when=(("kernel", ("poly",)),)),
        Parameter("coef", 0, 1, when=(("degree", (2, 3)), ("kernel", ("poly",)))),
    ),
    lambda point: float(len(point)),
)


@pytest.mark.parametrize(
    ("kernel", "degree", "names"),
    [
        ("linear", 3, ["cost", "kernel"]),
        ("radial", 3, ["cost", "kernel", "gamma"]),
        ("poly", 3, ["cost", "kernel", "gamma", "degree", "coef"]),
        ("poly", 4, ["cost", "kernel", "gamma", "degree"]),
    ],
)
def test_parameters_whose_condition_does_not_hold_are_absent(kernel, degree, names):
    values = {"coef": 0.5, "degree": degree, "kernel": kernel, "gamma": 0.5, "cost": 1.0}
    point = SVM.without_absent(values)
    assert list(point) == names
    assert SVM.without_absent(point) == point


def test_random_points_are_uniform_over_the_options_and_have_active_parameters_only():
    chance = np.random.default_rng(0)
    points = [SVM.random_point(chance) for _ in range(900)]
    kernels = [point["kernel"] for point in points]
    assert all(250 < kernels.count(kernel) < 350 for kernel in ("linear", "radial", "poly"))
    assert all(point == SVM.without_absent(point) for point in points)
    assert {point["degree"] for point in points if "degree" in point} == {2, 3, 4, 5}


def test_kinds_are_derived():
    assert SVM.kinds == {"numbers", "categories", "conditions"}
    ordered = Parameter("size", options=("small", "large"), ordered=True)
    assert Problem("ordered", "tests", (ordered,), len, noise=0.1).kinds == {"numbers", "noise"}


def test_noise_belongs_to_the_trial_and_the_seed():
    noisy = Problem("noisy", "tests", SVM.space, lambda _: 1.0, noise=0.5)
    first = noisy.observe({}, 3, 5)
    assert first == noisy.observe({}, 3, 5) != noisy.observe({}, 3, 6) != noisy.observe({}, 4, 6)


def test_the_fingerprint_is_of_space_and_values():
    other = Problem("svm", "tests", SVM.space[:-1], SVM.true)
    shifted = Problem("svm", "tests", SVM.space, lambda point: SVM.true(point) + 1)
    same = Problem("svm", "tests", SVM.space, SVM.true)
    assert len({p.fingerprint() for p in (SVM, same, other, shifted)}) == 3


HALF = Problem(
    "half",
    "tests",
    (Parameter("x", 0, 1), Parameter("y", 0, 1)),
    lambda point: math.inf if point["x"] > 0.5 else point["y"],
    noise=0.1,
    worst=1.0,
    constraints=("x <= y",),
)


def test_a_trial_fails_where_the_value_is_infinite_or_a_constraint_is_broken():
    assert HALF.kinds == {"numbers", "noise", "failures", "constraints"}
    assert HALF.observe({"x": 0.6, "y": 0.9}, 0, 0) is None
    assert HALF.observe({"x": 0.2, "y": 0.1}, 0, 0) is None
    assert math.isfinite(HALF.observe({"x": 0.1, "y": 0.2}, 0, 0))
    chance = np.random.default_rng(0)
    points = [HALF.random_point(chance) for _ in range(200)]
    assert all(point["x"] <= point["y"] for point in points)
    assert 20 < sum(point["x"] > 0.5 for point in points) < 80  # what fails is not known before
    free = dataclasses.replace(HALF, constraints=())
    assert free.fingerprint() != HALF.fingerprint()


def test_a_search_ends_at_a_point_that_works_and_is_legal():
    best, _ = search.search(HALF, 0.05, 0)
    assert 0 <= best < 0.2
    assert search.value_at(HALF, (0.3, 0.2)) == math.inf


@pytest.mark.parametrize("name", [n for n in problems.names() if "failures" in problems.problem(n).kinds])
def test_between_a_fifth_and_three_fifths_of_a_space_with_failures_fail(name):
    problem = problems.problem(name)
    chance = np.random.default_rng(0)
    values = [problem.observe(problem.random_point(chance), 0, 0) for _ in range(60)]
    assert 0.15 < values.count(None) / len(values) < 0.7
    assert max(value for value in values if value is not None) <= problem.worst


def test_models_that_diverge_fail():
    good = {"learning_rate_init": 0.01, "momentum": 0.5, "units": 4, "batch_size": 8, "activation": "relu"}
    problem = problems.problem("perceptron-diabetes")
    assert problem.observe({**good, "alpha": 1e-3}, 0, 0) < 1
    assert problem.observe({**good, "alpha": 1e-3, "learning_rate_init": 10.0}, 0, 0) is None


def test_a_problem_is_found_by_its_name():
    assert all(problems.problem(name).name == name for name in problems.names())
    assert problems.problem("branin2") is problems.problem("branin2")
    with pytest.raises(ValueError, match="no problem is called branin3; there are branin2, "):
        problems.problem("branin3")


def test_about_half_of_the_problems_are_held_out():
    assert 4500 < sum(problems.is_held_out(f"problem{number}") for number in range(10000)) < 5500


@pytest.mark.parametrize("name", problems.names())
def test_points_of_every_problem(name):
    problem = problems.problem(name)
    known: dict[str, Parameter] = {}
    for parameter in problem.space:
        for other, allowed in parameter.when:  # a condition names a parameter before it, and values that it can have
            assert not known[other].options or set(allowed) <= set(known[other].options)
        known[parameter.name] = parameter
    assert len(known) == len(problem.space)
    point = problem.random_point(np.random.default_rng(0))
    value = problem.observe(point, 0, 0)
    assert value == problem.observe(point, 0, 0)
    assert problem.is_legal(point)
    if value is None:
        assert "failures" in problem.kinds
        return
    assert math.isfinite(value)
    assert problem.optimum is None or problem.noise or problem.trial or value >= problem.optimum


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("branin2", (math.pi, 2.275)),
        ("hart6", (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)),
        ("rosen4", (1, 1, 1, 1)),
        ("levy30", (1,) * 30),
        ("gramacy2", (0.19512246, 0.40466561)),
        ("branin-disk", (math.pi, 2.275)),
        ("hart6-cut", (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)),
        ("hs35", (4 / 3, 7 / 9, 4 / 9)),
        ("func2c", ("camel", "camel", -0.0898 / 2, 0.7126 / 2)),
        ("func3c", ("camel", "camel", "5 camel", 0.0898 / 2, -0.7126 / 2)),
    ],
)
def test_published_optima(name, point):
    problem = problems.problem(name)
    values = {parameter.name: value for parameter, value in zip(problem.space, point, strict=True)}
    assert problem.true(values) == pytest.approx(problem.optimum, abs=1e-6)


def test_published_values_of_cocabo_s_functions():
    assert problems.problem("func2c").optimum == pytest.approx(-0.2063, abs=1e-4)
    assert problems.problem("func3c").optimum == pytest.approx(-0.7221, abs=1e-4)
    at_one = {"first": "rosenbrock", "second": "beale again", "x": 0.5, "y": 0.5}  # (1, 1), as all is doubled
    assert problems.problem("func2c").true(at_one) == pytest.approx((1.5**2 + 2.25**2 + 2.625**2) / 50)


def test_optima_of_coco_are_at_the_points_that_it_says():
    if not bbob.names():
        pytest.skip("the package cocoex is missing: pip install '.[bench]'")
    at = {
        "bbob-f1-2": (0.2528, -1.1568),
        "bbob-f16-3": (1.8328, -2.1424, -1.2688),
        "bbob-mixint-f3-5": (0, 3, 6, 9, 2.2992),
    }
    for name, point in at.items():
        problem = problems.problem(name)
        values = {parameter.name: value for parameter, value in zip(problem.space, point, strict=True)}
        assert problem.true(values) == pytest.approx(problem.optimum, abs=1e-6)
    spaces = [problems.problem(name).space for name in ("bbob-f1-2", "bbob-mixint-f3-5")]
    assert [(p.low, p.high, p.whole) for p in spaces[0]] == [(-5, 5, False)] * 2
    assert [(p.high, p.whole) for p in spaces[1]] == [(1, True), (3, True), (7, True), (15, True), (5, False)]


def test_contamination_and_pests_cost_what_is_done_and_what_is_left():
    contamination, pest = problems.problem("contamination"), problems.problem("pest")
    nothing = {parameter.name: "leave" for parameter in contamination.space}
    everything = dict.fromkeys(nothing, "prevent")
    # A stage that is always within the limit gives back .05, one that never is costs .95.
    assert mixed.STAGES * 0.05 * -1 < contamination.true(nothing) < mixed.STAGES * 0.95
    assert mixed.STAGES * 0.9 < contamination.true(everything) < mixed.STAGES
    cheap = dict.fromkeys(nothing, "second")  # at all stages: .8 less 30 %, and it works for most of them
    price = mixed.STAGES * 0.8 * 0.7
    assert price < pest.true(cheap) < price + 5
    assert pest.true(dict.fromkeys(nothing, "none")) > 20


def test_a_search_climbs_from_the_best_random_points():
    chance = np.random.default_rng(0)
    sphere = Problem("sphere", "tests", SVM.space, lambda point: sum((float(x) - 1) ** 2 for x in numbers(point)))
    best, evaluations = search.search(sphere, 0.05, 0)
    points = [sphere.random_point(chance) for _ in range(min(evaluations, 50))]
    assert 0 <= best <= min(sphere.true(point) for point in points)
    units = chance.random((200, 5))
    assert all((search.mutated(row, chance) >= 0).all() and (search.mutated(row, chance) < 1).all() for row in units)
    assert any((search.mutated(row, chance) != row).sum() == 1 for row in units)


def test_the_best_of_kept_runs_is_evaluated_once_more(tmp_path):
    def keep(name, stamp, values, best):
        run = {"stamp": stamp, "values": values, "best": {"2": best}}
        points = [{"x": 0.1, "y": 0.5}, {"x": 0.2, "y": 0.3}]
        (tmp_path / "rounds" / "half" / f"{name}.json").write_text(json.dumps({**run, "points": points}))

    (tmp_path / "rounds" / "half").mkdir(parents=True)
    assert search.best_kept(HALF, tmp_path) == (math.inf, 0)
    keep("first", f"{HALF.fingerprint()} 1", [0.6, None], 0.5)
    keep("better", f"{HALF.fingerprint()} 2", [0.6, 0.2], 0.31)
    keep("of another problem", "123456 1", [0.0, 1.0], 0.0)
    keep("failed", f"{HALF.fingerprint()} 1", [None, None], 1.0)
    assert search.best_kept(HALF, tmp_path) == (0.3, 2)


def numbers(point):
    return [value for value in point.values() if not isinstance(value, str)]


def test_a_known_value_stands_for_an_unknown_optimum(monkeypatch):
    monkeypatch.setattr(problems, "known", lambda: {"contamination": 21.0, "branin2": 0.3})
    problems.problem.cache_clear()
    assert problems.problem("contamination").optimum == 21.0
    assert problems.problem("branin2").optimum == pytest.approx(0.397887)  # that is known from the formula
    problems.problem.cache_clear()


def test_there_are_problems_of_every_kind():
    found = [problems.problem(name) for name in problems.names()]
    assert len(found) >= 30
    assert sum("categories" in problem.kinds for problem in found) >= 15
    assert sum("conditions" in problem.kinds for problem in found) >= 8
    assert sum(any(parameter.ordered for parameter in problem.space) for problem in found) >= 2
    for kind in ("failures", "constraints"):
        assert {problems.is_held_out(problem.name) for problem in found if kind in problem.kinds} == {True, False}
    assert sum(len(problem.space) >= 20 and "categories" not in problem.kinds for problem in found) >= 1
    held_out = sum(problems.is_held_out(problem.name) for problem in found)
    assert 0.3 < held_out / len(found) < 0.7
