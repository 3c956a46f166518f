"""Images a second of a training on a GPU: its workloads, its rows, and the least time that a step can take.

Of each layer but the input a step writes what it gives and reads it for what comes next and for the weights' gradient,
and writes and reads dLoss/d(it): PASSES of 4 bytes each; batch normalization NORM_PASSES more. Of weights it reads two,
writes the gradient and updates them, as in floor.py. Products are 2 operations a multiplication, three times, but for
the first layer's, of which nothing goes back. What nnlib unfolds for cuBLAS (see nnlib/gpu/maps/convolution.py) is
written and read for the forward pass and for both gradients: `unfolded_of`, in no floor, but in what is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

from scripts.bench.common import pictures
from scripts.bench.common.harness import Row
from scripts.bench.common.pictures import CIFAR, RESNET
from scripts.bench.common.workload import Work
from scripts.bench.gpu.floor import FLOAT, STATES, Ceilings, Floor
from scripts.bench.gpu.training import NAMES, Outcome, Side
from scripts.bench.gpu.work import (
    BY_CUDNN,
    CHANNELS_LAST,
    COMPILED_LAST,
    EAGER,
    FLOAT32,
    OURS,
    TF32,
    GpuWork,
)

PASSES, NORM_PASSES = 5, 3
UNFOLDED_PASSES = 6
RATE = 1e-5  # so that losses stay of one size in the steps that are compared
VARIANTS = (OURS, BY_CUDNN, EAGER, CHANNELS_LAST)
QUICK: dict[str, Any] = {"side": 16, "batch": 8, "batches": 2, "steps": 2, "warm": 2}


def works(quick: bool, tensor_cores: bool) -> list[GpuWork]:
    """Return the workloads, the most telling first."""
    if quick:
        return [GpuWork(CIFAR, rate=RATE, **QUICK)]
    sizes = {CIFAR: (256, 64), RESNET: (128, 32)}
    return [
        GpuWork(kind, batch=sizes[kind][place], batches=4, steps=16, warm=16, rate=RATE, precision=precision)
        for place in range(2)
        for precision in ((TF32, FLOAT32) if tensor_cores else (FLOAT32,))
        for kind in (RESNET, CIFAR)
    ]


def variants_of(compiled: bool) -> tuple[str, ...]:
    """Return who does a workload, ours first."""
    return (*VARIANTS, COMPILED_LAST) if compiled else VARIANTS


def name_of(work: Work) -> str:
    """Return what a workload is called in rows."""
    side = pictures.size_of(work)[1]
    return f"{work.kind}, {side} x {side}, batch {work.batch}, {NAMES[work.precision]}"


def rows_of(outcome: Outcome) -> Iterator[Row]:
    """Return the rows of a workload, in images a second: ours beside each peer's, and beside the floor."""
    work, ours = outcome.work, outcome.sides[OURS]

    def images(ms: float | None) -> float | None:
        return work.batch * 1e3 / ms if ms else None

    for variant, side in outcome.sides.items():
        if variant != OURS:
            note = "\n".join(f"{n}: {s.reason}" for n, s in ((OURS, ours), (variant, side)) if s.reason)
            title = f"{name_of(work)} (peer: {variant if variant == BY_CUDNN else f'PyTorch, {variant}'})"
            yield Row(title, images(ours.ms), images(side.ms), "images/s", note=note, higher=True)
    if outcome.floor:
        title = f"{name_of(work)} (peer: the floor by {outcome.floor.by})"
        yield Row(title, images(ours.ms), images(outcome.floor.ms), "images/s", note=ours.reason, higher=True)
    title = f"{name_of(work)}: batches prepared meanwhile"
    yield Row(title, images(outcome.preparing.ms), None, "images/s", note=outcome.preparing.reason, higher=True)
    own, its = (side.memory.get("mb") for side in (ours, outcome.sides.get(CHANNELS_LAST, Side())))
    yield Row(f"{name_of(work)}: GPU memory (peer: PyTorch, {CHANNELS_LAST})", own, its, "MB")


def floor_of(work: GpuWork, ceilings: Ceilings) -> Floor:
    """Return the floor of a step."""
    rate = getattr(ceilings, work.precision) or ceilings.float32
    return Floor(1e3 * bytes_of(work) / ceilings.bandwidth, 1e3 * operations_of(work) / rate)


def bytes_of(work: Work) -> float:
    """Return the fewest bytes that a step reads and writes."""
    layers = pictures.network(work)
    known = pictures.shapes(work, layers)
    passes = sum(prod(known[one["Name"]]) * (PASSES + NORM_PASSES * _normed(one)) for one in layers)
    return float(FLOAT * (work.batch * passes + parameters_of(work) * (4 + 2 * (1 + STATES[work.optimizer]))))


def parameters_of(work: Work) -> int:
    """Return how many weights the network has."""
    return sum(map(prod, pictures.weight_shapes(work, pictures.network(work)).values()))


def operations_of(work: Work) -> float:
    """Return the operations of a step's products."""
    layers = pictures.network(work)
    known, drawn = pictures.shapes(work, layers), pictures.weight_shapes(work, layers)
    first, *others = (prod(known[name][1:]) * prod(shape) for name, shape in drawn.items())
    return 2.0 * work.batch * (2 * first + 3 * sum(others))


def unfolded_of(work: Work) -> float:
    """Return the bytes by which nnlib writes and reads what kernels see, in all passes of a step."""
    layers = pictures.network(work)
    known, total = pictures.shapes(work, layers), 0
    for before, layer in pairwise([{"Name": "in"}, *layers]):
        if layer["Type"] == "Convolutional":
            below = known[pictures.sources(layer, before["Name"])[0]][0]
            total += below * prod(layer["Kernel"]) * prod(known[layer["Name"]][1:])
    return float(FLOAT * UNFOLDED_PASSES * work.batch * total)


def _normed(layer: dict[str, Any]) -> bool:
    return bool(layer.get("BatchNormalization"))
