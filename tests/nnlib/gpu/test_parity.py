"""Training steps on the GPU backend against the same steps in NumPy's float64.

The step is plain gradient descent with a rate of one, so that what changes is the gradient. Both backends draw the same
noise. Tolerances: float32 has 24 bits, and a gradient here is a sum of some dozens of products of order one; 64 units
in the last place of one are allowed.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS, TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.data.sets import DataSet, as_data_set
from nnlib.engines import Backend
from nnlib.model.examples import examples_of
from nnlib.model.network import Network
from nnlib.spec.types import Activation, ErrorFunction
from tests.nnlib.cases import (
    EXAMPLES,
    INPUTS,
    KINDS,
    MARGINS,
    PAIRS,
    TANGLE,
    TARGETS,
    VARIANTS,
    network,
    numbers,
    several,
    tied,
    varied,
)
from tests.nnlib.samples import network_of

TOLERANCE = 64 * float(np.finfo(np.float32).eps)
DESCENT = {"optimizer": "sgd", "learning_rate": 1.0}


def trained(compute: Backend, start: Network, sets: dict[str, DataSet], steps: int, **settings: Any) -> dict[str, Any]:
    """The parameters, the optimizer's states and the error after some steps on all examples."""
    given = TrainSettings(**{"batch": EXAMPLES, "epochs": steps} | DESCENT | settings)
    engine = compute.engine(start.copy(), examples_of(start.spec, sets, "d"), given)
    engine.begin_epoch(0.0)
    for batch in engine.batches([np.arange(EXAMPLES)] * steps):
        engine.run(batch)
    found = {"error": engine.total()}
    engine.settle()
    return found | dict(engine.pull().arrays()) | dict(engine.states())


def compare(
    gpu: Backend,
    raw: dict[str, Any],
    sets: dict[str, DataSet],
    compat: bool = False,
    steps: int = 1,
    tolerance: float = TOLERANCE,
    **settings: Any,
) -> None:
    """Assert that a GPU gives what NumPy gives."""
    with np.errstate(all="ignore"):
        wanted = trained(Cpu(), network_of(raw, sets, np.float64, compat), sets, steps, **settings)
    found = trained(gpu, network_of(raw, sets, np.float32, compat), sets, steps, **settings)
    assert_near(found, wanted, tolerance)


