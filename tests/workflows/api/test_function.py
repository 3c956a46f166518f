"""Studies whose trials call a function: the study.yaml that is written, and what is refused."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import regiondag
from nnlib.contract import PROGRAM_FILE, Role, TrainSettings, sha256_of
from regiondag.config.load import load_config
from regiondag.errors import ConfigError, UsageError
from regiondag.study.program import program_trial
from regiondag.trainers.archive import write_program
from tests.workflows.trainers import programs

FIT = """\
import functools
from pathlib import Path

def fit(strength, region, artifact, kind="a"):
    top = float(Path(f"data/{region}.csv").read_text())
    (artifact / "model.txt").write_text(f"{strength} {kind}")
    return top - (strength - 1) ** 2

def others(seed=1, **hyperparameters):
    return 1.0

def outer():
    def inner(strength):
        return strength
    return inner

async def waits(strength):
    return strength

def yields(strength):
    yield strength

def by_place(strength, /):
    return strength

short = lambda strength: strength

class Model:
    def score(strength):
        return strength
"""
SPACE = {"strength": {"real": [0.01, 4.0], "log": True}, "kind": {"choice": ["a", "b c"]}}


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    for name, top in (("North", 2), ("South", 3)):
        (tmp_path / "data" / f"{name}.csv").write_text(str(top))
    yield from _imported(tmp_path, monkeypatch, "fit_of_test", FIT)


def _imported(folder, monkeypatch, name, text):
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    importlib.invalidate_caches()
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


def make(function, **changes):
    given = {
        "regions": "data/*.csv",
        "space": SPACE,
        "metric": "auc",
        "files": ["data/{region}.csv"],
        "search": {"rounds": 2, "parallel": 2},
        "job": {"gpus": 0, "cpus": 1},
        "study": "leaving",
    }
    return regiondag.Study.from_function(function, **{**given, **changes})


def test_it_is_a_study_that_a_person_can_read(module, tmp_path):
    study = make(module.fit)
    first, _, text = study.folder.study.read_text().partition("\n")
    assert first.startswith("# Made by regiondag.Study.from_function")
    assert (
        text
        == """\
study: leaving
regions: {from: "data/*.csv"}
trainer:
  command: [python, "-m", regiondag.call, "fit_of_test.py:fit"]
  files: [fit_of_test.py, "data/{region}.csv"]
  metric: {name: auc, mode: max}
search:
  space:
    strength: {real: [0.01, 4.0], log: true}
    kind: {choice: [a, "b c"]}
  rounds: 2
  parallel: 2
