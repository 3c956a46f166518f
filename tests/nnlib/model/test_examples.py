"""Data sets of images and the layers that take them."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import DataSet
from nnlib.errors import DataError
from nnlib.model.examples import resolve
from nnlib.spec.network import parse_network

STEM = {"Name": "Stem", "Type": "Convolutional", "N": 2, "Kernel": [3, 3]}


def resolved(n, dimensions, *layers, out="auto", targets=None, rows=None):
    images = DataSet("x", Dense(np.zeros((3, 24), np.uint8)) if rows is None else rows, dimensions=dimensions)
    sets = {"x": images, "y": targets or DataSet("y", Dense(np.zeros((3, 5), np.float32)))}
    last = layers[-1] if layers and layers[-1].get("Kind") == "Output" else {"N": out, "DataSet": "y"}
    hidden = [layer for layer in layers if layer is not last]
    return resolve(parse_network({"Layers": [{"N": n, "DataSet": "x"}, *hidden, last]}, "n"), sets, "d.nc")


@pytest.mark.parametrize(
    ("n", "dimensions", "wanted"),
    [
        ("auto", (4, 3, 2), (4, 3, 2)),
        ("auto", (6, 4), (6, 4, 1)),
        ([4, 3, 2], (), (4, 3, 2)),
        ([4, 3, 2], (24,), (4, 3, 2)),
        ([6, 4, 1], (6, 4), (6, 4, 1)),
        ([6, 4], (6, 4, 1), (6, 4, 1)),
    ],
)
def test_images_have_the_dimensions_of_their_data(n, dimensions, wanted):
    spec = resolved(n, dimensions, STEM)
    assert spec.layers[0].dimensions == wanted
    assert spec.layers[1].dimensions == (*wanted[:2], 2) if min(wanted[:2]) > 3 else (wanted[0], 1, 2)


@pytest.mark.parametrize(("n", "dimensions"), [([4, 3, 2], (2, 4, 3)), ([6, 4], (4, 6)), ([4, 6, 1], (6, 4))])
def test_images_that_lie_otherwise_than_N_says_are_refused(n, dimensions):
    seen = " x ".join(map(str, dimensions))
    with pytest.raises(DataError, match=rf"layer Input0: N is .*, data set 'x' is {seen}; legal: \[.*\] or \"auto\""):
        resolved(n, dimensions, STEM)


def test_what_no_kernel_moves_over_may_lie_as_it_likes():
    assert resolved([4, 3, 2], (2, 4, 3), {"N": 5}).layers[0].dimensions == (4, 3, 2)


def test_sparse_images_are_refused():
    with pytest.raises(
        DataError, match="Stem: of type Convolutional, takes Input0, whose data set 'x' is sparse; legal"
    ):
        resolved("auto", (4, 3, 2), STEM, rows=from_rows([[1], [2], [3]], 24))


def test_targets_of_maps_say_how_many_there_are():
    last = {"Kind": "Output", "Type": "Convolutional", "N": "auto", "Kernel": [1, 1], "DataSet": "y"}
    for dimensions, maps in (((4, 3, 2), 2), ((4, 3), 1)):
        targets = DataSet("y", Dense(np.zeros((3, 12 * maps), np.float32)), dimensions=dimensions)
        assert resolved("auto", (4, 3, 2), last, targets=targets).layers[1].dimensions == (4, 3, maps)
    with pytest.raises(DataError, match="its sources give 24 units, data set 'y' has width 12; legal: 24"):
        resolved("auto", (4, 3, 2), last | {"N": 2}, targets=targets)
