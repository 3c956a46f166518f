"""Predicted: how well one training would use 2, 4 or 8 GPUs of one machine. A model, not a measurement. Pure.

Each operation takes max(FLOPs / rate, bytes / bandwidth), an exchange its latency and bytes / link, and a step a time
that no GPU shortens. Layers cut by items have 1/R of their units on each of R GPUs; others are whole on every one.
Each weight matrix of a cut layer costs a step one sum over the GPUs of batch x units of its other end: an exchange of
slices and one of their sums, in which 2 (R - 1) / R of the array leave each GPU, however wide the layer is. By examples
each GPU has 8 / R shards of the batch, whole weights, and 1 / R of the optimizer's state: gradients are summed over the
GPUs by slices, and the new weights travel back; each shard, and the update, takes the time that no GPU shortens. Each
layer with batch normalization that learns waits for two small exchanges, of two numbers a channel to each other GPU. A
convolution is a product of unfolded maps: as many rows an example as a map has values.

The efficiency is that of strong scaling, T(1) / (R T(R)): the same batch on R GPUs, and T(1) of one GPU that knows of
no parts. What machines reach is assumed: about three quarters of what their makers' data sheets promise, of links what
published measurements of NCCL show.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from nnlib.inspection.shapes import count_places
from nnlib.model.network import weight_shape
from nnlib.shards.tree import RANKS, SHARDS
from nnlib.spec.geometry import is_computed
from nnlib.spec.types import Edge, LayerKind, NetworkSpec

COUNTS = RANKS[1:]
WORD = 4  # bytes of a float32
NARROW = 64  # rows or columns up to which a product reaches only a part of the rate
OUTPUT_PASSES = 5  # over the values of an output layer
MAP_PASSES = 6  # over those of a layer that convolves or pools: sums, normalized, activated, and as many back
WORTH = 0.5  # efficiency below which GPUs serve better as parallel trials


@dataclass(frozen=True, slots=True)
class Machine:
    """What the GPUs of a machine are assumed to reach: FLOPs, bytes, bytes that leave a GPU, a second; and seconds."""

    name: str
    flops: float
    memory: float
    link: float
    latency: float  # of an exchange
    floor: float = 60e-6  # of a step: the launches of a graph


# H100: 67 TFLOP/s in float32, 3.35 TB/s, NVLink 450 GB/s each way and PCI 5 x16 64 GB/s on paper; A10G: 31 TFLOP/s, .6
# TB/s, without peer-to-peer copies, so that host memory carries (NVIDIA's data sheets).
MACHINES = (
    Machine("H100, NVLink", 50e12, 2.8e12, 350e9, 15e-6),
    Machine("H100, PCI 5", 50e12, 2.8e12, 40e9, 30e-6),
    Machine("H100, PCI 4", 50e12, 2.8e12, 20e9, 30e-6),
    Machine("A10G, host memory", 20e12, 0.5e12, 10e9, 50e-6),
)


@dataclass(frozen=True, slots=True)
class Matrix:
    """The weights of an edge, (below, units); a batch has `entries` of a sparse source, in `rows` different units.

    An example meets them `places` times: kernels once for each value of a map.
    """

    below: int
    units: int
    cut: bool = False  # whether one of its ends is a layer cut by items
    first: bool = False  # whether nothing below it learns
    entries: float | None = None  # None: dense
    rows: float = 0.0  # that an update touches
    output: bool = False
    places: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """What a training step computes: its matrices, the examples of a batch, state arrays of the optimizer."""

    matrices: tuple[Matrix, ...]
    batch: int
    states: int
    by_examples: bool = False  # in place of items
    values: int = 0  # of an example in layers that convolve or pool
    normalized: tuple[int, ...] = ()  # channels of each layer whose batch normalization learns, by examples


def work_of(
    spec: NetworkSpec,
    batch: int,
    states: int,
    cut: Collection[int],
    entries: Mapping[int, tuple[float, float]],
    lazy: Collection[int] = (),
) -> Work:
    """Return the work of a network whose layers all have their units.

    `cut`: numbers of the layers that are cut by items. `entries`: what a batch has of each sparse input, by the number
    of its layer, and in how many units. `lazy`: numbers of the edges of whose weights only touched rows are updated.
    """
    matrices = tuple(_matrix(spec, edge, cut, entries, lazy) for edge in spec.edges)
    return Work(matrices, batch, states, values=sum(layer.units or 0 for layer in spec.layers if is_computed(layer)))


def _matrix(
    spec: NetworkSpec,
    edge: Edge,
    cut: Collection[int],
    entries: Mapping[int, tuple[float, float]],
    lazy: Collection[int],
) -> Matrix:
    source, target = spec.layers[edge.source], spec.layers[edge.target]
    below, units = weight_shape(spec, edge)
    parts, first = edge.source in cut or edge.target in cut, source.kind is LayerKind.INPUT
    output = target.kind is LayerKind.OUTPUT
    if edge.source not in entries:
        return Matrix(below, units, parts, first, output=output, places=count_places(spec, edge))
    count, touched = entries[edge.source]
    return Matrix(below, units, parts, first, count, touched if edge.number in lazy else float(below), output)


def step_seconds(machine: Machine, work: Work, ranks: int = 1) -> float:
    """Return how long a step takes on so many GPUs."""
    passes = WORD * MAP_PASSES * work.batch * work.values / machine.memory
    if work.by_examples and ranks > 1:
        seconds = sum(_seconds_by_examples(machine, work, matrix, ranks) for matrix in work.matrices) + passes / ranks
        launches = SHARDS // ranks + 1  # of each own shard, and of the update
        seconds += sum(2 * _statistics(machine, channels, ranks) for channels in work.normalized)
        return launches * machine.floor + seconds + 2 * machine.latency  # of all dense gradients at once
    return machine.floor + passes + sum(_seconds(machine, work, matrix, ranks) for matrix in work.matrices)


def predict_efficiency(machine: Machine, work: Work, ranks: int) -> float:
    """Return T(1) / (R T(R))."""
    return step_seconds(machine, work) / (ranks * step_seconds(machine, work, ranks))


def most_worthwhile(machine: Machine, work: Work, counts: Iterable[int] = COUNTS) -> int:
    """Return the largest number of GPUs that is predicted to be worth it; 1 where none is."""
    return max((count for count in counts if predict_efficiency(machine, work, count) > WORTH), default=1)


def _seconds(machine: Machine, work: Work, matrix: Matrix, ranks: int) -> float:
    b, share = work.batch, ranks if matrix.cut else 1
    update = 2 + 2 * work.states  # weights and states, read and written
    if matrix.entries is not None:  # sums of weight rows and of deltas, in the memory's time
        rows = matrix.rows * (update + (matrix.rows >= matrix.below))  # of all rows the gradient is read, too
        seconds = WORD * matrix.units * (2 * matrix.entries + rows) / share / machine.memory
        return seconds + _exchanges(machine, b * matrix.units, share)
    below, units = (matrix.below, matrix.units / share) if matrix.output else (matrix.below / share, matrix.units)
    seconds = _products(machine, matrix, b, below, units)
    seconds += WORD * (update + 1) * below * units / machine.memory
    seconds += WORD * OUTPUT_PASSES * b * matrix.places * units / machine.memory if matrix.output else 0.0
    return seconds + _exchanges(machine, b * (matrix.below if matrix.output else matrix.units), share)


def _seconds_by_examples(machine: Machine, work: Work, matrix: Matrix, ranks: int) -> float:
    """Return the seconds of a matrix of which each GPU has the gradient of its examples; dense ones travel together."""
    size, update = matrix.below * matrix.units, 2 + 2 * work.states
    if matrix.entries is not None:
        moved = matrix.units * (2 * matrix.entries + matrix.rows * update) / ranks
        sent = 2 * machine.latency + _sent(machine, 2 * matrix.rows * matrix.units, ranks)  # rows come with numbers
        return WORD * moved / machine.memory + sent
    mine = SHARDS // ranks
    seconds = _products(machine, matrix, work.batch / SHARDS, matrix.below, matrix.units)
    moved = (3 * (mine - 1) + (update + 1) / ranks) * size
    moved += OUTPUT_PASSES * work.batch * matrix.places * matrix.units / ranks if matrix.output else 0.0
    return mine * seconds + WORD * moved / machine.memory + _sent(machine, size, ranks)


def _statistics(machine: Machine, channels: int, ranks: int) -> float:
    """Return the seconds of an exchange of two numbers a channel, which each GPU gives to all others."""
    return machine.latency + WORD * 2 * channels * (ranks - 1) / machine.link


def _sent(machine: Machine, numbers: float, ranks: int) -> float:
    """Return the seconds in which slices of an array, and then the sums of slices, leave a GPU."""
    return 2 * WORD * numbers * (ranks - 1) / ranks / machine.link


def _products(machine: Machine, matrix: Matrix, batch: float, below: float, units: float) -> float:
    """Return the seconds of the products of so many examples, with so much of a dense matrix."""
    rows = batch * matrix.places
    seconds = _product(machine, rows, below, units) + _product(machine, below, rows, units)
    return seconds + (0.0 if matrix.first else _product(machine, rows, units, below))


def _product(machine: Machine, a: float, b: float, c: float) -> float:
    """Return the seconds of (a, b) by (b, c) in float32."""
    reached = machine.flops * min(1.0, a / NARROW, c / NARROW)
    return max(2 * a * b * c / reached, WORD * (a * b + b * c + a * c) / machine.memory)


def _exchanges(machine: Machine, numbers: float, ranks: int) -> float:
    """Return the seconds of a sum over all GPUs: slices to each, and the sums of slices back."""
    return 0.0 if ranks == 1 else 2 * machine.latency + _sent(machine, numbers, ranks)
