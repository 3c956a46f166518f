"""Runs of tuners: what is known when a point is asked for, what is kept, and tuners in processes of their own."""

from __future__ import annotations

import json
import math

import pytest

from scripts.bench.common.processes import REPOSITORY, NotMeasuredError
from scripts.bench.tuner import compare, runs
from scripts.bench.tuner.methods import Method, methods, ours
from scripts.bench.tuner.problem import Parameter, Problem
from scripts.bench.tuner.report import classes, groups_of, medians, standings, values_of
from scripts.bench.tuner.run import run
from scripts.bench.tuner.runs import Key, Run, Runs
from scripts.bench.tuner.stats import ground
from scripts.bench.tuner.tuners.face import BATCH, LANES, ROUNDS, Task, plain
from scripts.bench.tuner.tuners.ours import Ours
from scripts.bench.tuner.tuners.served import Served, task_from_json, task_to_json
from scripts.bench.tuner.tuners.skopt_side import Skopt
from scripts.bench.tuner.tuners.uniform import Random

SPACE = (
    Parameter("kind", options=("flat", "bent")),
    Parameter("size", options=(1, 2, 4), ordered=True),
    Parameter("rate", 1e-4, 1.0, log=True),
    Parameter("units", 1, 9, whole=True, when=(("kind", ("bent",)), ("size", (2, 4)))),
)
SMALL = Problem("small", "tests", SPACE, lambda point: abs(math.log10(point["rate"]) + 2) + point.get("units", 3))


class Told:
    """Asks for numbered points and notes what was known."""

    def __init__(self):
        self.asked, self.known, self.notes = 0, [], []

    def ask(self, n):
        self.notes.append((n, sorted(self.known)))
        self.asked += n
        return [{"kind": "flat", "size": 1, "rate": 0.5, "units": 7} for _ in range(n)]

    def tell(self, values):
        assert set(values) <= set(range(self.asked)) - set(self.known)
        self.known += values


def test_in_rounds_each_batch_knows_all_before_it():
    tuner = Told()
    found = run(SMALL, tuner, ROUNDS, 0, 12)
    assert tuner.notes == [(4, []), (4, [0, 1, 2, 3]), (4, list(range(8)))]
    assert len(found["values"]) == 12 and sorted(tuner.known) == list(range(12))


def test_in_lanes_each_point_knows_all_but_the_three_that_run():
    tuner = Told()
    run(SMALL, tuner, LANES, 0, 8)
    assert tuner.notes == [(1, [])] * BATCH + [(1, list(range(n))) for n in (1, 2, 3, 4)]
    assert sorted(tuner.known) == list(range(8))


def test_absent_parameters_are_dropped_and_the_best_observed_point_is_reported():
    noisy = Problem("noisy", "tests", SPACE, SMALL.true, noise=5.0)
    found = run(noisy, Random(Task(SPACE, 1)), ROUNDS, 1, 32)
    assert found["points"] == [noisy.without_absent(point) for point in found["points"]]
    assert any("units" in point for point in found["points"]) and any("units" not in p for p in found["points"])
    for mark in (28, 32):
        winner = min(range(mark), key=found["values"].__getitem__)
        assert found["best"][mark] == noisy.true(found["points"][winner])
    with pytest.raises(ValueError, match="30 trials: a run ends with a whole batch of 4"):
        run(noisy, Random(Task(SPACE, 1)), ROUNDS, 1, 30)


def test_failed_trials_are_told_as_none_and_never_reported():
    x = Parameter("x", 0, 1)
    problem = Problem("p", "tests", (x,), lambda point: math.inf if point["x"] < 0.5 else point["x"], worst=1.0)
    found = run(problem, Random(Task((x,), 0)), ROUNDS, 0, 28)
    assert found["values"] == [p["x"] if p["x"] >= 0.5 else None for p in found["points"]]
    assert found["best"] == {28: min(value for value in found["values"] if value is not None)}
    never = Problem("p", "tests", (x,), lambda _: math.inf, worst=7.0)
    assert run(never, Random(Task((x,), 0)), LANES, 0, 4)["best"] == {4: 7.0}
    with pytest.raises(NotMeasuredError, match="p: all trials failed"):
        run(Problem("p", "tests", (x,), lambda _: math.inf), Random(Task((x,), 0)), ROUNDS, 0, 4)


class Counting:
    """Gives 0, 1, 2, ... as x, and notes what it was told."""

    def __init__(self):
        self.asked, self.told = 0, {}

    def ask(self, n):
        self.asked += n
        return [{"x": number} for number in range(self.asked - n, self.asked)]

    def tell(self, values):
        assert not set(values) & set(self.told)
        self.told |= values


