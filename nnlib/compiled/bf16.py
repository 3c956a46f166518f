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
from nnlib.compiled.vectors import (
    INT,
    LONG,
    NOTHING,
    SHORT,
    VECTOR,
    Builder,
    Value,
    load,
    pick,
    plus,
    repeat,
    row_address,
    store,
    turned,
)

Bits = NDArray[Any]

HAVE_PAIRS = has("avx512bf16")
ROWS, VECTORS, LANES = 8, 2, 16  # of a tile of sums, and numbers in a vector
WIDTH = VECTORS * LANES


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
    ir.VectorType(kind, count) for kind, count in ((_Bfloat(), 2 * LANES), (INT, LANES), (SHORT, LANES))
)


def _load(builder: Builder, address: Value, kind: Any) -> Value:
    """Load words from wherever a bfloat16 number may stand."""
    return builder.load(builder.inttoptr(address, ir.PointerType(kind)), align=2)


def _tile(rows: int) -> Callable[..., None]:
    def write(builder: Builder, a: Value, strides: Value, b: Value, pairs: Value, z: Value, pitch: Value) -> None:
        kind = ir.FunctionType(VECTOR, [VECTOR, PAIRS, PAIRS])
        add = builder.module.declare_intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", fnty=kind)
        across, along = (load(builder, builder.add(strides, LONG(8 * n)), LONG) for n in range(2))
        left = [builder.add(a, builder.mul(across, LONG(row))) for row in range(rows)]

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

        for number, total in enumerate(repeat(builder, pairs, [NOTHING] * rows * VECTORS, step)):
            row, n = divmod(number, VECTORS)
            store(builder, total, plus(builder, row_address(builder, z, row, pitch), n * LANES))

    return emit(write)


def _zip() -> Callable[..., None]:
    def write(
        builder: Builder, source: Value, apart: Value, target: Value, pairs: Value, pitch: Value, *_: Value
    ) -> None:
        def step(pair: Value, _: list[Value]) -> list[Value]:
            first = builder.add(source, builder.mul(pair, builder.shl(apart, LONG(1))))
            here = builder.add(target, builder.mul(pair, pitch))
            for n in range(VECTORS):
                low, high = (
                    builder.zext(_load(builder, builder.add(address, LONG(2 * LANES * n)), HALVES), WORDS)
                    for address in (first, builder.add(first, apart))
                )
                words = builder.or_(low, builder.shl(high, ir.Constant(WORDS, [16] * LANES)))
                store(builder, words, plus(builder, here, n * LANES))
            return []

        repeat(builder, pairs, [], step)

    return emit(write)


def _transpose() -> Callable[..., None]:
    def write(builder: Builder, source: Value, apart: Value, target: Value, *_: Value) -> None:
        rows = [_load(builder, builder.add(source, builder.mul(apart, LONG(n))), WORDS) for n in range(LANES)]
        for n, words in enumerate(turned(builder, rows)):
            store(builder, words, builder.add(target, LONG(4 * WIDTH * n)))

    return emit(write)


if HAVE_PAIRS:
    # (a, strides, b, pairs, z, pitch): z[row, j] = sum over pairs of a[row] b[j]; words of a are strides[0] bytes from
    # row to row and strides[1] from pair to pair, those of b are a panel, rows of z are `pitch` numbers apart.
    _sum_rows, _sum_row = _tile(ROWS), _tile(1)
    # (source, apart, target, 0, 0, 0): 16 words of 16 rows, `apart` bytes from row to row, become 16 rows of a panel.
    _turn = _transpose()
    # (source, apart, target, pairs, pitch, 0): WIDTH numbers of each two rows, `apart` bytes from row to row, become
    # words; these rows are `pitch` bytes apart.
    _join = _zip()

    @compile_loop
    def pair_rows(numbers: Bits, stride: int, k: int, columns: int, out: Bits) -> None:
        """Write words (k, columns) to `out` (panels, pairs, width), a panel for so many columns; zeros fill it up.

        Row i of `numbers`, bfloat16 in one dimension, starts at i * stride.
        """
        panels, pairs, width = out.shape
        source, words = numbers.ctypes.data, out.ctypes.data
        for panel in range(panels):
            for begin in range(0, width, WIDTH):
                low = panel * width + begin
                used = max(0, min(WIDTH, min(columns, (panel + 1) * width) - low))
                whole = k // 2 if used == WIDTH else 0
                target = words + 4 * (panel * pairs * width + begin)
                _join(source + 2 * low, 2 * stride, target, whole, 4 * width, 0)
                for pair in range(whole, pairs):
                    for j in range(min(WIDTH, width - begin)):
                        place, word = 2 * pair * stride + low + j, np.uint32(0)
                        if j < used:
                            word = np.uint32(numbers[place])
                            if 2 * pair + 1 < k:
                                word |= np.uint32(numbers[place + stride]) << np.uint32(16)
                        out[panel, pair, begin + j] = word

    @compile_loop
    def pair_columns(numbers: Bits, stride: int, k: int, columns: int, out: Bits) -> None:
        """Write words (k, columns) to `out` (panels, pairs, WIDTH) as `pair_rows`.

        Column i of `numbers`, bfloat16 in one dimension, starts at i * stride.
        """
        panels, pairs, width = out.shape
        source, words = numbers.ctypes.data, out.ctypes.data
        for panel in range(panels):
            for begin in range(0, width, LANES):
                low = panel * width + begin
                used = max(0, min(LANES, columns - low))
                whole = k // (2 * LANES) * LANES if used == LANES else 0
                for pair in range(0, whole, LANES):
                    target_words = words + 4 * ((panel * pairs + pair) * width + begin)
                    _turn(source + 2 * (low * stride + 2 * pair), 2 * stride, target_words, 0, 0, 0)
                for pair in range(whole, pairs):
                    target = out[panel, pair, begin : begin + LANES]
                    for j in range(used):
                        place = (low + j) * stride + 2 * pair
                        target[j] = numbers[place]
                        if 2 * pair + 1 < k:
                            target[j] |= np.uint32(numbers[place + 1]) << np.uint32(16)
                    target[used:] = 0

    @compile_loop
    def multiply_pairs(a: int, strides: Bits, b: Bits, n: int, m: int, pitch: int, out: Bits, tile: Bits) -> None:
        """Write a (n, k) times b (k, m) to float32 `out`, in one dimension, whose rows are `pitch` numbers apart.

        `a` is the address of words as `strides` say, b (panels, pairs, WIDTH) of `pair_rows`, `tile` room for one.
        """
        rows = ROWS if n >= ROWS else 1
        whole, room, apart_a, words = out.ctypes.data, tile.ctypes.data, strides.ctypes.data, b.ctypes.data
        pairs = b.shape[1]
        for panel in range(b.shape[0]):
            low = panel * WIDTH
            used = min(WIDTH, m - low)
            for start in range(0, n, rows):
                row = min(start, n - rows)  # the last tile overlaps the one before it, with the same sums
                z, apart = (whole + 4 * (row * pitch + low), pitch) if used == WIDTH else (room, WIDTH)
                if rows == ROWS:
                    _sum_rows(a + row * strides[0], apart_a, words + 4 * panel * pairs * WIDTH, pairs, z, apart)
                else:
                    _sum_row(a + row * strides[0], apart_a, words + 4 * panel * pairs * WIDTH, pairs, z, apart)
                for i in range(rows if used < WIDTH else 0):
                    place = (row + i) * pitch + low
                    out[place : place + used] = tile[i * WIDTH : i * WIDTH + used]
