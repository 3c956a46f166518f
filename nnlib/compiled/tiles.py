"""Tiles of sums of products that stay in registers, which LLVM makes of no loop by itself. Twin: ops/convolution.py.

Numbers are float32 and addresses whole numbers, so that a tile may begin anywhere. How much a tile holds suits the
registers of this machine; no sum depends on it.
"""

from __future__ import annotations

from collections.abc import Callable

from nnlib.compiled.compiler import compile_within, emit, has, ir
from nnlib.compiled.vectors import (
    BITS,
    FLOAT,
    LANES,
    LONG,
    MASKED,
    NOTHING,
    Builder,
    Value,
    add_lanes,
    add_product,
    everywhere,
    left_rows,
    load,
    load_some,
    order_of,
    plus,
    prefetch,
    repeat,
    row_address,
    store,
    store_rows,
    turned,
)

NARROW = has("avx2") and not has("avx512f")  # 16 registers, else 32
ROWS, VECTORS = (4, 3) if NARROW else (8, 3)  # of a tile of sums
FEW = 4  # rows of one for a few channels
DOTS_OF = {True: (2, 4), False: (4, 6)}  # the first divides cpu.maps.tiled.ROWS: maps that are not laid out end there
DOTS = DOTS_OF[NARROW]  # rows of either kind in a tile of dots
ALONE_VECTORS = 6  # of a row alone
AHEAD = 256  # weights from those that are met to those on their way to the cache
ALONE = 9  # rows that meet a row alone
# Tiles across maps: a vector is LANES maps of a target at a place, and what is met of a source is one number at a time:
# any few places make a tile, and none is computed in vain. For processors whose registers hold 14 places.
BOTH = 2  # vectors of a place
ACROSS = BOTH * LANES if MASKED else 0  # maps of a tile; 0: there are no such tiles
PLACES = (14, 13, 12, 7, 6)  # of a tile: all that is long enough is cut into these without a rest
PAIRED = PLACES[-2:]  # of a row that makes a tile with the next one
FURTHER = 2048  # as AHEAD, for these


def _sums(rows: int, vectors: int) -> Callable[..., None]:
    def write(builder: Builder, x: Value, base: Value, count: Value, w: Value, z: Value, pitch: Value) -> None:
        def step(k: Value, totals: list[Value]) -> list[Value]:
            place = load(builder, builder.add(base, builder.mul(k, LONG(8))), LONG)
            here = builder.add(x, builder.mul(place, LONG(4)))
            met = [load(builder, plus(builder, here, n * LANES)) for n in range(vectors)]
            weights = builder.add(w, builder.mul(k, LONG(4 * rows)))
            prefetch(builder, builder.add(weights, LONG(4 * AHEAD)))
            found = []
            for row in range(rows):
                weight = everywhere(builder, load(builder, plus(builder, weights, row), FLOAT))
                found += [add_product(builder, weight, met[n], totals[row * vectors + n]) for n in range(vectors)]
            return found

        store_rows(builder, repeat(builder, count, [NOTHING] * rows * vectors, step), vectors, z, pitch)

    return emit(write)


def _products(rows: int, vectors: int) -> Callable[..., None]:
    def write(builder: Builder, a: Value, strides: Value, b: Value, count: Value, z: Value, pitch: Value) -> None:
        left, along = left_rows(builder, a, strides, rows)

        def step(k: Value, totals: list[Value]) -> list[Value]:
            here, further = builder.add(b, builder.mul(k, LONG(4 * VECTORS * LANES))), builder.mul(k, along)
            right, found = [load(builder, plus(builder, here, n * LANES)) for n in range(vectors)], []
            for row, address in enumerate(left):
                one = everywhere(builder, load(builder, builder.add(address, further), FLOAT))
                found += [add_product(builder, one, right[n], totals[row * vectors + n]) for n in range(vectors)]
            return found

        store_rows(builder, repeat(builder, count, [NOTHING] * rows * vectors, step), vectors, z, pitch)

    return emit(write)


def _merge(vectors: int) -> Callable[..., None]:
    def write(builder: Builder, left: Value, right: Value, *_: Value) -> None:
        for n in range(vectors):
            here = plus(builder, left, n * LANES)
            store(builder, builder.fadd(load(builder, here), load(builder, plus(builder, right, n * LANES))), here)

    return emit(write)


