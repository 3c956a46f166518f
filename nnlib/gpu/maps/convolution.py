"""Convolutions on a GPU: as products that cuBLAS does, of what is unfolded a few examples at a time; or straight.

Products are faster as soon as both matrices have some rows, and take the precision of the training. Groups of few
channels, and maps of which one example does not fit into the room for what is unfolded, go straight from the maps, in
float32. Which it is, and how many examples at a time, depends on sizes alone: so do the bits. Where cuDNN is asked
for (cudnn.py), what it has an engine for is its; the factors of precision bf16 it would want in maps of bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from nnlib.gpu.cublas import BF16, TF32
from nnlib.gpu.maps.cudnn import FORWARD, KINDS, TO_SOURCE, TO_WEIGHTS, Task
from nnlib.gpu.maps.sweeps import Sweeps, channels_of
from nnlib.gpu.runtime import THREADS, Array, Runtime
from nnlib.spec.geometry import Sweep

ROOM = 16 << 20  # numbers, 64 MiB: what is unfolded, and the products beside it, at a time
FEWEST, MOST_GROUPS = 16, 8  # rows of both matrices of a product at least, and products of one layer at most
NARROW = 4  # channels of a group up to which a block has as many rows: see kernels/convolution.cu
NARROW_WEIGHTS = 128  # of a filter, up to which each has a block of its own: see kernels/filters.cu
TILE, TILE_NARROW = 64, 1024  # columns of a block's part of a product
BLOCKS = 512  # that a weight gradient is cut into at least, if there are as many examples
MOST_STEPS = (1 << 31) - 17  # of a sum of a block, which counts on by up to 16 in an int
OF_A_THREAD = 16  # numbers that a thread lays out
EVEN = 8  # examples laid out at a time are a multiple of this where they can be: rows stay aligned


class Multiply(Protocol):
    """How matrices are multiplied."""

    def __call__(
        self, a: Array, b: Array, out: Array, flip: tuple[bool, bool], *, add: bool, rounded: bool = True
    ) -> None:
        """See `Forward.multiply`."""


class Convolutions:
    """All convolutions of a network. Arrays are as in nnlib/ops/convolution.py, which is the reference."""

    def __init__(
        self,
        runtime: Runtime,
        multiply: Multiply,
        sweeps: Sweeps,
        some: Sequence[Sweep],
        most: int,
        train: bool,
        precision: str,
    ) -> None:
        """Make room for batches of up to `most` examples of these sweeps; `train` for the gradients.

        `precision`: one of cublas.PRECISIONS, to which `multiply` rounds, too.
        """
        self._runtime, self._multiply, self._sweeps = runtime, multiply, sweeps
        unfolded = [(sweep, _each(sweep, most)) for sweep in some if is_unfolded(sweep)]
        self._rows = runtime.zeros(max((each * _rows_of(sweep) for sweep, each in unfolded), default=0))
        self._maps = runtime.zeros(max((each * sweep.target.units for sweep, each in unfolded), default=0))
        parts = [_most_parts(sweep, most) * _weights_of(sweep) for sweep in some if train and _has_parts(sweep)]
        self._parts = runtime.zeros(max(parts, default=0))
        by_cudnn = None if precision == BF16 else runtime.cudnn
        self._tensor_cores = None if by_cudnn is None else precision == TF32
        if by_cudnn is not None and train:  # so that what is said of a training names engines
            for task in (Task(kind, sweep, most, False, precision == TF32) for kind in KINDS for sweep in some):
                by_cudnn.plan(task)

    def forward(self, x: Array, w: Array, bias: Array, z: Array, sweep: Sweep, add: bool, rounded: bool) -> None:
        """Set z (b, target units), or add to it, w * x + bias; the factors are `rounded` as the training has it."""
        if not add and self._by_cudnn(FORWARD, sweep, (x, w, z, bias), len(x), False, rounded):
            return
        if not is_unfolded(sweep):
            rows, kind, columns = _tile(channels_of(sweep)[1])
            grid = math.ceil(len(x) * sweep.target.area / columns), rows, sweep.groups
            self._launch(f"convolution{kind}", grid, x, w, bias, z, self._sweeps.words(sweep), len(x), int(add))
            return
        for first, some in _pieces(sweep, len(x)):
            rows, sums = self._unfold(x, sweep, first, some), self._room(sweep, some)
            for weights, own, seen in _by_group(sweep, w, sums, rows):
                self._multiply(weights, seen, own, (False, False), add=False, rounded=rounded)
            self._lay("rows_to_maps", sweep, some, sums, bias, z, *_sizes(sweep), first, some, int(add))

    def input_gradient(self, delta: Array, w: Array, below: Array, sweep: Sweep, add: bool) -> None:
        """Set below (b, source units), or add to it, dLoss/dx from delta = dLoss/dz (b, target units)."""
        if self._by_cudnn(TO_SOURCE, sweep, (delta, w, below), len(delta), add):
            return
        if not is_unfolded(sweep):
            rows, kind, columns = _tile(channels_of(sweep)[0])
            grid = math.ceil(len(delta) * sweep.source.area / columns), rows, sweep.groups
            words = self._sweeps.words(sweep), len(delta), int(add)
            self._launch(f"convolution_input_gradient{kind}", grid, delta, w, below, *words)
            return
        for first, some in _pieces(sweep, len(delta)):
            sums, rows = self._deltas(delta, sweep, first, some), self._unfolded(sweep, some)
            for weights, own, seen in _by_group(sweep, w, sums, rows):
                self._multiply(weights, own, seen, (True, False), add=False)
            places = _grid(some * sweep.source.area, sweep.source.channels, sweep.volume)
            self._launch("fold", places, rows, below, self._sweeps.words(sweep), first, some, int(add))

    def weight_gradient(self, x: Array, delta: Array, gradient: Array, sweep: Sweep, add: bool) -> None:
        """Set gradient (target channels, fan in), or add to it, dLoss/dw."""
        if self._by_cudnn(TO_WEIGHTS, sweep, (x, delta, gradient), len(x), add):
            return
        if not is_unfolded(sweep):
            self._straight_weights(x, delta, gradient, sweep, add)
            return
        for first, some in _pieces(sweep, len(x)):
            rows, sums = self._unfold(x, sweep, first, some), self._deltas(delta, sweep, first, some)
            for weights, own, seen in _by_group(sweep, gradient, sums, rows):
                self._multiply(own, seen, weights, (False, True), add=add or first > 0)

    def _by_cudnn(
        self, kind: str, sweep: Sweep, arrays: Sequence[Array], size: int, add: bool, rounded: bool = True
    ) -> bool:
        """Compute by cuDNN, or say that it does not: not asked for, or without an engine for that."""
        if self._tensor_cores is None or not size:
            return False
        return self._runtime.convolve(Task(kind, sweep, size, add, self._tensor_cores and rounded), arrays)

    def _straight_weights(self, x: Array, delta: Array, gradient: Array, sweep: Sweep, add: bool) -> None:
        above, size, words = channels_of(sweep)[1], len(x), self._sweeps.words(sweep)
        if not _has_parts(sweep):
            name, grid = "convolution_weight_gradient_narrow", (sweep.target.channels, sweep.fan_in)
            self._launch(name, grid, x, delta, gradient, words, size, int(add))
            return
        parts, each = _parts(sweep, size)
        count = _weights_of(sweep)
        grid3 = math.ceil(sweep.fan_in / TILE), math.ceil(above / TILE) * parts, sweep.groups
        self._launch("convolution_weight_gradient", grid3, x, delta, self._parts, words, size, each)
        sums = self._parts, gradient, parts, count, count, 1.0, int(add)
        self._launch("column_sums", (math.ceil(count / 32),), *sums)

    def _unfolded(self, sweep: Sweep, some: int) -> Array:
        shape = sweep.source.channels * sweep.volume, some * sweep.target.area
        return self._rows[: math.prod(shape)].reshape(shape)

    def _room(self, sweep: Sweep, some: int) -> Array:
        shape = sweep.target.channels, some * sweep.target.area
        return self._maps[: math.prod(shape)].reshape(shape)

    def _unfold(self, x: Array, sweep: Sweep, first: int, some: int) -> Array:
        """Return what a kernel sees of some examples, (source channels x volume, some x places)."""
        rows = self._unfolded(sweep, some)
        grid = _grid(rows.shape[1], sweep.source.channels, sweep.volume)
        self._launch("unfold", grid, x, rows, self._sweeps.words(sweep), first, some)
        return rows

    def _deltas(self, delta: Array, sweep: Sweep, first: int, some: int) -> Array:
        """Return the deltas of some examples, (target channels, some x places)."""
        sums = self._room(sweep, some)
        self._lay("maps_to_rows", sweep, some, delta, sums, *_sizes(sweep), first, some)
        return sums

    def _lay(self, name: str, sweep: Sweep, some: int, *arguments: Any) -> None:
        self._launch(name, _grid(some * sweep.target.area, sweep.target.channels, 1), *arguments)

    def _launch(self, name: str, grid: tuple[int, ...], *arguments: Any) -> None:
        self._runtime.launch(name, grid, *arguments)


def is_unfolded(sweep: Sweep) -> bool:
    """Whether a convolution is done as products of what is unfolded."""
    rows = min(channels_of(sweep)[1], sweep.fan_in)
    return sweep.groups <= MOST_GROUPS and rows >= FEWEST and _rows_of(sweep) + sweep.target.units <= ROOM


def _rows_of(sweep: Sweep) -> int:
    """Return how many numbers an example has when it is unfolded."""
    return sweep.source.channels * sweep.volume * sweep.target.area


def _weights_of(sweep: Sweep) -> int:
    return sweep.target.channels * sweep.fan_in


def _each(sweep: Sweep, size: int) -> int:
    """Return how many of `size` examples are unfolded at a time."""
    each = ROOM // (_rows_of(sweep) + sweep.target.units)
    return min(size, each // EVEN * EVEN or each)


def _pieces(sweep: Sweep, size: int) -> Iterator[tuple[int, int]]:
    """Yield where the examples begin that are unfolded at a time, and how many they are."""
    each = _each(sweep, size)
    for first in range(0, size, max(1, each)):
        yield first, min(each, size - first)


def _by_group(sweep: Sweep, w: Array, sums: Array, rows: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Yield the rows of each group: of the weights, of the sums and of what is unfolded."""
    above, seen = sweep.target.channels // sweep.groups, sweep.fan_in
    for group in range(sweep.groups):
        own = slice(group * above, group * above + above)
        yield w[own], sums[own], rows[group * seen : group * seen + seen]


