"""The benchmark of tuners: its problems have the optima that they claim, and runs become figures as described."""

from __future__ import annotations

import json
import math
from types import ModuleType

import numpy as np
import pytest

MINIMA = {
    "branin2": [(-math.pi, 12.275), (math.pi, 2.275), (3 * math.pi, 2.475)],
    "hart6": [(0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)],
    "hart6n": [(0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)],
    "rosen4": [(1, 1, 1, 1)],
}


@pytest.fixture
def problems(bench) -> ModuleType:
    return bench("tuner_problems")


@pytest.fixture
def peers(bench) -> ModuleType:
    return bench("tuner_peers")


@pytest.fixture
def runs(bench) -> ModuleType:
    return bench("tuner_runs")


@pytest.fixture
def stats(bench) -> ModuleType:
    return bench("tuner_stats")


@pytest.fixture
def tuner(bench) -> ModuleType:
    return bench("tuner")


def minima(problems: ModuleType, name: str) -> list[dict[str, object]]:
    if name == "nn8":
        return [problems.NETWORK_BEST]
    found = [problems.ACKLEY_CENTRE] if name == "ackley5" else MINIMA[name]
    return [{f"x{index}": float(x) for index, x in enumerate(values)} for values in found]


@pytest.mark.parametrize("name", ["branin2", "hart6", "hart6n", "rosen4", "ackley5", "nn8"])
def test_the_optimum_is_the_least_value(problems, name):
    problem = problems.problems()[name]
    chance = np.random.default_rng(0)
    points = minima(problems, name)
    for point in points:
        assert problem.true(point) == pytest.approx(problem.optimum, abs=1e-6)
        for parameter in problem.space:
            assert point[parameter.name] in parameter.options or parameter.low <= point[parameter.name]
            mutant = {**point, parameter.name: parameter.at(chance.random())}
            assert problem.true(mutant) >= problem.optimum - 1e-9
    assert all(problem.true(problem.random_point(chance)) >= problem.optimum for _ in range(300))


def test_there_are_problems_of_every_kind(problems):
    found = problems.problems().values()
    assert len(found) >= 8
    assert sum(problem.trial is not None for problem in found) == 2
    assert any(problem.noise for problem in found)
    assert any(parameter.options for problem in found for parameter in problem.space)


def test_parameters_cover_their_ranges(problems):
    whole = problems.Parameter("n", 1, 4, log=True, whole=True)
    assert [whole.at(unit) for unit in (0.0, 0.9999)] == [1, 4]
    assert problems.Parameter("rate", 1e-4, 1.0, log=True).at(0.5) == pytest.approx(1e-2)
    assert problems.Parameter("kind", options=("a", "b")).at(0.5) == "b"


def test_noise_belongs_to_the_run_and_the_trial(problems):
    problem = problems.problems()["hart6n"]
    point = problem.random_point(np.random.default_rng(0))
    seen = [problem.observe(point, seed, trial) for seed, trial in ((0, 0), (0, 1), (1, 0), (0, 0))]
    assert seen[0] == seen[3]
    assert len(set(seen)) == 3
    assert problems.problems()["hart6"].observe(point, 0, 0) == problem.true(point)


def test_a_diverged_training_is_far_worse_but_a_number(problems):
    assert problems.network_loss({**problems.NETWORK_BEST, "rate": 1.0}) > 100


@pytest.mark.parametrize("name", ["mlp_digits", "gbm_diab"])
def test_real_trainings_repeat_themselves_and_learn(problems, name):
    problem = problems.problems()[name]
    good = {
        "mlp_digits": {"rate": 0.01, "decay": 1e-3, "units": 32, "dropout": 0.1, "batch": 64, "scale": 1.0},
        "gbm_diab": {"rate": 0.1, "trees": 20, "depth": 2, "rows": 0.8, "columns": 0.5, "leaf": 8},
    }[name]
    assert problem.observe(good, 0, 0) == problem.observe(good, 0, 0)
    assert problem.observe(good, 0, 0) != problem.observe(good, 0, 1)
    assert problem.optimum < problem.observe(good, 0, 0) < problem.optimum + 0.5


def test_a_training_that_overflows_reports_the_cap(bench, problems):
    tasks = bench("tuner_tasks")
    point = {"rate": 1e300, "decay": 1e-3, "units": 8, "dropout": 0.0, "batch": 128, "scale": 1.0}
    assert tasks.digits_trial(point, 0) == tasks.DIVERGED


def test_another_problem_has_another_fingerprint(problems):
    hartmann, noisy = (problems.problems()[name] for name in ("hart6", "hart6n"))
    assert hartmann.fingerprint() == hartmann.fingerprint() != noisy.fingerprint()


