"""Networks of convolutional and pooling layers, small, of every kind: for gradients, and for backends side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.nnlib.cases import TARGETS

EXAMPLES = 5
IMAGE = [6, 5, 2]  # width, height, channels

Layers = list[dict[str, Any]]


def conv(name: str, maps: int, *kernel: int, **keys: Any) -> dict[str, Any]:
    """A hidden convolutional layer; keys replace what it has by itself."""
    return {
        "Name": name,
        "Kind": "Hidden",
        "Type": "Convolutional",
        "N": maps,
        "Kernel": list(kernel) or [3, 3],
        "Activation": "Tanh",
        **keys,
    }


def pooled(name: str, function: str, *kernel: int, stride: int = 1, **keys: Any) -> dict[str, Any]:
    """A hidden pooling layer."""
    moved = {"Kernel": list(kernel), "KernelStride": [stride] * len(kernel)} if kernel else {}
    return {"Name": name, "Kind": "Hidden", "Type": "Pooling", "Function": function, **moved, **keys}


def image_network(*hidden: dict[str, Any], size: list[int] | None = None, **keys: Any) -> dict[str, Any]:
    """A network from images to six units; one whose last layer is an Output has no other."""
    layers: Layers = [{"Name": "I", "Kind": "Input", "N": size or IMAGE, "DataSet": "x"}, *hidden]
    if layers[-1]["Kind"] != "Output":
        layers.append({"Name": "O", "Kind": "Output", "N": TARGETS, "DataSet": "y", "Activation": "Sigmoid"})
    return {"Layers": layers, **keys}


def pixels(size: list[int] | None = None, examples: int = EXAMPLES, seed: int = 3) -> Any:
    return np.random.default_rng(seed).normal(0.3, 1, (examples, int(np.prod(size or IMAGE))))


def classes(examples: int = EXAMPLES, width: int = TARGETS) -> Any:
    return np.eye(width)[np.arange(examples) % width]


NORMED = {"BatchNormalization": True}
BRANCHES = (conv("A", 4, 1, 1, Source="I"), conv("B", 4, Source="I", Activation="Relu6"))
FLAT = (
    {"Name": "A", "Kind": "Hidden", "N": 7, "Source": "I", "Activation": "Tanh"},
    {"Name": "B", "Kind": "Hidden", "N": 7, "Source": "I", "Activation": "Sigmoid"},
    {"Name": "C", "Kind": "Hidden", "N": 7, "Source": ["A", "I"], "Activation": "Tanh"},
)
OUTPUT = {"Name": "O", "Kind": "Output", "DataSet": "y"}

CASES: dict[str, dict[str, Any]] = {
    "same": image_network(conv("A", 3)),
    "strided": image_network(conv("A", 3, KernelStride=[2, 2])),
    "padded": image_network(conv("A", 3, 3, 2, KernelStride=[2, 1], Padding=[[0, 1], 2])),
    "dilated": image_network(conv("A", 3, 2, 2, Padding=1, Dilation=2)),
    "larger than the image": image_network(conv("A", 3, 7, 8)),
    "grouped": image_network(conv("A", 4), conv("B", 6, Groups=2)),
    "depthwise": image_network(conv("A", 4, Groups=2), conv("B", 4, Groups=4, **NORMED), conv("C", 3, 1, 1)),
    "one axis": image_network(conv("A", 3, 3), pooled("B", "Max", 2, stride=2), size=[9, 2]),
    "three axes": image_network(conv("A", 3, 2, 2, 2), pooled("B", "Max", 2, 2, 2, stride=2), size=[4, 3, 3, 2]),
    "normalized": image_network(conv("A", 3, **NORMED, Activation="Relu")),
    "normalized twice": image_network(conv("A", 3, **NORMED), conv("B", 4, **NORMED, KernelStride=[2, 2])),
    "dropout": image_network(conv("A", 3, pDropout=0.3), conv("B", 3, pDropout=0.3, Activation="ELU")),
    "dropped maps": image_network(conv("A", 4, pDropout=0.4, DropChannels=True), pooled("B", "GlobalAverage")),
    "sparse maps": image_network(
        conv("A", 3, Sparse=True, Activation="Sigmoid"), SparsenessPenalty={"p": 0.2, "beta": 0.5}
    ),
    "weights of others": image_network(
        conv("A", 2, Source="I"),
        conv("B", 2, Source="A", SharedWeights={"InputLayer": "A", "SourceInputLayer": "I", "SourceOutputLayer": "A"}),
    ),
    "two sources": image_network(*BRANCHES, conv("C", 3, Source=["A", "B"]), pooled("D", "Max", 2, 2, stride=2)),
    "max": image_network(conv("A", 3), pooled("B", "Max", 3, 3, stride=2)),
    "max with padding": image_network(conv("A", 3), pooled("B", "Max", 3, 3, stride=2, Padding=1, Activation="Tanh")),
    "max of the same size": image_network(conv("A", 3), pooled("B", "Max", 2, 2)),
    "average": image_network(conv("A", 3), pooled("B", "Average", 3, 3, stride=2, Padding=1)),
    "global": image_network(
        conv("A", 4),
        pooled("B", "GlobalMax", Source="A"),
        pooled("C", "GlobalAverage", Source="A"),
        pooled("D", "Concatenate", Source=["B", "C"]),
    ),
    "response": image_network(conv("A", 6), pooled("B", "LRN"), LRN={"k": 1.0, "n": 3, "alpha": 0.5, "beta": 0.75}),
    "residual": image_network(
        conv("A", 4, **NORMED, Activation="Relu"),
        conv("B", 4, **NORMED, Activation="Linear"),
        pooled("C", "Sum", Source=["A", "B"], Activation="Relu"),
        conv("D", 4, Activation="Linear", Skip="C"),
        pooled("E", "GlobalAverage", **NORMED),
    ),
    "a norm of its own": image_network(conv("A", 4), pooled("B", "Sum", **NORMED, Activation="Relu", pDropout=0.2)),
    "squeeze and excitation": image_network(
        conv("A", 4),
        pooled("B", "GlobalAverage", Source="A"),
        conv("C", 2, 1, 1, Source="B", Activation="Relu"),
        conv("D", 4, 1, 1, Source="C", Activation="Sigmoid"),
        pooled("E", "Product", Source=["A", "D"]),
        pooled("F", "Max", 2, 2, stride=2),
    ),
    "gates of single units": image_network(
        conv("A", 4, Source="I"),
        {"Name": "B", "Kind": "Hidden", "N": 4, "Source": "I", "Activation": "Sigmoid"},
        pooled("C", "Product", Source=["B", "A"]),
    ),
    "side by side": image_network(
        *BRANCHES,
        pooled("C", "Max", 3, 3, Source="I", Padding=1),
        pooled("D", "Concatenate", Source=["A", "B", "C"], **NORMED, Activation="Relu"),
        conv("E", 3),
    ),
    "largest of maps": image_network(*BRANCHES, pooled("C", "Maxout", Source=["A", "B"], Activation="Tanh")),
    "joined units": image_network(
        *FLAT,
        pooled("D", "Concatenate", Source=["A", "B"]),
        pooled("E", "Sum", Source=["A", "C"], Skip="B"),
        pooled("F", "Concatenate", Source=["D", "E"], pDropout=0.2),
    ),
    "products of units": image_network(
        *FLAT, pooled("D", "Product", Source=["A", "B", "C"]), pooled("E", "Sum", **NORMED)
    ),
    "largest of units": image_network(*FLAT, pooled("D", "Maxout", Source=["A", "B", "C"])),
    "dot products": image_network(*FLAT, pooled("D", "DotProduct", Source=["A", "B", "C"])),
    "cosines": image_network(*FLAT, pooled("D", "Cosine", Source=["A", "B", "C"], Activation="Tanh")),
    "frozen": image_network(
        conv("A", 3, **NORMED), conv("B", 3, **NORMED), pooled("C", "Max", 2, 2), FineTuning={"Freeze": ["B"]}
    ),
    "outputs that are maps": image_network(
        conv("A", 3), {**conv("O", 1, Activation="Sigmoid"), **OUTPUT, "N": 1}, ErrorFunction="L2"
    ),
    "outputs that are pooled": image_network(
        conv("A", TARGETS),
        {**pooled("O", "GlobalAverage"), **OUTPUT, "Activation": "SoftMax"},
    ),
    "outputs that are cosines": image_network(
        *FLAT, {**pooled("O", "Cosine", Source=["A", "B", "C"]), **OUTPUT, "Activation": "Linear"}, ErrorFunction="L2"
    ),
}
WIDTHS = {"outputs that are maps": 30, "outputs that are cosines": 2}


def case(name: str) -> tuple[dict[str, Any], Any, Any]:
    """Return a network, its images and its targets."""
    raw = CASES[name]
    return raw, pixels(raw["Layers"][0]["N"]), classes(width=WIDTHS.get(name, TARGETS))