@pytest.mark.parametrize("mode", [ROUNDS, LANES])
def test_what_breaks_a_constraint_is_asked_for_anew_and_told_as_failed(mode):
    space = (Parameter("x", 0, 100, whole=True),)
    tuner = Counting()
    found = run(Problem("p", "tests", space, lambda p: p["x"], constraints=("x % 2 == 1",)), tuner, mode, 0, 8)
    assert [point["x"] for point in found["points"]] == [1, 3, 5, 7, 9, 11, 13, 15] == found["values"]
    assert tuner.told == {number: number if number % 2 else None for number in range(16)}
    stubborn = Problem("p", "tests", space, lambda p: p["x"], worst=100, constraints=("x >= 90",))
    found = run(stubborn, Counting(), mode, 0, 4)
    assert found["values"] == [None] * 4 and len(found["points"]) == 4


def optuna(task):
    module = pytest.importorskip("scripts.bench.tuner.tuners.optuna_side")
    return module.make(task, **methods()["tpe_group"].options)


@pytest.mark.parametrize("mode", [ROUNDS, LANES])
@pytest.mark.parametrize(
    ("make", "trials"), [(Ours, 12), (Skopt, 8), (Random, 12), (optuna, 20)]
)  # of skopt 8: its model takes seconds; of Optuna 20: the first ten are random
def test_tuners_give_legal_points_and_the_same_every_time(make, trials, mode):
    found = [run(SMALL, make(Task(SPACE, 5, mode)), mode, 5, trials) for _ in range(2)]
    assert found[0] == found[1]
    for point in found[0]["points"]:
        assert point["kind"] in ("flat", "bent") and point["size"] in (1, 2, 4) and 1e-4 <= point["rate"] <= 1
        assert ("units" in point) == (point["kind"] == "bent" and point["size"] > 1)
    json.dumps(found[0])  # plain values


@pytest.mark.parametrize(("make", "trials"), [(Ours, 20), (Skopt, 16), (Random, 12), (optuna, 28)])
def test_tuners_bear_failures_and_constraints(make, trials):
    space = (Parameter("x", 0, 1), Parameter("y", 0, 1))
    true = {"true": lambda point: math.inf if point["x"] < 0.3 else point["y"], "worst": 1.0}
    problem = Problem("p", "tests", space, **true, constraints=("x <= y",))
    found = run(problem, make(Task(space, 1, constraints=problem.constraints)), ROUNDS, 1, trials)
    assert all(point["x"] <= point["y"] for point in found["points"])
    assert None in found["values"] and found["best"][trials] < 1


def test_who_is_told_of_failures_first_goes_on():
    for make in (Ours, Skopt, optuna):
        tuner = make(Task(SPACE, 0))
        tuner.ask(4)
        tuner.tell(dict.fromkeys(range(4)))
        tuner.ask(4)
        tuner.tell({4: 1.0, 5: None, 6: 2.0, 7: None})
        assert len(tuner.ask(4)) == 4


def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    short, long = (run(SMALL, Ours(Task(SPACE, 2, LANES)), LANES, 2, trials) for trials in (12, 20))
    assert long["points"][:12] == short["points"]


def test_a_task_goes_through_json():
    task = Task(SPACE, 3, LANES, constraints=("rate <= 0.5",))
    assert task_from_json(json.loads(json.dumps(task_to_json(task)))) == task
    served = Served(Random, {})
    assert served.answer({"task": task_to_json(task)})["points"] == []
    assert served.answer({"ask": 2})["points"] == Random(task).ask(2)
    assert served.answer({"tell": [[0, 1.5]]})["seconds"] >= 0


def test_only_numbers_and_texts_are_values():
    with pytest.raises(TypeError, match="None, which is neither"):
        plain(None)


@pytest.fixture
def problems(monkeypatch):
    monkeypatch.setattr(runs, "problem", lambda name: Problem(name, "tests", SPACE, SMALL.true))
    runs.fingerprint.cache_clear()
    yield
    runs.fingerprint.cache_clear()


def test_runs_of_other_checkouts_and_of_methods_are_kept_side_by_side(tmp_path, problems):
    other = tmp_path / "other"
    (other / "workflows" / "tuning").mkdir(parents=True)
    (other / "nnlib").mkdir()
    (other / "workflows" / "__init__.py").write_text("raise SystemExit('the other code')")
    known = {"random": methods()["random"], "other": ours("other", other)}
    keys = [
        Key("small", "random", LANES, 0, 8),
        Key("small", "random", LANES, 0, 4),
        Key("small", "other", LANES, 0, 4),
    ]
    with Runs(tmp_path / "kept", known) as made:
        found = made.kept.fill(keys)
    assert [run.key for run in found] == keys[:2]
    assert found[0].best == found[1].best and list(found[0].best) == [8]
    kept = json.loads((tmp_path / "kept/lanes/small/random-0.json").read_text())
    assert len(kept["points"]) == 8
    with Runs(tmp_path / "kept", known) as made:
        assert made.kept.find(Key("small", "random", LANES, 0, 12)) is None  # too short


def test_other_codes_say_what_they_say(tmp_path, problems, capsys):
    def missing():
        raise NotMeasuredError("no wheel")

    known = {"broken": Method("broken", "nowhere", "1"), "missing": Method("missing", "uniform", "1", python=missing)}
    with Runs(tmp_path, known) as made:
        assert made.kept.fill([Key("small", name, ROUNDS, 0, 4) for name in known]) == []
    said = capsys.readouterr().err
    assert "No module named 'scripts.bench.tuner.tuners.nowhere'" in said and "no wheel" in said


