"""Compiled products of float32 matrices of which each sum goes over k in order, whatever rows and columns there are.

The right factor lies in panels of WIDE columns. k may be cut into shards: each has its own sum, and these are added in
the order of `shards.tree`, while a tile of them is in the cache. Twin: NumPy's product, but for rounding.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from nnlib.compiled.compiler import compile_loop, compile_within
from nnlib.compiled.rows import clear, copy
from nnlib.compiled.tiles import ROWS, VECTORS, merge, products, products_one, products_two, turn_all
from nnlib.compiled.vectors import LANES

Floats = NDArray[Any]
Longs = NDArray[Any]

WIDE = VECTORS * LANES  # columns of a panel
TILE = ROWS * WIDE  # numbers
BRANCHES = 4  # sums that are kept at most, of eight shards


@compile_loop
def lay_rows(source: int, stride: int, k: int, columns: int, out: Floats) -> None:
    """Write (k, columns) to `out` (panels, k, WIDE), filled up with zeros; row i begins `stride` * i bytes from it."""
    for panel in range(out.shape[0]):
        low, target = panel * WIDE, out[panel].ctypes.data
        used = min(WIDE, columns - low)
        for row in range(k):
            copy(source + row * stride + 4 * low, target + 4 * row * WIDE, used, 0, 0, 0)
        for row in range(k if used < WIDE else 0):
            clear(target + 4 * (row * WIDE + used), WIDE - used, 0, 0, 0, 0)


@compile_loop
def lay_columns(x: Floats, out: Floats) -> None:
    """As `lay_rows`, of the transposed x (columns, k), whose rows are contiguous."""
    columns, k = x.shape
    pitch, whole = x.strides[0] // x.itemsize, k // LANES * LANES
    for panel in range(out.shape[0]):
        for begin in range(0, WIDE, LANES):
            low = panel * WIDE + begin
            turned = whole if low + LANES <= columns else 0
            if turned:
                turn_all(x[low].ctypes.data, pitch, turned, out[panel, 0].ctypes.data + 4 * begin, WIDE)
            for row in range(turned, k):
                for lane in range(LANES):
                    out[panel, row, begin + lane] = x[low + lane, row] if low + lane < columns else 0


@compile_loop
def multiply(
    a: int, strides: Longs, b: Floats, borders: Longs, n: int, m: int, out: int, pitch: int, room: Floats
) -> None:
    """Write a (n, k) times b (k, m) to address `out`, rows `pitch` numbers apart, summed shard by shard of k.

    Row i of a begins strides[2] * i bytes from address `a`, where i is a multiple of ROWS; strides[:2] are those of
    `tiles.products`. There are ROWS of them behind each, of which those from n on are ignored. `b` is that of
    `lay_rows`; shard s goes from borders[s] to borders[s + 1], and there is a power of two of them; `room` has place
    for BRANCHES + 1 tiles.
    """
    shards, tiles, words, apart = borders.size - 1, room.ctypes.data, b.ctypes.data, strides.ctypes.data
    for panel in range(b.shape[0]):
        low, right = panel * WIDE, words + 4 * panel * b.shape[1] * WIDE
        used = min(WIDE, m - low)
        for start in range(0, n, ROWS):
            rows, left = min(ROWS, n - start), a + start * strides[2]
            if shards == 1 and rows == ROWS and used == WIDE:
                products(left, apart, right, b.shape[1], out + 4 * (start * pitch + low), pitch)
                continue
            branches = 0
            for shard in range(shards):
                first, last = borders[shard], borders[shard + 1]
                here, z = left + first * strides[1], tiles + 4 * branches * TILE
                _sum(here, apart, right + 4 * first * WIDE, last - first, z, used)
                branches, height = branches + 1, shard + 1
                while height % 2 == 0:
                    branches, height = branches - 1, height // 2
                    merge(tiles + 4 * (branches - 1) * TILE, tiles + 4 * branches * TILE, 0, 0, 0, 0)
            for row in range(rows):
                copy(tiles + 4 * row * WIDE, out + 4 * ((start + row) * pitch + low), used, 0, 0, 0)


@compile_within
def _sum(a: int, strides: int, b: int, count: int, z: int, used: int) -> None:
    """Write a tile of sums, as many vectors of it as are used."""
    if used > 2 * LANES:
        products(a, strides, b, count, z, WIDE)
    elif used > LANES:
        products_two(a, strides, b, count, z, WIDE)
    else:
        products_one(a, strides, b, count, z, WIDE)
