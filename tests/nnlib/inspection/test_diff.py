"""What two files have different, by what they mean."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nnlib.data.file import write_data
from nnlib.data.rows import Csr
from nnlib.data.sets import Data, as_data_set
from nnlib.errors import DataError
from nnlib.inspection.diff import find_differences
from nnlib.model.file import Model, write_model
from nnlib.model.network import Network
from nnlib.util import netcdf
from tests.nnlib.prediction.test_predictor import made, raw_network, sets_of
from tests.nnlib.samples import clustered


@pytest.fixture
def files(tmp_path):
    """Return what writes two models or two data and lists their differences."""

    def compare(one, other, tolerance=0.0):
        for name, content in (("a.nc", one), ("b.nc", other)):
            (write_model if isinstance(content, Model) else write_data)(tmp_path / name, content)
        return list(find_differences(tmp_path / "a.nc", tmp_path / "b.nc", tolerance))

    return compare


def model(**keys):
    return made(raw_network(**keys), sets_of())


def with_spec(one, **changes):
    spec = dataclasses.replace(one.network.spec, **changes)
    return dataclasses.replace(one, network=Network(spec, one.network.stores, one.network.biases, one.network.norms))


def with_layer(one, number, **changes):
    layers = list(one.network.spec.layers)
    layers[number] = dataclasses.replace(layers[number], **changes)
    return with_spec(one, layers=tuple(layers))


def test_the_same(files):
    assert files(model(), model()) == []
    assert files(clustered(20, 1, 6), clustered(20, 1, 6)) == []


def test_settings_of_the_network_and_its_layers(files):
    one = model()
    assert files(one, with_spec(one, denoising=0.5, name="other")) == [
        "network: name:  | other",
        "network: denoising: 0.0 | 0.5",
    ]
    assert files(one, with_layer(one, 1, dropout=0.25)) == ["layer Hidden: dropout: 0.0 | 0.25"]
    assert files(one, dataclasses.replace(one, region="Here")) == ["region:  | Here"]


def test_weights(files):
    one, other = model(), model()
    other = dataclasses.replace(other, network=other.network.copy())
    other.network.stores[1][17, 3] += 0.5  # the weights of unit 17 of the output, by output
    other.network.biases[0][2] += 1e-4
    [biases, weights] = files(one, other)
    assert weights.startswith(
        "weights Hidden -> Out: 1 of 180 numbers differ, by up to 0.5 (at 3, 17), relatively by up to "
    )
    assert biases.startswith("biases In -> Hidden: 1 of 6 numbers differ, by up to 0.0001")
    assert files(one, other, 0.01) == [weights]
    assert files(one, other, 0.6) == []


def test_layers_and_names(files):
    raw = raw_network()
    raw["Layers"].insert(2, {"Name": "More", "Kind": "Hidden", "N": 4})
    one, other = model(), made(raw, sets_of())
    lines = files(one, other)
    assert "layer More: only in the second" in lines
    assert "layer Out: sources: ('Hidden',) | ('More',)" in lines
    assert "parameters weights Hidden -> More: only in the second" in lines
    assert "parameters weights Hidden -> Out: only in the first" in lines
    names = ("other", *one.features[2][1:])
    renamed = dataclasses.replace(one, features={**one.features, 2: names})
    assert files(one, renamed) == ["layer Out: names of units: 1 of 30 differ, first 0: item 0 | other"]
    assert files(one, dataclasses.replace(one, features={})) == [
        "layer In: names of units: 30 | 0",
        "layer Out: names of units: 30 | 0",
    ]


def test_data_sets(files):
    one = clustered(20, 1, 6)
    first, second = one.sets
    turned = dataclasses.replace(first, rows=Csr(first.rows.indptr, first.rows.indices.copy(), first.width))
    turned.rows.indices[0:2] = turned.rows.indices[1::-1][:2]  # another order of the units of an example
    assert files(one, dataclasses.replace(one, sets=(turned, second))) == []
    changed = dataclasses.replace(first, rows=dataclasses.replace(turned.rows, indices=first.rows.indices.copy()))
    changed.rows.indices[6] = 39  # of example 1
    assert files(one, dataclasses.replace(one, sets=(changed, second))) == [
        "data set input: 1 of 20 examples differ, first 1, by up to 1"
    ]
    assert files(one, dataclasses.replace(one, sets=(first,))) == ["data set output: only in the first"]
    assert files(one, clustered(19, 1, 6)) == [
        "data set input: examples: 20 | 19",
        "data set output: examples: 20 | 19",
    ]
    weighted = dataclasses.replace(second, weights=np.full(20, 2, np.float32), ignore_zero=True)
    assert files(one, dataclasses.replace(one, sets=(first, weighted), samples=tuple("abcdefghijklmnopqrst"))) == [
        "names of examples: 0 | 20",
        "data set output: ignore_zero: False | True",
        "data set output: weights of examples: 20 of 20 numbers differ, by up to 1 (at 0), relatively by up to 0.5",
    ]


def test_whether_buying_again_counts(files):
    one = clustered(20, 1, 6)
    assert files(one, dataclasses.replace(one, repeats=True)) == ["repeats: False | True"]


def test_values_of_dense_data(files):
    values = np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)
    one, other = (Data((as_data_set("x", some),)) for some in (values, values + np.float32(1e-3)))
    [line] = files(one, other)
    assert line.startswith("data set x: 12 of 12 examples differ, first 0, by up to 0.001")
    assert files(one, other, 0.01) == []
    assert files(one, Data((as_data_set("x", values.astype(np.float64)),))) == [
        "data set x: kind: dense float32 | dense float64"
    ]


def test_files_of_two_kinds(files, tmp_path):
    with pytest.raises(DataError, match=r"a.nc is a model, .*b.nc is data; legal: two of a kind"):
        files(model(), clustered(5, 1, 6))
    netcdf.write(tmp_path / "c.nc", netcdf.Content({"x": 1}, {}))
    with pytest.raises(DataError, match=r"c.nc: neither a data nor a model file"):
        list(find_differences(tmp_path / "c.nc", tmp_path / "c.nc"))
