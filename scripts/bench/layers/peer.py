"""PyTorch's side: `python -m scripts.bench.layers.peer WHAT FOLDER AMOUNT`, after ours, whose starts it takes."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from nnlib.spec.geometry import Sweep, maps_of, sweep_of
from nnlib.spec.topology import order
from nnlib.spec.types import Activation, Layer, LayerKind, LayerType, NetworkSpec, PoolingFunction
from scripts.bench.layers import cases
from scripts.bench.layers.cases import Arrays, Case, Lesson

CONVOLUTIONS: Any = (None, F.conv1d, F.conv2d, F.conv3d)
LARGEST: Any = (None, F.max_pool1d, F.max_pool2d, F.max_pool3d)
MEANS: Any = (None, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
ACTIVATIONS = {
    Activation.LINEAR: lambda z: z,
    Activation.RELU: F.relu,
    Activation.RELU6: F.relu6,
    Activation.TANH: torch.tanh,
    Activation.SIGMOID: torch.sigmoid,
    Activation.ELU: F.elu,
}


def main() -> None:
    """Do what the command line says."""
    what, folder, amount = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    acts: dict[str, Callable[[Path, int], Arrays]] = {
        "layers": layers, "speed": speed, "networks": networks, "lessons": lessons
    }  # fmt: skip
    np.savez(folder / f"{what}.peer.npz", **acts[what](folder, amount))


def layers(_: Path, count: int) -> Arrays:
    """Return what random layers give, and their gradients."""
    found: Arrays = {}
    for case in cases.random_cases(count):
        found[f"{case.seed} a"], found[f"{case.seed} below"] = (a.reshape(len(a), -1) for a in layer_of(case)())
    return found


def speed(_: Path, rounds: int) -> Arrays:
    """Return the milliseconds of a layer forward and back, the median of some rounds."""
    timed = cases.TIMED if rounds > 1 else cases.SHORT
    return {name: cases.milliseconds(layer_of(case), rounds) for name, case in timed.items()}


def layer_of(case: Case) -> Callable[[], tuple[Any, Any]]:
    """Return what computes a layer and its gradient."""
    sweep, arrays = case.sweep, case.arrays()
    x, delta = (
        torch.from_numpy(array).view(case.examples, case.channels, *maps.sizes)
        for array, maps in zip(arrays, (sweep.source, sweep.target), strict=True)
    )
    x.requires_grad_()
    n, alpha, beta, k = cases.RESPONSES
    act: Callable[[], Any] = {
        cases.MAX: lambda: pooled(x, sweep, "Max"),
        cases.AVERAGE: lambda: pooled(x, sweep, "Average"),
        cases.RESPONSE: lambda: F.local_response_norm(x, n, alpha, beta, k),
        cases.NORM: lambda: F.batch_norm(x, None, None, training=True, eps=1e-5),
    }[case.kind]

    def both() -> tuple[Any, Any]:
        a = act()
        [below] = torch.autograd.grad(a, x, delta)
        return a.detach().numpy(), below.numpy()

    return both


def pooled(x: torch.Tensor, sweep: Sweep, function: str) -> torch.Tensor:
    """Return maps after pooling; PyTorch pads alike on both sides alone, so what it cannot is padded before."""
    kernel, stride = (tuple(getattr(window, name) for window in sweep.windows) for name in ("kernel", "stride"))
    low, high = ([getattr(window, name) for window in sweep.windows] for name in ("low", "high"))
    pool = (LARGEST if function == "Max" else MEANS)[len(kernel)]
    if low == high:
        more = {} if function == "Max" else {"count_include_pad": False}
        return pool(x, kernel, stride, tuple(low), **more)
    if function == "Max":
        return pool(F.pad(x, _around(sweep), value=-math.inf), kernel, stride)
    ones = F.pad(torch.ones_like(x), _around(sweep))
    return pool(F.pad(x, _around(sweep)), kernel, stride) / pool(ones, kernel, stride)


def _around(sweep: Sweep) -> list[int]:
    """Return the padding as F.pad takes it, the fastest axis first."""
    return [end for window in reversed(sweep.windows) for end in (window.low, window.high)]


class Torch:
    """A network with the parameters that ours started from."""

    def __init__(self, spec: NetworkSpec, start: Arrays) -> None:
        self.spec, self.learned, self.running = spec, {}, {}
        for name, array in start.items():
            if name.endswith(("_mean", "_variance")):
                self.running[name] = torch.from_numpy(array.copy())
            elif name != "orders":
                self.learned[name] = torch.nn.Parameter(torch.from_numpy(array.copy()))

    def scores(self, x: torch.Tensor, training: bool) -> torch.Tensor:
        """Return the sums of the last layer."""
        values: dict[int, torch.Tensor] = {}
        for n in order(self.spec):
            layer = self.spec.layers[n]
            z = x if layer.kind is LayerKind.INPUT else self._sums(n, layer, values, training)
            values[n] = z if layer.kind is not LayerKind.HIDDEN else ACTIVATIONS[layer.activation](z)
        return values[len(self.spec.layers) - 1]

    def _sums(self, n: int, layer: Layer, values: dict[int, torch.Tensor], training: bool) -> torch.Tensor:
        places, maps = self.spec.places, maps_of(self.spec, n)
        if layer.type is LayerType.POOLING:
            z = self._pool(n, layer, [values[places[name]] for name in layer.sources])
        else:
            z = sum(self._product(edge, values[edge.source]) for edge in self.spec.edges if edge.target == n)
        z = z.reshape(len(z), maps.channels, *maps.sizes) + sum(values[places[name]] for name in layer.skips)
        if layer.batch_norm:
            running = (self.running[f"norm{n}_{name}"] for name in ("mean", "variance"))
            learned = (self.learned[f"norm{n}_{name}"] for name in ("scale", "bias"))
            z = F.batch_norm(z, *running, *learned, training=training, momentum=0.1, eps=1e-5)
        return z

    def _product(self, edge: Any, x: torch.Tensor) -> torch.Tensor:
        w, b = self.learned[f"weights{edge.owner}"].T, self.learned[f"bias{edge.number}"]
        if self.spec.layers[edge.target].type is LayerType.FULLY_CONNECTED:
            return F.linear(x.flatten(1), w, b)
        sweep = sweep_of(self.spec, edge.source, edge.target)
        kernel = tuple(window.kernel for window in sweep.windows)
        w = w.reshape(sweep.target.channels, sweep.source.channels // sweep.groups, *kernel)
        stride, dilation = (tuple(getattr(o, name) for o in sweep.windows) for name in ("stride", "dilation"))
        convolve = CONVOLUTIONS[len(kernel)]
        return convolve(F.pad(x, _around(sweep)), w, b, stride, 0, dilation, sweep.groups)

    def _pool(self, n: int, layer: Layer, sources: list[torch.Tensor]) -> torch.Tensor:
        first, *others = sources
        assert layer.function is not None  # noqa: S101 -- for the type checker
        function, wide = layer.function, [x.flatten(2) for x in sources]
        if function is PoolingFunction.LRN:
            rule = self.spec.local_response
            return F.local_response_norm(first, rule.n, rule.alpha, rule.beta, rule.k)
        if function is PoolingFunction.CONCATENATE:
            return torch.cat(sources, dim=1)
        if function in (PoolingFunction.MAX, PoolingFunction.AVERAGE):
            return pooled(first, sweep_of(self.spec, self.spec.places[layer.sources[0]], n), str(function))
        act: dict[PoolingFunction, Callable[[], Any]] = {
            PoolingFunction.SUM: lambda: sum(others, first),
            PoolingFunction.PRODUCT: lambda: wide[0] * wide[1],
            PoolingFunction.MAXOUT: lambda: torch.maximum(first, others[0]),
            PoolingFunction.GLOBAL_MAX: lambda: wide[0].amax(2),
            PoolingFunction.GLOBAL_AVERAGE: lambda: wide[0].mean(2),
        }
        return act[function]()


def networks(folder: Path, count: int) -> Arrays:
    """Return the gradients and values of whole networks on a batch."""
    found: Arrays = {}
    for name, hidden in list(cases.NETWORKS.items())[:count]:
        network = Torch(cases.spec_of(hidden), dict(np.load(folder / f"{name}.start.npz")))
        x, labels = (torch.from_numpy(array) for array in cases.batch())
        x = x.view(len(x), 3, 16, 16)
        loss = F.cross_entropy(network.scores(x, training=True), labels)
        gradients = torch.autograd.grad(loss, list(network.learned.values()))
        found[f"{name} loss"] = loss.item()
        found |= {f"{name} gradient {n}": g.numpy() for n, g in zip(network.learned, gradients, strict=True)}
        found |= {f"{name} {n}": array.numpy() for n, array in network.running.items()}
        with torch.no_grad():
            found[f"{name} asked"] = network.scores(x, training=False).numpy()
    return found


def lessons(folder: Path, seeds: int) -> Arrays:
    """Return the accuracy of a network trained from each seed, on the same batches."""
    lesson, spec, accuracies = Lesson(1 if seeds == 1 else 12), cases.spec_of(cases.LEARNER), []
    data = np.load(folder / "pictures.npz")
    x, labels = torch.from_numpy(data["x"]).view(-1, 3, 16, 16), torch.from_numpy(data["labels"])
    count = len(x) - lesson.tested
    for seed in range(1, seeds + 1):
        start = dict(np.load(folder / f"lesson{seed}.start.npz"))
        network = Torch(spec, start)
        optimizer = torch.optim.Adam(network.learned.values(), lr=lesson.rate)
        for shuffled in torch.from_numpy(start["orders"]):
            for low in range(0, count - lesson.batch + 1, lesson.batch):
                some = shuffled[low : low + lesson.batch]
                optimizer.zero_grad()
                F.cross_entropy(network.scores(x[some], training=True), labels[some]).backward()
                optimizer.step()
        with torch.no_grad():
            scores = network.scores(x[count:], training=False)
        accuracies.append(float((scores.argmax(1) == labels[count:]).float().mean()))
    return {"accuracies": np.array(accuracies)}


if __name__ == "__main__":
    main()
