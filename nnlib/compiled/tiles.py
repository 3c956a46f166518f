"""Tiles of sums of products that stay in registers, which LLVM makes of no loop by itself. Twin: ops/convolution.py.

Numbers are float32 and addresses whole numbers, so that a tile may begin anywhere. How much a tile holds suits the
registers of this machine; no sum depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnlib.compiled.compiler import emit, has, ir
from nnlib.compiled.vectors import (
    FLOAT,
    INT,
    LANES,
    LONG,
    NOTHING,
    Builder,
    Value,
    add_lanes,
    add_product,
    everywhere,
    load,
    order_of,
    plus,
    prefetch,
    repeat,
    row_address,
    store,
)

NARROW = has("avx2") and not has("avx512f")  # 16 registers, else 32
ROWS, VECTORS = (4, 3) if NARROW else (8, 3)  # of a tile of sums
FEW = 4  # rows of one for a few channels
DOTS_OF = {True: (2, 4), False: (4, 6)}  # the first divides cpu.maps.tiled.ROWS: maps that are not laid out end there
DOTS = DOTS_OF[NARROW]  # rows of either kind in a tile of dots
ALONE_VECTORS = 6  # of a row alone
AHEAD = 256  # weights from those that are met to those on their way to the cache
ALONE = 9  # rows that meet a row alone


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

        totals = repeat(builder, count, [NOTHING] * rows * vectors, step)
        for number, total in enumerate(totals):
            row, n = divmod(number, vectors)
            store(builder, total, plus(builder, row_address(builder, z, row, pitch), n * LANES))

    return emit(write)


def _dots(rows: int, others: int) -> Callable[..., None]:
    def write(builder: Builder, x: Value, base: Value, d: Value, pitch: Value, out: Value, shape: Value) -> None:
        steps, runs, apart = (load(builder, builder.add(shape, LONG(8 * n)), LONG) for n in range(3))
        left = [row_address(builder, d, row, pitch) for row in range(rows)]
        places = [load(builder, builder.add(base, LONG(8 * n)), LONG) for n in range(others)]
        right = [builder.add(x, builder.mul(place, LONG(4))) for place in places]

        def run(number: Value, totals: list[Value]) -> list[Value]:
            begin = builder.mul(builder.mul(number, apart), LONG(4))

            def step(k: Value, totals: list[Value]) -> list[Value]:
                further = builder.add(begin, builder.mul(k, LONG(4 * LANES)))
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


def _spread(builder: Builder, count: Value, one: Callable[[Value, Any], None]) -> None:
    """Let `one` do all of `count` numbers: vectors from a place on, the last of which overlaps, or narrower ones."""
    function = builder.function
    end = function.append_basic_block("end")
    lanes = LANES
    while lanes > 1:
        kind = ir.VectorType(FLOAT, lanes)
        fits, smaller = (function.append_basic_block(name) for name in ("fits", "smaller"))
        builder.cbranch(builder.icmp_signed(">=", count, LONG(lanes)), fits, smaller)
        builder.position_at_end(fits)
        last = builder.sub(count, LONG(lanes))
        if lanes == LANES:
            head, body = (function.append_basic_block(name) for name in ("head", "body"))
            builder.branch(head)
            builder.position_at_end(head)
            place = builder.phi(LONG)
            place.add_incoming(LONG(0), fits)
            whole = function.append_basic_block("whole")
            builder.cbranch(builder.icmp_signed("<", place, last), body, whole)
            builder.position_at_end(body)
            one(place, kind)
            place.add_incoming(builder.add(place, LONG(lanes)), builder.block)
            builder.branch(head)
            builder.position_at_end(whole)
        else:
            one(LONG(0), kind)
        one(last, kind)
        builder.branch(end)
        builder.position_at_end(smaller)
        lanes //= 2
    some = function.append_basic_block("some")
    builder.cbranch(builder.icmp_signed(">", count, LONG(0)), some, end)
    builder.position_at_end(some)
    one(LONG(0), FLOAT)
    builder.branch(end)
    builder.position_at_end(end)


def _copy() -> Callable[..., None]:
    def write(builder: Builder, source: Value, target: Value, count: Value, *_: Value) -> None:
        def one(place: Value, kind: Any) -> None:
            further = builder.mul(place, LONG(4))
            store(builder, load(builder, builder.add(source, further), kind), builder.add(target, further))

        _spread(builder, count, one)

    return emit(write)


def _copy_half() -> Callable[..., None]:
    def write(builder: Builder, source: Value, target: Value, count: Value, *_: Value) -> None:
        function, before = builder.function, builder.block
        head, many, more, one, end = (
            function.append_basic_block(name) for name in ("head", "many", "more", "one", "end")
        )
        builder.branch(head)
        builder.position_at_end(head)
        place = builder.phi(LONG)
        place.add_incoming(LONG(0), before)
        further = builder.add(place, LONG(LANES))
        builder.cbranch(builder.icmp_signed("<", further, count), many, more)  # what lies behind the last is not read
        builder.position_at_end(many)
        here = builder.add(source, builder.mul(place, LONG(8)))
        low, high = (load(builder, plus(builder, here, n * LANES)) for n in (0, 1))
        even = ir.Constant(ir.VectorType(INT, LANES), list(range(0, 2 * LANES, 2)))
        store(builder, builder.shuffle_vector(low, high, even), builder.add(target, builder.mul(place, LONG(4))))
        place.add_incoming(further, builder.block)
        builder.branch(head)
        builder.position_at_end(more)
        rest = builder.phi(LONG)
        rest.add_incoming(place, head)
        builder.cbranch(builder.icmp_signed("<", rest, count), one, end)
        builder.position_at_end(one)
        number = load(builder, builder.add(source, builder.mul(rest, LONG(8))), FLOAT)
        store(builder, number, builder.add(target, builder.mul(rest, LONG(4))))
        rest.add_incoming(builder.add(rest, LONG(1)), builder.block)
        builder.branch(more)
        builder.position_at_end(end)

    return emit(write)


def _clear() -> Callable[..., None]:
    def write(builder: Builder, target: Value, count: Value, *_: Value) -> None:
        def one(place: Value, kind: Any) -> None:
            zeros = ir.Constant(kind, 0.0 if kind is FLOAT else [0.0] * kind.count)
            store(builder, zeros, builder.add(target, builder.mul(place, LONG(4))))

        _spread(builder, count, one)

    return emit(write)


# (x, base, count, w, z, pitch): z[row, p] = sum over k < count of w[k, row] x[base[k] + p], for as many p as it holds.
sums = _sums(ROWS, VECTORS)
sums_narrow = _sums(ROWS, 1)
sums_few = _sums(FEW, VECTORS)
sums_few_narrow = _sums(FEW, 1)
sums_alone = _sums(1, ALONE_VECTORS)
sums_alone_narrow = _sums(1, 1)
# (x, base, d, pitch, out, shape): adds to out, at ORDER[row, n], the sum over p of d[row, p] x[base[n] + p]; p takes
# shape[0] vectors one behind the other, and that shape[1] times, from one to the next shape[2] numbers.
dots = _dots(*DOTS)
dots_alone = _dots(1, ALONE)
# (source, target, count, 0, 0, 0) and (target, count, 0, 0, 0, 0): count numbers of a row.
copy = _copy()
copy_half = _copy_half()  # every other number of the source
clear = _clear()
ORDER, ORDER_ALONE = order_of(DOTS[0] * DOTS[1]), order_of(ALONE)
