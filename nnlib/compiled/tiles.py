"""Tiles of sums of products that stay in registers, which LLVM makes of no loop by itself. Twin: ops/convolution.py.

Numbers are float32 and addresses whole numbers, so that a tile may begin anywhere. How much a tile holds suits the
registers of this machine; no sum depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnlib.compiled.compiler import emit, has, ir

NARROW = has("avx2") and not has("avx512f")  # 16 registers, else 32
LANES = 16 if has("avx512f") else 8 if has("avx2") else 4
ROWS, VECTORS = (4, 3) if NARROW else (8, 3)  # of a tile of sums
FEW = 4  # rows of one for a few channels
DOTS_OF = {True: (2, 4), False: (4, 6)}  # the first divides cpu.maps.tiled.ROWS: maps that are not laid out end there
DOTS = DOTS_OF[NARROW]  # rows of either kind in a tile of dots
ALONE_VECTORS = 6  # of a row alone
ALONE = 9  # rows that meet a row alone

LONG, INT, FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
NOTHING = ir.Constant(VECTOR, [0.0] * LANES)
FUSED = ("contract",)

Value = Any  # of LLVM
Builder = Any


def _load(builder: Builder, address: Value, kind: Any = VECTOR) -> Value:
    return builder.load(builder.inttoptr(address, ir.PointerType(kind)), align=8 if kind is LONG else 4)


def _store(builder: Builder, value: Value, address: Value) -> None:
    builder.store(value, builder.inttoptr(address, ir.PointerType(value.type)), align=4)


def _plus(builder: Builder, address: Value, numbers: int) -> Value:
    return builder.add(address, LONG(4 * numbers)) if numbers else address


def _row(builder: Builder, address: Value, number: int, pitch: Value) -> Value:
    return builder.add(address, builder.mul(pitch, LONG(4 * number)))


def _pick(builder: Builder, vector: Value, lanes: Sequence[int]) -> Value:
    mask = ir.Constant(ir.VectorType(INT, len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _everywhere(builder: Builder, number: Value) -> Value:
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, INT(0))
    return _pick(builder, one, [0] * LANES)


def _totals(builder: Builder, vectors: Sequence[Value]) -> list[Value]:
    """Add up the lanes of each vector; return vectors of these sums, which stand there as `_order` says.

    Two vectors at a time become one that holds halves of both, added, until there is one lane for each.
    """
    found, size = list(vectors), LANES
    while size > 1:
        half = size // 2
        firsts = [lane for block in range(0, LANES, size) for lane in range(block, block + half)]
        pairs = [(n, min(n + 1, len(found) - 1)) for n in range(0, len(found), 2)]
        low = ir.Constant(ir.VectorType(INT, LANES), [*firsts, *(LANES + lane for lane in firsts)])
        high = ir.Constant(low.type, [lane.constant + half for lane in low.constant])
        found = [
            builder.fadd(
                builder.shuffle_vector(found[a], found[b], low), builder.shuffle_vector(found[a], found[b], high)
            )
            for a, b in pairs
        ]
        size = half
    return found


def _order(count: int) -> tuple[int, ...]:
    """Return where the sums of so many vectors stand in what `_totals` gives: as they come, if there are enough."""
    owners = [[number] for number in range(count)]
    size = LANES
    while size > 1:
        owners = [owners[n] + owners[min(n + 1, len(owners) - 1)] for n in range(0, len(owners), 2)]
        size //= 2
    flat = [owner for lanes in owners for owner in lanes]
    return tuple(flat.index(number) for number in range(count))


def _add(builder: Builder, a: Value, b: Value, total: Value) -> Value:
    return builder.fadd(total, builder.fmul(a, b, flags=FUSED), flags=FUSED)


def _repeat(
    builder: Builder, count: Value, start: Sequence[Value], step: Callable[[Value, list[Value]], list[Value]]
) -> list[Value]:
    """Return vectors of which `step` makes new ones `count` times."""
    before, function = builder.block, builder.function
    head, body, end = (function.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    number = builder.phi(LONG)
    number.add_incoming(LONG(0), before)
    totals = [builder.phi(VECTOR) for _ in start]
    for total, vector in zip(totals, start, strict=True):
        total.add_incoming(vector, before)
    builder.cbranch(builder.icmp_signed("<", number, count), body, end)
    builder.position_at_end(body)
    found = step(number, totals)
    number.add_incoming(builder.add(number, LONG(1)), builder.block)
    for total, new in zip(totals, found, strict=True):
        total.add_incoming(new, builder.block)
    builder.branch(head)
    builder.position_at_end(end)
    return totals


def _sums(rows: int, vectors: int) -> Callable[..., None]:
    def write(builder: Builder, x: Value, base: Value, count: Value, w: Value, z: Value, pitch: Value) -> None:
        def step(k: Value, totals: list[Value]) -> list[Value]:
            place = _load(builder, builder.add(base, builder.mul(k, LONG(8))), LONG)
            here = builder.add(x, builder.mul(place, LONG(4)))
            met = [_load(builder, _plus(builder, here, n * LANES)) for n in range(vectors)]
            weights = builder.add(w, builder.mul(k, LONG(4 * rows)))
            found = []
            for row in range(rows):
                weight = _everywhere(builder, _load(builder, _plus(builder, weights, row), FLOAT))
                found += [_add(builder, weight, met[n], totals[row * vectors + n]) for n in range(vectors)]
            return found

        totals = _repeat(builder, count, [NOTHING] * rows * vectors, step)
        for number, total in enumerate(totals):
            row, n = divmod(number, vectors)
            _store(builder, total, _plus(builder, _row(builder, z, row, pitch), n * LANES))

    return emit(write)


def _dots(rows: int, others: int) -> Callable[..., None]:
    def write(builder: Builder, x: Value, base: Value, d: Value, pitch: Value, out: Value, shape: Value) -> None:
        steps, runs, apart = (_load(builder, builder.add(shape, LONG(8 * n)), LONG) for n in range(3))
        left = [_row(builder, d, row, pitch) for row in range(rows)]
        places = [_load(builder, builder.add(base, LONG(8 * n)), LONG) for n in range(others)]
        right = [builder.add(x, builder.mul(place, LONG(4))) for place in places]

        def run(number: Value, totals: list[Value]) -> list[Value]:
            begin = builder.mul(builder.mul(number, apart), LONG(4))

            def step(k: Value, totals: list[Value]) -> list[Value]:
                further = builder.add(begin, builder.mul(k, LONG(4 * LANES)))
                deltas = [_load(builder, builder.add(address, further)) for address in left]
                found = list(totals)
                for n, address in enumerate(right):
                    met = _load(builder, builder.add(address, further))
                    for row, delta in enumerate(deltas):
                        found[row * others + n] = _add(builder, delta, met, totals[row * others + n])
                return found

            return _repeat(builder, steps, totals, step)

        for number, total in enumerate(_totals(builder, _repeat(builder, runs, [NOTHING] * rows * others, run))):
            place = _plus(builder, out, number * LANES)
            _store(builder, builder.fadd(_load(builder, place), total), place)

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
            _store(builder, _load(builder, builder.add(source, further), kind), builder.add(target, further))

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
        low, high = (_load(builder, _plus(builder, here, n * LANES)) for n in (0, 1))
        even = ir.Constant(ir.VectorType(INT, LANES), list(range(0, 2 * LANES, 2)))
        _store(builder, builder.shuffle_vector(low, high, even), builder.add(target, builder.mul(place, LONG(4))))
        place.add_incoming(further, builder.block)
        builder.branch(head)
        builder.position_at_end(more)
        rest = builder.phi(LONG)
        rest.add_incoming(place, head)
        builder.cbranch(builder.icmp_signed("<", rest, count), one, end)
        builder.position_at_end(one)
        number = _load(builder, builder.add(source, builder.mul(rest, LONG(8))), FLOAT)
        _store(builder, number, builder.add(target, builder.mul(rest, LONG(4))))
        rest.add_incoming(builder.add(rest, LONG(1)), builder.block)
        builder.branch(more)
        builder.position_at_end(end)

    return emit(write)


def _clear() -> Callable[..., None]:
    def write(builder: Builder, target: Value, count: Value, *_: Value) -> None:
        def one(place: Value, kind: Any) -> None:
            zeros = ir.Constant(kind, 0.0 if kind is FLOAT else [0.0] * kind.count)
            _store(builder, zeros, builder.add(target, builder.mul(place, LONG(4))))

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
ORDER, ORDER_ALONE = _order(DOTS[0] * DOTS[1]), _order(ALONE)
