"""Whole trainings on the GPU backend: epochs, validation, stopping and resuming, divergence, memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS, TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.engines import Backend
from nnlib.epoch_log import Epoch
from nnlib.errors import DivergedError, NnlibError
from nnlib.evaluation import metrics
from nnlib.gpu import engine as gpu_engine
from nnlib.gpu.backend import Gpu
from nnlib.gpu.runtime import Runtime
from nnlib.model.examples import Examples, examples_of
from nnlib.ops.bf16 import from_bf16, to_bf16
from nnlib.training import loop
from nnlib.training.checkpoint import Checkpoints
from tests.nnlib.samples import bits, network_of, random_matrix, sets_of

SETS = sets_of(x=random_matrix(50, 30, 1), y=random_matrix(50, 20, 2))
INPUT = {"Name": "I", "N": "auto", "DataSet": "x"}
HIDDEN = {"Kind": "Hidden", "Name": "H", "N": 8, "Activation": "Tanh", "pDropout": 0.3}
OUTPUT = {"Kind": "Output", "Name": "O", "N": "auto", "DataSet": "y", "Source": ["H", "I"]}
SHARING = {  # its input's weights are used twice, next to some that only the rows of a batch touch
    "Layers": [
        INPUT,
        {"Kind": "Hidden", "Name": "A", "N": 8, "Activation": "Tanh"},
        {
            "Kind": "Hidden",
            "Name": "H",
            "N": 8,
            "Activation": "Relu",
            "Source": "I",
            "SharedWeights": {"InputLayer": "I", "SourceInputLayer": "I", "SourceOutputLayer": "A"},
        },
        OUTPUT | {"Source": ["H", "A", "I"]},
    ]
}
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


MORE: list[dict[str, Any]] = [
    {},
    {"schedule": "onecycle", "scale_rate": "sqrt"},
    {"batch": 8, "accumulate": 3, "clip": 0.1, "l2": 1e-3},
    {"ema": 0.9, "batch": 8, "accumulate": 2},
    {"schedule": "plateau", "decay_epochs": 1, "decay_rate": 0.25, "optimizer": "momentum", "learning_rate": 2.0},
]


@pytest.mark.parametrize("validate", [None, by_loss, by_rank])
@pytest.mark.parametrize("more", MORE, ids=["default", "cycle", "several", "mean", "plateau"])
def test_epochs_are_those_of_a_cpu(gpu, validate, more):
    wanted, found = fit(Cpu(), validate, **more), fit(gpu, validate, **more)
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


@pytest.mark.parametrize("rule", ["adam", "nesterov"])
def test_a_plateau_from_the_start_is_a_schedule_in_steps(gpu, rule):
    one, other, third = (
        bits(fit(gpu, lambda _: lambda _: float("nan"), schedule=name, decay_epochs=1, optimizer=rule)[0].network)
        for name in ("plateau", "step", "constant")
    )
    assert one == other != third


@pytest.mark.parametrize("rule", OPTIMIZERS)
@pytest.mark.parametrize("clip", [0, 0.05])
@pytest.mark.parametrize("compat", [False, True])
def test_batches_that_make_one_update_are_one_batch(gpu, rule, clip, compat):
    """50 examples in batches of 8, three an update: 24, 24 and 2 examples; as batches of 24, but for rounding."""
    given = {"raw": SHARING, "optimizer": rule, "clip": clip, "l2": 1e-3, "learning_rate": 0.003, "compat": compat}
    one, epochs = fit(gpu, batch=8, accumulate=3, **given)
    other, wanted = fit(Cpu(), batch=24, **given)
    for (name, found), (_, whole) in zip(one.network.arrays(), other.network.arrays(), strict=True):
        np.testing.assert_allclose(found, whole, rtol=1e-3, atol=2e-4, err_msg=name)
    assert [epoch[1] for epoch in epochs] == pytest.approx([epoch[1] for epoch in wanted], rel=1e-4)


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
@pytest.mark.parametrize("more", [*MORE[:1], *MORE[3:]], ids=["default", "mean", "plateau"])
def test_a_resumed_training_gives_the_same_bits(gpu, tmp_path, rule, step, more):
    if more.get("accumulate"):
        step = {1: 2, 4: 7, 6: 13}[step]  # the ends of updates: 7 batches an epoch, two an update
    settings = {"clip": 0.5, "l2": 1e-3} | more | {"optimizer": rule, "learning_rate": 0.01}
    wanted = fit(gpu, by_loss, **settings)
    with pytest.raises(Stopped):
        fit(gpu, by_loss, Leaving(tmp_path, step), **settings)
    found = fit(gpu, by_loss, Leaving(tmp_path, -1), **settings)
    assert bits(found[0].network) == bits(wanted[0].network)
    assert found[1] == wanted[1][-len(found[1]) :]


DEEP = {  # dense products forwards and backwards, with a depth and widths that are no multiples of eight
    "Layers": [
        INPUT,
        {"Kind": "Hidden", "Name": "A", "N": 9, "Activation": "Tanh"},
        {"Kind": "Hidden", "Name": "B", "N": 13, "Activation": "Relu"},
        OUTPUT | {"Source": "B"},
    ]
}


def test_bfloat16_is_that_of_a_cpu(gpu):
    """Factors are rounded alike; where a sum in another order is rounded the other way, an eighth digit is lost."""
    found, wanted, plain = (
        fit(compute, by_loss, raw=DEEP, epochs=2, optimizer="sgd", learning_rate=0.1, precision=precision)
        for compute, precision in ((gpu, "bf16"), (Cpu(), "bf16"), (Cpu(), "float32"))
    )
    assert found[0].precision == "bf16"
    pairs = [(dict(one[0].network.arrays()), dict(wanted[0].network.arrays())) for one in (found, plain)]
    near, far = (max(float(np.abs(one[n] - other[n]).max()) for n in one) for one, other in pairs)
    assert near < 2e-5 < 1e-4 < far
    assert [epoch[2] for epoch in found[1]] == pytest.approx([epoch[2] for epoch in wanted[1]], rel=1e-5)


def test_bfloat16_gives_the_same_bits_again_and_measures_in_float32(gpu):
    losses = []
    for _ in range(2):
        network = network_of(DEEP, SETS)
        examples = examples_of(network.spec, SETS, "d")
        engine = gpu.engine(network, examples, TrainSettings(batch=16, precision="bf16"))
        engine.begin_epoch(0.0)
        run(engine, [np.arange(low, low + 16) for low in (0, 16, 32, 0, 16, 32)] + [np.arange(2)])
        engine.settle()
        losses.append((engine.total(), engine.evaluator().mean_loss(examples)))
        assert losses[-1][1] == gpu.evaluator(engine.pull()).mean_loss(examples)
    assert losses[0] == losses[1]


def test_larger_factors_of_bfloat16_find_room_beside_graphs(cupy):
    """What a graph was captured with stays, when a later product needs more."""
    runtime = cupy.runtime()
    random = np.random.default_rng(1)
    arrays = {n: [random.random((n, n), np.float32) for _ in range(2)] for n in (8, 40)}
    found, graphs = {}, {}
    for n, pair in arrays.items():
        a, b, out = (runtime.zeros((n, n)) for _ in range(3))
        for target, values in zip((a, b), pair, strict=True):
            runtime.upload(target, values)
        multiply = partial(runtime.multiply, a, b, out, add=False, scale=1.0, precision="bf16")
        multiply()
        graphs[n], found[n] = runtime.capture(multiply), out
    for n, graph in graphs.items():
        runtime.clear(found[n])
        runtime.replay(graph)
        one, other = (from_bf16(to_bf16(values)) for values in arrays[n])
        np.testing.assert_allclose(runtime.download(found[n]), one @ other, rtol=1e-6)


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
    assert str(found.value) == str(wanted.value)


def test_parameters_that_are_not_finite_are_found(gpu):
    raw = {"ErrorFunction": "L2", "Layers": [INPUT, OUTPUT | {"Activation": "Linear", "Source": "I"}]}
    with pytest.raises(DivergedError, match=r"^epoch 1, batch 1, step 1: weights into layer O are not finite"):
        fit(gpu, raw=raw, optimizer="sgd", learning_rate=1e42, batch=50, epochs=1)


DEEP = {"Layers": [INPUT, HIDDEN, HIDDEN | {"Name": "G", "N": 7}, OUTPUT | {"Source": "G"}]}


@pytest.mark.parametrize("layer", ["H", "G", "O"])
@pytest.mark.parametrize("more", [{}, {"clip": 1e30}, {"batch": 5, "accumulate": 3}], ids=["plain", "clip", "several"])
def test_weights_that_an_update_breaks_are_found_in_its_batch(gpu, layer, more):
    """The rate of one layer is out of all bounds; steps go on for a while before that is seen."""
    raw = DEEP | {"FineTuning": {"Rates": dict.fromkeys("HGO", 1e-30) | {layer: 1e38}}}
    said = []
    for compute in (Cpu(), gpu):
        with pytest.raises(DivergedError) as caught:
            fit(compute, raw=raw, optimizer="sgd", learning_rate=1e6, **more)
        said.append(str(caught.value))
    assert said[0] == said[1] and f"weights into layer {layer} are not finite" in said[0]


@pytest.mark.parametrize("second", [0.1, 0.0])
def test_values_of_a_hidden_layer_are_found_in_their_batch(gpu, second):
    """The first layer overflows; the second turns infinity into one, or with weights of zero into what is no number."""
    layers = [INPUT, HIDDEN | {"Activation": "Relu", "pDropout": 0}, *DEEP["Layers"][2:]]
    said = []
    for compute in (Cpu(), gpu):
        network = network_of(DEEP | {"Layers": layers}, SETS)
        network.stores[0][...], network.stores[1][...] = 3e38, second
        given = TrainSettings(epochs=1, batch=16, learning_rate=1e-30, optimizer="sgd")
        with pytest.raises(DivergedError) as caught, np.errstate(all="ignore"):  # of products without a GPU
            loop.fit(network, examples_of(network.spec, SETS, "d"), given, compute, lambda _: None)
        said.append(str(caught.value))
    assert said[0] == said[1]
    loss = "" if second else "loss is nan, "
    assert said[0].startswith(f"epoch 1, batch 1, step 1: {loss}layer H gives numbers that are not finite; ")


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


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_step_takes_no_memory_and_is_one_graph(cupy, precision):
    engine = engine_of(Gpu(cupy.runtime()), precision=precision)
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
                monkeypatch.setattr(Runtime, "capture", lambda _, work: work)
                monkeypatch.setattr(Runtime, "replay", lambda _, work: work())
            network = network_of(raw, wide)
            engine = gpu.engine(network, examples_of(network.spec, wide, "d"), TrainSettings(batch=256))
            engine.begin_epoch(0.0)
            run(engine, [np.arange(256)] * 6)
            engine.settle()
            found.append(bits(engine.pull()))
    assert found[0] == found[1]


@pytest.mark.gpu
def test_products_of_rows_far_apart():
    """The last row starts beyond entry 2^31."""
    import cupy

    far = (1 << 30) + 32
    if cupy.cuda.runtime.memGetInfo()[0] < 4.2 * 3 * far:
        pytest.skip("a GPU with 14 GB of free memory")
    runtime, a, b = Runtime.open(), *(np.random.default_rng(n).random((3, 64), np.float32) for n in (1, 2))
    with runtime.faults():
        left, out = runtime.zeros((3, far)), runtime.zeros((3, 3))
        right = runtime.zeros((3, 64))
        runtime.upload(right, b)
        for row in range(3):
            runtime.upload(left[row, :64], a[row])
        runtime.multiply(left[:, :64], right, out, (False, True), add=False, scale=1.0, precision="float32")
        np.testing.assert_allclose(runtime.download(out), a @ b.T, rtol=1e-5)


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


def test_no_batch_of_a_network_that_is_not_cut_is_waited_for(cupy, monkeypatch):
    monkeypatch.setattr(gpu_engine, "LOSSES", 2)  # after so many one that is cut has its errors added up
    network, runtime = network_of(RAW, SETS), cupy.runtime()
    training = Gpu(runtime).engine(network, examples_of(network.spec, SETS, "d"), TrainSettings(batch=16))
    training.begin_epoch(0.0)
    with monkeypatch.context() as waiting:
        waiting.setattr(runtime, "download", lambda array: pytest.fail("a batch is waited for"))
        for batch in training.batches([np.arange(16)] * 5):
            training.run(batch)
    assert training.total() > 0


def test_without_a_gpu_there_is_a_reason(monkeypatch):
    monkeypatch.setattr("nnlib.gpu.runtime._cupy", lambda: (_ for _ in ()).throw(ImportError("No module named 'cupy'")))
    with pytest.raises(
        NnlibError, match=r"no GPU can be used: No module named 'cupy'; install regiondag\[gpu-cuda13\]"
    ):
        Runtime.open()
