"""What is too large for a GPU's kernels is refused before anything is launched, and what is legal is said."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.errors import NnlibError
from nnlib.gpu import packing, reach
from nnlib.gpu.backend import Gpu
from nnlib.gpu.forward import GATHERED
from nnlib.gpu.output import TILE
from nnlib.model.examples import examples_of
from tests.nnlib.samples import network_of, random_matrix, sets_of

SETS = sets_of(x=random_matrix(50, 30, 1), y=random_matrix(50, 20, 2))
DENSE = sets_of(x=np.ones((50, 30), np.float32), y=random_matrix(50, 20, 2))
INPUT = {"Name": "I", "N": "auto", "DataSet": "x"}
HIDDEN = {"Kind": "Hidden", "Name": "H", "N": 8}
OUTPUT = {"Kind": "Output", "Name": "O", "N": "auto", "DataSet": "y"}


def test_both_kernels_that_share_a_layer_have_blocks_of_one_size():
    assert GATHERED == TILE


def test_layers_with_more_units_than_a_grid_has_blocks_for(cupy, monkeypatch):
    gpu, network = Gpu(cupy.runtime()), network_of({"Layers": [INPUT, HIDDEN, OUTPUT]}, SETS)
    monkeypatch.setattr(reach, "TILE", 1)
    monkeypatch.setattr(reach, "GRID_ROWS", 20)
    gpu.evaluator(network)
    monkeypatch.setattr(reach, "GRID_ROWS", 19)
    with pytest.raises(NnlibError, match=r'layer "O": 20 units, legal on a GPU: up to 19; device: cpu takes more'):
        gpu.evaluator(network)


def test_limits_over_more_units_than_a_grid_has_blocks_for(cupy, monkeypatch):
    raw = {"Layers": [INPUT, HIDDEN | {"WeightNorm": 1.0}, OUTPUT]}
    gpu, network = Gpu(cupy.runtime()), network_of(raw, SETS)
    monkeypatch.setattr(reach, "CHUNK", 1)
    monkeypatch.setattr(reach, "GRID_ROWS", 29)
    with pytest.raises(NnlibError, match=r'layer "H": WeightNorm over 30 units below it, legal on a GPU: up to 29'):
        gpu.evaluator(network)


def test_a_convolution_of_more_groups_than_a_grid_has_blocks_for(cupy, monkeypatch):
    images = sets_of(x=np.ones((50, 40), np.float32), y=random_matrix(50, 20, 2))
    layer = {"Kind": "Hidden", "Name": "C", "Type": "Convolutional", "N": 10, "Kernel": [3], "Groups": 10}
    network = network_of({"Layers": [INPUT | {"N": [4, 10]}, layer, OUTPUT]}, images)
    gpu = Gpu(cupy.runtime())
    monkeypatch.setattr(reach, "GRID_ROWS", 10)
    gpu.evaluator(network)
    monkeypatch.setattr(reach, "GRID_ROWS", 9)
    with pytest.raises(NnlibError, match=r'layer "C": 10 Groups, legal on a GPU: up to 9; device: cpu takes more'):
        gpu.evaluator(network)


def of_kernel(**layer):
    images = sets_of(x=np.ones((50, 40), np.float32), y=random_matrix(50, 20, 2))
    middle = {"Kind": "Hidden", "Name": "K"} | layer
    return network_of({"Layers": [INPUT | {"N": [4, 5, 2]}, middle, OUTPUT]}, images)


def test_kernels_that_an_int_just_counts(cupy, monkeypatch):
    layer, gpu = {"Type": "Convolutional", "N": 6, "Kernel": [3, 3], "Groups": 2}, Gpu(cupy.runtime())
    monkeypatch.setattr(reach, "MOST_STEPS", 3 * 9)
    monkeypatch.setattr(reach, "MOST_PLACES", 7)
    gpu.evaluator(of_kernel(**layer))
    monkeypatch.setattr(reach, "MOST_STEPS", 3 * 9 - 1)
    with pytest.raises(NnlibError, match='layer "K": 27 places of its Kernel in a group'):
        gpu.evaluator(of_kernel(**layer))
    gpu.evaluator(of_kernel(Type="Pooling", Function="Max", Kernel=[3, 3]))
    monkeypatch.setattr(reach, "MOST_PLACES", 6)
    with pytest.raises(NnlibError, match='layer "K": 7 places of an axis and its padding'):
        gpu.evaluator(of_kernel(Type="Pooling", Function="Max", Kernel=[3, 3]))


@pytest.mark.parametrize(("sets", "most"), [(SETS, 300), (DENSE, 1000)])
def test_batches_whose_places_an_int_cannot_hold(cupy, monkeypatch, sets, most):
    gpu, network = Gpu(cupy.runtime()), network_of({"Layers": [INPUT, HIDDEN, OUTPUT]}, sets)
    examples = examples_of(network.spec, sets, "d")
    monkeypatch.setattr(packing, "MOST_WORDS", most)
    with pytest.raises(NnlibError, match=rf"numbers, legal on a GPU: up to {most:,}; use a smaller batch or device"):
        [*gpu.engine(network, examples, TrainSettings(batch=50)).batches([np.arange(50)])]
