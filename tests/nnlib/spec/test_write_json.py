"""What is written of a network is read as the same network."""

from __future__ import annotations

import json

import pytest

from nnlib.spec.network import parse_network, read_json
from nnlib.spec.write_json import network_text, network_to_json

IMAGE = {"Name": "In", "Kind": "Input", "N": [7, 6, 3], "DataSet": "input"}
OUT = {"Name": "Out", "Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "SoftMax"}
EVERYTHING = {
    "Version": 0.9,
    "Name": "everything",
    "Kind": "AutoEncoder",
    "ErrorFunction": "DataScaledMarginalCrossEntropy",
    "ShuffleIndices": False,
    "LocalResponseNormalization": {"k": 1.0, "n": 3, "alpha": 0.1, "beta": 0.5},
    "Maxout": {"k": 3},
    "SparsenessPenalty": {"p": 0.1, "beta": 2.0},
    "Denoising": {"p": 0.2},
    "DeltaBoost": {"one": 2.0, "zero": 0.5},
    "Decay": 0.25,
    "ScaledMarginalCrossEntropy": {"oneTarget": 0.8, "zeroTarget": 0.2, "oneScale": 2.0, "zeroScale": 3.0},
    "FineTuning": {"Freeze": ["B", "C"], "Replace": ["Out"], "Rates": {"A": 0.5}, "UnfreezeAt": 4},
    "Layers": [
        {"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Name": "A", "Kind": "Hidden", "N": [3, 4], "Activation": "ELU", "ELUAlpha": 0.5, "pDropout": 0.1},
        {"Name": "B", "Kind": "Hidden", "N": 12, "Activation": "SELU", "SELULambda": 1.2, "BatchNormalization": True},
        {
            "Name": "C",
            "Kind": "Hidden",
            "N": 12,
            "Source": ["A", "B"],
            "Skip": "A",
            "Activation": "LRelu",
            "Sparse": True,
            "SparsenessPenalty": {"p": 0.3, "beta": 1.0},
            "RELUSlope": 0.3,
            "SharedWeights": {
                "InputLayer": "B",
                "SourceInputLayer": "A",
                "SourceOutputLayer": "B",
                "Transposed": True,
            },
        },
        {
            "Name": "Out",
            "Kind": "Output",
            "N": "auto",
            "DataSet": "output",
            "Activation": "Sigmoid",
            "WeightNorm": 3.0,
            "DeltaNorm": 2.0,
            "WeightInit": {"Scheme": "Gaussian", "Scale": 0.1, "Bias": -5.0},
        },
    ],
}
NETWORKS = {
    "everything": EVERYTHING,
    "maps": {
        "Augmentation": {"Crop": 2, "Flip": True, "Colour": 0.1, "Mixup": 0.2},
        "Layers": [
            IMAGE,
            {
                "Name": "C",
                "Type": "Convolutional",
                "N": 6,
                "Kernel": [3, 2],
                "KernelStride": [2, 1],
                "Padding": [[1, 2], 0],
                "Dilation": [1, 2],
                "Groups": 3,
                "Activation": "Relu6",
                "pDropout": 0.2,
                "DropChannels": True,
                "BatchNormalization": True,
            },
            {"Name": "M", "Type": "Pooling", "Function": "Max", "Kernel": [2, 2], "KernelStride": [2, 2]},
            {"Name": "L", "Type": "Pooling", "Function": "LRN", "Activation": "Linear"},
            {"Name": "S", "Type": "Pooling", "Function": "Sum", "Source": "L", "Activation": "Tanh"},
            OUT,
        ],
    },
    "what has no Kernel": {
        "Layers": [
            IMAGE | {"Type": "Convolutional", "N": "auto"},
            {"Name": "C", "Type": "Convolutional", "N": 6, "Groups": 3},
            OUT | {"Type": "Convolutional"},
        ]
    },
    "DSSTNE's own padding": {
        "Layers": [IMAGE, {"Name": "C", "Type": "Convolutional", "N": 6, "Kernel": [3, 3], "Activation": "Relu"}, OUT]
    },
}


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_written_is_read_as_the_same(tmp_path, name):
    spec = parse_network(NETWORKS[name], "made")
    (tmp_path / "network.json").write_text(network_text(spec))
    assert parse_network(read_json(tmp_path / "network.json"), "written") == spec


def test_what_goes_without_saying_is_not_said():
    [_, layer, _] = network_to_json(parse_network(NETWORKS["DSSTNE's own padding"], "made"))["Layers"]
    assert layer == {
        "Name": "C",
        "Kind": "Hidden",
        "Type": "Convolutional",
        "N": 6,
        "Source": ["In"],
        "Kernel": [3, 3],
        "Activation": "Relu",
    }


def test_a_layer_a_line():
    text = network_text(parse_network(NETWORKS["maps"], "made"))
    assert text.count('{"Name"') == len(json.loads(text)["Layers"]) == 6
    assert all(line.startswith('  {"Name"') for line in text.splitlines() if '"Name": "' in line and "Kind" in line)
