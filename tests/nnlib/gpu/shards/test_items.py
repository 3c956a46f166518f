"""A network cut by items on 1, 2, 4 and 8 GPUs: the same bits, over a played NCCL or through this machine's memory."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.data.rows import Csr
from nnlib.data.sets import DataSet, as_data_set
from nnlib.gpu import engine, packing
from nnlib.gpu.backend import Gpu
from nnlib.gpu.runtime import Runtime
from nnlib.gpu.shards import nccl
from nnlib.model.examples import Examples, examples_of
from nnlib.model.network import Network
from nnlib.shards.collectives import Collectives
from nnlib.shards.cut import Cut
from nnlib.shards.plan import LEAST, plan_of
from tests.kernels.standin import Cupy, write_kernels
from tests.nnlib.cpu.test_shards import LAYERS
from tests.nnlib.gpu.test_parity import TOLERANCE, compare
from tests.nnlib.samples import network_of, random_matrix, sets_of
from tests.nnlib.shards.together import run_ranks
from tests.nnlib.shards.trained import HIDDEN, INPUT, OUTPUT, PLAIN, SETS

EXAMPLES, BATCH, STEPS = 12, 7, 5  # the last batch of an epoch is short


def wide(units: int = LEAST + 5, boolean: bool = True, **keys: Any) -> tuple[dict[str, Any], dict[str, DataSet]]:
    """A network with two wide inputs, two wide outputs, one of them dense, and a narrow input and output."""
    sets = sets_of(
        x=random_matrix(EXAMPLES, units, 1, 0.01, not boolean),
        w=random_matrix(EXAMPLES, LEAST + 7, 2, 0.01),
        n=random_matrix(EXAMPLES, 30, 3),
        y=random_matrix(EXAMPLES, LEAST + 30, 4, 0.01, not boolean),
    )
    sets["z"] = as_data_set("z", np.random.default_rng(5).random((EXAMPLES, LEAST + 1)))
    layers = [
        {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"},
        {"Name": "J", "Kind": "Input", "N": "auto", "DataSet": "w"},
        {"Name": "K", "Kind": "Input", "N": "auto", "DataSet": "n"},
        {"Name": "H", "Kind": "Hidden", "N": 6, "Source": ["I", "J", "K"], "Activation": "Tanh", "pDropout": 0.2},
        {"Name": "G", "Kind": "Hidden", "N": 5, "Source": "H", "BatchNormalization": True},
        {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y", "Source": ["H", "G"]},
        {"Name": "P", "Kind": "Output", "N": "auto", "DataSet": "z", "Source": "G", "Activation": "Sigmoid"},
        {"Name": "Q", "Kind": "Output", "N": "auto", "DataSet": "n", "Source": "H"},
    ]
    return {"Layers": layers, "Denoising": {"p": 0.3}} | keys, sets


def softmax() -> tuple[dict[str, Any], dict[str, DataSet]]:
    raw, sets = wide()
    raw["Layers"][5]["Activation"] = "SoftMax"
    return raw, sets


def plain(activation: str = "Sigmoid", **keys: Any) -> tuple[dict[str, Any], dict[str, DataSet]]:
    """One wide input, one wide output."""
    sets = sets_of(x=random_matrix(EXAMPLES, LEAST + 3, 1, 0.01), y=random_matrix(EXAMPLES, LEAST + 900, 4, 0.01))
    layers = [
        {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"},
        {"Name": "H", "Kind": "Hidden", "N": 8, "Activation": "Relu"},
        {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y", "Activation": activation},
    ]
    return {"Layers": layers} | keys, sets


class Training:
    """The same training on each of some ranks."""

    def __init__(self, raw: dict[str, Any], sets: dict[str, DataSet], **settings: Any) -> None:
        self.start = network_of(raw, sets)
        self.examples: Examples = examples_of(self.start.spec, sets, "d")
        given = {"batch": BATCH, "epochs": 9, "parallel": "items", "learning_rate": 0.05, "seed": 5}
        self.settings = TrainSettings(**given | settings)
        self.plan = plan_of(self.start.spec, BATCH, "items")
        assert self.plan.wide

    def run(
        self, ranks: int, over: str, steps: int = STEPS, resumed: dict[str, Any] | None = None, real: bool = False
    ) -> dict[str, Any]:
        """Return whole arrays, the losses and what an evaluator says, the same on all ranks; `real`: through CuPy."""
        whole = self.start.copy()
        if resumed is not None:
            for name, array in whole.arrays():
                array[...] = resumed["arrays"][name]

        def rank(host: Collectives) -> tuple[Any, ...]:
            cupy = Cupy()
            backend = Gpu(Runtime.open() if real else cupy.runtime())
            together = backend.join(host) if ranks > 1 and over == "nccl" else host
            cut = Cut(self.plan, whole.spec, host.own)
            training = backend.part(cut.network(whole).copy(), self.examples, self.settings, cut, together)
            done = 0
            if resumed is not None:
                done = resumed["step"]
                training.resume(done, {name: cut.take(name, state).copy() for name, state in resumed["states"].items()})
            training.begin_epoch(0.0 if resumed is None else resumed["total"])
            order = np.random.default_rng(1)
            sizes = (BATCH, EXAMPLES - BATCH)
            rows = [order.permutation(self.examples.count)[: sizes[step % 2]] for step in range(steps)]
            totals = []
            for batch in training.batches(rows[done:]):
                training.run(batch)
                totals += [training.total()] if training.step % 3 == 0 else []
            failure = training.failed(wait=True)
            totals.append(training.total())
            training.settle()
            assert not failure and not training.broken()
            asked = ask(training.evaluator(), self.start, self.examples)
            parts = dict(training.pull().arrays()), dict(training.states())
            cupy.check()
            return cut, parts, totals, asked, together

        found = run_ranks(ranks, rank)
        arrays: dict[str, np.ndarray] = {}
        states: dict[str, np.ndarray] = {}
        for cut, parts, *_ in found:
            for own, all_of in zip(parts, (arrays, states), strict=True):
                for name, local in own.items():
                    cut.put(name, local, all_of.setdefault(name, np.zeros(whole_shape(self.start, name), np.float32)))
        totals, asked = found[0][2:4]
        for _, _, others, other_asked, _ in found:
            assert others == totals
            assert other_asked == asked
        sent = [together.sent.total() for *_, together in found] if over == "nccl" and ranks > 1 else []
        return {
            "arrays": arrays,
            "states": states,
            "totals": totals,
            "total": totals[-1],
            "asked": asked,
            "step": steps,
            "sent": sent,
        }


def whole_shape(network: Network, name: str) -> tuple[int, ...]:
    return dict(network.arrays())[name.partition("_state")[0]].shape


def ask(evaluator: Any, network: Network, examples: Examples) -> dict[str, str]:
    """Return digests of everything that an evaluator says."""
    found: dict[str, Any] = {"loss": evaluator.mean_loss(examples)}
    some = examples.take(np.arange(5))
    for number, layer in enumerate(network.spec.layers):
        if layer.kind.value != "Input":
            found[f"values {layer.name}"] = evaluator.values(some, number)
        if layer.kind.value == "Output":
            units = layer.units
            found[f"sums {layer.name}"] = evaluator.sums(some, number)
            owned = Csr(
                np.arange(0, 3 * some.count + 1, 3), np.tile([0, 7, units - 1], some.count).astype(np.int32), units
            )
            for k in (1, 20, min(600, units)):
                found[f"top {layer.name} {k}"] = np.concatenate(evaluator.top(some, number, k, owned), axis=1)
            found[f"top {layer.name}"] = np.concatenate(evaluator.top(some, number, 30, None), axis=1)
    return {name: digest({name: np.asarray(values)}) for name, values in found.items()}


def digest(arrays: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for kind in ("arrays", "states"):
        for name, array in wanted[kind].items():
            np.testing.assert_array_equal(found[kind][name].view(np.int32), array.view(np.int32), err_msg=name)
    assert found["totals"] == wanted["totals"]
    assert found["asked"] == wanted["asked"]


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    write_kernels()


CASES: dict[str, tuple[tuple[dict[str, Any], dict[str, DataSet]], dict[str, Any]]] = {
    "adam": (wide(), {"optimizer": "adam"}),
    "clipped": (wide(boolean=False), {"optimizer": "momentum", "clip": 0.01}),
    "accumulated": (plain(Denoising={"p": 0.3}), {"optimizer": "adagrad", "accumulate": 2, "clip": 0.01}),
    "softmax": (plain("SoftMax"), {"optimizer": "sgd", "learning_rate": 0.001}),
    "weight decay": (plain(), {"optimizer": "rmsprop", "l2": 0.01}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_bits_do_not_depend_on_how_many_gpus_there_are(case):
    (raw, sets), settings = CASES[case]
    training = Training(raw, sets, **settings)
    wanted = training.run(1, "alone")
    same(training.run(8, "host"), wanted)
    for ranks in (4, 8) if case == "clipped" else (2,):
        same(training.run(ranks, "nccl"), wanted)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_every_kind(name):
    training = Training(PLAIN | LAYERS[name], SETS, optimizer="adam", learning_rate=0.01)
    same(training.run(4, "nccl", 3), training.run(1, "alone", 3))


@pytest.mark.parametrize("activation", ["Sigmoid", "SoftMax"])
@pytest.mark.parametrize("alone", [False, True])
def test_weights_of_examples_and_targets_that_alone_count(activation, alone):
    weights = np.linspace(0.5, 2, len(SETS["y"].rows.indptr) - 1).astype(np.float32)
    sets = SETS | {name: dataclasses.replace(SETS[name], weights=weights) for name in ("x", "y")}
    sets["y"] = dataclasses.replace(sets["y"], ignore_zero=alone)
    training = Training({"Layers": [INPUT, HIDDEN, OUTPUT | {"Activation": activation}]}, sets, optimizer="adam")
    same(training.run(2, "nccl", 2), training.run(1, "alone", 2))


@pytest.mark.gpu
@pytest.mark.parametrize("case", ["clipped", "softmax"])
def test_two_ranks_on_one_gpu_have_the_bits_of_one(case):
    """They meet in this machine's memory: NCCL takes two GPUs, see `scripts/bench/gpu.sh --only ranks`."""
    (raw, sets), settings = CASES[case]
    training = Training(raw, sets, **settings)
    wanted = training.run(1, "alone", real=True)
    same(training.run(2, "host", real=True), wanted)
    same(training.run(8, "host", real=True), wanted)


