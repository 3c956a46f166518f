"""Trainings of image networks: the same bits on any number of threads and after any stop; limits; what is learned."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from nnlib.contract import TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.cpu.forward import Forward
from nnlib.cpu.maps import layers, pieces
from nnlib.errors import EvictedError, NotFiniteError
from nnlib.model.examples import examples_of
from nnlib.model.fine_tuning import freeze
from nnlib.training import loop
from nnlib.util.threads import map_in_turn, workers
from tests.nnlib.image_cases import BRANCHES, NORMED, classes, conv, image_network, pixels, pooled
from tests.nnlib.samples import bits, network_of, sets_of
from tests.nnlib.training.test_checkpoint import Evicting

pytestmark = pytest.mark.slow

EXAMPLES = 26
SETS = sets_of(x=pixels(examples=EXAMPLES).astype(np.float32), y=classes(EXAMPLES))
SHARED = {"InputLayer": "J", "SourceInputLayer": "C", "SourceOutputLayer": "D"}
ALL = image_network(  # every kind of layer, limit and noise
    *BRANCHES,
    pooled("C", "Sum", Source=["A", "B"], **NORMED, Activation="Relu", pDropout=0.2),
    conv("D", 4, **NORMED, WeightNorm=0.9, DeltaNorm=0.5, pDropout=0.2, DropChannels=True, Skip="C"),
    pooled("E", "LRN"),
    pooled("F", "Max", 3, 3, stride=2, Padding=1),
    pooled("G", "GlobalAverage", Source="E"),
    conv("H", 4, 1, 1, Source="G", Activation="Sigmoid"),
    pooled("J", "Product", Source=["F", "H"]),
    pooled("K", "Average", 2, 2, Source="F"),
    conv("L", 4, Source="J", Activation="ELU", Sparse=True, Padding=1, SharedWeights=SHARED),
    pooled("M", "Concatenate", Source=["L", "K"], **NORMED),
    {"Name": "N", "Kind": "Hidden", "N": 6, "Source": "M", "Activation": "Tanh", **NORMED},
    SparsenessPenalty={"p": 0.2, "beta": 0.1},
)
PLAIN = image_network(conv("A", 4, WeightNorm=0.6), pooled("B", "Max", 2, 2, stride=2), conv("C", 4, **NORMED))


def fit(raw=ALL, each=map_in_turn, keeper=None, validate=None, frozen=0, **changes):
    network = network_of(raw, SETS)
    if frozen:
        network = freeze(network, frozen)
    given = TrainSettings(**{"epochs": 3, "batch": 8, "learning_rate": 0.01} | changes)
    reported = []
    found = loop.fit(
        network, examples_of(network.spec, SETS, "d"), given, Cpu(each), reported.append, validate, keeper=keeper
    )
    return found.network, [epoch.loss for epoch in reported]


@pytest.mark.parametrize(
    ("raw", "more"),
    [
        (ALL, {}),
        (ALL, {"clip": 0.1, "batch": 4, "accumulate": 3, "ema": 0.9}),
        (PLAIN, {"optimizer": "momentum", "l2": 1e-3}),
    ],
    ids=["all", "several", "at once"],
)
def test_same_bits_on_any_number_of_threads(monkeypatch, backend, raw, more):
    monkeypatch.setattr(pieces, "NUMBERS", 60)
    monkeypatch.setattr(layers, "MAPS", 3)
    seen = set()
    for threads in (1, 2, 8):
        with workers(threads) as each:
            network, losses = fit(raw, each, **more)
        seen.add((bits(network), tuple(losses)))
    assert len(seen) == 1


@pytest.mark.parametrize("more", [{}, {"clip": 0.1, "batch": 4, "accumulate": 3, "ema": 0.9}], ids=["plain", "several"])
def test_stopped_anywhere_and_resumed_as_if_never_stopped(tmp_path, more):
    wanted, losses = fit(**more)
    steps = {1, 3, 7}
    while True:
        try:
            found, last = fit(keeper=Evicting(tmp_path, steps), **more)
            break
        except EvictedError:
            continue
    assert bits(found) == bits(wanted)
    assert last == losses[-len(last) :]


def test_the_size_of_pieces_changes_nothing_but_sums(monkeypatch):
    """Statistics and gradients of a map are those of a whole map, whatever else is in its piece."""
    wanted, losses = fit(PLAIN, optimizer="sgd")  # which does not make much of the rounding of a zero
    monkeypatch.setattr(pieces, "NUMBERS", 1)
    found, others = fit(PLAIN, optimizer="sgd")
    np.testing.assert_allclose(losses, others, rtol=1e-5)
    for (_, one), (_, other) in zip(wanted.arrays(), found.arrays(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_kernels_of_a_map_keep_the_limit_of_their_norm():
    network, _ = fit(PLAIN, learning_rate=0.1)
    norms = np.linalg.norm(network.stores[0], axis=1)
    assert network.stores[0].shape == (4, 18)
    assert norms.max() == pytest.approx(0.6, rel=1e-5)


def test_frozen_kernels_and_statistics_stay_and_what_is_before_them_learns():
    raw = image_network(
        conv("A", 3, **NORMED), conv("B", 3, **NORMED), pooled("C", "Max", 2, 2), FineTuning={"Freeze": ["B"]}
    )
    before = network_of(raw, SETS)
    after, _ = fit(raw)
    changed = {
        name for (name, one), (_, other) in zip(before.arrays(), after.arrays(), strict=True) if (one != other).any()
    }
    kept = {"weights1", "bias1", *(f"norm2_{name}" for name in ("scale", "bias", "mean", "variance"))}
    assert changed == {name for name, _ in before.arrays()} - kept


def test_whole_maps_are_dropped():
    raw = image_network(conv("A", 8, pDropout=0.5, DropChannels=True, Activation="Relu"), conv("B", 2))
    network = network_of(raw, SETS)
    engine = Cpu().engine(network, examples_of(network.spec, SETS, "d"), TrainSettings(batch=EXAMPLES))
    engine.step = 3
    forward = Forward(network)
    values = forward.run({0: pixels(examples=EXAMPLES).astype(np.float32)}, engine._keep, training=True)
    keep = values.keep[1].reshape(EXAMPLES, 8, -1)
    assert (keep == keep[:, :, :1]).all()
    assert 0.35 < keep[:, :, 0].mean() < 0.65
    drawn = engine._keep(1, (EXAMPLES, 8))
    assert np.array_equal(keep[:, :, 0], drawn)
    kept = values.before_dropout[1].reshape(keep.shape) * keep / 0.5
    np.testing.assert_allclose(values.out[1].reshape(keep.shape), kept, rtol=1e-6)


def test_many_are_asked_as_few_are_and_who_is_broken_is_named(monkeypatch):
    raw = image_network(conv("A", 4), pooled("B", "Max", 2, 2, stride=2), conv("C", 4, Activation="Relu", Source="I"))
    raw["Layers"][-1]["Source"] = ["B", "C"]
    network, _ = fit(raw)
    examples = examples_of(network.spec, SETS, "d")
    whole = CpuEvaluator(network, map_in_turn)
    monkeypatch.setattr(pieces, "ASKED", 500)
    asked = CpuEvaluator(network, map_in_turn)
    assert asked._at_once == asked.at_once == 2
    for found, wanted in (
        (asked.sums(examples, 4), whole.sums(examples, 4)),
        (asked.values(examples, 2), whole.values(examples, 2)),
        (asked.values(examples, 4), whole.values(examples, 4)),
        (asked.top(examples, 4, 3, None)[1], whole.top(examples, 4, 3, None)[1]),
        (asked.mean_loss(examples), whole.mean_loss(examples)),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    x = pixels(examples=EXAMPLES).astype(np.float32)
    x[7, :] = 3e38
    broken = examples_of(network.spec, sets_of(x=x, y=classes(EXAMPLES)), "d")
    with pytest.raises(NotFiniteError) as error:
        asked.sums(broken, 4)
    assert error.value.example == 7


def test_values_that_nobody_needs_any_more_are_forgotten():
    network = network_of(ALL, SETS)
    forward, inputs = Forward(network), {0: pixels(examples=2).astype(np.float32)}
    kept = forward.run(inputs)
    left = forward.run(inputs, wanted=(5,))
    place = {node.layer.name: node.number for node in forward.nodes}
    assert set(left.out) == {5, place["N"]}  # what was asked for, and what the output layer is made of
    assert np.array_equal(left.out[5], kept.out[5])


def test_a_network_learns_where_a_square_stands():
    """A bright square in one of four corners of noise, at any place within it."""
    random = np.random.default_rng(5)
    images, corner = random.normal(0, 0.5, (240, 2, 12, 12)), random.integers(0, 4, 240)
    for image, n in zip(images, corner, strict=True):
        y, x = 6 * (n // 2) + random.integers(0, 4), 6 * (n % 2) + random.integers(0, 4)
        image[0, y : y + 3, x : x + 3] += 2
    raw = image_network(
        conv("A", 8, Activation="Relu", **NORMED),
        pooled("B", "Max", 2, 2, stride=2),
        conv("C", 8, Activation="Relu", **NORMED, KernelStride=[2, 2]),
        size=[12, 12, 2],
    )
    raw["Layers"][-1] |= {"Activation": "SoftMax", "N": 4}
    sets = sets_of(x=images.reshape(240, -1).astype(np.float32), y=np.eye(4)[corner])
    network = network_of(raw, sets)
    examples = examples_of(network.spec, sets, "d")
    train, test = examples.take(np.arange(180)), examples.take(np.arange(180, 240))
    found = loop.fit(network, train, TrainSettings(epochs=8, batch=16, learning_rate=0.01), Cpu(), lambda _: None)
    output = len(network.spec.layers) - 1
    best = CpuEvaluator(found.network, map_in_turn).sums(test, output).argmax(axis=1)
    assert (best == corner[180:]).mean() > 0.9


ALEXNET = image_network(  # DSSTNE's, an eighth as wide, for images half as large
    conv("A", 12, 11, 11, KernelStride=[4, 4], Activation="Relu"),
    pooled("B", "LRN"),
    pooled("C", "Max", 3, 3, stride=2),
    conv("D", 32, 5, 5, Activation="Relu"),
    pooled("E", "LRN"),
    pooled("F", "Max", 3, 3, stride=2),
    *(conv(name, maps, Activation="Relu") for name, maps in (("G", 48), ("H", 48), ("J", 32))),
    pooled("K", "Max", 3, 3, stride=2),
    *({"Name": name, "Kind": "Hidden", "N": 64, "Activation": "Relu", "pDropout": 0.5} for name in "LM"),
    size=[107, 107, 3],
    LocalResponseNormalization={"k": 2, "n": 5, "alpha": 0.0001, "beta": 0.75},
)
CIFAR = image_network(  # DSSTNE's, a twelfth as wide
    *(
        conv(name, maps, KernelStride=[stride, stride], Activation="Relu", pDropout=dropout, WeightInit=init)
        for name, maps, stride, dropout, init in (
            ("A", 8, 1, 0.2, {"Scheme": "Gaussian", "Scale": 0.14}),
            ("B", 8, 1, 0.0, {"Scheme": "Gaussian", "Scale": 0.14}),
            ("C", 8, 2, 0.5, {"Scheme": "Gaussian", "Scale": 0.14, "Bias": 0.1}),
            ("D", 16, 1, 0.0, {"Scheme": "Gaussian", "Scale": 0.14}),
            ("E", 16, 2, 0.5, {"Scheme": "Gaussian", "Scale": 0.14, "Bias": 0.1}),
        )
    ),
    size=[32, 32, 3],
)


@pytest.mark.parametrize("raw", [ALEXNET, CIFAR], ids=["alexnet", "cifar"])
def test_the_networks_of_dsstne_learn(raw):
    """Twelve images by heart."""
    layers = raw["Layers"]
    layers[-1] |= {"Activation": "SoftMax"}
    sets = sets_of(x=pixels(layers[0]["N"], 12).astype(np.float32), y=classes(12))
    network = network_of(raw, sets)
    examples = examples_of(network.spec, sets, "d")
    before = CpuEvaluator(network, map_in_turn).mean_loss(examples)
    given = TrainSettings(epochs=120, batch=12, learning_rate=0.002)
    found = loop.fit(network, examples, given, Cpu(), lambda _: None)
    assert CpuEvaluator(found.network, map_in_turn).mean_loss(examples) < before / 2


def test_a_sparse_input_may_be_skipped_from():
    x = (np.random.default_rng(1).random((6, 9)) < 0.4).astype(np.float32)
    raw = {
        "Layers": [
            {"Name": "I", "Kind": "Input", "N": 9, "DataSet": "x"},
            {"Name": "A", "Kind": "Hidden", "N": 9, "Activation": "Tanh"},
            pooled("B", "Sum", Source="A", Skip="I"),
            {"Name": "O", "Kind": "Output", "N": 6, "DataSet": "y", "Source": "B"},
        ]
    }
    network = network_of(raw, sets_of(x=sparse.csr_array(x), y=classes(6)))
    values = Forward(network).run({0: sparse.csr_array(x)})
    np.testing.assert_array_equal(values.out[2], values.out[1] + x)
