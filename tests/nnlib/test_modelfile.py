import netCDF4
import numpy as np
import pytest

from nnlib import network as net
from nnlib.errors import DataError
from nnlib.modelfile import Model, read_model, write_model
from nnlib.spec import parse_network
from nnlib.train import resolve

RAW = {
    "Name": "m",
    "Kind": "AutoEncoder",
    "ErrorFunction": "ScaledMarginalCrossEntropy",
    "ScaledMarginalCrossEntropy": {"oneTarget": 1.0, "zeroTarget": 0.0, "oneScale": 30.0},
    "Denoising": {"p": 0.25},
    "ShuffleIndices": False,
    "Layers": [
        {"Name": "In", "N": "auto", "DataSet": "gl_input", "Sparse": True},
        {"N": 3, "Activation": "Tanh", "pDropout": 0.5, "WeightInit": {"Scheme": "Gaussian", "Scale": 0.5}},
        {"N": 4, "Activation": "Relu"},
        {"Name": "Out", "N": "auto", "DataSet": "gl_output", "Sparse": True, "WeightInit": {"Bias": -2.5}},
    ],
}


@pytest.fixture
def model():
    spec = resolve(parse_network(RAW, "n"), 5, 6, "n")
    return Model(net.create(spec, np.random.default_rng(0)), tuple("abcde"), tuple("uvwxyé"), "Åland")


def test_round_trip(tmp_path, model):
    write_model(tmp_path / "model.nc", model)
    seen = read_model(tmp_path / "model.nc")
    assert seen.network.spec == model.network.spec
    assert (seen.inputs, seen.outputs, seen.region) == (model.inputs, model.outputs, model.region)
    for ours, theirs in zip(model.network.edges, seen.network.edges, strict=True):
        np.testing.assert_array_equal(ours.store, theirs.store)
        np.testing.assert_array_equal(ours.bias, theirs.bias)
    write_model(tmp_path / "again.nc", seen)
    assert (tmp_path / "again.nc").read_bytes() == (tmp_path / "model.nc").read_bytes()


def test_layout_is_dsstnes(tmp_path, model):
    write_model(tmp_path / "model.nc", model)
    with netCDF4.Dataset(tmp_path / "model.nc") as file:
        assert (file.layers, file.weights, file.errorFunction, file.kind) == (4, 3, 3, 1)
        assert (file.bDenoising, file.SMCE_oneScale, file.ShuffleIndices) == (1, 30, 0)
        assert (file.layer0_attributes, file.layer0_dataSet, file.layer0_Nx) == (3, "gl_input", 5)
        assert (file.layer1_activation, file.layer1_weightInit, file.layer1_pDropout) == (1, 2, 0.5)
        assert (file.layer3_sources, file.layer3_source0, file.layer3_biasInit) == (1, "Hidden2", -2.5)
        assert (file.weight2_inputLayer, file.weight2_outputLayer) == ("Hidden2", "Out")
        assert (file.weight2_height, file.weight2_width, file.weight2_height.dtype) == (4, 6, np.uint64)
        np.testing.assert_array_equal(file["weight2_weights"][:].reshape(4, 6), model.network.edges[2].weights)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file.delncattr("layers"), "layers is missing"),
        (lambda file: file.setncattr("layer1_activation", np.uint32(11)), "layer1_activation: 11 is not supported"),
        (lambda file: file.setncattr("layer1_type", np.uint32(1)), "only a chain of fully connected"),
        (lambda file: file.setncattr("layer2_Nx", np.uint32(5)), "12 weights and 4 biases, legal: 15, 5"),
        (lambda file: file.setncattr("weight0_inputLayer", "Hidden1"), "out of order"),
        (lambda file: file.setncattr("weights", np.uint32(2)), "not a chain"),
        (lambda file: file.renameVariable("weight1_bias", "b"), "weight1_bias is missing"),
    ],
)
def test_foreign_or_damaged_models_are_named(tmp_path, model, change, words):
    write_model(tmp_path / "model.nc", model)
    with netCDF4.Dataset(tmp_path / "model.nc", "a") as file:
        change(file)
    with pytest.raises(DataError) as caught:
        read_model(tmp_path / "model.nc")
    assert words in str(caught.value)
    assert str(caught.value).startswith("model.nc: ")


def test_as_many_names_as_units(tmp_path, model):
    write_model(tmp_path / "model.nc", Model(model.network, model.inputs, tuple("uvwxyz+")))
    with pytest.raises(DataError, match=r"model.nc: layer3_features: 7 names, layer3_Nx is 6"):
        read_model(tmp_path / "model.nc")
