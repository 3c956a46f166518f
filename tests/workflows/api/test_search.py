"""The tuner alone: asked, told, killed, by several processes, and beside a run of the same search."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import regiondag
from nnlib.util.process import install_line
from regiondag.api.search import ExhaustedError, Search, Trial
from regiondag.errors import ConfigError, RegiondagError, UsageError
from regiondag.node.pre import prepare_trial
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from regiondag.trials.optuna_space import written_of
from tests.workflows.commands.test_study import settle
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create

pytestmark = pytest.mark.slow

SPACE = {"learning_rate": {"real": [1e-4, 1e-1], "log": True}, "layers": {"int": [1, 4]}}
MOMENTUM = {"optimizer": {"choice": ["sgd", "adam"]}, "momentum": {"real": [0, 0.9], "when": {"optimizer": "sgd"}}}
ROOT = Path(regiondag.__file__).parents[1]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "search.jsonl"


def loss(trial):
    rate = trial.hyperparameters["learning_rate"]
    return (np.log10(rate) + 2) ** 2 + trial.hyperparameters["layers"] / 4


def run(search, count):
    """Run some trials, and return them as they were asked for."""
    asked = []
    for _ in range(count):
        asked.append(search.ask())
        search.tell(asked[-1], loss(asked[-1]))
    return [trial.hyperparameters for trial in asked]


def test_it_is_asked_and_told(path):
    search = regiondag.Search(SPACE, metric="auc", mode="max", path=path)
    assert search.best is None and search.trials == search.pending == []
    trial = search.ask()
    assert trial.number == 0 and list(trial.hyperparameters) == ["learning_rate", "layers"]
    assert trial.pending and search.pending == [trial]
    search.tell(trial, 0.91, stderr=0.01, seconds=3)
    search.tell(search.ask().number, np.float32(0.5))
    search.tell(search.ask(), failed="out of memory")
    search.tell(search.ask(), failed=MemoryError("a lot"))
    search.tell(search.ask(), float("nan"))
    first, second, *failed = search.trials
    assert (first.value, first.stderr, first.failed, first.pending) == (0.91, 0.01, "", False)
    assert first == search.best and (second.value, second.stderr) == (0.5, None)
    assert [one.failed for one in failed] == ["out of memory", "MemoryError: a lot", "auc was nan"]
    assert all(one.value is None for one in failed) and search.pending == []
    assert Search(SPACE, path, metric="auc", mode="max").trials == Search.load(path).trials == search.trials
    assert Search(SPACE, path.with_name("other"), mode="min").best is None
    assert "auc (max)" in repr(search) and "pending" in repr(trial) and "0.91" in repr(first)
    trial.hyperparameters.clear()  # of the caller's own
    search.tell(trial, 0.91, stderr=0.01)


def test_the_best_is_the_least_where_that_is_wanted(path):
    search = Search(SPACE, path, mode="min")
    for value in (2, 1, 1, 3):
        search.tell(search.ask(), value)
    assert (search.best.number, search.best.value) == (1, 1.0)


def test_it_proposes_what_a_run_of_the_same_search_proposes(tmp_path, path):
    """A region of the name `search`, alone in its study, in two lanes: its PRE and POST are played in their order."""
    text = STUDY.replace("  - {name: United Kingdom, data: data/uk.nc}\n", "").replace("name: Germany", "name: search")
    lanes = (
        "  rounds: 6\n  parallel: 2\n  schedule: lanes\n  stop: none\n  constraints: ['hidden * learning_rate < 0.5']\n"
    )
    text = text.replace("  rounds: 2\n  parallel: 2\n", lanes)
    folder = create(write_study(tmp_path, text), tmp_path / "runs").region("search")
    space = {"hidden": {"int": [2, 8], "log": True}, "learning_rate": {"real": [1e-3, 1e-1], "log": True}}
    search = Search(space, path, metric="ndcg@5", constraints=["hidden * learning_rate < 0.5"], trials=12, seed=7)
    asked = [search.ask(), search.ask()]
    for number in (0, 1):
        prepare_trial(folder, NodeName("search", number))
    for number in range(10):
        value = 0.5 - abs(np.log10(asked[number].hyperparameters["learning_rate"]) + 2) / 10
        settle(folder, "search", number, value)
        prepare_trial(folder, NodeName("search", number + 2))
        search.tell(asked[number], value)
        asked.append(search.ask())
    proposals = Journal(folder.journal).read().proposals
    assert [trial.hyperparameters for trial in asked] == [proposals[number].point for number in range(12)]


@pytest.mark.parametrize("method", ["auto", "sobol", "random"])
def test_the_same_seed_gives_the_same_trials(tmp_path, method):
    found = [
        run(Search(SPACE, tmp_path / f"{number}", mode="min", method=method, seed=seed, trials=8), 6)
        for number, seed in enumerate((3, 3, 4))
    ]
    assert found[0] == found[1] != found[2]


def test_pending_trials_are_not_proposed_again_and_change_what_is(tmp_path):
    alone, beside = (Search(SPACE, tmp_path / name, mode="min", trials=8) for name in "ab")
    assert run(alone, 4) == run(beside, 4)
    waiting = beside.ask()
    assert alone.ask() == waiting
    alone.tell(4, -5.0)
    others = alone.ask().hyperparameters, beside.ask().hyperparameters
    assert others[0] != others[1] and waiting.hyperparameters not in others


def test_a_small_space_ends(path):
    search = Search({"a": {"choice": ["x", "y"]}, "b": 3}, path)
    found = [search.ask().hyperparameters, search.ask().hyperparameters]
    assert sorted(one["a"] for one in found) == ["x", "y"] and all(one["b"] == 3 for one in found)
    with pytest.raises(ExhaustedError, match="all 2 points"):
        search.ask()


def test_a_grid_is_gone_through(path):
    search = Search({"a": {"int": [1, 3]}, "b": {"real": [0, 1], "points": 2}}, path, method="grid")
    found = [tuple(search.ask().hyperparameters.values()) for _ in range(6)]
    assert found == [(a, b) for a in (1, 2, 3) for b in (0.0, 1.0)]
    with pytest.raises(ExhaustedError):
        search.ask()


def test_what_is_absent_and_what_has_a_default(tmp_path):
    search = Search(MOMENTUM, tmp_path / "a", method="random")
    found = [search.ask().hyperparameters for _ in range(8)]
    assert {("momentum" in one) == (one["optimizer"] == "sgd") for one in found} == {True}
    both = {**MOMENTUM, "momentum": {**MOMENTUM["momentum"], "default": 0.5}}
    search = Search(both, tmp_path / "b", method="random")
    found = [search.ask().hyperparameters for _ in range(8)]
    assert {one["momentum"] for one in found if one["optimizer"] == "adam"} == {0.5}


def test_first_points_and_constraints(path):
    first = [{"learning_rate": 1e-3, "layers": 2}, {"layers": np.int64(1), "learning_rate": 0.01}]
    search = Search(SPACE, path, mode="min", first=first, constraints=["layers * learning_rate < 0.05"], trials=8)
    found = run(search, 8)
    assert found[:2] == [{"learning_rate": 1e-3, "layers": 2}, {"learning_rate": 0.01, "layers": 1}]
    assert all(one["layers"] * one["learning_rate"] < 0.05 for one in found)


def test_names_that_mean_something_to_studies_mean_nothing_here(tmp_path):
    plain = {"kind": {"choice": ["blend", "incumbent"]}, "x": {"real": [0, 1]}, "rate": {"real": [0, 9]}}
    named = {"family": plain["kind"], "x": plain["x"], "epochs": plain["rate"]}
    found = []
    for name, space in (("plain", plain), ("named", named)):
        search = Search(space, tmp_path / name, trials=8)
        for _ in range(8):
            trial = search.ask()
            search.tell(trial, trial.hyperparameters["x"])
        found.append([tuple(trial.hyperparameters.values()) for trial in search.trials])
    assert found[0] == found[1]


def test_python_has_other_kinds_of_values(path):
    class Size(IntEnum):
        LARGE = 4

    class Rule(StrEnum):
        ADAM = "adam"

    space = {
        "a": {"real": (np.float32(0.25), Fraction(1, 2))},
        "b": {"int": np.array([1, 8])},
        "c": {"choice": (Rule.ADAM, np.bool_(True), Size.LARGE, 0.5)},
        np.str_("d"): {"choice": range(3), "ordered": np.True_},
        "e": Rule.ADAM,
    }
    search = Search(space, path)
    [written] = map(json.loads, path.read_text().splitlines())
    assert written["space"] == {
        "a": {"real": [0.25, 0.5]},
        "b": {"int": [1, 8]},
        "c": {"choice": ["adam", True, 4, 0.5]},
        "d": {"choice": [0, 1, 2], "ordered": True},
        "e": "adam",
    }
    kinds = {type(value) for _ in range(12) for value in search.ask().hyperparameters.values()}
    assert kinds <= {bool, int, float, str}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"space": {}}, "Search: space: empty: name at least one"),
        ({"space": 3}, "Search: space: seen 3, legal: a mapping"),
        ({"space": {1: {"real": [0, 1]}}}, "letters, digits and '_' only"),
        ({"space": {"a": {"real": [1, 0]}}}, "Search: space.a.real: seen [1, 0] (low must be smaller than high)"),
        ({"space": {"a": {"real": [0, float("nan")]}}}, "finite numbers"),
        ({"space": {"a": float("nan")}}, "space.a: seen nan, legal: {real"),
        ({"space": {"a": 10**400}}, "legal: {real"),
        ({"space": {"a": {"choice": ["\ud800"]}}}, "surrogates not allowed"),
        ({"space": {"a": {"choice": {"x", "y"}}}}, "legal: a list of different"),
        ({"space": {"a": {"choice": b"xy"}}}, "legal: a list of different"),
        ({"space": {"a": {"choice": [None, "x"]}}}, "legal: a list of different"),
        ({"space": {"a": {"choice": [Decimal("1")]}}}, "legal: a list of different"),
        ({"space": {"a": {"reel": [0, 1]}}}, "legal: {real"),
        ({"space": {"a": {"real": [0, 1], "when": {"b": 1}}}}, "'b' is not another hyperparameter"),
        ({"metric": "a\nb"}, "Search: metric: seen"),
        ({"metric": "\ud800"}, "Search: metric: seen"),
        ({"mode": "maximize"}, "mode: seen 'maximize' (did you mean 'max'?), legal: max or min"),
        ({"method": "tpe"}, "method: seen 'tpe'"),
        ({"method": "grid"}, "a grid needs `points: N`"),
        ({"method": "sobol", "acquisition": "improvement_per_second"}, "is not legal with method sobol"),
        ({"constraints": "layers < 2"}, "legal: a list of texts"),
        ({"constraints": ["__import__('os') == 1"]}, "is not allowed"),
        ({"constraints": ["layers > 9"]}, "which no point of search.space satisfies"),
        ({"trials": 0}, "trials: seen 0"),
        ({"trials": True}, "trials: seen True"),
        ({"seed": -1}, "seed: seen -1"),
        ({"first": [{"layers": 2}]}, "first[0]: seen {'layers': 2}, legal: a point of the space"),
        ({"first": [{"layers": 2, "learning_rate": 7}]}, "first[0]: seen"),
        ({"first": ["layers"]}, "first[0]: seen 'layers'"),
        ({"first": {"layers": 2}}, "first: seen"),
    ],
)
def test_mistakes_come_all_at_once_and_nothing_is_written(path, wrong, words):
    with pytest.raises(ConfigError) as caught:
        Search(**{"space": SPACE, "path": path, **wrong})
    assert words in str(caught.value), str(caught.value)
    assert list(path.parent.iterdir()) == []


def test_two_mistakes_and_a_space_that_holds_itself(path):
    with pytest.raises(ConfigError) as caught:
        Search(SPACE, path, mode="up", seed=-1)
    assert len(caught.value.problems) == 2
    space = {}
    space["a"] = {"choice": [space]}
    with pytest.raises(ConfigError, match="nested too deeply"):
        Search(space, path)


@pytest.mark.parametrize(
    ("trial", "told", "words"),
    [
        (7, {"value": 1}, "trial 7 was not asked for"),
        (-1, {"value": 1}, "trial -1 was not asked for"),
        ("0", {"value": 1}, "trial '0' was not asked for"),
        (False, {"value": 1}, "trial False was not asked for"),
        (0, {}, "either its value, or failed"),
        (0, {"value": 1, "failed": "no"}, "either its value, or failed"),
        (0, {"value": "0.9"}, "auc: seen '0.9', legal: a number"),
        (0, {"value": True}, "legal: a number"),
        (0, {"value": 1j}, "legal: a number"),
        (0, {"value": 10**400}, "legal: a number"),
        (0, {"value": [0.9]}, "legal: a number"),
        (0, {"value": 1, "stderr": -1}, "stderr: seen -1, legal: a finite number from 0"),
        (0, {"value": 1, "stderr": float("nan")}, "stderr: seen nan"),
        (0, {"value": 1, "seconds": float("inf")}, "seconds: seen inf"),
        (Trial(0, {"layers": 1}), {"value": 1}, "has other hyperparameters"),
    ],
)
def test_what_cannot_be_told(path, trial, told, words):
    search = Search(SPACE, path, metric="auc")
    search.ask()
    before = path.read_bytes()
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        search.tell(trial, **told)
    assert path.read_bytes() == before


def test_what_is_told_twice(path):
    search = Search(SPACE, path)
    trial = search.ask()
    search.tell(trial, failed="no room\n\ud800" + "x" * 5000)
    before = path.read_bytes()
    assert search.trials[0].failed.startswith("no room\n?x")
    search.tell(trial, failed="no room\n\ud800" + "x" * 5000)
    assert path.read_bytes() == before
    search.tell(trial, 0.25, stderr=0.5)  # it was run again
    before = path.read_bytes()
    search.tell(trial, 0.25, stderr=0.5)
    assert path.read_bytes() == before and search.best.value == 0.25
    for told in ({"value": 0.5}, {"value": 0.25}, {"failed": "no"}):
        with pytest.raises(UsageError, match=r"trial 0 was told already: value was 0\.25"):
            search.tell(trial, **told)


@pytest.mark.parametrize(
    "content", [b"no line break", b"a line\n", b'{"event": "proposed"}\n', b"\0", b'{"event": 3}\n']
)
def test_a_file_of_somebody_else_stays_as_it_is(path, content):
    path.write_bytes(content)
    for call in (lambda: Search(SPACE, path), lambda: Search.load(path)):
        with pytest.raises(RegiondagError, match="exists and is no search"):
            call()
    assert path.read_bytes() == content


def test_a_file_that_cannot_be(tmp_path):
    for path, words in ((tmp_path, "is a folder"), (tmp_path / "no" / "x", "there is no folder")):
        for call in (lambda path=path: Search(SPACE, path), lambda path=path: Search.load(path)):
            with pytest.raises(UsageError, match=words):
                call()
    with pytest.raises(RegiondagError, match="no search there"):
        Search.load(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_search_that_was_removed_or_edited(path):
    search = Search(SPACE, path)
    search.ask()
    path.write_text(path.read_text() + "edited\n")
    with pytest.raises(RegiondagError, match=r"search\.jsonl:3: not a line of a journal"):
        search.ask()
    path.write_text('{"event": "search", "space": {"a": 7}, "mode": "up"}\n')
    with pytest.raises(ConfigError, match=r"search\.jsonl: mode: seen 'up'"):
        Search.load(path)
    path.unlink()
    with pytest.raises(RegiondagError, match="the search is gone"):
        search.tell(0, 1.0)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"metric": "loss"}, "metric: seen 'loss', there 'value'"),
        ({"mode": "min"}, "mode: seen 'min', there 'max'"),
        (
            {"space": {**SPACE, "layers": {"int": [1, 5]}}},
            r"space.layers: seen {'int': \[1, 5\]}, there {'int': \[1, 4\]}",
        ),
        ({"space": {**SPACE, "more": 3}}, "space.more: seen 3, there None"),
        ({"space": dict(reversed(SPACE.items()))}, "space: seen .'layers', 'learning_rate'."),
    ],
)
def test_another_search_is_refused(path, other, words):
    Search(SPACE, path).ask()
    before = path.read_bytes()
    with pytest.raises(UsageError, match=words):
        Search(**{"space": SPACE, "path": path, **other})
    assert path.read_bytes() == before


def test_what_may_change_is_changed_for_all_who_come_later(path):
    Search(SPACE, path).ask()
    Search({**SPACE, "layers": {"int": (1, 4)}}, path, method="random", seed=9)
    lines = path.read_bytes().count(b"\n")
    again = Search.load(path)
    assert path.read_bytes().count(b"\n") == lines == 3
    other = Search(SPACE, path.with_name("other"), method="random", seed=9)
    other.ask()
    assert again.ask().hyperparameters == other.ask().hyperparameters
    line = path.read_text().splitlines()[0]
    path.write_text(line.replace('"seed"', '"of a later version": 1, "seed"') + "\n")
    assert Search.load(path).trials == []


ASK = """
import sys, time, regiondag
search = regiondag.Search.load(sys.argv[1])
for _ in range(int(sys.argv[2])):
    trial = search.ask()
    if len(sys.argv) > 3:
        print(trial.number, flush=True)
        time.sleep(600)
    search.tell(trial, trial.hyperparameters["layers"])