def _dots(rows: int, others: int) -> Callable[..., None]:
    def write(builder: Builder, x: Value, base: Value, d: Value, pitch: Value, out: Value, shape: Value) -> None:
        steps, runs, apart, soon = (load(builder, builder.add(shape, LONG(8 * n)), LONG) for n in range(4))
        left = [row_address(builder, d, row, pitch) for row in range(rows)]
        places = [load(builder, builder.add(base, LONG(8 * n)), LONG) for n in range(others)]
        right = [builder.add(x, builder.mul(place, LONG(4))) for place in places]

        def run(number: Value, totals: list[Value]) -> list[Value]:
            begin = builder.mul(builder.mul(number, apart), LONG(4))

            def step(k: Value, totals: list[Value]) -> list[Value]:
                further = builder.add(begin, builder.mul(k, LONG(4 * LANES)))
                prefetch(builder, builder.add(soon, further))
                deltas = [load(builder, builder.add(address, further)) for address in left]
                found = list(totals)
                for n, address in enumerate(right):
                    met = load(builder, builder.add(address, further))
                    for row, delta in enumerate(deltas):
                        found[row * others + n] = add_product(builder, delta, met, totals[row * others + n])
                return found

            return repeat(builder, steps, totals, step)

        for number, total in enumerate(add_lanes(builder, repeat(builder, runs, [NOTHING] * rows * others, run))):
            place = plus(builder, out, number * LANES)
            store(builder, builder.fadd(load(builder, place), total), place)

    return emit(write)


