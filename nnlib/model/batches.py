"""From data sets to the batches that a network learns from: matrices of inputs and targets, in a drawn order.

All random numbers come from streams of their own, one for each purpose and step, so that no draw can shift another
and a resumed training draws what an uninterrupted one would have drawn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.contract import TrainSettings
from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import DataSet
from nnlib.model.examples import Examples
from nnlib.ops.targets import Targets, targets_of
from nnlib.spec.types import LayerKind, NetworkSpec
from nnlib.util.arrays import Floats

WEIGHTS, SHUFFLE, DENOISE, DROPOUT, INITIAL, AUGMENT = range(6)  # what random numbers are for
AT_ONCE = 8  # numbers of float32 that Philox gives by one count
SHUFFLE_BLOCK = 4096  # consecutive examples that stay near each other, so that a file can be read in blocks
SHUFFLE_GROUP = 16  # blocks whose examples are mixed


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Inputs (sparse.csr_array or dense, (b, units)) and targets by the number of the layer."""

    inputs: Mapping[int, Any]
    targets: Mapping[int, Targets]
    examples: int


def generator_for(seed: int, purpose: int, number: int = 0, low: int = 0) -> np.random.Generator:
    """Return the random numbers of one purpose in one epoch or step, without the first AT_ONCE * `low` of them."""
    return np.random.Generator(np.random.Philox(key=(seed << 8) | purpose, counter=(number << 128) + low))