"""


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", ASK, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_who_is_killed_between_asking_and_telling_leaves_a_pending_trial(tmp_path, path):
    search = Search(SPACE, path, mode="min", trials=8)
    run(search, 3)
    with start(path, 1, "wait") as child:
        assert child.stdout.readline() == "3\n"
        os.kill(child.pid, signal.SIGKILL)
    [left] = Search.load(path).pending
    unharmed = Search(SPACE, tmp_path / "unharmed", mode="min", trials=8)
    run(unharmed, 3)
    assert left == unharmed.ask()
    assert search.ask() == unharmed.ask()  # beside what is pending
    search.tell(left, 0.5)
    assert [trial.number for trial in search.pending] == [4]


def test_a_line_that_was_torn_anywhere_is_written_again(path):
    search = Search(SPACE, path, mode="min", trials=8)
    run(search, 4)
    whole = path.read_bytes()
    asked = search.ask()
    line = path.read_bytes()[len(whole) :]
    for end in range(len(line)):
        path.write_bytes(whole + line[:end])
        assert len(Search.load(path).trials) == 4
        if end % 16 == 0:
            assert Search.load(path).ask() == asked
            assert path.read_bytes().startswith(whole) and path.read_bytes().count(b"\n") == whole.count(b"\n") + 1
    begun = whole.splitlines(keepends=True)[0]
    for end in range(len(begun)):
        path.write_bytes(begun[:end])
        Search(SPACE, path, mode="min", trials=8)
        assert json.loads(path.read_text())["space"] == SPACE


def test_several_processes_ask_at_once(path):
    search = Search(SPACE, path, mode="min", trials=8)
    children = [start(path, 6) for _ in range(3)]
    assert [child.wait(120) for child in children] == [0, 0, 0]
    for child in children:
        child.stdout.close()
    trials = search.trials
    assert [trial.number for trial in trials] == list(range(18)) and search.pending == []
    assert len({tuple(trial.hyperparameters.values()) for trial in trials}) == 18
    assert all(trial.value == trial.hyperparameters["layers"] for trial in trials)


# --- Optuna ------------------------------------------------------------------------------------------------


def test_optunas_distributions_are_a_space(path):
    optuna = pytest.importorskip("optuna")
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    space = {
        "a": FloatDistribution(1e-5, 1e-1, log=True),
        "b": FloatDistribution(0, 0.9, step=0.3),
        "c": IntDistribution(8, 64, step=8),
        "d": CategoricalDistribution(["x", 1, False]),
        "e": IntDistribution(3, 3),
        "f": {"int": [1, 4]},
    }
    search = Search(space, path)
    found = search.to_optuna()
    assert {name: found[name] for name in "abcd"} == {name: space[name] for name in "abcd"}
    assert found["e"] == CategoricalDistribution([3]) and found["f"] == IntDistribution(1, 4)
    asked = search.ask().hyperparameters
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.add_trial(optuna.trial.create_trial(params=asked, distributions=found, value=1.0))
    again = Search(study.best_trial.distributions, path.with_name("again"), first=[study.best_trial.params])
    assert again.ask().hyperparameters == asked
    with pytest.raises(ConfigError, match=r"space.x.choice: seen \[None, 'x'\]"):
        Search({"x": CategoricalDistribution([None, "x"])}, path.with_name("none"))
    with pytest.raises(ConfigError, match="letters, digits"):
        Search({"model/x": IntDistribution(1, 2)}, path.with_name("name"))


def test_conditions_and_order_are_left_out_of_optunas(path):
    pytest.importorskip("optuna")
    found = Search({**MOMENTUM, "size": {"choice": [1, 2, 4], "ordered": True}}, path).to_optuna()
    assert {name: written_of(one) for name, one in found.items()} == {
        "optimizer": {"choice": ["sgd", "adam"]},
        "momentum": {"real": [0.0, 0.9]},
        "size": {"choice": [1, 2, 4]},
    }


def test_without_optuna_the_extra_is_named(path, monkeypatch):
    search = Search(SPACE, path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RegiondagError) as caught:
        search.to_optuna()
    assert install_line("optuna") in str(caught.value)