def cut(places: int) -> list[int]:
    """Return of how many places each tile is; the last may end behind the last place, where there are few."""
    large, small = PAIRED
    count = -(-places // large)
    short = min(count, count * large - places)
    halves = [small] * short + [large] * (count - short)
    return [sum(halves[n : n + 2]) for n in range(0, count, 2)]


def _across(places: int, *, added: bool = False, paired: bool = False) -> Callable[..., None]:
    def write(builder: Builder, x: Value, base: Value, count: Value, w: Value, z: Value, pitch: Value) -> None:
        apart = LONG(0)
        if paired:
            pitch, apart = (load(builder, builder.add(pitch, LONG(8 * n)), LONG) for n in range(2))

        def step(k: Value, totals: list[Value]) -> list[Value]:
            place = load(builder, builder.add(base, builder.mul(k, LONG(8))), LONG)
            here = builder.add(x, builder.mul(place, LONG(4)))
            weights = builder.add(w, builder.mul(k, LONG(4 * BOTH * LANES)))
            for n in range(BOTH):
                prefetch(builder, plus(builder, weights, FURTHER + n * LANES))
            maps = [load(builder, plus(builder, weights, n * LANES)) for n in range(BOTH)]
            found: list[Value] = []
            rows = [here, builder.add(here, apart)] if paired else [here]
            for place in (plus(builder, row, p) for row in rows for p in range(places)):
                met = everywhere(builder, load(builder, place, FLOAT))
                found += [add_product(builder, met, maps[n], totals[len(found) + n]) for n in range(BOTH)]
            return found

        totals = repeat(builder, count, [NOTHING] * places * (1 + paired) * BOTH, step)
        if added:
            kept = builder.bitcast(builder.trunc(pitch, ir.IntType(LANES)), BITS)
            for number, total in enumerate(totals):
                address = plus(builder, z, number * LANES)
                store(builder, builder.fadd(load_some(builder, address, kept), total), address)
        else:
            for n in range(BOTH):
                for row, vector in enumerate(turned(builder, totals[n::BOTH])):
                    store(builder, vector, row_address(builder, z, n * LANES + row, pitch))

    return emit(write)


def _turn() -> Callable[..., None]:
    def write(builder: Builder, source: Value, pitch: Value, target: Value, target_pitch: Value, *_: Value) -> None:
        rows = [load(builder, row_address(builder, source, n, pitch)) for n in range(LANES)]
        for n, row in enumerate(turned(builder, rows)):
            store(builder, row, row_address(builder, target, n, target_pitch))

    return emit(write)


def _fetch() -> Callable[..., None]:
    def write(builder: Builder, address: Value, *_: Value) -> None:
        for n in (0, LANES, BOTH * LANES - 1):
            prefetch(builder, plus(builder, address, n))

    return emit(write)


# (x, base, count, w, z, pitch): z[row, p] = sum over k < count of w[k, row] x[base[k] + p], for as many p as it holds.
sums = _sums(ROWS, VECTORS)
sums_narrow = _sums(ROWS, 1)
sums_few = _sums(FEW, VECTORS)
sums_few_narrow = _sums(FEW, 1)
sums_alone = _sums(1, ALONE_VECTORS)
sums_alone_narrow = _sums(1, 1)
# (a, strides, b, count, z, pitch): z[row, j] = sum over k < count of a[row, k] b[k, j], for as many j as vectors hold;
# numbers of a are strides[0] bytes from row to row and strides[1] along k, rows of b VECTORS vectors long.
products, products_two, products_one = (_products(ROWS, vectors) for vectors in (VECTORS, 2, 1))
# (left, right, 0, 0, 0, 0): adds the right tile of sums to the left one; a place of one across maps.
merge, merge_place = _merge(ROWS * VECTORS), _merge(BOTH)
# (x, base, d, pitch, out, shape): adds to out, at ORDER[row, n], the sum over p of d[row, p] x[base[n] + p]; p takes
# shape[0] vectors one behind the other, and that shape[1] times, from one to the next shape[2] numbers. As many lines
# as vectors, from the address shape[3] on, are asked for on the way.
dots = _dots(*DOTS)
dots_alone = _dots(1, ALONE)
ORDER, ORDER_ALONE = order_of(DOTS[0] * DOTS[1]), order_of(ALONE)
across_14, across_13, across_12, across_7, across_6 = (_across(places) for places in PLACES)
add_14, add_13, add_12, add_7, add_6 = (_across(places, added=True) for places in PLACES)
across_two_7, across_two_6 = (_across(places, paired=True) for places in PAIRED)
fetch = _fetch()  # (address, 0, 0, 0, 0, 0): has ACROSS numbers on their way to the cache
turn = _turn()  # (source, pitch, target, target's pitch, 0, 0): target[m, n] = source[n, m], LANES of each


@compile_within
def sum_across(x: int, base: int, count: int, w: int, z: int, pitch: int, places: int) -> None:
    """Let z[row, p] = sum over k < count of w[k, row] x[base[k] + p], for p < places; zeros follow up to a vector."""
    if places == 14:
        across_14(x, base, count, w, z, pitch)
    elif places == 13:
        across_13(x, base, count, w, z, pitch)
    elif places == 12:
        across_12(x, base, count, w, z, pitch)
    elif places == 7:
        across_7(x, base, count, w, z, pitch)
    else:
        across_6(x, base, count, w, z, pitch)


@compile_within
def sum_two_across(x: int, base: int, count: int, w: int, z: int, numbers: int, places: int) -> None:
    """As `sum_across` for two rows of as few places, the second behind the first; weights are met once for both.

    `numbers` is the address of the pitch, and of the bytes from a row of x to the other.
    """
    if places == 7:
        across_two_7(x, base, count, w, z, numbers)
    else:
        across_two_6(x, base, count, w, z, numbers)


@compile_within
def add_across(x: int, base: int, count: int, w: int, z: int, places: int, kept: int) -> None:
    """Let z[p, row] be the sum over k < count of w[k, row] x[base[k] + p], for p < places.

    It is added to what is there, if `kept` is -1, and to 0 if that is 0.
    """
    if places == 14:
        add_14(x, base, count, w, z, kept)
    elif places == 13:
        add_13(x, base, count, w, z, kept)
    elif places == 12:
        add_12(x, base, count, w, z, kept)
    elif places == 7:
        add_7(x, base, count, w, z, kept)
    else:
        add_6(x, base, count, w, z, kept)


@compile_within
def turn_all(source: int, pitch: int, count: int, target: int, target_pitch: int) -> None:
    """Let target[n, row] = source[row, n] for LANES rows, and for n < count up to a vector's end."""
    for n in range(0, count, LANES):
        turn(source + 4 * n, pitch, target + 4 * n * target_pitch, target_pitch, 0, 0)
