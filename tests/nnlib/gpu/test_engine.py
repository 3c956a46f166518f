"""Whole trainings on the GPU backend: epochs, validation, stopping and resuming, divergence, memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.engines import Backend
from nnlib.epoch_log import Epoch
from nnlib.errors import DivergedError, NnlibError
from nnlib.evaluation import metrics
from nnlib.gpu.backend import Gpu
from nnlib.gpu.runtime import Runtime
from nnlib.model.examples import Examples, examples_of
from nnlib.training import loop
from nnlib.training.checkpoint import Checkpoints
from tests.nnlib.samples import bits, network_of, random_matrix, sets_of

SETS = sets_of(x=random_matrix(50, 30, 1), y=random_matrix(50, 20, 2))
INPUT = {"Name": "I", "N": "auto", "DataSet": "x"}
HIDDEN = {"Kind": "Hidden", "Name": "H", "N": 8, "Activation": "Tanh", "pDropout": 0.3}
OUTPUT = {"Kind": "Output", "Name": "O", "N": "auto", "DataSet": "y", "Source": ["H", "I"]}
RAW = {"Denoising": {"p": 0.2}, "Layers": [INPUT, HIDDEN, OUTPUT]}


def fit(compute: Backend, validate: Any = None, keeper: Any = None, raw: Any = RAW, sets: Any = SETS, **settings: Any):
    """Return the Fit and what was reported of each epoch."""
    network, epochs = network_of(raw, sets), []
    examples = examples_of(network.spec, sets, "d")
    given = TrainSettings(**{"epochs": 3, "batch": 16, "learning_rate": 0.01} | settings)

    def report(epoch: Epoch) -> None:
        epochs.append((epoch.epoch, epoch.loss, epoch.value))

    found = loop.fit(network, examples, given, compute, report, validate and validate(examples), True, keeper)
    return found, epochs


def by_loss(examples: Examples) -> loop.Validate:
    return lambda evaluator: evaluator.mean_loss(examples)


def by_rank(examples: Examples) -> loop.Validate:
    part = metrics.RankedExamples(examples, 2, None)

    def validate(evaluator: Any) -> float:
        return -metrics.measure(lambda some, k, owned: evaluator.top(some, 2, k, owned)[0], part, (5,))["ndcg@5"]

    return validate


@pytest.mark.parametrize("validate", [None, by_loss, by_rank])
def test_epochs_are_those_of_a_cpu(gpu, validate):
    wanted, found = fit(Cpu(), validate), fit(gpu, validate)
    assert [epoch[0] for epoch in found[1]] == [1, 2, 3]
    for one, other in zip(found[1], wanted[1], strict=True):
        assert (one[2] is None) == (other[2] is None)
        assert one[:2] + one[2:] * bool(one[2]) == pytest.approx(other[:2] + other[2:] * bool(other[2]), rel=1e-4)
    assert (found[0].epochs, found[0].best_epoch) == (wanted[0].epochs, wanted[0].best_epoch)
    for (name, one), (_, other) in zip(found[0].network.arrays(), wanted[0].network.arrays(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5, err_msg=name)


def test_the_same_seed_gives_the_same_bits(gpu):
    one, other, third = (fit(gpu, by_loss, seed=seed) for seed in (1, 1, 2))
    assert (bits(one[0].network), one[1]) == (bits(other[0].network), other[1])
    assert bits(one[0].network) != bits(third[0].network)


class Stopped(Exception):
    """The training was left."""


class Leaving(Checkpoints):
    """Saves and leaves after one step."""

    def __init__(self, folder: Any, step: int) -> None:
        super().__init__(folder, "this one")
        self.last = step

    def after_batch(self, training: loop.Training) -> None:
        if training.position.step == self.last:
            self.save(training)
            raise Stopped


@pytest.mark.parametrize("rule", ["adam", "momentum", "adadelta"])
@pytest.mark.parametrize("step", [1, 4, 6])
def test_a_resumed_training_gives_the_same_bits(gpu, tmp_path, rule, step):
    settings = {"optimizer": rule, "clip": 0.5, "l2": 1e-3}
    wanted = fit(gpu, by_loss, **settings)
    with pytest.raises(Stopped):
        fit(gpu, by_loss, Leaving(tmp_path, step), **settings)
    found = fit(gpu, by_loss, Leaving(tmp_path, -1), **settings)
    assert bits(found[0].network) == bits(wanted[0].network)
    assert found[1] == wanted[1][-len(found[1]) :]


def test_data_in_a_file_give_the_same_bits(gpu, tmp_path):
    from nnlib.data.file import write_data
    from nnlib.data.sets import Data
    from nnlib.data.stream import open_data

    path = tmp_path / "data.nc"
    write_data(path, Data(tuple(SETS.values())))
    streamed = {data_set.name: data_set for data_set in open_data([path], limit_bytes=0, cache_bytes=0).sets}
    assert not hasattr(streamed["x"].rows, "indptr")
    assert bits(fit(gpu, by_rank, sets=streamed)[0].network) == bits(fit(gpu, by_rank)[0].network)


def test_a_training_that_diverges_says_at_which_step(gpu):
    """The network is linear and its rate so large that the errors grow beyond float32 within the epoch."""
    raw = {"ErrorFunction": "L2", "Layers": [INPUT, OUTPUT | {"Activation": "Linear", "Source": "I"}]}
    settings = {"raw": raw, "optimizer": "sgd", "learning_rate": 1e15, "batch": 4, "epochs": 2}
    with pytest.raises(DivergedError) as wanted:
        fit(Cpu(), **settings)
    with pytest.raises(DivergedError) as found:
        fit(gpu, **settings)
    assert str(found.value).split(";")[0].startswith(str(wanted.value).split(", layer")[0])


def test_parameters_that_are_not_finite_are_found(gpu):
    raw = {"ErrorFunction": "L2", "Layers": [INPUT, OUTPUT | {"Activation": "Linear", "Source": "I"}]}
    with pytest.raises(DivergedError, match="the last update failed, weights into layer O are not finite"):
        fit(gpu, raw=raw, optimizer="sgd", learning_rate=1e42, batch=50, epochs=1)


def test_a_network_of_float64_is_refused(gpu):
    network = network_of(RAW, SETS, np.float64)
    with pytest.raises(NnlibError, match="float64 cannot be computed on a GPU, legal: float32"):
        gpu.evaluator(network)


@pytest.mark.parametrize("k", [1, 7, 20, 2000])
def test_rankings_are_those_of_a_cpu(gpu, monkeypatch, k):
    monkeypatch.setattr("nnlib.gpu.evaluator.MOST_RANKED", 7)  # a longer one is ranked on the processors
    network = network_of(RAW, SETS)
    examples = examples_of(network.spec, SETS, "d")
    owned = SETS["y"].take(np.arange(50)).rows
    for excluded in (None, owned):
        items, sums = gpu.evaluator(network).top(examples, 2, k, excluded)
        wanted, wanted_sums = Cpu().evaluator(network).top(examples, 2, k, excluded)
        np.testing.assert_array_equal(items, wanted)
        np.testing.assert_allclose(sums, wanted_sums, rtol=1e-5, atol=1e-6)


def test_scores_that_are_not_finite_are_refused(gpu):
    network = network_of(RAW, SETS)
    network.biases[1][3] = np.nan
    examples = examples_of(network.spec, SETS, "d")
    with pytest.raises(DivergedError, match="an output is not a finite number"):
        gpu.evaluator(network).top(examples, 2, 5, None)
    with pytest.raises(DivergedError, match="the validation loss is nan"):
        gpu.evaluator(network).mean_loss(examples)


def engine_of(compute: Backend, sets: Any = SETS, **settings: Any):
    network = network_of(RAW, sets)
    given = TrainSettings(**{"epochs": 400, "batch": 16} | settings)
    return compute.engine(network, examples_of(network.spec, sets, "d"), given)


def run(engine: Any, batches: Any) -> None:
    for batch in engine.batches(batches):
        engine.run(batch)
    engine.total()


def test_a_step_takes_no_memory_and_is_one_graph(cupy):
    engine = engine_of(Gpu(cupy.runtime()))
    batches = [np.arange(low, low + 16) for low in (0, 16, 32, 0)]
    engine.begin_epoch(0.0)
    run(engine, batches)
    taken, launched = cupy.taken, len(cupy.launched)
    run(engine, batches * 10)
    assert (cupy.taken, len(cupy.launched)) == (taken, launched)


def test_batches_that_need_more_room_get_it(cupy):
    """The first batch has almost nothing in it, so what graphs were captured of must move."""
    few, many = random_matrix(48, 30, 1, 0.02), random_matrix(48, 30, 3, 0.9)
    x = np.concatenate([few.toarray()[:32], many.toarray()[32:]])
    sets = SETS | sets_of(x=type(few)(x), y=random_matrix(48, 20, 2))
    found = []
    for compute in (Gpu(cupy.runtime()), Cpu()):
        engine = engine_of(compute, sets, optimizer="sgd", learning_rate=0.1)
        engine.begin_epoch(0.0)
        run(engine, [np.arange(low, low + 16) for low in (0, 16, 0, 32, 16, 32, 0)])
        engine.settle()
        found.append(dict(engine.pull().arrays()) | {"total": engine.total()})
    for name, array in found[1].items():
        np.testing.assert_allclose(found[0][name], array, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.gpu
def test_twenty_runs_on_a_gpu_give_the_same_bits():
    with Gpu.open(2) as gpu:
        assert len({bits(fit(gpu, by_rank, clip=0.5)[0].network) for _ in range(20)}) == 1


@pytest.mark.gpu
def test_large_products_give_the_same_bits_as_graphs_and_piece_by_piece(monkeypatch):
    """The first batch of a size is launched piece by piece, also after a training was resumed; cuBLAS must not mind."""
    wide = sets_of(x=random_matrix(256, 27_278, 1, 0.005), y=random_matrix(256, 27_278, 2, 0.005))
    raw = {"Layers": [INPUT, {"Kind": "Hidden", "Name": "H", "N": 1024}, OUTPUT | {"Source": "H"}]}
    found = []
    with Gpu.open(2) as gpu:
        for graphs in (True, False):
            if not graphs:
                monkeypatch.setattr(Runtime, "captured", lambda _, work: work)
                monkeypatch.setattr(Runtime, "replay", lambda _, work: work())
            network = network_of(raw, wide)
            engine = gpu.engine(network, examples_of(network.spec, wide, "d"), TrainSettings(batch=256))
            engine.begin_epoch(0.0)
            run(engine, [np.arange(256)] * 6)
            engine.settle()
            found.append(bits(engine.pull()))
    assert found[0] == found[1]


@pytest.mark.gpu
def test_memory_of_a_gpu_stays_flat_over_a_thousand_steps():
    import cupy

    pool = cupy.get_default_memory_pool()
    with Gpu.open(2) as gpu:
        engine = engine_of(gpu)
        engine.begin_epoch(0.0)
        batches = [np.arange(low, low + 16) for low in (0, 16, 32, 0)]
        run(engine, batches)
        before = pool.total_bytes()
        run(engine, batches * 250)
        assert pool.total_bytes() == before


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_compute_sanitizer_finds_nothing(tool):
    program = shutil.which("compute-sanitizer")
    if program is None:
        pytest.skip("no compute-sanitizer; it comes with the CUDA toolkit")
    tests = [str(Path(__file__).with_name("test_parity.py")), "-k", "real and (sources or inputs or limits or adam)"]
    command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "pytest", "-q", *tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.gpu
def test_tf32_is_near_float32():
    with Gpu.open(1) as gpu:
        one, other = (fit(gpu, by_loss, precision=precision)[1] for precision in ("float32", "tf32"))
        assert one[-1] == pytest.approx(other[-1], rel=1e-2)


def test_without_a_gpu_there_is_a_reason(monkeypatch):
    monkeypatch.setattr("nnlib.gpu.runtime._cupy", lambda: (_ for _ in ()).throw(ImportError("No module named 'cupy'")))
    with pytest.raises(
        NnlibError, match=r"no GPU can be used: No module named 'cupy'; install regiondag\[gpu-cuda13\]"
    ):
        Runtime.open()
