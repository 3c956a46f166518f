"""Layers, networks and pictures that both sides have, and how long one takes. Imports nothing that one side lacks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnlib.spec.geometry import Maps, Sweep, Window
from nnlib.spec.network import parse_network
from nnlib.spec.sizes import resolve_sizes
from nnlib.spec.types import NetworkSpec

Arrays = dict[str, Any]

MAX, AVERAGE, RESPONSE, NORM = KINDS = ("Max", "Average", "LRN", "batch norm")
RESPONSES = (5, 0.5, 0.75, 2.0)  # n, alpha, beta, k


@dataclass(frozen=True)
class Case:
    """A layer over maps, and what it is given."""

    kind: str
    examples: int
    channels: int
    windows: tuple[tuple[int, int, int, int, int], ...]  # of each axis (size, kernel, stride, before, behind)
    seed: int

    @property
    def sweep(self) -> Sweep:
        """How its kernel moves."""
        windows = tuple(Window(*window) for window in self.windows)
        source, target = (tuple(getattr(window, name) for window in windows) for name in ("size", "out"))
        return Sweep(Maps(self.channels, source), Maps(self.channels, target), windows)

    def arrays(self) -> tuple[Any, Any]:
        """Return x and dLoss/d(what the layer gives), (b, units)."""
        random, sweep = np.random.default_rng(self.seed), self.sweep
        shapes = ((self.examples, maps.units) for maps in (sweep.source, sweep.target))
        x, delta = (random.standard_normal(shape, dtype=np.float32) for shape in shapes)
        return x, delta


def random_cases(count: int) -> list[Case]:
    """Return layers on one to three axes; only pooling has a kernel."""
    random, found = np.random.default_rng(7), []
    for seed in range(count):
        kind, axes = KINDS[seed % len(KINDS)], int(random.integers(1, 4))
        windows = []
        for _ in range(axes):
            kernel = int(random.integers(1, 5)) if kind in (MAX, AVERAGE) else 1
            before, behind = (int(random.integers(0, kernel // 2 + 1)) for _ in range(2))
            least = 3 if kind == NORM else kernel  # of two numbers normalization has no gradient but rounding
            size = int(random.integers(least, least + (28, 14, 7)[axes - 1]))
            stride = int(random.integers(1, 4)) if kernel > 1 else 1
            windows.append((size, kernel, stride, before, behind))
        found.append(Case(kind, int(random.integers(2, 6)), int(random.integers(1, 9)), tuple(windows), seed))
    return found


def square(size: int, kernel: int = 1, stride: int = 1, padding: int = 0) -> tuple[tuple[int, int, int, int, int], ...]:
    """Return the windows of a square kernel."""
    return ((size, kernel, stride, padding, padding),) * 2


TIMED = {
    "Max 3 x 3 by 2, 16 x 96 x 55 x 55 (AlexNet)": Case(MAX, 16, 96, square(55, 3, 2), 1),
    "Max 2 x 2 by 2, 4 x 64 x 224 x 224 (VGG)": Case(MAX, 4, 64, square(224, 2, 2), 1),
    "Max 3 x 3 by 2, padded, 8 x 64 x 112 x 112 (ResNet)": Case(MAX, 8, 64, square(112, 3, 2, 1), 1),
    "Average 3 x 3, padded, 8 x 192 x 35 x 35 (Inception)": Case(AVERAGE, 8, 192, square(35, 3, 1, 1), 1),
    "mean of whole maps, 32 x 2,048 x 7 x 7 (ResNet)": Case(AVERAGE, 32, 2048, square(7, 7), 1),
    "response over 5 maps, 16 x 96 x 55 x 55 (AlexNet)": Case(RESPONSE, 16, 96, square(55), 1),
    "batch norm, 16 x 64 x 56 x 56 (ResNet)": Case(NORM, 16, 64, square(56), 1),
    "batch norm, 32 x 512 x 7 x 7 (ResNet)": Case(NORM, 32, 512, square(7), 1),
}
SHORT = {"Max 3 x 3 by 2, 2 x 8 x 55 x 55": Case(MAX, 2, 8, square(55, 3, 2), 1)}


def milliseconds(act: Callable[[], object], rounds: int) -> float:
    """Return the median CPU time of an act, which is done once before."""
    times = []
    for _ in range(rounds + 1):
        start = time.process_time()
        act()
        times.append(1e3 * (time.process_time() - start))
    return statistics.median(times[1:])


def _conv(name: str, maps: int, kernel: int = 3, **keys: Any) -> dict[str, Any]:
    usual = {"Kernel": [kernel, kernel], "Padding": kernel // 2, "Activation": "Relu"}
    drawn = {"Scheme": "Gaussian", "Scale": 0.15}
    return {"Name": name, "Kind": "Hidden", "Type": "Convolutional", "N": maps, **usual, "WeightInit": drawn, **keys}


def _pool(name: str, function: str, kernel: int = 0, stride: int = 1, **keys: Any) -> dict[str, Any]:
    moved = {"Kernel": [kernel, kernel], "KernelStride": [stride, stride]} if kernel else {}
    return {"Name": name, "Kind": "Hidden", "Type": "Pooling", "Function": function, **moved, **keys}


NORMED = {"BatchNormalization": True}
NETWORKS: dict[str, list[dict[str, Any]]] = {
    "plain": [_conv("A", 8), _pool("B", "Max", 2, 2), _conv("C", 12, 5), _pool("D", "Average", 2, 2)],
    "response": [_conv("A", 12, 5), _pool("B", "LRN"), _pool("C", "Max", 3, 2), _conv("D", 8)],
    "residual": [
        _conv("A", 8, **NORMED),
        _conv("B", 8, **NORMED),
        _conv("C", 8, **NORMED, Activation="Linear"),
        _pool("D", "Sum", Source=["A", "C"], Activation="Relu"),
        _conv("E", 16, KernelStride=[2, 2], **NORMED),
        _pool("F", "GlobalAverage"),
    ],
    "mobile": [
        _conv("A", 8, KernelStride=[2, 2], **NORMED, Activation="Relu6"),
        _conv("B", 8, Groups=8, **NORMED, Activation="Relu6"),
        _conv("C", 16, 1, **NORMED, Activation="Linear"),
        _pool("D", "GlobalAverage"),
        _conv("E", 4, 1, Padding=0),
        _conv("F", 16, 1, Padding=0, Activation="Sigmoid"),
        _pool("G", "Product", Source=["C", "F"]),
        _pool("H", "GlobalMax"),
    ],
    "branches": [
        _conv("A", 6, 1, Source="I", Activation="Tanh"),
        _conv("B", 6, 5, Source="I", Activation="ELU"),
        _pool("C", "Max", 3, 1, Padding=1, Source="I"),
        _pool("D", "Concatenate", Source=["A", "B", "C"]),
        _pool("E", "Maxout", Source=["A", "B"]),
        _conv("F", 6, Groups=3, Source="D"),
        _conv("G", 6, Source=["E", "F"], Skip="A"),
    ],
}
CLASSES = 10


def batch(examples: int = 12) -> tuple[Any, Any]:
    """Return pictures (b, 3 * 16 * 16) and their classes."""
    random = np.random.default_rng(5)
    return random.standard_normal((examples, 3 * 16 * 16), dtype=np.float32), random.integers(0, CLASSES, examples)


def spec_of(layers: list[dict[str, Any]], size: Sequence[int] = (16, 16, 3)) -> NetworkSpec:
    """Return a network over pictures of a width, height and number of channels, with ten classes."""
    first = {"Name": "I", "Kind": "Input", "N": list(size), "DataSet": "x"}
    last = {"Name": "O", "Kind": "Output", "N": CLASSES, "DataSet": "y", "Activation": "SoftMax"}
    return resolve_sizes(parse_network({"Layers": [first, *layers, last]}, "network"), "network")


LEARNER = [
    _conv("A", 8, KernelStride=[2, 2], **NORMED),
    _conv("B", 16, **NORMED),
    _conv("C", 16, **NORMED),
    _conv("D", 16, **NORMED, Activation="Linear"),
    _pool("E", "Sum", Source=["B", "D"], Activation="Relu"),
    _conv("F", 32, KernelStride=[2, 2], **NORMED),
    _pool("G", "GlobalAverage"),
]


@dataclass(frozen=True)
class Lesson:
    """How the learner is trained."""

    epochs: int
    batch: int = 32
    rate: float = 0.003
    tested: int = 360


def pictures(digits: Any, seed: int = 3) -> Any:
    """Return digits (n, 8, 8) of 0 to 16 as noisy pictures (n, 3 * 16 * 16) in two colours that say nothing."""
    random = np.random.default_rng(seed)
    shape = np.kron(digits / 16, np.ones((2, 2)))[:, None]
    ink, paper = random.uniform(0, 1, (2, len(digits), 3, 1, 1))
    ink += np.where(ink > paper, 0.4, -0.4)
    found = shape * ink + (1 - shape) * paper + random.normal(0, 0.1, (len(digits), 3, 16, 16))
    return found.reshape(len(digits), -1).astype(np.float32)
