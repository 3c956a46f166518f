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
from nnlib.gpu.runtime import Runtime
from scripts.bench.common import environments, harness, processes
from scripts.bench.common.child import Child
from scripts.bench.common.workload import filled, weights, widths
from scripts.bench.gpu import __main__ as command
from scripts.bench.gpu import floor, multiply, ours, pictures, predict, product, training, work
from scripts.bench.gpu.rows import rows_of
from scripts.bench.gpu.work import GpuWork
from tests.kernels.standin import Cupy, Products, folder

TINY = {"batch": 8, "batches": 3, "steps": 3, "warm": 1}
CIFAR = GpuWork("cifar-100", side=8, rate=1e-5, **(TINY | {"batch": 4, "steps": 1}))
DEEP = GpuWork("resnet-50", side=64, rate=1e-6, **(TINY | {"steps": 1}))
RESNET = GpuWork("resnet-18", side=32, rate=1e-5, **(TINY | {"batch": 4, "steps": 1}))
SMALL = GpuWork("autoencoder", items=60, hidden=8, density=0.4, **TINY)


def answers(monkeypatch, capsys, given, compute) -> list[dict]:
    """What our side answers to every command."""
    monkeypatch.setattr("sys.stdin", io.StringIO("step\nprepare\nmemory\n"))
    ours.served(given, compute, lambda: 3 << 20)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("given", [replace(SMALL, optimizer="rmsprop"), GpuWork("images", **TINY), CIFAR])
def test_our_side_trains_as_the_cpu_does(monkeypatch, capsys, given):
    cupy = Cupy()
    ready, step, prepare, memory = answers(monkeypatch, capsys, given, Gpu(cupy.runtime(), 2))
    cupy.check()
    wanted = answers(monkeypatch, capsys, given, Cpu())[0]
    assert len(ready["losses"]) == work.CHECKED
    assert ready["losses"] == pytest.approx(wanted["losses"], rel=1e-5)
    assert step["ms"] > 0 and prepare["ms"] > 0 and memory == {"mb": 3.0}


def test_all_sides_start_with_the_same_weights():
    first, again = weights(SMALL), weights(replace(SMALL, variant=work.EAGER, precision=work.TF32))
    assert [matrix.tobytes() for matrix in first] == [matrix.tobytes() for matrix in again]
    assert [matrix.shape for matrix in first] == [(60, 8), (8, 8), (8, 8), (8, 60)]
    assert widths(GpuWork("images")) == (784, 512, 512, 10)


@pytest.fixture(scope="module")
def torch():
    """A Python with PyTorch, where a benchmark has made one."""
    python = environments.TORCH_FOLDER / "bin/python"
    if not python.exists():
        pytest.skip("no PyTorch: python -m scripts.bench.cpu brings it")
    return python


@pytest.mark.parametrize(("given", "variant"), [(CIFAR, work.EAGER), (RESNET, work.CHANNELS_LAST), (DEEP, work.EAGER)])
def test_a_peer_trains_on_pictures_as_ours_does(torch, given, variant):
    losses = ours.Training(given, Cpu()).losses()
    with Child(torch, "gpu.peer", replace(given, variant=variant, device="cpu").arguments()) as child:
        theirs = child.answer(120)["losses"]
    assert work.difference(losses, theirs, work.FLOAT32, training.OF_PICTURES) == ""


@pytest.mark.parametrize(
    ("variant", "precision"), [(work.DENSE, work.FLOAT32), (work.EAGER, work.BF16), (work.COMPILED, work.BF16)]
)
def test_a_peer_trains_as_ours_does(torch, monkeypatch, capsys, variant, precision):
    """On a processor, where there are no graphs."""
    given = replace(SMALL, precision=precision)
    cupy = Cupy()
    ready = answers(monkeypatch, capsys, given, Gpu(cupy.runtime(), 2))[0]
    peer = replace(given, variant=variant, device="cpu")
    with Child(torch, "gpu.peer", peer.arguments()) as child:
        losses = child.answer(120)["losses"]
        assert work.difference(ready["losses"], losses, precision) == ""
        assert child.ask("step", 60)["ms"] > 0


def test_the_peer_of_the_best_items(torch):
    with Child(torch, "gpu.peer_top", "quick", "cpu") as child:
        assert child.answer(120)["customers_a_second"] > 0


