"""The command that measures everything on a GPU: what it does, what it keeps, and what it says without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.bench.conftest import BENCH


@pytest.fixture
def gpu(bench) -> ModuleType:
    return bench("gpu")


def test_without_libraries_it_says_what_to_install(gpu, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None if name in ("scipy", "cupy") else object())
    file = tmp_path / "gpu.json"
    assert gpu.main(["--json", str(file)]) == 75
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("gpu: scipy, cupy: not in ")
    assert all(text in err for text in ("gpu-cuda13", "gpu-cuda12", "pip install torch"))
    assert not file.exists()


@pytest.mark.parametrize(
    ("code", "out", "err", "said"),
    [
        (0, "CUDA finds no GPU\n", "", "CUDA finds no GPU; nvidia-smi shows"),
        (1, "", "Traceback\nOSError: libcuda\n", "OSError: libcuda; nvidia-smi shows"),
        (0, "\n", "a warning\n", ""),
    ],
)
def test_without_a_device_it_says_so(gpu, monkeypatch, code, out, err, said):
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: object())
    done = SimpleNamespace(returncode=code, stdout=out, stderr=err)
    monkeypatch.setattr(gpu.subprocess, "run", lambda *_, **__: done)
    assert gpu.missing().startswith(said)
    assert bool(gpu.missing()) == bool(said)


def shell(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BENCH / "gpu.sh", *words], env=os.environ | variables, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_runs_the_python_that_it_is_given(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nif [ "$1" != -c ]; then printf "%s\\n" "$@"; fi\n')
    python.chmod(0o755)
    done = shell("--quick", "--json", "a b", PYTHON=str(python))
    assert done.stdout.splitlines() == [str(BENCH / "gpu.py"), "--quick", "--json", "a b"]
    done = shell(PYTHON="/bin/false")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr == "gpu: /bin/false is no Python 3.11 or later; set PYTHON=/path/to/python3.12\n"


def test_the_time_for_everything_ends(gpu, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(gpu.time, "monotonic", lambda: now[0])
    budget = gpu.Budget(50)
    assert budget.of("multiply") == 50
    now[0] = 130
    assert budget.of("epoch") == 20
    now[0] = 146
    with pytest.raises(gpu.NotMeasuredError, match="the time for everything was up"):
        budget.of("epoch")
    assert sum(gpu.LIMITS.values()) < gpu.BUDGET < 480


def test_a_part_that_fails_keeps_what_it_has_and_leaves_the_others(gpu):
    kept = []
    all_of_it = gpu.Gpu(quick=True, keep=lambda it: kept.append(len(it.rows)))

    def broken():
        yield gpu.Row("first", 1.0, 2.0, "s")
        raise OSError("gone")

    all_of_it.part("one", broken)
    all_of_it.part("other", lambda: [gpu.Row("second", 3.0, None, "s")])
    assert [(row.workload, row.ours, row.note) for row in all_of_it.rows] == [
        ("first", 1.0, ""),
        ("one", None, "OSError: gone"),
        ("second", 3.0, ""),
    ]
    assert {name: part["reason"] for name, part in all_of_it.details["parts"].items()} == {
        "one": "OSError: gone",
        "other": "",
    }
    assert kept == [2, 3]


def test_chosen_rows_of_the_multiplication(bench, gpu):
    multiply = bench("gpu_multiply")

    def line(n: int, way: str, seconds: float):
        return multiply.Line(way, n, 128, True, multiply.Times(seconds, seconds), 4e12)

    found = [line(gpu.K, "mul_c", 4e-6), line(gpu.K, "cupy.multiply", 8e-6), line(gpu.COPIED, "mul_c", 1e-4)]
    rows = list(gpu.chosen({(one.n, one.way): one for one in found}))
    assert [row.ratio for row in rows[:3]] == [None, pytest.approx(2), None]
    assert (rows[0].ours, rows[0].peer, rows[2].ours) == (pytest.approx(250_000), None, None)
    assert rows[3].ratio == pytest.approx(8 * gpu.COPIED / 1e-4 / 4e12)
    assert all(row.ours is None for row in gpu.chosen({}))
    assert gpu.COPIED in multiply.Sizes().floats
    assert gpu.COPIED in multiply.QUICK.floats


class Scripted:
    """In place of every process: what each script answers."""

    given: dict = {}  # noqa: RUF012 -- set by the test

    def __init__(self, python: str, script: str, *arguments: str) -> None:
        self.found = iter(self.given[arguments[0] if script == "gpu_parts.py" else script])

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        pass

    def answer(self, seconds: float) -> dict:
        return next(self.found)

    def ask(self, command: str, seconds: float) -> dict:
        return {"ms": 2.0, "mb": 5.0}

    def answers(self, seconds: float):
        yield from self.found


@pytest.fixture
def scripted(bench, gpu, train, work, monkeypatch) -> type[Scripted]:
    """Let no process run, and small workloads be given."""
    monkeypatch.setattr(gpu, "missing", lambda: "")
    for module in (bench("gpu_child"), train):
        monkeypatch.setattr(module, "Child", Scripted)
    small = work.GpuWork("autoencoder", items=60, hidden=8, batch=8, batches=2)
    monkeypatch.setattr(train, "works", lambda quick, tf32: [small, replace(small, tf32=True)][: 1 + tf32])
    times = {"host": 1e-6, "device": 1e-6}
    line = {"way": "mul_c", "n": 1 << 10, "arrays": 128, "in_l2": True, "times": times, "copy": 1e12}
    data = {"users": 8, "items": 6, "events": 20, "hidden": 4}
    Scripted.given = {
        "facts": [{"GPU": "Some GPU", "CUDA": "13000", "driver version": "580.1", "tf32": True}],
        "torch": [{"torch": "2.13.0"}],
        "ceilings": [{"bandwidth": 4e12, "float32": 5e13, "tf32": 4e14}],
        "multiply": [{"lines": [line], "absent": {"NPP": "not installed"}}],
        "gpu_epoch.py": [data, {"precision": "float32", "seconds": 3.0}],
        "gpu_train_ours.py": [{"losses": [1.0]}],
        "gpu_train_torch.py": [{"losses": [1.0]}],
    }
    return Scripted


def test_everything_is_printed_and_kept(gpu, harness_results, scripted, capsys):
    assert gpu.main([]) == 1  # as rows are missing, and ours is no faster
    kept = json.loads((harness_results / "gpu.json").read_text())
    assert kept["bench"] == "gpu"
    assert kept["machine"].startswith("Some GPU, ")
    assert kept["versions"]["torch"] == "2.13.0"
    assert kept["versions"]["driver version"] == "580.1"
    assert kept["multiply"]["not measured"] == {"NPP": "not installed"}
    assert [one["work"]["tf32"] for one in kept["training"]] == [False, True]
    assert {part["reason"] for part in kept["parts"].values()} == {""}
    rows = {row["workload"]: row for row in kept["rows"]}
    eager = rows["60-8x3-60, batch 8, Adam, float32 (peer: PyTorch, EmbeddingBag, eager)"]
    assert (eager["ours"], eager["peer"], eager["ratio"], eager["met"], eager["goal_is_ratio"]) == (
        2,
        2,
        1,
        False,
        True,
    )
    out = capsys.readouterr().out
    assert "GPU: Some GPU" in out
    assert "first losses" in out
    assert "kept in" in out


def test_without_pytorch_ours_is_measured_alone(gpu, harness_results, scripted):
    scripted.given["torch"] = [{"reason": "PyTorch is missing"}]
    scripted.given.pop("gpu_train_torch.py")
    gpu.main(["--only", "training"])
    assert not (harness_results / "gpu.json").exists()
    file = harness_results / "own.json"
    gpu.main(["--quick", "--json", str(file)])
    assert not (harness_results / "gpu.json").exists()
    kept = json.loads(file.read_text())
    rows = [row for row in kept["rows"] if "PyTorch" in row["workload"]]
    assert rows
    assert all(row["ours"] and row["peer"] is None and row["met"] is None for row in rows)


@pytest.fixture
def harness_results(bench, monkeypatch, tmp_path) -> Path:
    """The folder in which results are kept."""
    monkeypatch.setattr(bench("harness"), "RESULTS", tmp_path)
    return tmp_path
