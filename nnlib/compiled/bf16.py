"""Compiled rounding to bfloat16 (twin: `bf16.to_bf16`), and products of such numbers by AVX-512's instructions.

A word is two bfloat16 numbers that follow one another along k, over which a product (n, k) (k, m) sums; the one of the
lower k is in the lower half. An instruction adds to each lane of a vector what the words of two vectors give, two
products. So each sum goes over k in order, pair by pair, whatever the tiles are and wherever they begin. Numbers that
are subnormal count as 0, as do such sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop, emit, has, ir
from nnlib.compiled.rows import copy
from nnlib.compiled.vectors import (
    BITS,
    INT,
    LONG,
    NOTHING,
    SHORT,
    VECTOR,
    Builder,
    Value,
    left_rows,
    load,
    load_some,
    pick,
    plus,
    repeat,
    store,
    store_rows,
    turned,
)

Bits = NDArray[Any]

HAVE_PAIRS = has("avx512bf16")
ROWS, VECTORS, LANES = 8, 2, 16  # of a tile of sums, and numbers in a vector
WIDTH = VECTORS * LANES
TOGETHER = 8  # pairs of rows that are laid out together: they stay in the cache while panel after panel takes a part


@compile_loop
def to_bf16(numbers: Bits, stride: int, out: Bits) -> None:
    """Write to `out` (n, m) the bfloat16 nearest to float32 `numbers`, row i of which starts at i * stride.

    Both are bits, uint32 and uint16; `numbers` has one dimension.
    """
    for row in range(out.shape[0]):
        source, target = numbers[row * stride : row * stride + out.shape[1]], out[row]
        for column in range(target.size):
            bits = source[column]
            rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
            is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
            target[column] = np.uint16(np.uint32(0x7FC0) if is_nan else rounded)


class _Bfloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bfloat)

    def __hash__(self) -> int:
        return hash(_Bfloat)


PAIRS, WORDS, HALVES = (
    ir.VectorType(kind, count) for kind, count in ((_Bfloat(), 2 * LANES), (INT, LANES), (SHORT, 2 * LANES))
)


def _load(builder: Builder, address: Value, kind: Any) -> Value:
    """Load words from wherever a bfloat16 number may stand."""
    return builder.load(builder.inttoptr(address, ir.PointerType(kind)), align=2)


def _load_lanes(builder: Builder, address: Value, lanes: Value) -> Value:
    """Load the numbers of a vector whose bits are set in `lanes`; the others are 0."""
    return load_some(builder, address, builder.bitcast(builder.trunc(lanes, SHORT), BITS))


def _round_two(builder: Builder, low: Value, high: Value) -> Value:
    """Return two vectors of numbers rounded to bfloat16, one after the other."""
    kind = ir.FunctionType(PAIRS, [VECTOR, VECTOR])
    convert = builder.module.declare_intrinsic("llvm.x86.avx512bf16.cvtne2ps2bf16.512", fnty=kind)
    return builder.call(convert, [high, low])


def _tile(rows: int) -> Callable[..., None]:
    def write(builder: Builder, a: Value, strides: Value, b: Value, pairs: Value, z: Value, pitch: Value) -> None:
        kind = ir.FunctionType(VECTOR, [VECTOR, PAIRS, PAIRS])
        add = builder.module.declare_intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", fnty=kind)
        left, along = left_rows(builder, a, strides, rows)

        def step(pair: Value, totals: list[Value]) -> list[Value]:
            here = builder.add(b, builder.mul(pair, LONG(4 * WIDTH)))
            right = [
                builder.bitcast(_load(builder, plus(builder, here, n * LANES), WORDS), PAIRS) for n in range(VECTORS)
            ]
            further, found = builder.mul(pair, along), []
            for row, address in enumerate(left):
                word = _load(builder, builder.add(address, further), INT)
                one = builder.insert_element(ir.Constant(WORDS, ir.Undefined), word, INT(0))
                words = builder.bitcast(pick(builder, one, [0] * LANES), PAIRS)
                found += [builder.call(add, [totals[row * VECTORS + n], words, right[n]]) for n in range(VECTORS)]
            return found

        store_rows(builder, repeat(builder, pairs, [NOTHING] * rows * VECTORS, step), VECTORS, z, pitch)

    return emit(write)


def _round_row() -> Callable[..., None]:
    def write(builder: Builder, source: Value, target: Value, vectors: Value, lanes: Value, *_: Value) -> None:
        def put(number: Value, low: Value, high: Value) -> None:
            words = builder.bitcast(_round_two(builder, low, high), WORDS)
            store(builder, words, builder.add(target, builder.mul(number, LONG(4 * LANES))))

        def step(number: Value, _: list[Value]) -> list[Value]:
            here = builder.add(source, builder.mul(number, LONG(8 * LANES)))
            put(number, load(builder, here), load(builder, plus(builder, here, LANES)))
            return []

        repeat(builder, vectors, [], step)
        here = builder.add(source, builder.mul(vectors, LONG(8 * LANES)))
        with builder.if_then(builder.icmp_signed("!=", lanes, LONG(0))):
            rest = _load_lanes(builder, here, lanes)
            further = _load_lanes(builder, plus(builder, here, LANES), builder.lshr(lanes, LONG(LANES)))
            put(vectors, rest, further)

    return emit(write)


def _zip() -> Callable[..., None]:
    def write(
        builder: Builder, source: Value, apart: Value, target: Value, pairs: Value, pitch: Value, lanes: Value
    ) -> None:
        across = ir.Constant(
            ir.VectorType(INT, 2 * LANES), [lane + LANES * odd for lane in range(LANES) for odd in (0, 1)]
        )

        def step(pair: Value, _: list[Value]) -> list[Value]:
            first = builder.add(source, builder.mul(pair, builder.shl(apart, LONG(1))))
            even = _load_lanes(builder, first, lanes)
            odd = _load_lanes(builder, builder.add(first, apart), builder.lshr(lanes, LONG(LANES)))
            rounded = builder.bitcast(_round_two(builder, even, odd), HALVES)
            mixed = builder.shuffle_vector(rounded, ir.Constant(HALVES, ir.Undefined), across)
            store(builder, builder.bitcast(mixed, WORDS), builder.add(target, builder.mul(pair, pitch)))
            return []

        repeat(builder, pairs, [], step)

    return emit(write)


def _transpose() -> Callable[..., None]:
    def write(
        builder: Builder, source: Value, apart: Value, target: Value, pitch: Value, used: Value, lanes: Value
    ) -> None:
        rows = []
        for n in range(LANES):
            here = builder.add(source, builder.mul(apart, LONG(n)))
            some = builder.select(builder.icmp_signed("<", LONG(n), used), lanes, LONG(0))
            low = _load_lanes(builder, here, some)
            high = _load_lanes(builder, plus(builder, here, LANES), builder.lshr(some, LONG(LANES)))
            rows.append(builder.bitcast(_round_two(builder, low, high), WORDS))
        for n, words in enumerate(turned(builder, rows)):
            store(builder, words, builder.add(target, builder.mul(pitch, LONG(n))))

    return emit(write)


if HAVE_PAIRS:
    # (a, strides, b, pairs, z, pitch): z[row, j] = sum over pairs of a[row] b[j]; words of a are strides[0] bytes from
    # row to row and strides[1] from pair to pair, those of b are a panel, rows of z are `pitch` numbers apart.
    _sum_rows, _sum_row = _tile(ROWS), _tile(1)
    # (source, target, vectors, lanes, 0, 0): a row of numbers, rounded; two vectors at a time, and those of the last
    # two whose bits are set in `lanes`, the second's in the upper half. Zeros fill it up to two vectors.
    _round = _round_row()
    # (source, apart, target, pairs, pitch, lanes): LANES numbers of each two rows, `apart` bytes from row to row,
    # become words; these rows are `pitch` bytes apart. Lanes whose bits are not set count as 0; an odd row's are the
    # upper ones.
    _join = _zip()
    # (source, apart, target, pitch, used, lanes): 2 LANES numbers of so many rows become LANES rows of words.
    _turn = _transpose()

    @compile_loop
    def round_rows(source: int, stride: int, k: int, out: Bits) -> None:
        """Write float32 rows of k numbers, `stride` bytes apart from address `source` on, to `out` (n, more), rounded.

        `out` is uint16, and its rows are as long as whole vectors of such; what follows k is 0.
        """
        rest = k % (2 * LANES)
        for row in range(out.shape[0]):
            _round(source + row * stride, out[row].ctypes.data, k // (2 * LANES), (1 << rest) - 1, 0, 0)

    @compile_loop
    def pair_rows(source: int, stride: int, k: int, columns: int, out: Bits) -> None:
        """Write words (k, columns) to `out` (panels, pairs, width), a panel for so many columns; zeros fill it up.

        Row i of the float32 numbers starts `stride` * i bytes from address `source`; the width is one of whole vectors.
        """
        panels, pairs, width = out.shape
        for first in range(0, pairs, TOGETHER):
            whole = min(TOGETHER, k // 2 - first)
            here, words = source + 2 * first * stride, out.ctypes.data + 4 * first * width
            for low in range(0, panels * width, LANES):
                target = words + 4 * (low // width * pairs * width + low % width)
                lanes = (1 << max(0, min(LANES, columns - low))) - 1
                _join(here + 4 * low, stride, target, whole, 4 * width, lanes | lanes << LANES)
                if first + whole < min(pairs, first + TOGETHER):  # an odd row comes last
                    _join(here + 4 * low + 2 * whole * stride, stride, target + 4 * whole * width, 1, 0, lanes)

    @compile_loop
    def pair_columns(source: int, stride: int, k: int, columns: int, out: Bits) -> None:
        """Write words (k, columns) to `out` as `pair_rows`; column i starts `stride` * i bytes from `source`."""
        panels, pairs, width = out.shape
        room = np.empty((LANES, LANES), np.uint32)
        for panel in range(panels):
            for begin in range(0, width, LANES):
                low = panel * width + begin
                used = max(0, min(LANES, columns - low))
                for pair in range(0, pairs, LANES):
                    begins, rows = source + low * stride + 8 * pair, min(LANES, pairs - pair)
                    lanes = (1 << min(2 * LANES, k - 2 * pair)) - 1
                    if rows == LANES:
                        target = out.ctypes.data + 4 * ((panel * pairs + pair) * width + begin)
                        _turn(begins, stride, target, 4 * width, used, lanes)
                    else:
                        _turn(begins, stride, room.ctypes.data, 4 * LANES, used, lanes)
                        out[panel, pair:pairs, begin : begin + LANES] = room[:rows]

    @compile_loop
    def multiply_pairs(a: int, strides: Bits, b: Bits, n: int, m: int, pitch: int, out: int, tile: Bits) -> None:
        """Write a (n, k) times b (k, m) to float32 numbers at address `out`, whose rows are `pitch` numbers apart.

        `a` is the address of words as `strides` say, b (panels, pairs, WIDTH) of `pair_rows`, `tile` room for one.
        """
        rows = ROWS if n >= ROWS else 1
        room, apart_a, words = tile.ctypes.data, strides.ctypes.data, b.ctypes.data
        pairs = b.shape[1]
        for panel in range(b.shape[0]):
            low = panel * WIDTH
            used = min(WIDTH, m - low)
            for start in range(0, n, rows):
                row = min(start, n - rows)  # the last tile overlaps the one before it, with the same sums
                z, apart = (out + 4 * (row * pitch + low), pitch) if used == WIDTH else (room, WIDTH)
                if rows == ROWS:
                    _sum_rows(a + row * strides[0], apart_a, words + 4 * panel * pairs * WIDTH, pairs, z, apart)
                else:
                    _sum_row(a + row * strides[0], apart_a, words + 4 * panel * pairs * WIDTH, pairs, z, apart)
                for i in range(rows if used < WIDTH else 0):
                    copy(room + 4 * i * WIDTH, out + 4 * ((row + i) * pitch + low), used, 0, 0, 0)