@pytest.mark.gpu
def test_ways_to_multiply():
    """Without CuPy's own kernels, which the played CUDA does not have."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    runtime = Runtime.open()
    data = multiply.Set([runtime.zeros(1001) for _ in range(3)], 1001, stream)
    for array in data.arrays:
        runtime.upload(array, np.arange(1001))
    with stream:
        for name in (multiply.OWN, multiply.COPY):
            multiply.WAYS[name](data)()
            assert multiply._sample(multiply.WAYS[name](data), data, 2)[0] > 0
    stream.synchronize()
    wanted = np.arange(1001, dtype=np.float32)
    for _ in range(3):  # once, and twice for the sample
        wanted = wanted * multiply.C
    for array in data.arrays:
        np.testing.assert_array_equal(runtime.download(array), wanted)


def test_rows_are_filled_up_evenly():
    starts, full = filled(np.array([0, 1, 3]), np.array([7, 7, 8]), 6, 9)
    assert (starts.tolist(), full.tolist()) == ([0, 2, 6], [7, 9, 7, 8, 9, 9])


def test_floors_of_the_wide_network():
    """What a step of it takes in operations and bytes was counted by hand."""
    full = GpuWork("autoencoder")
    assert floor.operations_of(full) == pytest.approx(46.1e9, rel=1e-3)
    assert floor.bytes_of(replace(full, optimizer="rmsprop"), 5300) == pytest.approx(1.2e9, rel=0.02)
    ceilings = floor.Ceilings(bandwidth=4e12, float32=50e12, tf32=400e12)
    plain, tf32 = (floor.floor_of(replace(full, precision=one), 5300, ceilings) for one in (work.FLOAT32, work.TF32))
    assert (plain.by, plain.ms) == ("operations", pytest.approx(0.92, rel=0.01))
    assert (tf32.by, tf32.ms) == ("bytes", plain.bytes_ms)
    cupy = Cupy()
    found = floor.ceilings_of(cupy.runtime(), side=16, words=64, repeats=1)
    cupy.check()
    assert min(found.bandwidth, found.float32, found.tf32) > 0


def test_floors_of_networks_for_pictures():
    """ResNet-18: 1.81e9 multiplications an image, of which the stem's go back once less; 11.7 M parameters."""
    resnet = GpuWork("resnet-18", batch=100)
    assert pictures.operations_of(resnet) == pytest.approx(2 * 100 * (3 * 1.814e9 - 0.118e9), rel=2e-3)
    layers = pictures.pictures.network(resnet)
    assert sum(w.size for w in pictures.pictures.weights(resnet, layers).values()) == pytest.approx(11.68e6, rel=1e-3)
    assert pictures.pictures.shapes(resnet, layers)["s3b1"] == (512, 7, 7)
    deep = {name: GpuWork(name, batch=1) for name in ("resnet-50", "resnet-152")}  # 23.5 and 58.1 M before the classes
    assert [pictures.parameters_of(one) for one in deep.values()] == pytest.approx([23.98e6, 58.52e6], rel=1e-3)
    known = [pictures.operations_of(one) + 0.236e9 for one in deep.values()]  # 4.09 and 11.5e9 multiplications
    assert known == pytest.approx([6 * 4.09e9, 6 * 11.51e9], rel=1e-2)
    cifar = GpuWork("cifar-100", batch=1)
    assert pictures.pictures.shapes(cifar, pictures.pictures.network(cifar))["c5"] == (192, 7, 7)
    ceilings = floor.Ceilings(bandwidth=4e12, float32=50e12, tf32=400e12)
    plain, tf32 = (pictures.floor_of(replace(resnet, precision=one), ceilings) for one in (work.FLOAT32, work.TF32))
    assert (plain.by, tf32.by, tf32.bytes_ms) == ("operations", "operations", plain.bytes_ms)
    made = predict.rows()
    assert {row[2] for row in made} == {"H100", "A10G"}
    assert all(0 < float(row[4].rstrip("%")) <= 100 for row in made)


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
        several = name in ("gpu.facts", "gpu.product")
        self.name, self.found = name, iter(self.given_by[words[0] if several else name])

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
    monkeypatch.setattr(training, "works", lambda quick, tf32: [SMALL, replace(SMALL, precision=work.TF32)][: 1 + tf32])
    monkeypatch.setattr(pictures, "works", lambda quick, tf32: [CIFAR])
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    times = {"mul_c": {"host": 4e-6, "device": 1e-6}, "cupy.multiply": {"host": 8e-6, "device": 1e-6}}
    Scripted.given_by = {
        "device": [{"missing": ""}],
        "gpu": [{"GPU": "Some GPU", "CUDA": "13000", "driver version": "580.1", "tf32": True}],
        "torch": [{"torch": "2.13.0"}],
        "ceilings": [{"bandwidth": 4e12, "float32": 5e13, "tf32": 4e14}],
        "gpu.multiply": [{"n": 1 << 10, "arrays": 128, "times": times, "absent": {"NPP": "not installed"}}],
        "kernels": [{"agree": 46, "differ": {"softmax": [{}]}, "left_out": [], "failure": ""}],
        "pci": [{"way": "to the GPU", "bytes_a_second": 5e10}, {"way": "back", "bytes_a_second": 4e10}],
        "determinism": [{"sha256": "abc"}],
        "launches": [{"ms": {f"kernel {n}": 1.0 for n in range(8)}}],
        "top": [{"customers_a_second": 3e5, "k": 100}],
        "gpu.peer_top": [{"customers_a_second": 1e5}],
        "epoch": [
            {"data": "in memory", "examples": 500, "first": 2.0, "seconds": 1.0},
            {"data": "left in a file", "examples": 500, "first": 2.0, "seconds": 1.25},
        ],
        "tests": [{"test": "a", "outcome": "passed"}, {"test": "b", "outcome": "failed"}],
        "gpu.ours": [{"losses": [1.0]}],
        "gpu.peer": [{"losses": [1.0]}],
    }
    return Scripted.given_by


