"""Runs that the repository keeps: what is read back, what goes on from it, and what makes it void."""

from __future__ import annotations

import json

import pytest

from scripts.bench.tuner import runs as runs_module
from scripts.bench.tuner.compare import runs_of
from scripts.bench.tuner.methods import methods
from scripts.bench.tuner.problem import Parameter, Problem
from scripts.bench.tuner.problems import is_held_out
from scripts.bench.tuner.record import RECORD, Record
from scripts.bench.tuner.runs import Key, Run
from scripts.bench.tuner.tuners.face import BUDGETS, LANES, MODES, ROUNDS

VERSIONS = {"bayes": "b1", "tpe": "t1"}
OPTIMA = {"p": 1.0, "q": None}


def made(problem, method, seed, best, mode=ROUNDS):
    return Run(Key(problem, method, mode, seed, max(best)), best, 0.5)


def opened(file, versions=VERSIONS, fingerprint=lambda name: f"of {name}"):
    return Record(file, versions, fingerprint)


@pytest.fixture
def file(tmp_path):
    found = tmp_path / "runs.json"
    known = [
        made("p", "bayes", 0, {28: 1.5, 60: 1.0}),
        made("p", "bayes", 2, {28: 1.123456}, LANES),
        made("p", "tpe", 1, {28: 3.0, 60: 0.5}),
        made("q", "tpe", 0, {28: -2.0, 60: -4.0, 120: -4.0}),
    ]
    opened(found).add(known, OPTIMA.get)
    return found


def test_a_run_comes_back_with_four_digits_above_the_reference(file):
    record = opened(file)
    assert record.find(Key("p", "bayes", ROUNDS, 0, 60)).best == {28: 1.5, 60: 1.0}
    assert record.find(Key("p", "bayes", LANES, 2, 28)).best == {28: 1.1235}
    assert record.find(Key("p", "tpe", ROUNDS, 1, 28)).best == {28: 3.0, 60: 0.5}  # less than was known
    assert record.find(Key("q", "tpe", ROUNDS, 0, 120)).best == {28: -2.0, 60: -4.0, 120: -4.0}
    for absent in (
        Key("p", "bayes", ROUNDS, 0, 120),  # too short
        Key("p", "bayes", ROUNDS, 1, 28),
        Key("p", "bayes", LANES, 1, 28),  # a gap before a later seed
        Key("p", "random", ROUNDS, 0, 28),
        Key("r", "bayes", ROUNDS, 0, 28),
    ):
        assert record.find(absent) is None


def test_the_file_has_a_line_a_list_and_says_where_its_numbers_start(file):
    text = file.read_text()
    assert '"lanes p bayes 28": [null,null,0.1235],\n' in text
    raw = json.loads(text)
    assert (raw["references"], raw["tuners"]) == ({"p": 1.0, "q": -4.0}, VERSIONS)
    opened(file).add([], OPTIMA.get)
    assert file.read_text() == text


def test_the_reference_stays_where_more_is_known_later(file):
    opened(file).add([made("p", "bayes", 1, {28: 0.25})], {"p": 0.0}.get)
    assert json.loads(file.read_text())["references"]["p"] == 1.0
    assert opened(file).find(Key("p", "bayes", ROUNDS, 1, 28)).best == {28: 0.25}
    assert opened(file).find(Key("p", "bayes", ROUNDS, 0, 60)).best == {28: 1.5, 60: 1.0}


def test_a_longer_run_takes_the_place_of_a_shorter_one(file):
    opened(file).add([made("p", "bayes", 0, {28: 1.5, 60: 1.0, 120: 1.0})], OPTIMA.get)
    assert opened(file).find(Key("p", "bayes", ROUNDS, 0, 120)).best == {28: 1.5, 60: 1.0, 120: 1.0}


def test_another_version_of_a_tuner_makes_its_runs_void_and_no_others(file):
    newer = opened(file, {**VERSIONS, "bayes": "b2"})
    assert newer.find(Key("p", "bayes", ROUNDS, 0, 28)) is None
    assert newer.find(Key("p", "tpe", ROUNDS, 1, 28)) is not None
    newer.add([made("p", "bayes", 7, {28: 2.0})], OPTIMA.get)
    raw = json.loads(file.read_text())
    assert [line for line in raw["runs"] if "bayes" in line] == ["rounds p bayes 28"]
    assert raw["tuners"] == {"bayes": "b2", "tpe": "t1"} and "rounds p tpe 60" in raw["runs"]


def test_a_changed_problem_makes_the_runs_of_all_tuners_void(file):
    changed = opened(file, fingerprint=lambda name: f"new {name}")
    assert changed.find(Key("p", "tpe", ROUNDS, 1, 28)) is None
    changed.add([made("p", "tpe", 0, {28: 9.0})], {"p": 8.0}.get)
    raw = json.loads(file.read_text())
    assert {line for line in raw["runs"] if " p " in line} == {"rounds p tpe 28"}
    assert raw["references"]["p"] == 8.0 and "rounds q tpe 120" in raw["runs"]


def test_code_of_another_checkout_is_not_recorded(file):
    before = file.read_text()
    opened(file).add([made("p", "trial", 0, {28: 0.0})], OPTIMA.get)
    assert file.read_text() == before


def test_only_what_the_record_lacks_is_made(tmp_path, monkeypatch):
    space = (Parameter("x", 0, 1),)
    monkeypatch.setattr(runs_module, "problem", lambda name: Problem(name, "tests", space, lambda point: point["x"]))
    runs_module.fingerprint.cache_clear()
    known = {"random": methods()["random"]}
    record = Record(tmp_path / "runs.json", {"random": known["random"].version}, runs_module.fingerprint)
    record.add([made("p", "random", 1, {28: -5.0})], {"p": 0.0}.get)
    keys = [Key("p", "random", ROUNDS, seed, 28) for seed in range(3)]
    found = runs_of(keys, known, tmp_path / "kept", record=record)
    assert [run.key for run in found] == keys and found[1].best == {28: -5.0}
    assert {path.name for path in tmp_path.rglob("random-*.json")} == {"random-0.json", "random-2.json"}
    assert runs_of(keys, known, tmp_path / "kept", make=False)[0].best == found[0].best
    record.add(found, {"p": 0.0}.get)
    longer = runs_of([Key("p", "random", ROUNDS, 0, 60)], known, tmp_path / "kept")
    none_made = runs_of(keys[:2], known, tmp_path / "kept", make=False, record=record)  # asked for 28 at least
    assert none_made[0].best == longer[0].best and set(none_made[0].best) == {28, 60}
    assert none_made[1].best == {28: -5.0}
    record.add(none_made, {"p": 0.0}.get)
    assert set(record.find(Key("p", "random", ROUNDS, 0, 60)).best) == {28, 60}
    runs_module.fingerprint.cache_clear()


def test_the_record_is_of_the_half_for_development_sorted_and_small():
    text = RECORD.read_text(encoding="utf-8")
    raw = json.loads(text)
    assert len(text) <= 200_000
    assert list(raw["runs"]) == sorted(raw["runs"])
    assert set(raw["tuners"]) <= set(methods()) and set(raw["problems"]) == set(raw["references"])
    for line in raw["runs"]:
        mode, problem, method, budget = line.split()
        assert mode in MODES and int(budget) in BUDGETS and method in raw["tuners"] and problem in raw["problems"]
        assert not is_held_out(problem)
