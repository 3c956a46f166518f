"""Networks and data of every kind, small: for gradients against finite differences, and for backends side by side."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import sparse

from nnlib.data.sets import DataSet, as_data_set
from nnlib.spec.topology import OUTPUTS
from nnlib.spec.types import Activation, ErrorFunction

EXAMPLES, INPUTS, TARGETS = 7, 9, 6
KINDS = ("sparse boolean", "sparse analog", "dense")
VARIANTS = ("plain", "weighted", "indexed", "ignore zero")
PAIRS = [(a, e) for e in ErrorFunction for a in Activation if a in OUTPUTS.get(e, tuple(Activation))]
MARGINS = {"oneTarget": 0.62, "zeroTarget": 0.38, "oneScale": 3, "zeroScale": 0.7}


def numbers(kind: str, width: int, seed: int, scale: float = 1.0) -> Any:
    random = np.random.default_rng(seed)
    there = random.random((EXAMPLES, width)) < 0.4
    there[0, : width // 2] = True
    values = there * random.normal(0.6, 0.5, there.shape) * scale
    if kind == "dense":
        return values
    return sparse.csr_array(there.astype(float) if kind == "sparse boolean" else values)


def varied(data_set: DataSet, variant: str) -> DataSet:
    if variant == "weighted":
        return dataclasses.replace(data_set, weights=np.linspace(0.5, 2, EXAMPLES).astype(np.float32))
    if variant == "indexed":
        return dataclasses.replace(data_set, index=np.array([3, 3, 0, 1, 6, 5, 2]))
    return dataclasses.replace(data_set, ignore_zero=variant == "ignore zero")


def network(activation: str = "Sigmoid", hidden: object = "Tanh", **keys: Any) -> dict[str, Any]:
    more = keys.pop("hidden_keys", {})
    layers = [
        {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"},
        {"Name": "H", "Kind": "Hidden", "N": 5, "Activation": str(hidden), **more},
        {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y", "Activation": str(activation)},
    ]
    return {"Layers": layers, **keys}


SHARED = {"InputLayer": "B", "SourceInputLayer": "I", "SourceOutputLayer": "A", "Transposed": True}
TANGLE: dict[str, Any] = {
    "SparsenessPenalty": {"p": 0.2, "beta": 0.5},
    "Layers": [
        {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"},
        {"Name": "A", "Kind": "Hidden", "N": 5, "Source": "I", "Activation": "Tanh"},
        {"Name": "B", "Kind": "Hidden", "N": 5, "Source": ["A", "I"], "Skip": "A", "Activation": "SELU"},
        {
            "Name": "C",
            "Kind": "Hidden",
            "N": INPUTS,
            "Source": "B",
            "Activation": "Sigmoid",
            "Sparse": True,
            "SharedWeights": SHARED,
        },
        {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y", "Source": ["C", "I", "A"]},
    ],
}


def tied(transposed: bool) -> dict[str, Any]:
    """The owner is the edge from the input; another one, or the output layer transposed, uses its weights too."""
    layers: list[dict[str, Any]] = [
        {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"},
        {"Name": "A", "Kind": "Hidden", "N": 5, "Source": "I", "Activation": "Tanh"},
        {"Name": "B", "Kind": "Hidden", "N": 5, "Source": "I" if not transposed else "A", "Activation": "Relu"},
        {"Name": "O", "Kind": "Output", "N": INPUTS, "DataSet": "y", "Source": "B"},
    ]
    shared = {"SourceInputLayer": "I", "SourceOutputLayer": "A", "Transposed": transposed}
    layers[3 if transposed else 2]["SharedWeights"] = {"InputLayer": "B" if transposed else "I", **shared}
    return {"Layers": layers}


def several() -> tuple[dict[str, Any], dict[str, DataSet]]:
    """Several inputs and outputs, one of which another one reads."""
    layers = [
        {"Name": "X", "Kind": "Input", "N": "auto", "DataSet": "x"},
        {"Name": "Z", "Kind": "Input", "N": "auto", "DataSet": "z"},
        {"Name": "H", "Kind": "Hidden", "N": 5, "Source": ["X", "Z"], "Activation": "Tanh"},
        {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y", "Source": ["H", "Z"]},
        {"Name": "P", "Kind": "Output", "N": "auto", "DataSet": "x", "Source": ["H", "O"], "Activation": "SoftMax"},
    ]
    kinds = {"x": "sparse analog", "y": "dense", "z": "dense"}
    data = {name: as_data_set(name, abs(numbers(kind, 4, n))) for n, (name, kind) in enumerate(kinds.items())}
    return {"Layers": layers}, data