def test_everything_is_printed_and_kept(scripted, tmp_path, capsys):
    assert command.main([]) == 1  # as rows are missing, and ours is no faster
    kept = json.loads((tmp_path / "gpu-some-gpu.json").read_text())
    assert kept["machine"].startswith("Some GPU, ") and kept["versions"]["torch"] == "2.13.0"
    assert [one["work"]["precision"] for one in kept["training"]] == [work.FLOAT32, work.TF32]
    assert {part["reason"] for part in kept["parts"].values()} == {""}
    rows = {row["workload"]: row for row in kept["rows"]}
    assert rows["data[i] *= c, arrays of 1K floats: mul_c (peer: cupy.multiply)"]["ratio"] == 2
    assert rows["data[i] *= c, arrays of 1K floats: mul_c (peer: NPP)"]["peer"] is None
    assert rows["60-8x3-60, batch 8, Adam, float32 (peer: PyTorch, EmbeddingBag, eager)"]["met"] is False
    images = rows["cifar-100, 8 x 8, batch 4, float32 (peer: PyTorch, compiled, channels last)"]
    assert (images["ours"], images["ratio"], images["unit"]) == (2000, 1, "images/s")
    assert [one["workload"] for one in kept["pictures"]] == ["cifar-100, 8 x 8, batch 4, float32"]
    found = {name: row["ours"] for name, row in rows.items()}
    assert found["kernels that differ from NumPy"] == 1
    assert found["pinned memory to the GPU"] == 50
    assert found["two trainings with one seed: different models"] == 0
    assert found["a step by launches, each waited for: all others"] == 2
    assert found["tests that are meant for a GPU: failed"] == 1
    assert rows["the best 100 items, seen ones left out (peer: PyTorch, topk)"]["ratio"] == 3
    assert rows["an epoch of 500 customers, data left in a file (peer: in memory)"]["ratio"] == 0.8
    out = capsys.readouterr().out
    assert "GPU: Some GPU" in out and "batches prepared meanwhile" in out and "kept in" in out


def test_without_pytorch_or_time_the_rest_is_measured(scripted, tmp_path, monkeypatch):
    scripted["torch"] = [{"reason": "PyTorch is missing"}]
    del scripted["gpu.peer"], scripted["gpu.multiply"], scripted["gpu.peer_top"]
    command.main(["--quick", "--json", str(tmp_path / "own.json")])
    assert not list(tmp_path.glob("gpu*.json"))
    kept = json.loads((tmp_path / "own.json").read_text())
    assert kept["parts"]["multiply"]["reason"].startswith("KeyError")
    peers = [row for row in kept["rows"] if "PyTorch" in row["workload"]]
    assert peers and all(row["ours"] and row["peer"] is None for row in peers)
    scripted |= {"device": [{"missing": ""}], "gpu": [{}], "torch": [{}]}
    monkeypatch.setattr(command, "BUDGET", 0.0)
    command.main([])
    late = json.loads((tmp_path / "gpu-unknown.json").read_text())
    assert {part["reason"] for part in late["parts"].values()} == {"the time for everything was up"}


