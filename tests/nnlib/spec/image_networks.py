"""Networks for images that everybody knows, as JSON: what they are made of was published, and so were their sizes."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]
MADE = {"BatchNormalization": True}


def images(size: int) -> Raw:
    return {"Name": "In", "N": [size, size, 3], "DataSet": "images"}


def conv(name: str, maps: int, kernel: int, stride: int = 1, **more: Any) -> Raw:
    """A convolution as PyTorch's networks have it: zeros around the maps so that a stride of 1 keeps their size."""
    shape = {"Kernel": [kernel] * 2, "KernelStride": [stride] * 2, "Padding": kernel // 2}
    return {"Name": name, "Type": "Convolutional", "N": maps, "Activation": "Relu"} | shape | more


def pool(function: str, **more: Any) -> Raw:
    return {"Type": "Pooling", "Function": function, "Kind": "Hidden"} | more


def classes(count: int = 1000) -> Raw:
    return {"Name": "Out", "N": count, "DataSet": "classes", "Activation": "SoftMax"}


def vgg16() -> Raw:
    """Simonyan and Zisserman (2014), configuration D."""
    layers = [images(224)]
    for block, (count, maps) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), start=1):
        layers += [conv(f"conv{block}_{n}", maps, 3) for n in range(1, count + 1)]
        layers.append(pool("Max", Name=f"pool{block}", Kernel=[2, 2], KernelStride=[2, 2]))
    full = [{"Name": f"fc{n}", "N": 4096, "Activation": "Relu", "pDropout": 0.5} for n in (6, 7)]
    return {"Layers": [*layers, *full, classes()]}


def resnet50() -> Raw:
    """He et al. (2015), with the stride in the middle of a block, as PyTorch has it."""
    layers = [images(224), conv("stem", 64, 7, 2, **MADE)]
    layers.append(pool("Max", Name="start", Kernel=[3, 3], KernelStride=[2, 2], Padding=1))
    before = "start"
    for stage, (count, maps) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for block in range(count):
            at, stride = f"s{stage}b{block}", 2 if stage > 1 and not block else 1
            layers.append(conv(f"{at}a", maps, 1, Source=before, **MADE))
            layers.append(conv(f"{at}b", maps, 3, stride, **MADE))
            layers.append(conv(f"{at}c", 4 * maps, 1, Activation="Linear", **MADE))
            if not block:
                layers.append(conv(f"{at}d", 4 * maps, 1, stride, Source=before, Activation="Linear", **MADE))
                before = f"{at}d"
            before, below = at, before
            layers.append(pool("Sum", Name=at, Source=[f"{at}c", below], Activation="Relu"))
    return {"Layers": [*layers, pool("GlobalAverage", Name="mean"), classes()]}


def mobilenet2() -> Raw:
    """Sandler et al. (2018), of width 1."""
    layers, below, maps, number = [images(224), conv("stem", 32, 3, 2, Activation="Relu6", **MADE)], "stem", 32, 0
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, out, count, stride in stages:
        for block in range(count):
            at, number = f"b{number}", number + 1
            if expansion > 1:
                layers.append(conv(f"{at}wide", expansion * maps, 1, Source=below, Activation="Relu6", **MADE))
            wide = expansion * maps
            deep = {"Groups": wide, "Activation": "Relu6", "Source": layers[-1]["Name"]}
            layers.append(conv(f"{at}deep", wide, 3, 1 if block else stride, **deep, **MADE))
            layers.append(conv(f"{at}out", out, 1, Activation="Linear", **MADE))
            if block:
                layers.append(pool("Sum", Name=at, Source=[f"{at}out", below]))
            below, maps = layers[-1]["Name"], out
    layers.append(conv("last", 1280, 1, Activation="Relu6", **MADE))
    return {"Layers": [*layers, pool("GlobalAverage", Name="mean"), classes()]}
