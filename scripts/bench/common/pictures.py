"""Networks for images that all sides of a benchmark train, and what they train on. Imports nothing that one side lacks.

A network is a list of layers with nnlib's keys, each with its Padding said, so that every side can read it.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from scripts.bench.common.workload import Work

Layer = dict[str, Any]
Shape = tuple[int, int, int]  # channels, height, width

CIFAR, RESNET, RESNET_50, RESNET_152 = "cifar-100", "resnet-18", "resnet-50", "resnet-152"
PICTURES = (CIFAR, RESNET, RESNET_50, RESNET_152)
CLASSES = {CIFAR: 100, RESNET: 1000, RESNET_50: 256, RESNET_152: 256}  # Caltech-256 is what the deep ones are tuned to
SIDES = {CIFAR: 32, RESNET: 224, RESNET_50: 224, RESNET_152: 224}  # of an image, unless the work says another one
BLOCKS = {RESNET: (2, 2, 2, 2), RESNET_50: (3, 4, 6, 3), RESNET_152: (3, 8, 36, 3)}  # of each stage
WIDER = 4  # times as many maps leave a block of three convolutions as its others have
SEED = 3


def network(work: Work) -> list[Layer]:
    """Return the layers of a network: DSSTNE's sample for CIFAR-100 without its dropout, or a ResNet."""
    layers = _cifar() if work.kind == CIFAR else _resnet(work.kind)
    return [*layers, {"Name": "out", "N": CLASSES[work.kind], "Type": "FullyConnected"}]


def _cifar() -> list[Layer]:
    """Six convolutions of 3 x 3: the third and the sixth with a stride of 2 and no padding."""
    maps = (96, 96, 96, 192, 192, 192)
    layers = [_convolution(f"c{n}", count, 3, 1 + (n % 3 == 2), n % 3 != 2) for n, count in enumerate(maps)]
    return [
        layer | {"Source": below} for layer, below in zip(layers, ["in", *(f"c{n}" for n in range(5))], strict=True)
    ]


def _resnet(kind: str) -> list[Layer]:
    """He et al. (2015), table 1; in blocks of three the middle convolution has the stride, as torchvision's have."""
    normed = {"BatchNormalization": True}
    layers = [_convolution("stem", 64, 7, 2, 3) | normed | {"Source": "in"}]
    pool = {"Type": "Pooling", "Kernel": [3, 3], "KernelStride": [2, 2], "Padding": [1, 1], "Activation": "Linear"}
    layers.append({"Name": "start", "Function": "Max", "Source": "stem", **pool})
    below, given, deep = "start", 64, kind != RESNET
    for stage, blocks in enumerate(BLOCKS[kind]):
        maps = 64 << stage
        wide = WIDER * maps if deep else maps
        for block in range(blocks):
            at, stride = f"s{stage}b{block}", 2 if stage and not block else 1
            linear = normed | {"Activation": "Linear"}
            layers += _block(at, maps, wide, stride, below)
            if stride == 2 or given != wide:
                layers.append(_convolution(f"{at}s", wide, 1, stride, 0) | linear | {"Source": below})
                below, given = f"{at}s", wide
            join = {"Type": "Pooling", "Function": "Sum", "Activation": "Relu", "Source": [f"{at}e", below]}
            layers.append({"Name": at, **join})
            below = at
    mean = {"Type": "Pooling", "Function": "GlobalAverage", "Activation": "Linear", "Source": below}
    return [*layers, {"Name": "mean", **mean}]


def _block(at: str, maps: int, wide: int, stride: int, below: str) -> list[Layer]:
    """Return the convolutions of a block: two of 3 x 3, or one between two of 1 x 1 where more maps leave it."""
    normed = {"BatchNormalization": True}
    if wide == maps:
        first = [_convolution(f"{at}a", maps, 3, stride, 1) | normed | {"Source": below}]
        last = _convolution(f"{at}e", wide, 3, 1, 1)
    else:
        first = [_convolution(f"{at}a", maps, 1, 1, 0) | normed | {"Source": below}]
        first.append(_convolution(f"{at}b", maps, 3, stride, 1) | normed | {"Source": f"{at}a"})
        last = _convolution(f"{at}e", wide, 1, 1, 0)
    return [*first, last | normed | {"Activation": "Linear", "Source": first[-1]["Name"]}]


def _convolution(name: str, maps: int, kernel: int, stride: int, padding: int) -> Layer:
    both = {"Kernel": [kernel] * 2, "KernelStride": [stride] * 2, "Padding": [int(padding)] * 2}
    return {"Name": name, "Type": "Convolutional", "N": maps, "Activation": "Relu", **both}


def sources(layer: Layer, before: str) -> list[str]:
    """Return the names of a layer's sources."""
    named = layer.get("Source", before)
    return [named] if isinstance(named, str) else list(named)


def size_of(work: Work) -> Shape:
    """Return the shape of an image."""
    side = work.side or SIDES[work.kind]
    return 3, side, side


def shapes(work: Work, layers: list[Layer]) -> dict[str, Shape]:
    """Return what each layer gives, and the images as "in"."""
    found = {"in": size_of(work)}
    for before, layer in pairwise([{"Name": "in"}, *layers]):
        channels, height, width = found[sources(layer, before["Name"])[0]]
        if "Kernel" in layer:
            kernel, stride, padding = (layer[key][0] for key in ("Kernel", "KernelStride", "Padding"))
            height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
            channels = layer.get("N", channels)
        elif layer["Type"] == "FullyConnected":
            channels, height, width = layer["N"], 1, 1
        elif layer["Function"] == "GlobalAverage":
            height = width = 1
        found[layer["Name"]] = channels, height, width
    return found


def weight_shapes(work: Work, layers: list[Layer]) -> dict[str, tuple[int, int]]:
    """Return of each layer with weights (channels above, what one is made of)."""
    known, found = shapes(work, layers), {}
    for before, layer in pairwise([{"Name": "in"}, *layers]):
        if layer["Type"] == "Pooling":
            continue
        below = known[sources(layer, before["Name"])[0]]
        fan_in = prod(below) if layer["Type"] == "FullyConnected" else below[0] * prod(layer["Kernel"])
        found[layer["Name"]] = layer["N"], fan_in
    return found


def weights(work: Work, layers: list[Layer]) -> dict[str, Any]:
    """Return the first weights of layers, by He et al.; biases start at zero."""
    random, found = np.random.default_rng(2), {}
    for name, shape in weight_shapes(work, layers).items():
        drawn = random.standard_normal(shape, np.float32)
        drawn *= np.float32((2 / shape[1]) ** 0.5)
        found[name] = drawn
    return found


def pictures(work: Work) -> list[tuple[Any, Any]]:
    """Return (bytes (b, 3 x side x side), classes) of batches."""
    random, units = np.random.default_rng(SEED), prod(size_of(work))
    draws = [random.integers(0, 256, (work.batch, units), np.uint8) for _ in range(work.batches)]
    return [(drawn, random.integers(0, CLASSES[work.kind], work.batch)) for drawn in draws]


def as_floats(drawn: Any) -> Any:
    """Return bytes as inputs: over 256, less 0.5."""
    return drawn.astype(np.float32) / np.float32(256) - np.float32(0.5)