def assert_near(found: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> None:
    """Assert that all arrays are the same but for `tolerance` times the largest value, or one."""
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        scale = max(1.0, float(np.abs(values).max()))
        same = np.reshape(found[name], np.shape(values))
        np.testing.assert_allclose(same, values, rtol=0, atol=tolerance * scale, err_msg=name)


def data(x: Any, y: Any) -> dict[str, DataSet]:
    return {"x": as_data_set("x", x), "y": as_data_set("y", y)}


@pytest.mark.parametrize(("activation", "error"), PAIRS)
def test_outputs(gpu, activation, error):
    kinds = ("dense",) if error is ErrorFunction.HINGE else KINDS
    raw = network(activation, ErrorFunction=str(error), ScaledMarginalCrossEntropy=MARGINS)
    for kind, variant in itertools.product(kinds, VARIANTS):
        if variant == "ignore zero" and kind == "dense":
            continue
        y = numbers(kind, TARGETS, 4)
        if error is ErrorFunction.HINGE:
            y = np.where(y > 0, 1.0, -1.0)
        compare(gpu, raw, data(numbers("sparse analog", INPUTS, 3), varied(as_data_set("y", y), variant)))


@pytest.mark.parametrize("error", ["L1", "L2", "L2Hinge", "CrossEntropy"])
@pytest.mark.parametrize("compat", [False, True])
def test_delta_boost(gpu, error, compat):
    raw = network("Sigmoid", ErrorFunction=error, DeltaBoost={"one": 2.5, "zero": 0.3})
    for kind in KINDS:
        compare(gpu, raw, data(numbers("sparse boolean", INPUTS, 3), numbers(kind, TARGETS, 4)), compat)


@pytest.mark.parametrize(("kind", "variant"), [(k, v) for k in KINDS for v in VARIANTS[:3]])
def test_inputs(gpu, kind, variant):
    x = varied(as_data_set("x", numbers(kind, INPUTS, 3)), variant)
    sets = data(x, numbers("sparse boolean", TARGETS, 4))
    compare(gpu, network(), sets)
    compare(gpu, network(Denoising={"p": 0.4}), sets, steps=3)
    direct = network()
    del direct["Layers"][1]  # the output is next to the input
    compare(gpu, direct, sets, steps=2)


HIDDEN = [{}, {"BatchNormalization": True}, {"pDropout": 0.3}, {"BatchNormalization": True, "pDropout": 0.3}]


@pytest.mark.parametrize("hidden", Activation)
@pytest.mark.parametrize("keys", HIDDEN, ids=["plain", "batch norm", "dropout", "both"])
@pytest.mark.parametrize("compat", [False, True])
def test_hidden_layers(gpu, hidden, keys, compat):
    raw = network("Sigmoid", hidden, hidden_keys=keys)
    sets = data(numbers("dense", INPUTS, 3, 2.0), numbers("sparse boolean", TARGETS, 4))
    compare(gpu, raw, sets, compat, tolerance=16 * TOLERANCE if "BatchNormalization" in keys else TOLERANCE)


@pytest.mark.parametrize("activation", Activation)
def test_dropout_of_outputs_and_of_dense_inputs(gpu, activation):
    raw = network(activation, ErrorFunction="L2")
    raw["Layers"][2]["pDropout"] = 0.3
    raw["Layers"][0]["pDropout"] = 0.4
    compare(gpu, raw, data(numbers("dense", INPUTS, 3), numbers("sparse analog", TARGETS, 4)), steps=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("clip", [0, 0.05])
def test_several_sources_skips_shared_weights_and_a_direct_edge(gpu, kind, compat, clip):
    compare(gpu, TANGLE, data(numbers(kind, INPUTS, 3), numbers("sparse boolean", TARGETS, 4)), compat, clip=clip)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_shared_weights_of_an_input(gpu, kind, transposed):
    sets = data(numbers(kind, INPUTS, 3), numbers("sparse boolean", INPUTS, 4))
    compare(gpu, tied(transposed) | {"Denoising": {"p": 0.3}}, sets, steps=2)


def test_several_inputs_and_outputs(gpu):
    compare(gpu, *several())


def test_a_skip_from_a_sparse_input(gpu):
    raw = network("Sigmoid", "Linear", hidden_keys={"N": INPUTS, "Skip": "I"}, Denoising={"p": 0.4})
    compare(gpu, raw, data(numbers("sparse analog", INPUTS, 3), numbers("sparse boolean", TARGETS, 4)), steps=2)


@pytest.mark.parametrize("keys", [{"WeightNorm": 0.4}, {"DeltaNorm": 0.05}, {"Sparse": True}], ids=str)
def test_limits_and_the_sparseness_penalty(gpu, keys):
    raw = network("Sigmoid", "Sigmoid", hidden_keys=keys, SparsenessPenalty={"p": 0.2, "beta": 0.5})
    raw["Layers"][2] |= {name: value for name, value in keys.items() if name != "Sparse"}
    for kind in KINDS:
        compare(gpu, raw, data(numbers(kind, INPUTS, 3), numbers("sparse boolean", TARGETS, 4)), steps=2)


def test_a_layer_that_leads_nowhere(gpu):
    raw = network()
    raw["Layers"].insert(2, {"Name": "X", "Kind": "Hidden", "N": 3, "Source": "I", "BatchNormalization": True})
    raw["Layers"][3]["Source"] = "H"
    sets = data(numbers("sparse boolean", INPUTS, 3), numbers("sparse boolean", TARGETS, 4))
    compare(gpu, raw, sets, l2=0.1, optimizer="momentum", learning_rate=0.1)


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_optimizers(gpu, rule, compat):
    """The direct edge from the sparse input has rows that no batch touches."""
    raw = network(Denoising={"p": 0.5}, Decay=0.1)
    raw["Layers"][2]["Source"] = ["H", "I"]
    sets = data(numbers("sparse boolean", INPUTS, 3), numbers("sparse boolean", TARGETS, 4))
    settings = {"optimizer": rule, "learning_rate": 0.05, "l2": 0.01, "l1": 0.001, "warmup": 2, "schedule": "cosine"}
    compare(gpu, raw, sets, compat, steps=6, tolerance=1e-4, **settings)


def test_locked_weights_stay(gpu):
    raw, sets = network(), data(numbers("sparse boolean", INPUTS, 3), numbers("sparse boolean", TARGETS, 4))
    free = network_of(raw, sets)
    start = dataclasses.replace(free, locked=frozenset({0}))
    found = trained(gpu, start, sets, 2, l2=0.1)
    assert found["weights0"].tobytes() == free.stores[0].tobytes()
    assert found["bias0"].tobytes() == free.biases[0].tobytes()
    assert found["weights1"].tobytes() != free.stores[1].tobytes()