job: {gpus: 0, cpus: 1}
"""
    )
    assert study.folder.study == tmp_path / "study.yaml"
    assert [region.name for region in load_config(study.folder.study).regions] == ["North", "South"]
    assert study.validate() == []


@pytest.mark.slow
def test_a_job_calls_it(module, tmp_path):
    region = load_config(make(module.fit).folder.study).regions[1]
    assert region.program
    (tmp_path / "bench").mkdir()
    bench = programs.make_bench(tmp_path / "bench")
    write_program(region.program, archive := tmp_path / PROGRAM_FILE)
    facts = {"space": region.search.space, "point": {"strength": 2.0, "kind": "b c"}, "train": TrainSettings()}
    digests = {PROGRAM_FILE: sha256_of(archive)}
    trial = program_trial("t", "South", 0, Role.FINAL, **facts, metric=region.metric, sha256=digests)
    tried = bench.try_job("job", trial, {PROGRAM_FILE: archive})
    assert (tried.value, tried.artifact) == (2.0, 1)


def test_it_may_be_made_again_until_somebody_changes_it(module, tmp_path):
    make(module.fit)
    study = make(module.fit, search={"rounds": 3}, metric={"name": "auc", "value": "best"})
    assert "metric: {mode: max, name: auc, value: best}" in study.folder.study.read_text()
    assert "rounds: 3" in study.folder.study.read_text()
    study.folder.study.write_text(study.folder.study.read_text().replace("rounds: 3", "rounds: 4"))
    with pytest.raises(UsageError, match=r"was written or changed by somebody; go on with Study.load"):
        make(module.fit)
    assert "rounds: 4" in study.folder.study.read_text()
    other = make(module.fit, folder=tmp_path / "other", regions=["North"], files=["../data"])
    text = other.folder.study.read_text()
    assert "regions: [{name: North}]" in text and "files: [../fit_of_test.py, ../data]" in text
    assert '"fit_of_test.py:fit"' in text


def test_functions_that_no_file_has_are_refused(module):
    local = {}
    exec("def fit(strength): return 1", local)  # noqa: S102
    cell = local["fit"]
    cell.__module__ = "a_notebook"
    for function, text in (
        (module.short, "legal: a function that stands at the top of a file"),
        (print, "legal: a function that stands at the top of a file"),
        (module.Model(), "legal: a function that stands at the top of a file"),
        (module.functools.partial(module.fit, 1), "legal: a function that stands at the top of a file"),
        (module.outer(), "outer.<locals>.inner stands inside of something else"),
        (module.Model.score, "Model.score stands inside of something else"),
        (module.waits, "it is a coroutine or a generator"),
        (module.yields, "it is a coroutine or a generator"),
        (cell, "begin its cell with `%%writefile fit.py`, then `from fit import fit`"),
    ):
        with pytest.raises(UsageError) as caught:
            make(function)
        assert text in str(caught.value)
    old = module.fit
    module.fit = module.others
    with pytest.raises(UsageError, match=r"fit in fit_of_test.py is something else by now"):
        make(old)


def test_a_function_of_a_package_is_refused(tmp_path, monkeypatch):
    (tmp_path / "package_of_test").mkdir()
    (tmp_path / "package_of_test" / "train.py").write_text("def fit(strength): return 1")
    monkeypatch.syspath_prepend(tmp_path)
    train = importlib.import_module("package_of_test.train")
    with pytest.raises(UsageError, match=r"fit is in train.py of the package or module package_of_test.train; legal"):
        make(train.fit)


def test_parameters_have_to_fit_the_space(module):
    with pytest.raises(ConfigError) as caught:
        make(module.fit, space={"rate": {"real": [0, 1]}, "kind": 1})
    text = str(caught.value)
    assert "space: 'rate' is no parameter of fit(strength, region, artifact, kind='a')" in text
    assert "fit: nobody gives it 'strength'; legal: rate, kind, region, trial," in text
    with pytest.raises(ConfigError, match="by_place: 'strength' has no name for who calls it"):
        make(module.by_place)
    assert make(module.others).name == "leaving"


def test_mistakes_are_those_of_study_yaml(module, tmp_path):
    with pytest.raises(ConfigError, match=r"Study.from_function: search.rounds: seen 'two'"):
        make(module.fit, search={"rounds": "two"})
    with pytest.raises(ConfigError, match="search: seen 'bayes'"):
        make(module.fit, search="bayes")
    with pytest.raises(UsageError, match="'space' is said by an argument of its own"):
        make(module.fit, search={"space": {}})
    with pytest.raises(UsageError, match="'command' is said by an argument of its own"):
        make(module.fit, trainer={"command": ["true"]})
    with pytest.raises(ConfigError, match="no such file"):
        make(module.fit, files=["nothing.csv"])
    with pytest.raises(ConfigError, match=r"seen .'a', inf., legal"):
        make(module.fit, space={**SPACE, "kind": {"choice": ["a", float("inf")]}})
    assert not (tmp_path / "study.yaml").exists()


def test_files_that_it_imports_have_to_come_along(tmp_path, monkeypatch):
    (tmp_path / "beside_of_test.py").write_text("")
    text = "if True:\n    import beside_of_test\ndef fit(strength, kind): return 1\n"
    for module in _imported(tmp_path, monkeypatch, "fit_beside", text):
        with pytest.raises(ConfigError, match=r"fit_beside\.py imports beside_of_test, which lies beside it"):
            make(module.fit, regions=["A"], files=[])
        assert make(module.fit, regions=["A"], files=["beside_of_test.py"]).name == "leaving"


SCRIPT = """\
import regiondag

def fit(strength):
    return strength

def go():
    return regiondag.Study.from_function(fit, regions=["A"], space={"strength": {"real": [0, 1]}}, metric="auc")
"""


@pytest.mark.parametrize(("end", "code"), [("if __name__ == '__main__':\n    print(go())\n", 0), ("print(go())\n", 1)])
def test_a_function_of_the_script_itself_needs_the_guard(tmp_path, end, code):
    (tmp_path / "tune.py").write_text(SCRIPT + end)
    done = subprocess.run([sys.executable, "tune.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    if code:
        assert "tune.py:8: jobs import this file, and would come here again" in done.stderr
    else:
        assert '"tune.py:fit"' in (tmp_path / "study.yaml").read_text()


def test_its_search_for_who_runs_trials_otherwise(module, tmp_path):
    study = make(module.fit, space={**SPACE, "kind": {"choice": ["a", "b"]}}, mode="min")
    search = study.search("North", tmp_path / "north.jsonl")
    for _ in range(3):
        trial = search.ask()
        assert trial.hyperparameters.keys() == {"strength", "kind"}
        search.tell(trial, trial.hyperparameters["strength"])
    best = min(one.hyperparameters["strength"] for one in search.trials)
    assert search.best and search.best.value == best
    assert len(study.search("North", tmp_path / "north.jsonl").trials) == 3
