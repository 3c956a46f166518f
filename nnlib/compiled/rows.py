"""Maps met where they are, and nothing beside them: sums over them for square kernels of one channel, copies of rows.

Rows are computed by vectors. Which lanes of a vector are there stands in `bits`, uint16 (vectors of a row of the
target, places of the kernel along it, stride + 1): what is met of the source, of which a stride of two takes every
other lane of two vectors, and what belongs to the target. What the kernel meets above and below is a row of zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nnlib.compiled.compiler import emit, ir
from nnlib.compiled.vectors import (
    FLOAT,
    INT,
    LANES,
    LONG,
    NOTHING,
    Builder,
    Value,
    add_product,
    dealt,
    every,
    everywhere,
    load,
    load_bits,
    load_some,
    plus,
    prefetch,
    repeat,
    store,
    store_some,
)

TOGETHER = {3: 3, 5: 2, 7: 1}  # rows of a kernel whose sums fit into the registers, by its size
AHEAD = 512  # numbers from what is computed to what is on its way to the cache: processors do not see where rows go


class _Walk(NamedTuple):
    """How a kernel moves: `numbers` (int64) of the loops, in this order; distances are in bytes."""

    zeros: Value  # address of a row of zeros, as if it had padding
    vectors: Value  # of a row of the target
    bits: Value  # from those of a vector to those of the next
    apart: Value  # what neighbouring places of the kernel meet in a row
    out: Value  # rows of the target
    size: Value  # rows of the source
    stride: Value  # this and what follows: of rows
    dilation: Value
    low: Value
    begin: Value  # from a row of the source to what its first place meets: minus the padding
    pitch: Value
    out_pitch: Value

    @classmethod
    def read(cls, builder: Builder, numbers: Value) -> _Walk:
        return cls(*(load(builder, builder.add(numbers, LONG(8 * n)), LONG) for n in range(len(cls._fields))))


class _Row:
    """A row of the target, y, and what it meets of a map x."""

    def __init__(self, builder: Builder, walk: _Walk, x: Value, y: Value) -> None:
        self._builder, self._walk, self._x, self._y = builder, walk, x, y

    def of(self, target: Value) -> Value:
        """Return where it begins."""
        return _further(self._builder, target, self._y, self._walk.out_pitch)

    def met(self, k: Value) -> Value:
        """Return where the row of the source begins that row k of the kernel meets."""
        builder, walk = self._builder, self._walk
        first = builder.sub(builder.mul(self._y, walk.stride), walk.low)
        row = _further(builder, first, k, walk.dilation)
        place = _further(builder, builder.add(self._x, walk.begin), row, walk.pitch)
        return builder.select(builder.icmp_unsigned("<", row, walk.size), place, walk.zeros)

    def call_ahead(self, n: Value, stride: int) -> None:
        """Have on its way what vector n of a row some rows further meets."""
        builder, row = self._builder, self._builder.mul(self._y, LONG(stride))
        for part in range(stride):
            begin = _further(builder, self._x, builder.add(row, LONG(part)), self._walk.pitch)
            place = plus(builder, _further(builder, begin, n, LONG(4 * stride * LANES)), AHEAD)
            for vector in range(stride):
                prefetch(builder, plus(builder, place, vector * LANES))


class _Vector:
    """Vector n of a row of the target."""

    def __init__(self, builder: Builder, walk: _Walk, bits: Value, n: Value, stride: int) -> None:
        self._builder, self._walk, self._n, self._stride = builder, walk, n, stride
        self._bits = _further(builder, bits, n, walk.bits)

    def met(self, row: Value, k: int) -> Value:
        """Return what place k of the kernel meets of a row of the source."""
        builder, stride = self._builder, self._stride
        address = _further(builder, row, self._n, LONG(4 * stride * LANES))
        address = _further(builder, address, LONG(k), self._walk.apart)
        bits = builder.add(self._bits, LONG(2 * (stride + 1) * k))
        parts = [
            load_some(builder, plus(builder, address, n * LANES), load_bits(builder, builder.add(bits, LONG(2 * n))))
            for n in range(stride)
        ]
        return every(builder, parts)

    def own(self) -> Value:
        """Return which lanes belong to the target."""
        return load_bits(self._builder, self._builder.add(self._bits, LONG(2 * self._stride)))

    def of(self, row: Value) -> Value:
        """Return where it is in a row of the target."""
        return _further(self._builder, row, self._n, LONG(4 * LANES))


def _further(builder: Builder, begin: Value, number: Value, step: Value) -> Value:
    return builder.add(begin, builder.mul(number, step))


def _sum_map(stride: int, kernel: int) -> Callable[..., None]:
    def write(builder: Builder, x: Value, w: Value, bits: Value, out: Value, numbers: Value, _: Value) -> None:
        walk = _Walk.read(builder, numbers)

        def compute_row(y: Value, _: list[Value]) -> list[Value]:
            row = _Row(builder, walk, x, y)
            begins, target = [row.met(LONG(n)) for n in range(kernel)], row.of(out)

            def compute_vector(n: Value, _: list[Value]) -> list[Value]:
                here, total = _Vector(builder, walk, bits, n, stride), NOTHING
                row.call_ahead(n, stride)
                prefetch(builder, plus(builder, here.of(target), AHEAD), to_write=True)
                for number, begin in enumerate(begins):
                    for k in range(kernel):
                        weight = load(builder, plus(builder, w, number * kernel + k), FLOAT)
                        total = add_product(builder, everywhere(builder, weight), here.met(begin, k), total)
                store_some(builder, total, here.of(target), here.own())
                return []

            return repeat(builder, walk.vectors, [], compute_vector)

        repeat(builder, walk.out, [], compute_row)

    return emit(write)


def _correlate_map(stride: int, kernel: int) -> Callable[..., None]:
    def write(builder: Builder, x: Value, delta: Value, bits: Value, sums: Value, numbers: Value, _: Value) -> None:
        walk = _Walk.read(builder, numbers)

        def add_rows(kernel_rows: range) -> None:
            def meet_row(y: Value, totals: list[Value]) -> list[Value]:
                row = _Row(builder, walk, x, y)
                begins, target = [row.met(LONG(n)) for n in kernel_rows], row.of(delta)

                def meet_vector(n: Value, totals: list[Value]) -> list[Value]:
                    here = _Vector(builder, walk, bits, n, stride)
                    row.call_ahead(n, stride)
                    prefetch(builder, plus(builder, here.of(target), AHEAD))
                    deltas = load_some(builder, here.of(target), here.own())
                    met = [here.met(begin, k) for begin in begins for k in range(kernel)]
                    return [add_product(builder, deltas, m, total) for m, total in zip(met, totals, strict=True)]

                return repeat(builder, walk.vectors, totals, meet_vector)

            found = repeat(builder, walk.out, [NOTHING] * len(kernel_rows) * kernel, meet_row)
            for n, total in enumerate(found, kernel_rows.start * kernel):
                place = plus(builder, sums, n * LANES)
                store(builder, builder.fadd(load(builder, place), total), place)

        for first in range(0, kernel, TOGETHER[kernel]):
            add_rows(range(first, min(first + TOGETHER[kernel], kernel)))

    return emit(write)


def _lay_rows(stride: int, phases: int = 1) -> Callable[..., None]:
    def write(
        builder: Builder, source: Value, target: Value, bits: Value, numbers: Value, low: Value, end: Value
    ) -> None:
        vectors, rows, pitch, target_pitch, ahead, apart = (
            load(builder, builder.add(numbers, LONG(8 * n)), LONG) for n in range(6)
        )

        def lay_row(y: Value, _: list[Value]) -> list[Value]:
            inside = builder.icmp_unsigned("<", builder.sub(y, low), builder.sub(end, low))
            row = builder.add(source, builder.mul(y, pitch))
            into = builder.add(target, builder.mul(y, target_pitch))

            def lay_vector(n: Value, _: list[Value]) -> list[Value]:
                begin = builder.add(row, builder.mul(n, LONG(4 * stride * LANES)))
                lanes, parts = builder.add(bits, builder.mul(n, LONG(2 * stride))), []
                for part in range(stride):
                    here = plus(builder, begin, part * LANES)
                    prefetch(builder, builder.add(here, ahead))
                    some = load_bits(builder, builder.add(lanes, LONG(2 * part)), inside)
                    parts.append(load_some(builder, here, some))
                place = builder.add(into, builder.mul(n, LONG(4 * LANES)))
                for vector in dealt(builder, parts)[:phases]:
                    store(builder, vector, place)
                    place = builder.add(place, apart)
                return []

            return repeat(builder, vectors, [], lay_vector)

        repeat(builder, rows, [], lay_row)

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


# (x, w, bits, out, numbers, 0): out[y, p] = sum over rows n and places k of the kernel of w[n, k] times what it meets.
sum_3, sum_5, sum_7 = (_sum_map(1, kernel) for kernel in TOGETHER)
sum_3_by_2, sum_5_by_2, sum_7_by_2 = (_sum_map(2, kernel) for kernel in TOGETHER)
# (x, delta, bits, sums, numbers, 0): adds to sums[n, k] the sum over y and p of delta[y, p] times what n, k meet; each
# is a vector, of which the lanes are to be added up.
correlate_3, correlate_5, correlate_7 = (_correlate_map(1, kernel) for kernel in TOGETHER)
correlate_3_by_2, correlate_5_by_2, correlate_7_by_2 = (_correlate_map(2, kernel) for kernel in TOGETHER)
# (source, target, bits, numbers, low, end): copies rows from `low` to before `end`; other rows become zeros, and so do
# other lanes up to the end of a row's last vector. `bits` has no kernel, only those of the source, and `numbers` are
# vectors of a row, rows, and bytes between two rows of the source and of the target, to what is asked for ahead, and
# between phases: `by_two` takes every other number of the source, `in_two` deals them to two targets.
lay_rows, lay_rows_by_two, lay_rows_by_four = (_lay_rows(stride) for stride in (1, 2, 4))
lay_rows_in_two, lay_rows_in_four = (_lay_rows(stride, stride) for stride in (2, 4))
# (source, target, count, 0, 0, 0) and (target, count, 0, 0, 0, 0): count numbers of a row.
copy = _copy()
copy_half = _copy_half()  # every other number of the source
clear = _clear()
