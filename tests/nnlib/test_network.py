"""Gradients against numerical differentiation, and the sparse path against plain dense NumPy, in float64."""

import dataclasses

import numpy as np
import pytest
from nnlib_samples import random_rows

from nnlib import network as net
from nnlib import ops
from nnlib.architecture import Activation, Marginal
from nnlib.data import from_rows
from nnlib.network import Network
from nnlib.spec import parse_network
from nnlib.train import resolve

EXAMPLES, ITEMS = 7, 23


def spec_of(hidden="Tanh", output="Sigmoid", margin=None, dropout=0.0):
    raw = {
        "ErrorFunction": "ScaledMarginalCrossEntropy" if margin else "CrossEntropy",
        "ScaledMarginalCrossEntropy": dict(
            zip(("oneTarget", "zeroTarget", "oneScale", "zeroScale"), margin or (), strict=False)
        ),
        "Layers": [
            {"N": "auto", "DataSet": "input"},
            {"N": 6, "Activation": hidden, "pDropout": dropout},
            {"N": 5, "Activation": hidden, "pDropout": dropout},
            {"N": "auto", "DataSet": "output", "Activation": output},
        ],
    }
    return resolve(parse_network(raw, "n"), ITEMS, ITEMS, "n")


def network_of(spec):
    network = net.create(spec, np.random.default_rng(3), np.float64)
    for edge in network.edges:
        edge.store[...] *= 2
        edge.bias[...] = np.random.default_rng(4).normal(size=edge.bias.shape) / 4
    return network


def batch_of(value=1.0):
    inputs, targets = random_rows(EXAMPLES, ITEMS, 1), random_rows(EXAMPLES, ITEMS, 2)
    return net.batch_of(net.matrix(inputs, value, np.float64), net.matrix(targets, 1, np.float64))


class Recorder:
    """Keeps gradients instead of applying them."""

    def __init__(self, network):
        self.weights = [np.zeros_like(edge.store) for edge in network.edges]
        self.biases = [np.zeros_like(edge.bias) for edge in network.edges]

    def rows(self, edge, low, gradient):
        self.weights[edge][low : low + len(gradient)] = gradient

    def bias(self, edge, low, gradient):
        self.biases[edge][low : low + len(gradient)] = gradient

    def touched(self, edge, rows, gradient):
        self.weights[edge][rows] = gradient


def dense_loss(network, batch, masks=()):
    """The same error in the plainest dense NumPy."""
    spec = network.spec
    h = batch.inputs.toarray()
    for index, (layer, edge) in enumerate(zip(spec.layers[1:-1], network.edges, strict=False)):
        z = h @ edge.weights + edge.bias
        h = {
            Activation.TANH: np.tanh,
            Activation.SIGMOID: lambda z: 1 / (1 + np.exp(-z)),
            Activation.RELU: lambda z: np.where(z > 0, z, 0),
            Activation.LINEAR: lambda z: z,
        }[layer.activation](z)
        if masks:
            sigmoid = layer.activation is Activation.SIGMOID
            h = np.where(masks[index], h / (1 if sigmoid else 1 - layer.dropout), 0.5 if sigmoid else 0)
    z = h @ network.edges[-1].weights + network.edges[-1].bias
    t = batch.targets.toarray()
    m = ops.marginal_of(spec)
    if network.output is Activation.SIGMOID:
        a = 1 / (1 + np.exp(-z))
        ones = -m.one_scale * np.log(a) * (a < m.one_target)
        zeros = -m.zero_scale * np.log(1 - a) * (a > m.zero_target)
        return np.where(t == 1, ones, zeros).sum()
    a = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    share = m.one_scale / np.maximum(batch.counts, 1)
    return (-share * np.log(a) * (t == 1) * (a < m.one_target)).sum()


MARGINS = [None, (0.8, 0.3, 30.0, 2.0)]


@pytest.mark.parametrize("blocks", [(512, 8192), (4, 8192), (4, 1)])
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("output", ["Sigmoid", "SoftMax"])
@pytest.mark.parametrize("hidden", ["Tanh", "Relu", "Sigmoid", "Linear"])
def test_loss_is_the_dense_one(monkeypatch, hidden, output, margin, blocks):
    monkeypatch.setattr(net, "BLOCK", blocks[0])
    monkeypatch.setattr(net, "KEPT", blocks[1])
    network, batch = network_of(spec_of(hidden, output, margin)), batch_of()
    assert net.loss(network, batch) == pytest.approx(dense_loss(network, batch), rel=1e-12)


