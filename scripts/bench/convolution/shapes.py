"""The convolutions that both sides compute, and their numbers. Imports nothing that one side lacks."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

FORWARD, INPUT, WEIGHT = "forward", "input gradient", "weight gradient"
PARTS = (FORWARD, INPUT, WEIGHT)


@dataclass(frozen=True)
class Shape:
    """A convolution of square maps, or of any where `axes` says so: (size, kernel, stride, low, high, dilation)."""

    name: str
    channels: int
    targets: int
    size: int = 0
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    groups: int = 1
    examples: int = 32
    axes: tuple[tuple[int, ...], ...] = ()

    def windows(self) -> tuple[tuple[int, ...], ...]:
        """Return (size, kernel, stride, low, high, dilation) of each axis, slowest first."""
        one = (self.size, self.kernel, self.stride, self.padding, self.padding, 1)
        return self.axes or (one, one)

    def out(self) -> tuple[int, ...]:
        """Return the sizes of the target's maps."""
        return tuple((n + low + high - d * (k - 1) - 1) // s + 1 for n, k, s, low, high, d in self.windows())


# As in AlexNet, VGG-16, ResNet-50, ResNeXt-50 and MobileNetV2, for images of 224 x 224.
SHAPES = (
    Shape("AlexNet 11x11 / 4, 3-64, 224", 3, 64, 224, 11, 4, 2),
    Shape("AlexNet 5x5, 64-192, 27", 64, 192, 27, 5, 1, 2),
    Shape("AlexNet 3x3, 192-384, 13", 192, 384, 13, 3, 1, 1),
    Shape("VGG 3x3, 64-64, 224", 64, 64, 224, 3, 1, 1, examples=4),
    Shape("VGG 3x3, 256-256, 56", 256, 256, 56, 3, 1, 1, examples=8),
    Shape("VGG 3x3, 512-512, 14", 512, 512, 14, 3, 1, 1),
    Shape("ResNet 7x7 / 2, 3-64, 224", 3, 64, 224, 7, 2, 3),
    Shape("ResNet 3x3, 64-64, 56", 64, 64, 56, 3, 1, 1),
    Shape("ResNet 3x3, 128-128, 28", 128, 128, 28, 3, 1, 1),
    Shape("ResNet 3x3, 256-256, 14", 256, 256, 14, 3, 1, 1),
    Shape("ResNet 3x3, 512-512, 7", 512, 512, 7, 3, 1, 1),
    Shape("ResNet 3x3 / 2, 128-128, 56", 128, 128, 56, 3, 2, 1),
    Shape("ResNet 1x1, 256-64, 56", 256, 64, 56),
    Shape("ResNet 1x1, 64-256, 56", 64, 256, 56),
    Shape("ResNet 1x1, 1024-256, 14", 1024, 256, 14),
    Shape("ResNet 1x1, 2048-512, 7", 2048, 512, 7),
    Shape("ResNet 1x1 / 2, 256-512, 56", 256, 512, 56, stride=2),
    Shape("ResNeXt 3x3, 128-128 in 32 groups, 56", 128, 128, 56, 3, 1, 1, 32),
    Shape("MobileNet 3x3 of each of 32, 112", 32, 32, 112, 3, 1, 1, 32),
    Shape("MobileNet 3x3 of each of 144, 56", 144, 144, 56, 3, 1, 1, 144),
    Shape("MobileNet 3x3 / 2 of each of 144, 56", 144, 144, 56, 3, 2, 1, 144),
    Shape("MobileNet 3x3 of each of 384, 14", 384, 384, 14, 3, 1, 1, 384),
)


def some_shapes(count: int) -> list[Shape]:
    """Draw convolutions of all kinds: one to three axes, uneven padding, dilation, groups."""
    random = np.random.default_rng(5)
    found: list[Shape] = []
    while len(found) < count:
        axes = []
        for _ in range(random.integers(1, 4)):
            kernel, dilation = int(random.integers(1, 5)), int(random.integers(1, 4))
            stride, low, high = int(random.integers(1, 4)), int(random.integers(0, 4)), int(random.integers(0, 4))
            size = max(1, dilation * (kernel - 1) + 1 - low - high) + int(random.integers(0, 12))
            axes.append((size, kernel, stride, low, high, dilation))
        groups = int(random.choice([1, 1, 2, 4, 8]))
        channels, targets = (groups * int(random.integers(1, 9)) for _ in range(2))
        examples = int(random.integers(1, 6))
        found.append(Shape("", channels, targets, groups=groups, examples=examples, axes=tuple(axes)))
    return found


def arrays_of(shape: Shape, seed: int = 1) -> tuple[Any, Any, Any]:
    """Return x (b, channels, ...), w (targets, channels of a group, ...) and delta (b, targets, ...)."""
    random = np.random.default_rng(seed)
    sizes, kernels = ([axis[n] for axis in shape.windows()] for n in (0, 1))
    x = random.standard_normal((shape.examples, shape.channels, *sizes), np.float32)
    w = random.standard_normal((shape.targets, shape.channels // shape.groups, *kernels), np.float32)
    delta = random.standard_normal((shape.examples, shape.targets, *shape.out()), np.float32)
    return x, w / np.float32(np.sqrt(w[0].size)), delta


Calls = Mapping[str, Callable[[], object]]  # by part


def serve(prepare: Callable[[Shape, str], Calls], results: Callable[[int, str], object]) -> None:
    """Answer lines of JSON: `shape` and `layout` prepare; `part` and `times` give its milliseconds; `compare` files."""
    ready: dict[str, Calls] = {}

    def answer(line: str) -> Mapping[str, float]:
        asked = json.loads(line)
        if "compare" in asked:
            results(asked["compare"], asked["folder"])
            return {}
        if "shape" in asked:
            raw = asked["shape"]
            shape = Shape(**{**raw, "axes": tuple(map(tuple, raw["axes"]))})
            ready.clear()
            ready["now"] = prepare(shape, asked["layout"])
            for call in ready["now"].values():
                call()
            return {}
        call, times = ready["now"][asked["part"]], asked["times"]
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(times):
            call()
        spent = time.perf_counter() - wall, time.process_time() - cpu
        return {"wall": 1e3 * spent[0] / times, "cpu": 1e3 * spent[1] / times}

    print("{}", flush=True)  # ready
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


def to_raw(shape: Shape) -> dict[str, Any]:
    """Return a shape as JSON has it."""
    return dataclasses.asdict(shape)