class Fixed:
    """Tries the corners of the line in a known order."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def ask(self, n):
        return [{"x": float(100 - len(self.told) - index)} for index in range(n)]

    def tell(self, points, values):
        self.told += values


def test_a_run_reports_the_least_observed_value(bench, problems):
    problem = problems.Problem("line", (problems.Parameter("x", 0, 100),), lambda point: point["x"], 0, 0.1)
    found = bench("tuner_run").run(problem, Fixed(), 0)
    assert found["best"] == {"28": 73.0, "60": 41.0}
    assert len(found["values"]) == len(found["points"]) == 60


@pytest.mark.parametrize("method", ["random", "skopt", "bayes"])
def test_tuners_propose_points_of_the_space(peers, problems, method):
    problem = problems.problems()["nn8"]
    tuner = peers.METHODS[method](problem, 0)
    again = peers.METHODS[method](problem, 0)
    for _ in range(2):
        points = tuner.ask(4)
        assert points == again.ask(4)
        assert json.loads(json.dumps(points)) == points
        for parameter in problem.space:
            values = [point[parameter.name] for point in points]
            assert all(v in parameter.options or parameter.low <= v <= parameter.high for v in values)
        values = [problem.true(point) for point in points]
        tuner.tell(points, values)
        again.tell(points, values)


def make(runs, method: str, values: dict[tuple[str, int], float]):
    return [
        runs.Run(runs.Key(problem, method, seed), {28: value, 60: value}, 1, 9)
        for (problem, seed), value in values.items()
    ]


def test_regrets_are_compared_in_pairs(runs, stats):
    ours = make(runs, "bayes", {("rosen4", 0): 1.0, ("rosen4", 1): 8.0, ("rosen4", 2): 0.0, ("ackley5", 0): 9.0})
    peer = make(runs, "tpe", {("rosen4", 0): 4.0, ("rosen4", 1): 2.0, ("rosen4", 2): 0.001, ("ackley5", 1): 1.0})
    found = stats.compare(ours, peer, 28)
    assert (found.pairs, found.wins, found.losses, found.ties) == (3, 1, 1, 1)  # both below the floor: a tie
    assert found.ratio == pytest.approx((1 / 4 * 8 / 2 * 1) ** (1 / 3))
    assert found.interval[0] <= found.ratio <= found.interval[1]
    assert list(found.by_problem) == ["rosen4"]


def test_every_regret_is_published(runs, stats):
    found = stats.published(make(runs, "tpe", {("rosen4", 0): 1.0, ("rosen4", 2): 3.0}), range(3))
    regrets = [1.0, None, 3.0]
    assert found == {"rosen4": {"tpe": {"best 28": regrets, "best 60": regrets}}}


@pytest.fixture
def measured(runs, monkeypatch):
    """Give the arguments of processes that were not really started."""
    calls: list[tuple[str, ...]] = []

    def measure(argv, **_):
        calls.append(tuple(argv[2:]))
        problem = argv[2]
        if problem == "branin2":
            raise runs.NotMeasuredError("broken")
        found = {"best": {"28": 0.5, "60": 0.25}, "seconds": 2.0}
        return runs.harness.Measured(1.0, 50.0, json.dumps({"problem": problem, **found}))

    monkeypatch.setattr(runs.kept_runs, "measure", measure)
    return calls


def test_no_run_is_made_twice(runs, measured, tmp_path, monkeypatch):
    area = runs.Area(tmp_path)
    keys = [runs.Key(problem, "random", 0) for problem in ("branin2", "rosen4")]
    assert len(list(area.fill(keys, 1))) == 2
    assert list(area.fill(keys, 1)) == ["1 of 1: branin2 random 0: broken"]
    assert [(run.key.problem, run.best, run.peak_mb) for run in area.all(keys)] == [
        ("rosen4", {28: 0.5, 60: 0.25}, 50.0)
    ]
    monkeypatch.setattr(runs, "stamp", lambda problem, method: "another version")
    assert area.all(keys) == []


def test_parts_and_incomplete_runs_keep_nothing(tuner, runs, measured, tmp_path, monkeypatch):
    monkeypatch.setattr(tuner.harness, "RESULTS", tmp_path)
    words = ["--only", "regret", "--method", "random", "--problem", "rosen4", "--seeds", "2"]
    words += ["--area", str(tmp_path / "area"), "--json", str(tmp_path / "copy")]
    assert tuner.main(words) == 0
    copy = json.loads((tmp_path / "copy").read_text())
    assert copy["regrets"]["rosen4"]["random"]["best 60"] == [0.25, 0.25]
    assert copy["problems"] == {"rosen4": {"optimum": 0.0, "floor": 0.03}}
    assert not (tmp_path / "tuner.json").exists()


def test_goals_are_for_ratios_and_wins(tuner, runs, stats, tmp_path):
    bench = tuner.TunerBench(tuner.Sizes(), runs.Area(tmp_path))
    found = stats.compare(make(runs, "bayes", {("rosen4", 0): 1.0}), make(runs, "x", {("rosen4", 0): 4.0}), 60)
    rows = list(bench._regret_rows(found, "gpsampler", 60))
    assert [(row.ours, row.peer, row.goal, row.met) for row in rows] == [(0.25, 1.0, 0.8, True), (1, 0, 1, True)]
    assert [row.goal for row in bench._regret_rows(found, "random", 60)] == [None, None]
