"""The GPU benchmark on a stand-in for a GPU: our side trains, sides go in turn, and all of it is kept."""

from __future__ import annotations

import io
import json
import os
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from nnlib.cpu.backend import Cpu
from nnlib.gpu.backend import Gpu
from scripts.bench.common import harness, processes
from scripts.bench.common.workload import filled, weights, widths
from scripts.bench.gpu import __main__ as command
from scripts.bench.gpu import floor, multiply, ours, training, work
from scripts.bench.gpu.work import GpuWork
from tests.kernels.standin import Cupy

TINY = {"batch": 8, "batches": 3, "steps": 3, "warm": 1}
SMALL = GpuWork("autoencoder", items=60, hidden=8, density=0.4, **TINY)


def answers(monkeypatch, capsys, given, compute) -> list[dict]:
    """What our side answers to every command."""
    monkeypatch.setattr("sys.stdin", io.StringIO("step\nprepare\nmemory\n"))
    ours.served(given, compute, lambda: 3 << 20)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("given", [replace(SMALL, optimizer="rmsprop"), GpuWork("images", **TINY)])
def test_our_side_trains_as_the_cpu_does(monkeypatch, capsys, given):
    cupy = Cupy()
    ready, step, prepare, memory = answers(monkeypatch, capsys, given, Gpu(cupy.runtime(), 2))
    cupy.check()
    wanted = answers(monkeypatch, capsys, given, Cpu())[0]
    assert len(ready["losses"]) == work.CHECKED
    assert ready["losses"] == pytest.approx(wanted["losses"], rel=1e-5)
    assert step["ms"] > 0 and prepare["ms"] > 0 and memory == {"mb": 3.0}


def test_all_sides_start_with_the_same_weights():
    first, again = weights(SMALL), weights(replace(SMALL, variant=work.EAGER, tf32=True))
    assert [matrix.tobytes() for matrix in first] == [matrix.tobytes() for matrix in again]
    assert [matrix.shape for matrix in first] == [(60, 8), (8, 8), (8, 8), (8, 60)]
    assert widths(GpuWork("images")) == (784, 512, 512, 10)


def test_rows_are_filled_up_evenly():
    starts, full = filled(np.array([0, 1, 3]), np.array([7, 7, 8]), 6, 9)
    assert (starts.tolist(), full.tolist()) == ([0, 2, 6], [7, 9, 7, 8, 9, 9])


def test_floors_of_the_wide_network():
    """What a step of it takes in operations and bytes was counted by hand."""
    full = GpuWork("autoencoder")
    assert floor.operations_of(full) == pytest.approx(46.1e9, rel=1e-3)
    assert floor.bytes_of(replace(full, optimizer="rmsprop"), 5300) == pytest.approx(1.2e9, rel=0.02)
    ceilings = floor.Ceilings(bandwidth=4e12, float32=50e12, tf32=400e12)
    plain, tf32 = (floor.floor_of(replace(full, tf32=on), 5300, ceilings) for on in (False, True))
    assert (plain.by, plain.ms) == ("operations", pytest.approx(0.92, rel=0.01))
    assert (tf32.by, tf32.ms) == ("bytes", plain.bytes_ms)
    cupy = Cupy()
    found = floor.ceilings_of(cupy.runtime(), side=16, words=64, repeats=1)
    cupy.check()
    assert min(found.bandwidth, found.float32, found.tf32) > 0


def test_what_multiplies_wrongly_or_is_missing_is_not_measured(monkeypatch):
    def wrong(data):
        return lambda: data.arrays[0].fill(0)

    def missing(data):
        raise processes.NotMeasuredError("not installed")

    def right(data):
        return lambda: [np.multiply(array, multiply.C, out=array) for array in data.arrays]

    monkeypatch.setattr(multiply, "WAYS", {"right": right, "wrong": wrong, "missing": missing})
    data, absent = multiply.Set([np.ones(8, np.float32) for _ in range(3)], 8, None), {}
    assert [name for name, _ in multiply.prepared(data, absent)] == ["right"]
    assert absent == {"wrong": "gives other numbers than NumPy", "missing": "not installed"}


