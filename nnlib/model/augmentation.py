"""Pictures changed by chance before a step of a training, with their targets: moved, mirrored, coloured, mixed.

What happens to an example follows from the seed, the step and its place in the batch, so that the bits are the same on
any number of threads, after a training was resumed, and for every device: it is done on processors.

With v a value of a picture, r the three factors of the example, each drawn from [1 - Colour, 1 + Colour]:

    moved      v[y, x] of v[y + dy, x + dx], -Crop <= dy, dx <= Crop; beyond the edge it is as in a mirror (numpy.pad's
               reflect), which mirrored pictures are told from by none but a person
    coloured   b (c (s v + (1 - s) g) + (1 - c) m), where g is the grey of a place (ITU-R 601), m its mean over the
               picture, r = (b, c, s): torchvision's ColorJitter in the order saturation, contrast, brightness, and cut
               to what bytes hold once, at the end. It is for sets of bytes, of one channel or of red, green, blue
    mixed      share v + (1 - share) v', the targets likewise; share from Beta(Mixup, Mixup), and v' another example of
               the batch (Zhang et al. 2018, mixup: beyond empirical risk minimization)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.compiled import select
from nnlib.data.rows import Csr, Dense, Floats
from nnlib.data.sets import DataSet
from nnlib.errors import DataError
from nnlib.model.batches import AUGMENT, generator_for, unique_targets
from nnlib.model.examples import Examples
from nnlib.spec.geometry import Maps, maps_of
from nnlib.spec.types import NO_AUGMENTATION, Augmentation, LayerKind, NetworkSpec
from nnlib.util.arrays import Longs
from nnlib.util.threads import Each, consume, map_in_turn

PIECE = 16  # examples that a thread changes together
THOUSANDTHS = (299, 587, 114)  # of grey, that are red, green and blue
GREY = (np.array(THOUSANDTHS) / 1000).astype(np.float32)
MOST = np.float32(255 / 256)  # the largest value of a byte, as DSSTNE reads it
MIDDLE = np.float32(0.5)  # what inputs of bytes are less than their value
EVERY = slice(None)  # example of a batch


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    """What happens to each example of a batch."""

    moves: NDArray[np.int64]  # (b, 2): rows and columns that are left out of what is padded
    flips: NDArray[np.bool_]  # (b,)
    factors: Floats  # (b, 3) of values, grey and the mean grey: b c s, b c (1 - s), b (1 - c)
    mixed: Longs  # (m,): the examples that are mixed, with these partners, and of which shares
    partners: Longs  # (m,)
    shares: Floats  # (m,)

    def among(self, used: Longs, wanted: Longs) -> _Draws:
        """Return what happens to the examples `used`, ascending, and which of them make those that are `wanted`."""
        mixed, partners = (np.searchsorted(used, which) for which in (wanted, self.partners[wanted]))
        return _Draws(self.moves[used], self.flips[used], self.factors[used], mixed, partners, self.shares[wanted])


def augmented(
    spec: NetworkSpec, examples: Examples, batches: Iterable[Longs], seed: int, step: int, each: Each = map_in_turn
) -> Iterator[tuple[Examples, Longs]]:
    """Yield `augment` of the examples of each batch, the first being that of the step after `step`."""
    for number, rows in enumerate(batches, step + 1):
        yield augment(spec, examples, rows, seed, number, each)


def augment(
    spec: NetworkSpec,
    examples: Examples,
    rows: Longs,
    seed: int,
    step: int,
    each: Each = map_in_turn,
    some: slice = EVERY,
) -> tuple[Examples, Longs]:
    """Return what a step sees of some examples, in memory, and their numbers there; the same without Augmentation.

    `some` of them are wanted: besides these only those are read that they are mixed with. DataError where an input is
    no picture.
    """
    how = spec.augmentation
    if how == NO_AUGMENTATION:
        return examples, rows[some]
    draws, wanted = _draw(how, len(rows), seed, step), np.arange(len(rows))[some]
    used = np.union1d(wanted, draws.partners[wanted]) if how.mixup else wanted
    draws = draws.among(used, wanted)
    taken = examples.take(rows[used]).sets
    found = {}
    for n, data_set in taken.items():
        if spec.layers[n].kind is LayerKind.INPUT:
            maps = _check(spec, n, data_set, examples.file)
            found[n] = replace(data_set, rows=Dense(_change(how, data_set, maps, draws, each)))
        else:
            found[n] = _mix_targets(data_set, draws) if how.mixup else data_set
    if how.mixup:
        found = {n: _mix_weights(data_set, draws) for n, data_set in found.items()}
    return Examples(found, examples.file), np.arange(len(wanted))


def _draw(how: Augmentation, count: int, seed: int, step: int) -> _Draws:
    random = generator_for(seed, AUGMENT, step)
    numbers = random.random((count, 6), np.float32)
    moves = np.minimum((numbers[:, :2] * (2 * how.crop + 1)).astype(np.int64), 2 * how.crop)
    brightness, contrast, saturation = 1 + np.float32(how.colour) * (2 * numbers[:, 3:].T - 1)
    both = brightness * contrast
    factors = np.stack((both * saturation, both * (1 - saturation), brightness * (1 - contrast)), axis=1)
    flips = (numbers[:, 2] < MIDDLE) & how.flip
    if not how.mixup:
        return _Draws(moves, flips, factors, np.arange(count), np.arange(count), np.ones(count, np.float32))
    shares = random.beta(how.mixup, how.mixup, count).astype(np.float32)
    return _Draws(moves, flips, factors, np.arange(count), random.permutation(count), shares)


def _check(spec: NetworkSpec, number: int, data_set: DataSet, file: str) -> Maps:
    """Return what the values of an input are; DataError when they cannot be changed as is wanted."""
    layer, how = spec.layers[number], spec.augmentation
    where, name = f"{file}: layer {layer.name}: Augmentation", f"data set {data_set.name!r}"
    maps = Maps(0) if data_set.sparse else maps_of(spec, number)
    if len(maps.sizes) != 2:
        raise DataError(
            f"{where}: {name} has no pictures, legal: a dense data set of width, height and "
            "channels, as `nnlib import --format images` makes it"
        )
    if how.crop >= min(maps.sizes):
        height, width = maps.sizes
        raise DataError(
            f"{where}.Crop: {how.crop} is not legal for {width} x {height}, legal: up to {min(maps.sizes) - 1}"
        )
    values = data_set.rows.values if isinstance(data_set.rows, Dense) else np.empty(0)
    if how.colour and (values.dtype != np.uint8 or maps.channels not in (1, len(THOUSANDTHS))):
        raise DataError(
            f"{where}.Colour: {name} is of {values.dtype} and {maps.channels} channels, legal: bytes (UChar) of one "
            "channel or of three"
        )
    return maps


def _change(how: Augmentation, data_set: DataSet, maps: Maps, draws: _Draws, each: Each) -> Floats:
    """Return inputs (b, units) as they are after all that Augmentation says."""
    assert isinstance(data_set.rows, Dense), "an input of pictures is dense"
    stored = data_set.rows.values.reshape(-1, maps.channels, *maps.sizes)
    found = np.empty(stored.shape, np.float32)
    compiled = select.LOOPS is not None and stored.dtype == np.uint8

    def work(low: int) -> None:
        some = slice(low, low + PIECE)
        arguments = how.crop, draws.moves[some], draws.flips[some], draws.factors[some], bool(how.colour), found[some]
        if compiled:
            assert select.LOOPS is not None
            select.LOOPS.change_pictures(stored[some], *arguments)
        else:
            change(stored[some], *arguments)

    consume(each(work, range(0, len(stored), PIECE)))
    flat = found.reshape(data_set.rows.values.shape)
    return _mix(flat, draws, each) if how.mixup else flat


def _mix(values: Floats, draws: _Draws, each: Each) -> Floats:
    found = np.empty((len(draws.mixed), values.shape[1]), values.dtype)

    def work(low: int) -> None:
        some = slice(low, low + PIECE)
        share = draws.shares[some, None]
        found[some] = share * values[draws.mixed[some]] + (1 - share) * values[draws.partners[some]]

    consume(each(work, range(0, len(found), PIECE)))
    return found


def change(
    stored: NDArray[Any],
    crop: int,
    moves: Longs,
    flips: NDArray[np.bool_],
    factors: Floats,
    coloured: bool,
    found: Floats,
) -> None:
    """Write pictures (n, channels, height, width), moved, mirrored and perhaps coloured, to `found` as inputs.

    Of `moves` (n, 2) those of rows come first; `factors` (n, 3) are what values, grey and the mean grey are multiplied
    by. Twin: `change_pictures` of `compiled.pictures`, for bytes, with the same bits.
    """
    height, width = stored.shape[2:]
    padded = np.pad(stored, ((0, 0), (0, 0), (crop, crop), (crop, crop)), mode="reflect") if crop else stored
    moved = np.empty_like(stored)
    for picture, into, (top, left), flip in zip(padded, moved, moves.tolist(), flips.tolist(), strict=True):
        seen = picture[:, top : top + height, left : left + width]
        into[...] = seen[:, :, ::-1] if flip else seen
    values = Dense(moved.reshape(len(moved), -1)).floats(as_input=True).reshape(stored.shape)
    if coloured:
        values += MIDDLE
        _colour(values, moved.sum(axis=(2, 3), dtype=np.int64), factors)
        values -= MIDDLE
    found[...] = values


def _colour(values: Floats, sums: Longs, factors: Floats) -> None:
    """Change values (n, channels, height, width) of bytes in place; `sums` (n, channels) are those of the bytes."""
    gain, of_grey, of_mean = (factor[:, None, None, None] for factor in factors.T)
    area = values.shape[2] * values.shape[3]
    thousandths = np.array(THOUSANDTHS if values.shape[1] == len(THOUSANDTHS) else (1000,))
    mean = (sums @ thousandths / (256_000 * area)).astype(np.float32)[:, None, None, None]
    grey = values
    if values.shape[1] == len(THOUSANDTHS):
        grey = GREY[0] * values[:, :1] + GREY[1] * values[:, 1:2]
        grey += GREY[2] * values[:, 2:]
    added = of_grey * grey + of_mean * mean
    values *= gain
    values += added
    np.clip(values, 0, MOST, out=values)


def _mix_targets(data_set: DataSet, draws: _Draws) -> DataSet:
    rows, shares = data_set.rows, draws.shares
    if isinstance(rows, Dense):
        values = rows.floats(as_input=False)
        mine, others = shares[:, None] * values[draws.mixed], (1 - shares[:, None]) * values[draws.partners]
        return replace(data_set, rows=Dense(mine + others))
    assert isinstance(rows, Csr), "what was taken is in memory"
    all_rows = _matrix(unique_targets(rows, data_set.ignore_zero))
    mine, others = (
        all_rows[which].multiply(share[:, None])
        for which, share in ((draws.mixed, shares), (draws.partners, 1 - shares))
    )
    mixed = sparse.csr_array(mine + others)
    mixed.sort_indices()
    return replace(
        data_set,
        rows=Csr(
            mixed.indptr.astype(np.int64), mixed.indices.astype(np.int32), rows.width, mixed.data.astype(np.float32)
        ),
    )


def _matrix(rows: Csr) -> sparse.csr_array:
    values = np.ones(rows.nonzeros, np.float32) if rows.values is None else rows.values
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=(rows.examples, rows.width))


def _mix_weights(data_set: DataSet, draws: _Draws) -> DataSet:
    weights = data_set.weights
    if weights is None:
        return data_set
    mine, others = draws.shares * weights[draws.mixed], (1 - draws.shares) * weights[draws.partners]
    return replace(data_set, weights=mine + others)