def differs(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return digest(found["arrays"]) != digest(wanted["arrays"])


def test_noise_by_a_ranks_own_entries_is_found(monkeypatch):
    """The check of bits can fail: here places count what a rank has, not the whole batch."""
    training = Training(*plain(Denoising={"p": 0.3}), optimizer="adam")
    cut_input = packing._cut_input

    def mistaken(*arguments: Any) -> dict[str, Any]:
        found = cut_input(*arguments)
        kept = np.sort(found["origins"])
        return found | {name: np.searchsorted(kept, found[name]) for name in ("origins", "places") if name in found}

    wanted = training.run(1, "alone", steps=2)
    monkeypatch.setattr(packing, "_cut_input", mistaken)
    assert not differs(training.run(1, "alone", steps=2), wanted)
    assert differs(training.run(2, "nccl", steps=2), wanted)


def test_a_sum_in_the_order_of_ranks_is_found(monkeypatch):
    training = Training(*plain(), optimizer="adam")
    wanted = training.run(4, "nccl", steps=2)

    def in_turn(runtime: Any, parts: Any, out: Any, own: Any, place: int) -> None:
        kept = runtime.zeros(out.shape)
        for n, part in enumerate(parts):
            runtime.launch("add", (1,), kept, own if n == place else part, out.size)
        runtime.move(out, kept)

    monkeypatch.setattr(nccl, "tree_sum", in_turn)
    assert differs(training.run(4, "nccl", steps=2), wanted)


def test_a_checkpoint_of_some_gpus_goes_on_on_others():
    raw, sets = plain(Denoising={"p": 0.3})
    training = Training(raw, sets, optimizer="adam")
    wanted = training.run(1, "alone")
    half = training.run(4, "nccl", steps=3)
    for ranks in (1, 2):
        found = training.run(ranks, "nccl", resumed=half)
        assert found["totals"][-1] == wanted["totals"][-1]
        same(found, wanted | {"totals": found["totals"]})


def test_bytes_are_those_of_the_formula():
    """16 b h (R - 1) / R a step: after the input and before the output a sum of (b, h), each as a ring's."""
    raw, sets = plain()
    training = Training(raw, sets, optimizer="sgd", learning_rate=0.001)
    b, h = [BATCH, EXAMPLES - BATCH, BATCH], 8
    for ranks in (2, 4, 8):
        before, after = (training.run(ranks, "nccl", steps=steps)["sent"] for steps in (1, 4))
        for one, four in zip(before, after, strict=True):
            assert four - one == sum(16 * size * h * (ranks - 1) // ranks for size in (b[1], b[0], b[1]))


@pytest.mark.parametrize("case", [wide, softmax, plain])
def test_gradients_are_those_of_a_processor(gpu, case):
    compare(gpu, *case(), steps=2, tolerance=16 * TOLERANCE, parallel="items")


def test_errors_are_added_up_when_there_is_no_room_for_more_of_them(monkeypatch):
    raw, sets = plain()
    training = Training(raw, sets, optimizer="sgd", learning_rate=0.001)
    wanted = training.run(1, "alone", steps=7)
    monkeypatch.setattr(engine, "LOSSES", 2)
    same(training.run(2, "nccl", steps=7), wanted)
