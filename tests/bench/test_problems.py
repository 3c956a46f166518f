"""The tuner benchmark's problems: conditions, kinds, reference values, and which half is held out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scripts.bench.tuner import problems
from scripts.bench.tuner.problem import Parameter, Problem

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


def test_a_problem_is_found_by_its_name():
    assert all(problems.problem(name).name == name for name in problems.names())
    assert problems.problem("branin2") is problems.problem("branin2")
    with pytest.raises(ValueError, match="no problem is called branin3; there are branin2, "):
        problems.problem("branin3")


def test_about_half_of_the_problems_are_held_out():
    assert 4500 < sum(problems.is_held_out(f"problem{number}") for number in range(10000)) < 5500
    assert problems.is_held_out("branin2") == problems.is_held_out("branin2")


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
    assert math.isfinite(value)
    assert value == problem.observe(point, 0, 0)
    assert problem.optimum is None or problem.noise or problem.trial or value >= problem.optimum


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("branin2", (math.pi, 2.275)),
        ("hart6", (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)),
        ("rosen4", (1, 1, 1, 1)),
    ],
)
def test_published_optima(name, point):
    problem = problems.problem(name)
    values = {parameter.name: value for parameter, value in zip(problem.space, point, strict=True)}
    assert problem.true(values) == pytest.approx(problem.optimum, abs=1e-6)