def failing(after: list[dict]):
    yield from after
    raise processes.NotMeasuredError("gpu.product took too long")


def test_what_a_part_said_before_it_failed_stays(scripted, tmp_path):
    scripted["tests"] = failing([{"test": "a", "outcome": "passed"}])
    scripted["epoch"] = failing(scripted["epoch"][:1])
    scripted["determinism"] = failing([])
    command.main(["--json", str(tmp_path / "own.json")])
    kept = json.loads((tmp_path / "own.json").read_text())
    reasons = {name: kept["parts"][name]["reason"] for name in ("determinism", "epoch", "tests", "top")}
    assert reasons == {name: "gpu.product took too long" if name != "top" else "" for name in reasons}
    rows = {row["workload"]: row["ours"] for row in kept["rows"]}
    assert rows["tests that are meant for a GPU: passed"] == 1
    assert rows["an epoch of 500 customers, data in memory"] == 1
    assert "two trainings with one seed: different models" not in rows
    assert kept["tests"] == [{"test": "a", "outcome": "passed"}]


def test_one_part_alone(scripted, tmp_path):
    command.main(["--only", "pci", "--json", str(tmp_path / "own.json")])
    kept = json.loads((tmp_path / "own.json").read_text())
    assert list(kept["parts"]) == ["gpu", "torch", "ceilings", "pci"]


def test_all_parts_fit_into_nine_minutes():
    first = sum(command.LIMITS[part] for part in ("gpu", "torch", "ceilings", "kernels", "pci", "determinism"))
    assert first + command.LIMITS["training"] < command.BUDGET < 540 - command.LEAST


@pytest.fixture
def tiny(monkeypatch):
    sizes = {"items": 60, "hidden": 8, "density": 0.4, "batches": 3, "batch": 8}
    for module in (product, work):
        monkeypatch.setattr(module, "SMALL", sizes)
    monkeypatch.setattr(product, "COPIED", 64 * 100)


@pytest.mark.parametrize("name", product.PARTS)
@pytest.mark.parametrize("cupy", [Cupy, pytest.param(None, marks=pytest.mark.gpu)])
def test_what_the_product_does(tiny, name, cupy):
    made = product.Apart if name == "launches" else Runtime
    played = cupy and cupy()
    answers = list(product.PARTS[name](True, made(played, Products, folder()) if played else made.open()))
    if played:
        played.check()
    json.dumps(answers)
    rows = list(rows_of(name, answers * (2 if name == "determinism" else 1)))
    assert rows
    assert all(row.ours is not None and row.ours >= 0 and row.met is not False for row in rows)
    assert {row.goal for row in rows} <= {None, 0}


def test_the_tests_say_how_each_went(monkeypatch, capsys):
    class Report:
        nodeid, when, outcome = "a", "call", "failed"

    def played(words, plugins):
        assert words[words.index("-m") + 1] == "gpu"
        plugins[0].pytest_runtest_logreport(Report)

    monkeypatch.setattr(pytest, "main", played)
    product.tests(True)
    assert capsys.readouterr().out == '\n{"test": "a", "outcome": "failed"}\n'


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
    done = call("--only", "ranks", PYTHON=str(python))  # which prints no count of GPUs, so there may be many
    assert done.stdout.splitlines()[1:] == [
        "-m", "scripts.bench.level3", "--only", "gpus", "--json", str(harness.RESULTS / "level3_gpus.json"),
    ]  # fmt: skip
    assert call("--only", "costs", PYTHON=str(python)).stdout.splitlines()[1:] == ["-m", "scripts.bench.gpu.costs"]
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo 0\n')
    done = call("--only", "ranks", PYTHON=str(python))
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("gpu: there is no GPU")
    done = call(PYTHON="/bin/false")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr == "gpu: /bin/false is no Python 3.11 or later; set PYTHON=/path/to/python3.12\n"


def test_without_a_gpu_it_says_what_to_install(scripted, capsys):
    scripted["device"] = [{"missing": "ModuleNotFoundError: No module named 'cupy'"}]
    assert command.main([]) == 75
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("gpu: ModuleNotFoundError: No module named 'cupy'; pip install")