@pytest.mark.parametrize(
    ("hidden", "output", "margin", "dropout"),
    [
        ("Tanh", "Sigmoid", None, 0),
        ("Relu", "Sigmoid", None, 0.4),
        ("Sigmoid", "Sigmoid", (0.8, 0.3, 30.0, 2.0), 0.4),
        ("Tanh", "SoftMax", None, 0.4),
        ("Linear", "SoftMax", None, 0),
        ("Relu", "SoftMax", (1.0, 0.0, 1.0, 1.0), 0),
    ],
)
def test_gradients_are_the_numerical_ones(monkeypatch, hidden, output, margin, dropout):
    monkeypatch.setattr(net, "BLOCK", 4)
    network, batch = network_of(spec_of(hidden, output, margin, dropout)), batch_of(1.3)
    random = np.random.default_rng(5)
    masks = [random.random((EXAMPLES, units)) >= dropout for units in (6, 5)] if dropout else ()
    seen = Recorder(network)
    total = net.backward(network, batch, seen, masks)
    assert total == pytest.approx(dense_loss(network, batch, masks), rel=1e-12)
    for n, edge in enumerate(network.edges):
        for values, gradient in ((edge.store, seen.weights[n]), (edge.bias, seen.biases[n])):
            np.testing.assert_allclose(gradient, numerical(network, batch, masks, values), rtol=1e-6, atol=1e-7)


def numerical(network, batch, masks, values):
    result = np.zeros_like(values)
    for place in np.ndindex(values.shape):
        kept = values[place]
        losses = []
        for step in (1e-5, -1e-5):
            values[place] = kept + step
            losses.append(dense_loss(network, batch, masks))
        values[place] = kept
        result[place] = (losses[0] - losses[1]) / 2e-5 / EXAMPLES
    return result


def test_softmax_margins_follow_the_table():
    """DSSTNE's softmax margins are no gradient of the loss; here its own formula."""
    margin = Marginal(one_target=0.3, zero_target=0.1, one_scale=2.0, zero_scale=3.0)
    z = np.random.default_rng(0).normal(size=(2, 5)) * 2
    a = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    t = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 1.0]])
    counts = t.sum(axis=1, keepdims=True)
    wanted = np.where(t == 1, np.where(a < 0.3, a - 2 / counts, 0), np.where(a > 0.1, 3 * a, 0))
    normalizer = np.log(np.exp(z).sum(axis=1, keepdims=True))
    hits = ops.Hits(*np.nonzero(t))
    ops.softmax_error(z, normalizer, hits, counts, margin)
    np.testing.assert_allclose(z, wanted, atol=1e-12)


def test_an_example_without_targets_has_no_softmax_error():
    spec = spec_of(output="SoftMax")
    inputs = net.matrix(from_rows([[0, 1]], ITEMS), 1, np.float64)
    batch = net.batch_of(inputs, net.matrix(from_rows([[]], ITEMS), 1, np.float64))
    network = network_of(spec)
    seen = Recorder(network)
    assert net.backward(network, batch, seen) == 0
    assert not any(gradient.any() for gradient in seen.weights + seen.biases)


def test_logits_rank_as_the_outputs():
    network, batch = network_of(spec_of()), batch_of()
    h = np.tanh(batch.inputs.toarray() @ network.edges[0].weights + network.edges[0].bias)
    h = np.tanh(h @ network.edges[1].weights + network.edges[1].bias)
    wanted = h @ network.edges[2].weights + network.edges[2].bias
    np.testing.assert_allclose(net.logits(network, batch.inputs), wanted, rtol=1e-12)


def test_a_copy_has_its_own_parameters():
    network = network_of(spec_of())
    other = network.copy()
    other.edges[0].store[...] = 0
    assert network.edges[0].store.any()
    assert dataclasses.asdict(other.spec) == dataclasses.asdict(network.spec)
    assert isinstance(other, Network)


@pytest.mark.parametrize(
    ("scheme", "low", "high", "deviation"),
    [
        ("Xavier", -0.2, 0.2, 0.2 / 3**0.5),
        ("CaffeXavier", -(0.06**0.5), 0.06**0.5, 0.02**0.5),
        ("Uniform", -2, 2, 2 / 3**0.5),
        ("UnitBall", 0, 2, 1 / 3**0.5),
        ("Gaussian", -12, 12, 2),
        ("Constant", 2, 2, 0),
    ],
)
def test_initial_weights(scheme, low, high, deviation):
    scale = 1.0 if "Xavier" in scheme else 2.0
    init = ops.WeightInit(ops.Scheme(scheme), scale)
    weights = ops.initial_weights(init, (100, 50), np.random.default_rng(0))
    assert weights.dtype == np.float32
    assert low <= weights.min() <= weights.max() <= high + 1e-6
    assert weights.std() == pytest.approx(deviation, rel=0.05, abs=1e-6)
