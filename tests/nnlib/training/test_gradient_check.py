"""Every legal activation, error function and kind of data against finite differences; DSSTNE's own cases too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from nnlib.cpu import probe
from nnlib.cpu.forward import Forward
from nnlib.data.sets import as_data_set
from nnlib.errors import DataError, NnlibError
from nnlib.model import network as net
from nnlib.model.batches import batch_of
from nnlib.model.examples import examples_of, resolve
from nnlib.spec.json_section import SpecError
from nnlib.spec.network import parse_network
from nnlib.spec.types import Activation, ErrorFunction
from nnlib.training.gradient_check import TOLERANCE, check_gradients
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

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    """Output layers as wide as these are then computed in two blocks, the last one short."""
    monkeypatch.setattr(net, "BLOCK", 4)


def checked(raw: dict[str, Any], x: Any, y: Any, parameters: int = 4, seed: int = 1):
    data = {"x": as_data_set("x", x), "y": as_data_set("y", y)}
    spec = resolve(parse_network(raw, "test"), data, "data")
    return check_gradients(spec, examples_of(spec, data, "data"), parameters, seed)


def check(raw: dict[str, Any], x: Any, y: Any, parameters: int = 4, seed: int = 1) -> None:
    for found in checked(raw, x, y, parameters, seed):
        assert found.difference <= TOLERANCE, found


@pytest.mark.parametrize(("activation", "error"), PAIRS)
@pytest.mark.usefixtures("backend")
def test_outputs(activation, error):
    kinds = ("dense",) if error is ErrorFunction.HINGE else KINDS
    raw = network(activation, ErrorFunction=str(error), ScaledMarginalCrossEntropy=MARGINS)
    if activation is Activation.SOFTMAX and error is ErrorFunction.MARGINAL:
        raw["ScaledMarginalCrossEntropy"] = {"oneTarget": 1, "zeroTarget": 0}  # DSSTNE's gates leave no gradient
    for kind, variant in itertools.product(kinds, VARIANTS):
        if variant == "ignore zero" and (kind == "dense" or (activation is Activation.SOFTMAX and "Margin" in error)):
            continue  # a bit of sparse sets, and with the margins of a SoftMax no gradient
        y = numbers(kind, TARGETS, 4)
        if error is ErrorFunction.HINGE:
            y = np.where(y > 0, 1.0, -1.0)
        check(raw, numbers("sparse analog", INPUTS, 3), varied(as_data_set("y", y), variant))


def test_illegal_pairs_are_refused():
    refused = 0
    for activation, error in itertools.product(Activation, ErrorFunction):
        if (activation, error) not in PAIRS:
            with pytest.raises(SpecError, match=r"has no .* error"):
                parse_network(network(activation, ErrorFunction=str(error)), "test")
            refused += 1
    assert (len(PAIRS), refused) == (4 * len(Activation) + 5, 3 * len(Activation) - 5)


def test_hinge_refuses_sparse_targets():
    raw = network("Linear", ErrorFunction="Hinge")
    with pytest.raises(DataError, match="Hinge needs targets of -1 and 1"):
        check(raw, numbers("dense", INPUTS, 3), numbers("sparse analog", TARGETS, 4))


@pytest.mark.parametrize("error", ["L1", "L2", "L2Hinge", "CrossEntropy"])
@pytest.mark.parametrize("kind", KINDS)
def test_delta_boost(error, kind):
    raw = network("Sigmoid", ErrorFunction=error, DeltaBoost={"one": 2.5, "zero": 0.3})
    check(raw, numbers("sparse boolean", INPUTS, 3), numbers(kind, TARGETS, 4))


@pytest.mark.parametrize(("kind", "variant"), [(k, v) for k in KINDS for v in VARIANTS[:3]])
@pytest.mark.usefixtures("backend")
def test_inputs(kind, variant):
    x = varied(as_data_set("x", numbers(kind, INPUTS, 3)), variant)
    check(network(), x, numbers("sparse boolean", TARGETS, 4))
    direct = network()
    del direct["Layers"][1]  # the output is next to the input
    check(direct, x, numbers("sparse boolean", TARGETS, 4))


def test_dense_bytes_are_parts_of_one():
    x = np.random.default_rng(5).integers(0, 256, (EXAMPLES, INPUTS)).astype(np.uint8)
    y = np.random.default_rng(6).integers(-128, 128, (EXAMPLES, TARGETS)).astype(np.int8)
    check(network("Tanh", ErrorFunction="L2"), x, y)


@pytest.mark.parametrize("hidden", Activation)
@pytest.mark.parametrize(
    "keys",
    [{}, {"BatchNormalization": True}, {"pDropout": 0.3}, {"BatchNormalization": True, "pDropout": 0.3}],
    ids=["plain", "batch norm", "dropout", "both"],
)
@pytest.mark.usefixtures("backend")
def test_hidden_layers(hidden, keys):
    raw = network("Sigmoid", hidden, hidden_keys=keys)
    check(raw, numbers("dense", INPUTS, 3, 2.0), numbers("sparse boolean", TARGETS, 4))


@pytest.mark.parametrize("activation", Activation)
def test_dropout_of_outputs(activation):
    raw = network(activation, ErrorFunction="L2")
    raw["Layers"][2]["pDropout"] = 0.3
    check(raw, numbers("dense", INPUTS, 3), numbers("sparse analog", TARGETS, 4))


def test_dropout_of_dense_inputs_and_denoising():
    raw = network()
    raw["Layers"][0]["pDropout"] = 0.4
    check(raw, numbers("dense", INPUTS, 3), numbers("sparse boolean", TARGETS, 4))
    raw = network(Denoising={"p": 0.4})
    check(raw, numbers("sparse analog", INPUTS, 3), numbers("sparse boolean", TARGETS, 4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("backend")
def test_several_sources_skips_shared_weights_and_a_direct_edge(kind):
    check(TANGLE, numbers(kind, INPUTS, 3), numbers("sparse boolean", TARGETS, 4), 16)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("backend")
def test_shared_weights_of_an_input(kind, transposed):
    """The owner is the edge from the input, and in the second case the output layer uses it transposed."""
    check(tied(transposed), numbers(kind, INPUTS, 3), numbers("sparse boolean", INPUTS, 4), 20)


def test_several_inputs_and_outputs():
    raw, data = several()
    spec = resolve(parse_network(raw, "test"), data, "data")
    for found in check_gradients(spec, examples_of(spec, data, "data"), 20):
        assert found.difference <= TOLERANCE, found


@pytest.mark.parametrize("activation", Activation)
def test_sparse_inputs_are_as_dense_ones(activation, backend):
    """The same numbers, stored sparse and dense, give the same outputs, losses and gradients to 1e-5 in float32."""
    values = numbers("dense", INPUTS, 3).astype(np.float32)
    found = []
    for x in (sparse.csr_array(values), values):
        data = {"x": as_data_set("x", x), "y": as_data_set("y", numbers("sparse boolean", TARGETS, 4))}
        raw = network("Sigmoid", activation)
        raw["Layers"][2]["Source"] = ["H", "I"]  # the output layer sees the input itself, too
        spec = resolve(parse_network(raw, "test"), data, "data")
        matrices = {e.number: weights_of(spec, e) for e in net.iterate_owners(spec)}
        biases = [np.zeros(net.count_units(spec, e.target), np.float32) for e in spec.edges]
        made = net.assemble(spec, matrices, biases, {})
        examples = examples_of(spec, data, "data")
        batch, forward = batch_of(spec, examples, np.arange(EXAMPLES)), Forward(made)
        asked = probe.CpuProbe(made, examples)
        gradients = {name: net.Network(spec, *shaped(made, asked.gradients())).matrix(n) for n, name in names(spec)}
        found.append((forward.activations(batch.inputs, 2), asked.loss(), gradients))
    (one, one_loss, one_gradients), (other, other_loss, other_gradients) = found
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert one_loss == pytest.approx(other_loss, rel=1e-5)
    for name, gradient in one_gradients.items():
        np.testing.assert_allclose(gradient, other_gradients[name], rtol=1e-5, atol=1e-6)


def weights_of(spec, edge):
    shape = net.count_units(spec, edge.source), net.count_units(spec, edge.target)
    return np.random.default_rng(edge.number).normal(0, 0.5, shape).astype(np.float32)


def names(spec):
    return [(edge.number, f"weights{edge.number}") for edge in net.iterate_owners(spec)]


def shaped(made, gradients):
    return {n: gradients[f"weights{n}"] for n in made.stores}, made.biases, {}


def test_a_wrong_gradient_is_found(monkeypatch):
    """The check itself is checked: a derivative that is off by a thousandth does not pass."""
    right = probe.backward

    def wrong(forward, values, targets, sink):
        for node in forward.nodes:
            if node.layer.name == "H":
                values.out[node.number] *= 1.001
        return right(forward, values, targets, sink)

    monkeypatch.setattr(probe, "backward", wrong)
    found = checked(network(), numbers("dense", INPUTS, 3), numbers("sparse boolean", TARGETS, 4))
    assert max(f.difference for f in found) > 10 * TOLERANCE


def test_the_place_of_the_worst_is_in_units():
    for x in (numbers("sparse analog", INPUTS, 3), numbers("dense", INPUTS, 3)):
        direct = network()
        del direct["Layers"][1]
        found = checked(direct, x, numbers("sparse boolean", TARGETS, 4), 200)
        [weights] = [f for f in found if f.name == "weights I -> O"]
        assert weights.parameters >= INPUTS * TARGETS
        assert weights.place[0] < INPUTS
        assert weights.place[1] < 8  # two blocks of four


def test_what_is_no_gradient_is_refused():
    raw = network()
    raw["Layers"][1]["DeltaNorm"] = 1.0
    with pytest.raises(NnlibError, match=r'layer "H": DeltaNorm 1 .* legal: DeltaNorm 0'):
        check(raw, numbers("dense", INPUTS, 3), numbers("sparse boolean", TARGETS, 4))
    data = {"x": as_data_set("x", numbers("dense", 3, 1)), "y": as_data_set("y", numbers("dense", 3, 1))}
    spec = resolve(parse_network(network(), "test", compat=True), data, "data")
    with pytest.raises(NnlibError, match="compat"):
        check_gradients(spec, examples_of(spec, data, "data"))
    raw = network("SoftMax", ErrorFunction="ScaledMarginalCrossEntropy", ScaledMarginalCrossEntropy={"oneScale": 2})
    with pytest.raises(NnlibError, match="gates and scales of a SoftMax"):
        check(raw, numbers("dense", INPUTS, 3), numbers("sparse boolean", TARGETS, 4))
    y = varied(as_data_set("y", numbers("sparse boolean", TARGETS, 4)), "ignore zero")
    with pytest.raises(NnlibError, match="whose zeros are ignored"):
        raw["ScaledMarginalCrossEntropy"] = {"oneTarget": 1, "zeroTarget": 0}
        check(raw, numbers("dense", INPUTS, 3), y)


# DSSTNE's own cases of its "Validate" command, with its data, here on every parameter.


def acceptance(error: str, layers: list[dict[str, Any]], x: Any, y: Any, **keys: Any) -> None:
    check({"ErrorFunction": error, "Layers": layers, **keys}, x, y, 1000, seed=12345)


def io(inputs: int, targets: int, *hidden: dict[str, Any], **output: Any) -> list[dict[str, Any]]:
    return [
        {"Name": "Input", "Kind": "Input", "N": inputs, "DataSet": "x", "Sparse": True},
        *hidden,
        {"Name": "Output", "Kind": "Output", "N": targets, "DataSet": "y", **output},
    ]


def regression(batch: int) -> tuple[Any, Any]:
    s = np.arange(batch, dtype=np.float32)[:, None]
    return s, -2 * s + 3


def classes(batch: int, width: int) -> tuple[Any, Any]:
    one_hot = np.eye(width)[np.arange(batch) % width]
    return sparse.csr_array(one_hot), sparse.csr_array(one_hot)


def analog_classes(batch: int, width: int) -> tuple[Any, Any]:
    s = np.arange(batch)
    x = np.eye(width)[s % width] * s[:, None]
    return sparse.csr_array(x), sparse.csr_array(((s[:, None] + np.arange(width)) % 2) + 1.0)


def hidden(units: int, **keys: Any) -> dict[str, Any]:
    return {"Name": "Hidden", "Kind": "Hidden", "N": units, "Source": "Input", **keys}


@pytest.mark.usefixtures("backend")
def test_dsstne_data_scaled_marginal_cross_entropy():
    layers = io(2, 2, hidden(2, Activation="Sigmoid"), Activation="Sigmoid")
    acceptance(
        "DataScaledMarginalCrossEntropy", layers, *analog_classes(2, 2), DataScaledMarginalCrossEntropy={"oneScale": 30}
    )


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("between", [(), (hidden(2, Activation="Sigmoid"),)], ids=["direct", "hidden"])
def test_dsstne_scaled_marginal_cross_entropy(between):
    layers = io(2, 2, *between, Activation="Sigmoid")
    margins = {"oneTarget": 1, "zeroTarget": 0, "oneScale": 30, "zeroScale": 1}
    acceptance("ScaledMarginalCrossEntropy", layers, *classes(4, 2), ScaledMarginalCrossEntropy=margins)


@pytest.mark.parametrize("source", ["Input", "Hidden"])
def test_dsstne_l2(source):
    """In DSSTNE's case the hidden layer leads nowhere; the second one is stronger."""
    layers = io(1, 1, hidden(4, Activation="Sigmoid"), Source=source, Activation="Linear")
    acceptance("L2", layers, *regression(4))


@pytest.mark.parametrize("source", ["Input", "Hidden"])
@pytest.mark.parametrize(("slope", "batch"), [(0, 2), (0.5, 4)])
def test_dsstne_leaky_rectifier(slope, batch, source):
    layers = io(1, 1, hidden(2, Activation="LRelu", RELUSlope=slope), Source=source, Activation="Linear")
    acceptance("L2", layers, *regression(batch))
