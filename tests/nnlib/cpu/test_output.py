"""Losses and gradients do not depend on how the work is cut into pieces, nor on who does the inner loops."""

from dataclasses import replace

import numpy as np
import pytest

from nnlib.cpu import backward, forward, output, sparse_products
from nnlib.cpu.backend import Cpu
from nnlib.cpu.forward import Forward
from nnlib.cpu.gradients import Gradients
from nnlib.cpu.output import sum_errors
from nnlib.model import network as net
from nnlib.model.examples import examples_of
from nnlib.model.network import Network, assemble
from tests.nnlib.samples import batch_of, network_of, random_matrix, sets_of

EXAMPLES, UNITS = 37, 75
MARGIN = {"oneTarget": 0.7, "zeroTarget": 0.45, "oneScale": 3, "zeroScale": 0.5}
ERRORS = {
    "cross entropy": {"ErrorFunction": "CrossEntropy"},
    "margins": {"ErrorFunction": "ScaledMarginalCrossEntropy", "ScaledMarginalCrossEntropy": MARGIN},
    "data margins": {"ErrorFunction": "DataScaledMarginalCrossEntropy", "ScaledMarginalCrossEntropy": MARGIN},
    "softmax": {"ErrorFunction": "CrossEntropy", "Activation": "SoftMax"},
    "squares": {"ErrorFunction": "L2", "Activation": "Tanh"},
}
SPARSE = {"x": random_matrix(EXAMPLES, 90, 1, analog=True), "y": random_matrix(EXAMPLES, UNITS, 2, 0.1)}
SETS = {
    "sparse": sets_of(**SPARSE),
    "weighted": sets_of(**SPARSE | {"y": SPARSE["y"] * 0.7}),
    "dense": sets_of(**{name: matrix.toarray() for name, matrix in SPARSE.items()}),
}


def raw_of(error, direct=True):
    """Two hidden layers and, with `direct`, weights that lead from the input to the output."""
    changes = dict(ERRORS[error])
    last = {"Name": "O", "N": "auto", "DataSet": "y", "Activation": changes.pop("Activation", "Sigmoid")}
    return changes | {
        "Layers": [
            {"Name": "I", "N": "auto", "DataSet": "x"},
            {"Name": "H", "N": 40, "Activation": "Tanh"},
            {"Name": "G", "N": 30, "Activation": "Relu"},
            last | ({"Source": ["G", "I"]} if direct else {}),
        ]
    }


def gradients(raw, sets, dtype=np.float64):
    """Return the error of all examples and every gradient, weights as (in, out)."""
    network = network_of(raw, sets, dtype)
    batch, sink, whole = batch_of(network, sets), Gradients(network), Forward(network)
    values = whole.run(batch.inputs)
    total = backward.backward(whole, values, batch.targets, sink)
    assert total == pytest.approx(sum_errors(whole, values, batch.targets), rel=1e-6 if dtype == np.float32 else 1e-12)
    found = sink.arrays()
    stores = {n: found[f"weights{n}"] for n in network.stores}
    weights = Network(network.spec, stores, network.biases, {})
    return total, [weights.matrix(n) for n in stores] + [found[f"bias{n}"] for n in range(len(network.biases))]


def assert_close(one, other, tolerance):
    assert one[0] == pytest.approx(other[0], rel=tolerance)
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance * 10, atol=tolerance)


CUTS = [
    [(net, "BLOCK", 16)],
    [(net, "BLOCK", 1), (output, "LANES", 3)],
    [(net, "BLOCK", 7), (output, "LANES", 1), (output, "KEPT", 0)],
    [(sparse_products, "SHARE", 5), (forward, "EXAMPLES", 3)],
    [(forward, "PIECE", 8)],
]


@pytest.mark.parametrize("kind", ["sparse", "weighted", "dense"])
@pytest.mark.parametrize("error", ERRORS)
def test_the_size_of_pieces_does_not_matter(monkeypatch, backend, error, kind):
    raw = raw_of(error)
    whole = gradients(raw, SETS[kind])
    for cut in CUTS:
        with monkeypatch.context() as patch:
            for module, name, value in cut:
                patch.setattr(module, name, value)
            assert_close(gradients(raw, SETS[kind]), whole, 1e-12)


@pytest.mark.parametrize("kind", ["sparse", "weighted", "dense"])
@pytest.mark.parametrize("error", ERRORS)
def test_either_code_gives_the_same(use_backend, error, kind):
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 2e-6)):
        found = []
        for name in ("numpy", "numba"):
            use_backend(name)
            found.append(gradients(raw_of(error), SETS[kind], dtype))
        assert_close(*found, tolerance)


@pytest.mark.parametrize("kind", ["sparse", "weighted"])
@pytest.mark.parametrize("error", ["margins", "data margins"])
def test_sparse_deltas_give_what_dense_ones_do(monkeypatch, use_backend, error, kind):
    use_backend("numba")
    raw = raw_of(error, direct=False)
    monkeypatch.setattr(output, "SPARSE_DELTA", 0)
    dense = gradients(raw, SETS[kind])
    monkeypatch.setattr(output, "SPARSE_DELTA", 1)
    with monkeypatch.context() as patch:
        patch.setattr(output._Layer, "_dense_gradients", None)
        sparse = gradients(raw, SETS[kind])
    assert_close(sparse, dense, 1e-12)
    monkeypatch.setattr(net, "BLOCK", 10)
    for part in (0.2, 0.4, 0.6):  # blocks of both kinds
        monkeypatch.setattr(output, "SPARSE_DELTA", part)
        assert_close(gradients(raw, SETS[kind]), dense, 1e-12)


@pytest.mark.parametrize("error", ["cross entropy", "margins", "softmax"])
def test_zeros_and_weights_that_loops_do_not_know(backend, error):
    """Both are left to NumPy, and mean what they mean there."""
    sets, counts = SETS["sparse"], np.arange(EXAMPLES)
    counted = sets | {"y": replace(sets["y"], weights=counts.astype(np.float32))}
    repeated = {name: data_set.take(np.repeat(counts, counts)) for name, data_set in sets.items()}
    network = network_of(raw_of(error), sets, np.float64)

    def total(data):
        return Cpu().evaluator(network).mean_loss(examples_of(network.spec, data, "d")) * data["y"].examples

    assert total(counted) == pytest.approx(total(repeated))
    ones = sets | {"y": replace(sets["y"], ignore_zero=True)}
    assert (total(ones) < total(sets)) == (error != "softmax")


def test_an_example_without_targets_has_no_softmax_error(backend):
    sets = sets_of(x=SPARSE["x"], y=SPARSE["y"] * 0)
    found = gradients(raw_of("softmax"), sets)
    assert found[0] == 0
    assert not any(gradient.any() for gradient in found[1])


def test_an_empty_batch_of_inputs_is_only_biases(backend):
    sets = sets_of(x=SPARSE["x"] * 0, y=SPARSE["y"])
    network = network_of(raw_of("cross entropy"), sets)
    scores = Forward(network).activations(batch_of(network, sets).inputs, 3)
    np.testing.assert_allclose(scores, np.tile(scores[0], (EXAMPLES, 1)), rtol=1e-6)


def test_assembled_as_created(monkeypatch):
    monkeypatch.setattr(net, "BLOCK", 16)
    network = network_of(raw_of("cross entropy"), SETS["sparse"])
    again = assemble(network.spec, {n: network.matrix(n) for n in network.stores}, network.biases, {})
    for n, store in network.stores.items():
        np.testing.assert_array_equal(again.stores[n], store)
