"""Networks and their forward pass, against plain dense NumPy."""

import numpy as np
import pytest

from nnlib.cpu.backward import backward, sum_penalties
from nnlib.cpu.forward import Forward
from nnlib.cpu.gradients import Gradients
from nnlib.cpu.output import sum_errors
from nnlib.model import network as net
from nnlib.model.batches import generator_for
from nnlib.model.network import Layout, assemble, is_blocked, is_lazy, layout_of
from nnlib.ops import batch_norm
from nnlib.ops.batch_norm import BatchNorm
from nnlib.spec.network import parse_network
from tests.nnlib.samples import batch_of, bits, network_of, random_matrix, sets_of

EXAMPLES = 11
X, Y = random_matrix(EXAMPLES, 9, 1, analog=True), random_matrix(EXAMPLES, 6, 2)
SPARSE, DENSE = sets_of(x=X, y=Y), sets_of(x=X.toarray(), y=Y.toarray())
INPUT = {"Name": "I", "N": "auto", "DataSet": "x"}
OUTPUT = {"Kind": "Output", "Name": "O", "N": "auto", "DataSet": "y"}
SHARED = {"SharedWeights": {"InputLayer": "B", "SourceInputLayer": "I", "SourceOutputLayer": "A", "Transposed": True}}
TANGLED = {
    "Layers": [
        INPUT,
        OUTPUT | {"Source": ["C", "A"]},
        {"Name": "A", "N": 5, "Source": "I", "Activation": "Tanh"},
        {"Name": "B", "N": 5, "Source": ["A", "I"], "Skip": "A", "Activation": "SoftSign"},
        {"Kind": "Hidden", "Name": "C", "N": 9, "Source": "B", "Skip": "I", "Activation": "Linear"} | SHARED,
    ]
}


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def matrices(network):
    """The weights (in, out) and the bias of every edge by the names of its layers."""
    spec = network.spec
    found = {}
    for edge in spec.edges:
        w = network.matrix(edge.owner)
        names = spec.layers[edge.source].name + spec.layers[edge.target].name
        found[names] = (w.T if edge.transposed else w, network.biases[edge.number])
    return found