def test_a_version_of_ours_is_of_its_sources():
    assert ours("here").version == methods()["bayes"].version
    assert ours("here").checkout == REPOSITORY


def made_run(problem, method, seed, best):
    return Run(Key(problem, method, ROUNDS, seed, max(best)), best, 0.1)


def test_tables_name_everyone_once():
    made = [made_run("p", "random", seed, {28: 3.0, 60: 2.0}) for seed in range(2)]
    made += [made_run("p", "tpe", seed, {28: 1.0, 60: 0.5}) for seed in range(2)]
    made += [made_run("p", "bayes", seed, {28: 0.5, 60: 0.0}) for seed in range(2)]
    found = ground(values_of(made), {"p": 0.0}, 28, "random")
    tuners = ["random", "tpe", "bayes"]
    head, *lines = standings(found, tuners, ["tpe"], "random")
    assert [line[0] for line in lines] == ["bayes", "tpe", "random"]
    assert {len(line) for line in [head, *lines]} == {len(head)}
    assert lines[0][1:] == ["1.00", "1.00", "0.50", "0.50 to 0.50", "0.51", "2:0", "surely less", "-"]
    assert lines[2][3:] == ["2.99", "2.99 to 2.99", "2.94", "0:2", "surely more", "-"]
    groups = groups_of({"p": {"numbers", "noise"}}, {"p": "tests"})
    assert classes(found, tuners, "tpe", groups) == [
        ["tuner", "numbers (1)", "noise (1)", "no categories (1)", "from tests (1)", "worst beside tpe"],
        ["random", *["2.99 [2.99, 2.99]"] * 4, "p 2.99"],
        ["bayes", *["0.50 [0.50, 0.50]"] * 4, "p 0.50"],
    ]
    assert medians(found, tuners) == [["problem", *tuners], ["p", "1", "0.333", "0.167"]]


def test_a_comparison_is_printed_from_kept_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compare, "LOOKS", tmp_path / "looks.txt")
    monkeypatch.setattr(compare, "RECORD", tmp_path / "runs.json")
    name = compare.choose(None, None, None, held_out=False)[0]
    words = f"--methods bayes --against random --seeds 1 --budget 28 --problems {name} --no-runs --kept {tmp_path}"
    with pytest.raises(SystemExit, match="no run is kept"):
        compare.main(words.split())
    file = tmp_path / "rounds" / name
    file.mkdir(parents=True)
    for method, value in (("random", 3.0), ("bayes", 2.0)):
        stamp = f"{runs.fingerprint(name)} {methods()[method].version}"
        kept = {"stamp": stamp, "values": [0.0] * 28, "best": {"28": value + 1e3}, "seconds": 1.0}
        (file / f"{method}-0.json").write_text(json.dumps(kept))
    assert compare.main([*words.split(), "--json", str(tmp_path / "one_run.json")]) == 0
    assert "rounds, 28 trials, 1 problems, 1 seeds" in capsys.readouterr().out
    assert compare.count_looks() == 0
    found = json.loads((tmp_path / "one_run.json").read_text())
    assert (found["bench"], found["seeds"]) == ("one_run", {"rounds, 28 trials": 1})
    workload = "regret as a part of the peer's: bayes (peer: random), rounds, 28 trials"
    assert [(row["workload"], row["peer"]) for row in found["rows"]] == [(workload, 1.0)]
    assert found["notes"][workload].startswith("1 pairs, 1 won, 0 lost; 90 % of the ratio: ")
    assert list(found["by_problem"][workload]) == [name] and found["by_problem"][workload][name] < 1
    assert found["tables"]["rounds, 28 trials"]["classes beside random"][1][-1].startswith(name)
    assert found["tuners"]["bayes"] == methods()["bayes"].version


def test_a_look_at_the_other_half_is_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "LOOKS", tmp_path / "looks.txt")
    with pytest.raises(SystemExit, match="no run is kept"):
        compare.main(f"--held-out --no-runs --seeds 1 --kept {tmp_path}".split())
    assert compare.count_looks() == 1
    assert not set(compare.choose(None, None, None, held_out=True)) & set(
        compare.choose(None, None, None, held_out=False)
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--methods nobody", "no tuner is called nobody; there are bayes"),
        ("--problems nothing", "no problem is left"),
    ],
)
def test_a_comparison_says_what_there_is(words, said):
    with pytest.raises(SystemExit, match=said):
        compare.main(words.split())


def test_another_checkout_needs_a_name_and_a_checkout(tmp_path, capsys):
    for words in (f"here={tmp_path}", f"bayes={REPOSITORY}", str(REPOSITORY)):
        with pytest.raises(SystemExit):
            compare.options(["--ours", words])
        assert "is not NAME=CHECKOUT" in capsys.readouterr().err
    [(name, method)] = compare.options(["--ours", f"trial={REPOSITORY}"]).ours
    assert (name, method.checkout) == ("trial", REPOSITORY)
