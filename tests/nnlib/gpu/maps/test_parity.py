"""Networks of maps: steps on the GPU backend against the same ones in NumPy's float64. See ../test_parity.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.data.sets import as_data_set
from nnlib.engines import Backend
from nnlib.gpu.maps import convolution
from nnlib.model.examples import examples_of
from nnlib.model.network import Network
from nnlib.spec.types import Activation
from tests.nnlib.gpu.test_parity import DESCENT, TOLERANCE, assert_near
from tests.nnlib.image_cases import CASES, EXAMPLES, case, classes, conv, image_network, pixels, pooled
from tests.nnlib.samples import network_of

CLOSE = 16 * TOLERANCE  # sums here are of some hundred products, and batch normalization divides by a deviation


def trained(compute: Backend, start: Network, data: dict[str, Any], steps: int, **settings: Any) -> dict[str, Any]:
    """The parameters, the error, and what every layer gives, after some steps on all examples."""
    given = TrainSettings(**{"batch": EXAMPLES, "epochs": steps} | DESCENT | settings)
    examples = examples_of(start.spec, data, "d")
    engine = compute.engine(start, examples, given)
    engine.begin_epoch(0.0)
    for batch in engine.batches([np.arange(EXAMPLES)] * steps):
        engine.run(batch)
    found = {"error": engine.total()}
    engine.settle()
    found |= dict(engine.pull().arrays())
    evaluator = engine.evaluator()
    for n, layer in enumerate(start.spec.layers):
        found[f"values of {layer.name}"] = evaluator.values(examples, n)
    return found | {"loss": evaluator.mean_loss(examples)}


def test_what_fine_tuning_leaves_alone(gpu):
    """Fixed norms of maps are those of prediction, also on the way back, and locked kernels stay."""
    raw, x, y = case("normalized twice")
    data = {"x": as_data_set("x", x), "y": as_data_set("y", y)}
    found = []
    for compute, dtype in ((Cpu(), np.float64), (gpu, np.float32)):
        free = network_of(raw, data, dtype)
        kernels = free.stores[1].tobytes()
        start = dataclasses.replace(free, locked=frozenset({1}), fixed=frozenset({2}))
        found.append(trained(compute, start, data, 2, learning_rate=0.1))
        assert found[-1]["weights1"].tobytes() == kernels
    assert_near(found[1], found[0], CLOSE)


def compare(
    gpu: Backend, raw: dict[str, Any], x: Any, y: Any, compat: bool = False, steps: int = 2, **more: Any
) -> None:
    """Assert that a GPU gives what NumPy gives."""
    data = {"x": as_data_set("x", x), "y": as_data_set("y", y)}
    settings = {"learning_rate": 0.1, "optimizer": "momentum", **more}
    with np.errstate(all="ignore"):
        wanted = trained(Cpu(), network_of(raw, data, np.float64, compat), data, steps, **settings)
    found = trained(gpu, network_of(raw, data, np.float32, compat), data, steps, **settings)
    assert_near(found, wanted, CLOSE)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("unfolded", [False, True])
def test_layers(gpu, name, unfolded, monkeypatch):
    if unfolded:  # also what is as small as here, an example at a time
        monkeypatch.setattr(convolution, "FEWEST", 1)
        monkeypatch.setattr(convolution, "ROOM", 3000)
    compare(gpu, *case(name))


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("keys", [{}, {"BatchNormalization": True, "pDropout": 0.3}], ids=["plain", "all"])
@pytest.mark.parametrize("compat", [False, True])
def test_activations(gpu, activation, keys, compat):
    layers = conv("A", 3, Activation=str(activation), **keys), pooled("B", "Sum", Activation=str(activation), **keys)
    compare(gpu, image_network(*layers), pixels(), classes(), compat)


@pytest.mark.parametrize("compat", [False, True])
def test_dropped_maps(gpu, compat):
    layers = conv("A", 4, pDropout=0.4, DropChannels=True, Activation="SELU"), pooled("B", "Max", 2, 2, stride=2)
    compare(gpu, image_network(*layers), pixels(), classes(), compat)


@pytest.mark.parametrize("more", [{"clip": 0.05}, {"accumulate": 2}, {"l2": 0.1}], ids=str)
@pytest.mark.parametrize("name", ["residual", "depthwise", "weights of others", "squeeze and excitation"])
def test_ways_to_train(gpu, name, more):
    compare(gpu, *case(name), **more)


@pytest.mark.parametrize("keys", [{"WeightNorm": 0.4}, {"DeltaNorm": 0.05}], ids=str)
def test_limits(gpu, keys):
    compare(gpu, image_network(conv("A", 3, **keys), conv("B", 4, Groups=1, **keys)), pixels(), classes())


def test_a_skip_from_a_dense_input(gpu):
    compare(gpu, image_network(conv("A", 2, Skip="I")), pixels(), classes())