@pytest.mark.parametrize("sets", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_sources_skips_and_shared_weights(backend, sets):
    network = network_of(TANGLED, sets, np.float64)
    w, x = matrices(network), X.toarray()
    a = np.tanh(x @ w["IA"][0] + w["IA"][1])
    z = a @ w["AB"][0] + w["AB"][1] + x @ w["IB"][0] + w["IB"][1] + a
    b = z / (1 + np.abs(z))
    c = b @ w["IA"][0].T + w["BC"][1] + x
    z = c @ w["CO"][0] + w["CO"][1] + a @ w["AO"][0] + w["AO"][1]
    forward, batch = Forward(network), batch_of(network, sets)
    for layer, wanted in ((2, a), (3, b), (4, c), (1, sigmoid(z))):
        np.testing.assert_allclose(forward.activations(batch.inputs, layer), wanted, rtol=1e-12, atol=1e-14)
    t = Y.toarray()
    wanted = -(t * np.log(sigmoid(z)) + (1 - t) * np.log(1 - sigmoid(z))).sum()
    assert sum_errors(forward, forward.run(batch.inputs), batch.targets) == pytest.approx(wanted, rel=1e-12)


def test_the_losses_of_several_outputs_add_up():
    sets = SPARSE | sets_of(t=random_matrix(EXAMPLES, 4, 3))
    both = {"Layers": [INPUT, {"Name": "H", "N": 3}, OUTPUT, OUTPUT | {"Name": "P", "DataSet": "t", "Source": "H"}]}
    network = network_of(both, sets, np.float64)
    forward, batch = Forward(network), batch_of(network, sets)
    values, parts = forward.run(batch.inputs), []
    for node in forward.outputs:
        z = forward.sums(node, values)
        t = sets[node.layer.data_set].rows
        hit = np.zeros(z.shape)
        hit[np.repeat(np.arange(EXAMPLES), np.diff(t.indptr)), t.indices] = 1
        parts.append((np.logaddexp(0, z) - hit * z).sum())
    assert sum_errors(forward, values, batch.targets) == pytest.approx(sum(parts), rel=1e-12)


def test_layouts():
    sparse, dense = network_of(TANGLED, SPARSE).spec, network_of(TANGLED, DENSE).spec
    assert [layout_of(sparse, edge) for edge in sparse.edges] == [Layout.BY_OUTPUT] * 2 + [Layout.PLAIN] * 4
    direct = network_of({"Layers": [INPUT, OUTPUT]}, SPARSE).spec
    assert layout_of(direct, direct.edges[0]) is Layout.BLOCKED
    assert is_lazy(direct, direct.edges[0])
    names = [sparse.layers[e.source].name + sparse.layers[e.target].name for e in sparse.edges]
    assert [names[e.number] for e in sparse.edges if is_lazy(sparse, e)] == ["IB"]
    assert not any(is_lazy(dense, edge) for edge in dense.edges)


@pytest.mark.parametrize(
    "change",
    [{"pDropout": 0.5}, {"DeltaNorm": 1}, {"Skip": "H"}, {"Activation": "RELUMax"}],
    ids=["dropout", "delta norm", "skip", "row-wise"],
)
def test_outputs_that_are_needed_whole_are_not_cut(change):
    raw = {"ErrorFunction": "L2", "Layers": [INPUT, {"Name": "H", "N": 6}, OUTPUT]}
    plain = network_of(raw, SPARSE).spec
    assert is_blocked(plain, plain.layers[2])
    other = network_of(raw | {"Layers": [*raw["Layers"][:2], OUTPUT | change]}, SPARSE).spec
    assert not is_blocked(other, other.layers[2])


def test_outputs_that_feed_others_are_not_cut():
    spec = network_of({"Layers": [INPUT, OUTPUT, OUTPUT | {"Name": "P", "Source": "O"}]}, SPARSE).spec
    assert [is_blocked(spec, layer) for layer in spec.layers] == [False, False, True]


@pytest.mark.parametrize("width", [1, 4, 6, 512])
def test_matrices_survive_every_layout(monkeypatch, width):
    monkeypatch.setattr(net, "BLOCK", width)
    raw = {"Layers": [INPUT, {"Name": "H", "N": 4}, OUTPUT | {"Source": ["H", "I"]}]}
    network = network_of(raw, SPARSE)
    monkeypatch.setattr(net, "BLOCK", 512)
    for n, store in network_of(raw, SPARSE).stores.items():
        whole = store.T if n == 1 else store
        monkeypatch.setattr(net, "BLOCK", width)
        np.testing.assert_array_equal(network.matrix(n), whole)
        assert network.matrix(n).flags.c_contiguous


def test_parameters_count_shared_weights_once():
    network = network_of(TANGLED, SPARSE)
    weights = 9 * 6 + 5 * 6 + 9 * 5 + 5 * 5 + 9 * 5
    assert network.parameters == weights + 6 + 6 + 5 + 5 + 5 + 9


def test_weights_start_as_the_layer_says_and_the_seed():
    layers = [INPUT, {"Name": "H", "N": 4, "WeightInit": {"Scheme": "Constant", "Scale": 2, "Bias": -1}}, OUTPUT]
    spec = network_of({"Layers": layers}, SPARSE).spec
    network = net.create(spec, generator_for(1, 0))
    assert np.all(network.matrix(0) == 2)
    assert np.all(network.biases[0] == -1)
    assert not network.biases[1].any()
    assert bits(net.create(spec, generator_for(1, 0))) == bits(network) != bits(net.create(spec, generator_for(2, 0)))


def test_a_network_takes_over_the_parameters_of_another_into_its_own_memory():
    raw = {"Layers": [INPUT, {"Name": "H", "N": 4, "BatchNormalization": True}, OUTPUT]}
    network, other = network_of(raw, SPARSE), network_of(raw, SPARSE)
    for _, array in other.arrays():
        array += 1
    before, places = bits(other), [array.ctypes.data for _, array in network.arrays()]
    network.take(other)
    assert bits(network) == bits(other) == before
    assert [array.ctypes.data for _, array in network.arrays()] == places


def test_a_copy_has_its_own_parameters():
    raw = {"Layers": [INPUT, {"Name": "H", "N": 4, "BatchNormalization": True}, OUTPUT]}
    network = network_of(raw, SPARSE)
    before = bits(network)
    for _, array in network.copy().arrays():
        array += 1
    assert bits(network) == before
    assert bits(network.copy()) == before
    names = [name for name, _ in network.arrays()]
    assert names == [
        "weights0",
        "weights1",
        "bias0",
        "bias1",
        *(f"norm1_{n}" for n in ("scale", "bias", "mean", "variance")),
    ]


def test_batch_normalizations_that_are_missing_start_anew():
    raw = {"Layers": [INPUT, {"Name": "H", "N": 4, "BatchNormalization": True}, OUTPUT]}
    network = network_of(raw, SPARSE)
    again = assemble(network.spec, {n: network.matrix(n) for n in network.stores}, network.biases, {})
    assert bits(again) == bits(network)


def test_batch_normalization():
    """A batch by its own statistics, a prediction by the running ones, a tenth of each new batch."""
    z = np.random.default_rng(0).normal(3, 2, (50, 4))
    norm = BatchNorm.start(4, np.float64)
    norm.scale[...], norm.bias[...] = 2, -1
    _, found = batch_norm.forward(norm, z.copy())
    wanted = 2 * (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5) - 1
    np.testing.assert_allclose(found, wanted)
    np.testing.assert_allclose(norm.mean, 0.1 * z.mean(axis=0))
    np.testing.assert_allclose(norm.variance, 0.9 + 0.1 * z.var(axis=0, ddof=1))
    for _ in range(300):
        batch_norm.forward(norm, z.copy())
    np.testing.assert_allclose(norm.mean, z.mean(axis=0))
    wanted = 2 * (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0, ddof=1) + 1e-5) - 1
    np.testing.assert_allclose(batch_norm.inference(norm, z.copy()), wanted)