class Side:
    """In place of a process: what each gives; a text is why it cannot."""

    asked: list[str]

    def __init__(self, name: str, losses, times) -> None:
        self.name, self.losses, self.times = name, losses, iter(times)

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None: ...

    def end(self) -> None: ...

    def answer(self, seconds: float) -> dict:
        return {"losses": self.given(self.losses)}

    def ask(self, command: str, seconds: float) -> dict:
        self.asked.append(f"{self.name}: {command}")
        return {"mb": 7.0} if command == "memory" else {"ms": self.given(next(self.times))}

    def given(self, value):
        if isinstance(value, str):
            raise processes.NotMeasuredError(value)
        return value


def compared(sides: dict, seconds: float = 100.0):
    Side.asked = []
    return training.compared(SMALL, list(sides), lambda given: Side(given.variant, *sides[given.variant]), seconds, 3)


def test_sides_go_in_turn_and_give_medians():
    outcome = compared({work.OURS: ([1.0], [5, 50, 4, 40, 9, 90]), work.EAGER: ([1.0], [8, 6, 7])})
    assert Side.asked == ["ours: step", "eager: step", "ours: prepare"] * 3 + ["ours: memory", "eager: memory"]
    assert (outcome.ms(work.OURS), outcome.ms(work.EAGER), outcome.preparing.ms) == (5, 7, 50)
    rows = {row.workload.partition(" (peer: ")[2]: row for row in training.rows_of(outcome)}
    eager = rows["PyTorch, EmbeddingBag, eager)"]
    assert (eager.ratio, eager.goal, eager.met) == (1.4, training.OVER_EAGER, True)
    assert rows["PyTorch, eager)"].peer == 7.0  # memory


def test_sides_that_cannot_be_compared_are_left_out():
    outcome = compared(
        {
            work.OURS: ([1.0], [1] * 6),
            work.DENSE: ("no memory", []),
            work.EAGER: ([1.1], []),
            work.GRAPHED: ([1.0], [3, "took too long"]),
            work.COMPILED: ([1.0], [4, 4, 4]),
        }
    )
    reasons = {name: side.reason for name, side in outcome.sides.items()}
    assert reasons.pop(work.EAGER).startswith("loss of step 1 is 1.1, ours 1: they differ by 9.1e-02")
    assert reasons == {work.OURS: "", work.DENSE: "no memory", work.GRAPHED: "took too long", work.COMPILED: ""}
    assert outcome.best((work.EAGER, work.COMPILED)) == work.COMPILED
    failed = compared({work.OURS: ("no kernel", []), work.EAGER: ([1.0], [])})
    row = next(training.rows_of(failed))
    assert (row.ours, row.peer, row.goal) == (None, None, None) and row.note.startswith("ours: no kernel\neager: there")
    assert len(compared({work.OURS: ([1.0], [5, 5])}, seconds=0.0).sides[work.OURS].rounds) == 1


class Scripted(Side):
    """In place of every process of the command."""

    given_by: dict = {}  # noqa: RUF012 -- set by the test

    def __init__(self, python: str, name: str, *words: str, **_: object) -> None:
        self.name, self.found = name, iter(self.given_by[words[0] if name == "gpu.facts" else name])

    def answer(self, seconds: float) -> dict:
        return next(self.found)

    def ask(self, command: str, seconds: float) -> dict:
        return {"ms": 2.0, "mb": 5.0}

    def answers(self, seconds: float):
        yield from self.found


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    for module in (command, training):
        monkeypatch.setattr(module, "Child", Scripted)
    monkeypatch.setattr(training, "works", lambda quick, tf32: [SMALL, replace(SMALL, tf32=True)][: 1 + tf32])
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    times = {"mul_c": {"host": 4e-6, "device": 1e-6}, "cupy.multiply": {"host": 8e-6, "device": 1e-6}}
    Scripted.given_by = {
        "device": [{"missing": ""}],
        "gpu": [{"GPU": "Some GPU", "CUDA": "13000", "driver version": "580.1", "tf32": True}],
        "torch": [{"torch": "2.13.0"}],
        "ceilings": [{"bandwidth": 4e12, "float32": 5e13, "tf32": 4e14}],
        "gpu.multiply": [{"n": 1 << 10, "arrays": 128, "times": times, "absent": {"NPP": "not installed"}}],
        "gpu.ours": [{"losses": [1.0]}],
        "gpu.peer": [{"losses": [1.0]}],
    }
    return Scripted.given_by