def draw_from(low: int, shape: tuple[int, int], seed: int, purpose: int, number: int) -> NDArray[np.float32]:
    """Return float32 numbers in [0, 1) of one purpose, those from place `low` on: as if all had been drawn."""
    random = generator_for(seed, purpose, number, low // AT_ONCE)
    return random.random(low % AT_ONCE + shape[0] * shape[1], np.float32)[low % AT_ONCE :].reshape(shape)


def epoch_order(seed: int, epoch: int, count: int, shuffle: bool) -> NDArray[np.int64]:
    """Return the order of the examples in an epoch.

    Few examples are permuted as a whole. Of more than SHUFFLE_BLOCK * SHUFFLE_GROUP, blocks of consecutive ones are
    permuted, and then the examples within each group of blocks, so that data in a file can be read block by block; data
    in memory get the same order.
    """
    if not shuffle:
        return np.arange(count)
    random = generator_for(seed, SHUFFLE, epoch)
    group = SHUFFLE_BLOCK * SHUFFLE_GROUP
    if count <= group:
        return random.permutation(count)
    starts = random.permutation(-(-count // SHUFFLE_BLOCK)) * SHUFFLE_BLOCK
    order = np.concatenate([np.arange(low, min(low + SHUFFLE_BLOCK, count)) for low in starts])
    for low in range(0, count, group):
        random.shuffle(order[low : low + group])
    return order


def batch_of(spec: NetworkSpec, examples: Examples, rows: NDArray[np.int64], dtype: Any = np.float32) -> Batch:
    """Return the batch of some examples, without noise."""
    targets = take_targets(spec, examples, rows, dtype)
    return Batch(take_inputs(spec, examples, rows, dtype), targets, len(rows))


def take_inputs(spec: NetworkSpec, examples: Examples, rows: NDArray[np.int64], dtype: Any) -> dict[int, Any]:
    """Return what the input layers give for some examples."""
    found = ((n, data_set) for n, data_set in examples.sets.items() if spec.layers[n].kind is LayerKind.INPUT)
    return {n: input_matrix(data_set.take(rows), dtype) for n, data_set in found}


def take_targets(spec: NetworkSpec, examples: Examples, rows: NDArray[np.int64], dtype: Any) -> dict[int, Targets]:
    """Return what the output layers should give for some examples."""
    targets = {}
    for n, data_set in examples.sets.items():
        if spec.layers[n].kind is LayerKind.INPUT:
            continue
        some = data_set.take(rows)
        if isinstance(some.rows, Csr):
            some = dataclasses.replace(some, rows=unique_targets(some.rows, some.ignore_zero))
        weights = None if some.weights is None else some.weights.astype(dtype)[:, None]
        targets[n] = targets_of(_matrix(some, False, dtype), some.boolean, weights, some.ignore_zero)
    return targets


def unique_targets(rows: Csr, zeros: bool = False) -> Csr:
    """Return targets without doubles, and without stored zeros unless `zeros` count (SparseIgnoreZero)."""
    rows = rows.sets()
    if rows.values is None or zeros or rows.values.all():
        return rows
    return rows.keep(rows.values != 0)


def input_matrix(data_set: DataSet, dtype: Any = np.float32) -> Any:
    """Return what an input layer gives; the weight of an example multiplies its sparse values."""
    matrix = _matrix(data_set, True, dtype)
    if data_set.weights is not None and sparse.issparse(matrix):
        matrix.data *= np.repeat(data_set.weights, np.diff(matrix.indptr))
    return matrix


def inputs_of(spec: NetworkSpec, examples: Examples, dtype: Any = np.float32) -> dict[int, Any]:
    """Return what the input layers give for examples in memory."""
    return {
        n: input_matrix(data_set, dtype)
        for n, data_set in examples.sets.items()
        if spec.layers[n].kind is LayerKind.INPUT
    }


def add_noise(spec: NetworkSpec, batch: Batch, seed: int, step: int) -> Batch:
    """Return the batch with the inputs that denoising leaves: each stays with 1 - p and is scaled by 1 / (1 - p)."""
    p = spec.denoising
    if not p:
        return batch
    inputs = dict(batch.inputs)
    for n, matrix in batch.inputs.items():
        if sparse.issparse(matrix):
            keep = generator_for(seed, DENOISE, step * len(spec.layers) + n).random(matrix.nnz, np.float32) >= p
            kept = np.concatenate(([0], np.cumsum(keep, dtype=np.int64)))[matrix.indptr]
            data = matrix.data[keep] * matrix.dtype.type(1 / (1 - p))
            inputs[n] = _csr(data, matrix.indices[keep], kept, matrix.shape)
    return dataclasses.replace(batch, inputs=inputs)


def batches_of(count: int, size: int) -> Sequence[tuple[int, int]]:
    """Return (low, high) of every batch; the last one may be short."""
    return [(low, min(low + size, count)) for low in range(0, count, size)]


@dataclass(frozen=True, slots=True)
class Part:
    """A batch in its update, which takes several where `accumulate` says so: the gradient of all their examples."""

    first: bool = True
    last: bool = True
    share: float = 1.0  # of the examples of the update


def part_of(count: int, settings: TrainSettings, batch: int) -> Part:
    """Return what part of its update a batch is, by its number from 1; every epoch has so many examples."""
    low = (batch - 1) % -(-count // settings.batch) * settings.batch
    size = settings.batch * settings.accumulate
    start = low // size * size
    end, high = min(start + size, count), min(low + settings.batch, count)
    return Part(low == start, high == end, (high - low) / (end - start))


def updates_of(count: int, settings: TrainSettings) -> int:
    """Return how many updates an epoch has."""
    return -(-count // (settings.batch * settings.accumulate))


def updates_before(count: int, settings: TrainSettings, batches: int) -> int:
    """Return how many updates so many batches have made, the last of them the last one of its update."""
    epochs, more = divmod(batches, -(-count // settings.batch))
    return epochs * updates_of(count, settings) + -(-more // settings.accumulate)


def _matrix(data_set: DataSet, as_input: bool, dtype: Any) -> Any:
    rows = data_set.rows
    if isinstance(rows, Dense):
        return rows.floats(as_input, dtype)
    assert isinstance(rows, Csr), "a data set that was taken is in memory"
    values = np.ones(rows.nonzeros, dtype) if rows.values is None else rows.values.astype(dtype)
    return _csr(values, rows.indices, rows.indptr, (rows.examples, rows.width))


def _csr(data: Floats, indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]) -> sparse.csr_array:
    """Return a matrix with 32-bit offsets, which SciPy's products take without a conversion."""
    return sparse.csr_array((data, indices.astype(np.int32, copy=False), indptr.astype(np.int32)), shape=shape)