def test_a_batch_of_one_is_normalized_to_zero():
    norm = BatchNorm.start(3)
    _, found = batch_norm.forward(norm, np.array([[1, 2, 3]], np.float32))
    assert not found.any()
    np.testing.assert_allclose(norm.variance, 0.9)


def test_statistics_change_in_training_only():
    raw = {"Layers": [INPUT, {"Name": "H", "N": 4, "BatchNormalization": True, "Activation": "Tanh"}, OUTPUT]}
    network = network_of(raw, SPARSE, np.float64)
    forward, batch, before = Forward(network), batch_of(network, SPARSE), bits(network)
    z = X.toarray() @ network.matrix(0) + network.biases[0]
    np.testing.assert_allclose(forward.run(batch.inputs).out[1], np.tanh(z / np.sqrt(1 + 1e-5)))
    assert bits(network) == before
    normal = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5)
    np.testing.assert_allclose(forward.run(batch.inputs, training=True).out[1], np.tanh(normal))
    assert bits(network) != before


def test_dropout_is_drawn_for_hidden_outputs_and_dense_inputs():
    half = {"pDropout": 0.5}
    layers = [INPUT | half, {"Name": "H", "N": 4, "Activation": "Relu"} | half, OUTPUT | half]
    raw = {"ErrorFunction": "L2", "Layers": layers}
    network = network_of(raw, DENSE, np.float64)
    forward, batch, drawn = Forward(network), batch_of(network, DENSE), {}

    def keep(layer, shape):
        drawn[layer] = np.random.default_rng(layer).random(shape) >= 0.5
        return drawn[layer]

    values = forward.run(batch.inputs, keep)
    assert {n: mask.shape for n, mask in drawn.items()} == {0: (11, 9), 1: (11, 4), 2: (11, 6)}
    x = np.where(drawn[0], 2 * X.toarray(), 0)
    h = np.where(drawn[1], 2 * np.maximum(x @ network.matrix(0) + network.biases[0], 0), 0)
    np.testing.assert_allclose(values.out[1], h)
    o = sigmoid(h @ network.matrix(1) + network.biases[1])
    np.testing.assert_allclose(values.out[2], np.where(drawn[2], o, 0.5))
    np.testing.assert_allclose(forward.run(batch.inputs).out[0], X.toarray())