def _sizes(sweep: Sweep) -> tuple[int, int]:
    return sweep.target.channels, sweep.target.area


def _grid(places: int, channels: int, volume: int) -> tuple[int, int]:
    """Return the grid of a kernel of unfold.cu: a thread has a place, and some of its channels."""
    return math.ceil(places / THREADS), min(channels, 65535, math.ceil(channels * volume / OF_A_THREAD))


def _tile(channels: int) -> tuple[int, str, int]:
    """Return how many blocks share the channels of a group, what the kernel's name ends with, and a block's columns."""
    narrow = channels <= NARROW
    return math.ceil(channels / (NARROW if narrow else TILE)), *(("_narrow", TILE_NARROW) if narrow else ("", TILE))


def _has_parts(sweep: Sweep) -> bool:
    """Whether the gradient of the weights is cut into parts, when nothing is unfolded."""
    return not is_unfolded(sweep) and (channels_of(sweep)[1] > NARROW or sweep.fan_in > NARROW_WEIGHTS)


def _parts(sweep: Sweep, size: int) -> tuple[int, int]:
    """Return how many parts a batch is cut into for the gradient of the weights, and how many examples one has."""
    tiles = math.ceil(sweep.fan_in / TILE) * math.ceil(channels_of(sweep)[1] / TILE) * sweep.groups
    each = min(math.ceil(size / max(1, min(size, BLOCKS // tiles))), MOST_STEPS // sweep.target.area)
    return math.ceil(size / max(1, each)), each


def _most_parts(sweep: Sweep, most: int) -> int:
    """Return into how many parts a batch of up to `most` examples is cut: a smaller one may have more of them."""
    return max((_parts(sweep, size)[0] for size in range(1, most + 1)), default=0)