def test_everything_is_printed_and_kept(scripted, tmp_path, capsys):
    assert command.main([]) == 1  # as rows are missing, and ours is no faster
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["machine"].startswith("Some GPU, ") and kept["versions"]["torch"] == "2.13.0"
    assert [one["work"]["tf32"] for one in kept["training"]] == [False, True]
    assert {part["reason"] for part in kept["parts"].values()} == {""}
    rows = {row["workload"]: row for row in kept["rows"]}
    assert rows["data[i] *= c, arrays of 1K floats: mul_c (peer: cupy.multiply)"]["ratio"] == 2
    assert rows["data[i] *= c, arrays of 1K floats: mul_c (peer: NPP)"]["peer"] is None
    assert rows["60-8x3-60, batch 8, Adam, float32 (peer: PyTorch, EmbeddingBag, eager)"]["met"] is False
    out = capsys.readouterr().out
    assert "GPU: Some GPU" in out and "batches prepared meanwhile" in out and "kept in" in out


def test_without_pytorch_or_time_the_rest_is_measured(scripted, tmp_path, monkeypatch):
    scripted["torch"] = [{"reason": "PyTorch is missing"}]
    del scripted["gpu.peer"], scripted["gpu.multiply"]
    command.main(["--quick", "--json", str(tmp_path / "own.json")])
    assert not (tmp_path / "gpu.json").exists()
    kept = json.loads((tmp_path / "own.json").read_text())
    assert kept["parts"]["multiply"]["reason"].startswith("KeyError")
    peers = [row for row in kept["rows"] if "PyTorch" in row["workload"]]
    assert peers and all(row["ours"] and row["peer"] is None for row in peers)
    scripted |= {"device": [{"missing": ""}], "gpu": [{}], "torch": [{}]}
    monkeypatch.setattr(command, "BUDGET", 0.0)
    command.main([])
    late = json.loads((tmp_path / "gpu.json").read_text())
    assert {part["reason"] for part in late["parts"].values()} == {"the time for everything was up"}


def test_the_command_runs_the_python_that_it_is_given(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nif [ "$1" != -c ]; then printf "%s\\n" "$PYTHONPATH" "$@"; fi\n')
    python.chmod(0o755)
    shell = processes.REPOSITORY / "scripts/bench/gpu.sh"

    def call(*words: str, **variables: str):
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | variables
        return subprocess.run([shell, *words], env=environment, capture_output=True, text=True, timeout=60, check=False)

    done = call("--quick", "--json", "a b", PYTHON=str(python))
    assert done.stdout.splitlines() == [
        str(processes.REPOSITORY), "-m", "scripts.bench.gpu", "--quick", "--json", "a b",
    ]  # fmt: skip
    done = call(PYTHON="/bin/false")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr == "gpu: /bin/false is no Python 3.11 or later; set PYTHON=/path/to/python3.12\n"


def test_without_a_gpu_it_says_what_to_install(scripted, capsys):
    scripted["device"] = [{"missing": "ModuleNotFoundError: No module named 'cupy'"}]
    assert command.main([]) == 75
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("gpu: ModuleNotFoundError: No module named 'cupy'; pip install")