def gradients_of(network, sets, keep=None):
    forward, batch, sink = Forward(network), batch_of(network, sets), Gradients(network)
    values = forward.run(batch.inputs, keep)
    backward(forward, values, batch.targets, sink)
    return values, sink.arrays()


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_the_delta_of_every_example_is_limited(limit):
    raw = {"ErrorFunction": "L2", "Layers": [INPUT, OUTPUT | {"Activation": "Linear", "DeltaNorm": limit}]}
    network = network_of(raw, DENSE, np.float64)
    delta = X.toarray() @ network.matrix(0) + network.biases[0] - Y.toarray()
    norms = np.linalg.norm(delta, axis=1, keepdims=True)
    assert norms.min() > 0.5
    delta *= np.minimum(1, limit / norms)
    _, found = gradients_of(network, DENSE)
    np.testing.assert_allclose(found["bias0"], delta.mean(axis=0))
    np.testing.assert_allclose(found["weights0"], X.toarray().T @ delta / EXAMPLES, atol=1e-15)


@pytest.mark.parametrize(
    ("activation", "derivative"),
    [
        ("Sigmoid", lambda out, _: out * (1 - out)),
        ("Tanh", lambda out, scale: scale * (1 - (out / scale) ** 2)),
        ("Relu", lambda out, _: 1.0 * (out > 0)),
        ("ELU", lambda out, _: np.where(out > 0, 1, out + 1)),
    ],
)
def test_as_in_dsstne_the_way_back_knows_no_dropout(activation, derivative):
    """Only what units gave after it."""
    raw = {"Layers": [INPUT, {"Name": "H", "N": 4, "pDropout": 0.4, "Activation": activation}, OUTPUT]}
    network = network_of(raw, DENSE, np.float64, compat=True)
    mask = np.random.default_rng(0).random((EXAMPLES, 4)) >= 0.4
    values, found = gradients_of(network, DENSE, lambda *_: mask)
    h = values.out[1]
    delta = sigmoid(h @ network.matrix(1) + network.biases[1]) - Y.toarray()
    below = delta @ network.matrix(1).T * derivative(h, 1 / 0.6)
    np.testing.assert_allclose(found["bias1"], delta.mean(axis=0))
    np.testing.assert_allclose(found["bias0"], below.mean(axis=0))


def test_sparseness_pulls_mean_activations_towards_p():
    layers = [
        INPUT,
        {"Name": "H", "N": 4, "Sparse": True},
        {"Name": "G", "N": 3, "Sparse": True, "SparsenessPenalty": {"beta": 2}},
        {"Name": "F", "N": 3},
        OUTPUT | {"Sparse": True},
    ]
    network = network_of({"SparsenessPenalty": {"p": 0.2, "beta": 0.5}, "Layers": layers}, SPARSE, np.float64)
    forward, batch = Forward(network), batch_of(network, SPARSE)
    values = forward.run(batch.inputs)
    m, n = values.out[1].mean(axis=0), values.out[2].mean(axis=0)
    wanted = sum(beta * (0.2 * np.log(0.2 / a) + 0.8 * np.log(0.8 / (1 - a))).sum() for beta, a in ((0.5, m), (2, n)))
    assert sum_penalties(forward, values) == pytest.approx(wanted)


def test_an_unresolved_network_cannot_be_computed():
    spec = parse_network({"Layers": [INPUT, OUTPUT]}, "n")
    with pytest.raises(ValueError, match="layer I: number of units not resolved"):
        net.create(spec, generator_for(1, 0))
