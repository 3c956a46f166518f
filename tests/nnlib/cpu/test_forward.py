"""What a forward pass forgets on the way, and what it may not: answers are those of one that keeps every value."""

from itertools import permutations

import numpy as np
import pytest

from nnlib.cpu import forward as forward_module
from nnlib.cpu.backend import Cpu
from nnlib.cpu.forward import Forward, cut_weights
from nnlib.cpu.output import sum_errors
from nnlib.model.examples import examples_of
from nnlib.ops.activations import ROWWISE
from nnlib.spec.types import Activation, LayerKind
from tests.nnlib.samples import batch_of, network_of, random_matrix, sets_of

COUNT = 11
SETS = sets_of(x=random_matrix(COUNT, 17, 4, 0.1), y=random_matrix(COUNT, 23, 3, 0.1))
INPUT = {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"}
OUTPUT = {"Kind": "Output", "N": "auto", "DataSet": "y"}
S = {"Name": "S", "Kind": "Hidden", "N": 6, "Source": "I", "Activation": "Tanh"}
H = {"Name": "H", "Kind": "Hidden", "N": 6, "Source": "S", "Activation": "Tanh"}
FIRST = OUTPUT | {"Name": "First", "Source": "S", "Activation": "Sigmoid"}
G = {"Name": "G", "Kind": "Hidden", "N": 5, "Source": "First"}
NETWORKS = {
    "chain": [S, H, FIRST, OUTPUT | {"Name": "Second", "Source": "H"}],
    "both sources": [S, H, FIRST, OUTPUT | {"Name": "Second", "Source": ["S", "H"]}],
    "the input": [S, H, FIRST | {"Source": "I"}, OUTPUT | {"Name": "Second", "Source": "H"}],
    "skip": [S, H | {"Skip": "S"}, FIRST, OUTPUT | {"Name": "Second", "Source": "H"}],
    "whole": [S, H, FIRST, OUTPUT | {"Name": "Second", "Source": "H", "pDropout": 0.5}],
    "a source itself": [S, H, FIRST, G, OUTPUT | {"Name": "Second", "Source": ["G", "H"]}],
}


@pytest.mark.parametrize("name", NETWORKS)
def test_no_value_is_forgotten_that_a_layer_still_reads(name):
    """In every order in which the layers may be written down."""
    for layers in permutations(NETWORKS[name]):
        network = network_of({"Layers": [INPUT, *layers]}, SETS)
        forward, batch = Forward(network), batch_of(network, SETS)
        kept = forward.run(batch.inputs)
        for n, layer in enumerate(network.spec.layers):
            if layer.kind is LayerKind.OUTPUT:
                node = forward.node(n)
                sums = forward.sums(node, kept) if node.blocked else kept.sums[n]
                assert np.array_equal(forward.output_sums(batch.inputs, n), sums)
            elif layer.kind is LayerKind.HIDDEN:
                assert np.array_equal(forward.activations(batch.inputs, n), kept.out[n])
        loss = Cpu().evaluator(network).mean_loss(examples_of(network.spec, SETS, "d"))
        assert loss == pytest.approx(sum_errors(forward, kept, batch.targets) / COUNT, rel=1e-6)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 511, 512, 600, 784, 1000, 1024, 4097])
def test_pieces_of_weights_are_about_as_large_as_one_another(size):
    pieces = cut_weights(size)
    assert [n for some in pieces for n in range(size)[some]] == list(range(size))
    sizes = [some.stop - some.start for some in pieces]
    assert max(sizes) <= size / len(sizes) + 16
    assert all(some.start % 16 == 0 for some in pieces)


@pytest.mark.parametrize("activation", [kind for kind in Activation if kind not in ROWWISE])
@pytest.mark.parametrize("extra", [{}, {"Skip": "S"}, {"BatchNormalization": True}])
def test_units_computed_piece_by_piece_have_the_bits_of_whole_layers(monkeypatch, activation, extra):
    """Several threads compute what units make of their sums piece by piece, one thread does so at the end."""
    monkeypatch.setattr(forward_module, "PIECE", 4)
    hidden = H | {"N": 70, "Activation": activation.value} | extra
    layers = [INPUT, S | {"N": 70}, hidden, OUTPUT | {"Source": "H"}]
    network = network_of({"Layers": layers}, SETS)
    batch, pieces = batch_of(network, SETS), []

    def each(function, items):
        pieces.append(len(items))
        return [function(item) for item in reversed(items)][::-1]

    whole, cut = (Forward(network, *way).run(batch.inputs).out[2] for way in ((), (each,)))
    assert np.array_equal(whole, cut)
    assert max(pieces) > 10, "the layer was computed in pieces"
