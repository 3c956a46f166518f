"""Arithmetic on arrays, rounding, and sums: kernels/elementwise.cu, bf16.cu, reduce.cu and shards.cu."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnlib.gpu.selfcheck.case import EPSILON, Case, Numbers, normal, nothing
from nnlib.ops.bf16 import to_bf16
from nnlib.shards.tree import SHARDS, tree_sum

WITH_NUMBER: dict[str, Callable[..., Numbers]] = {
    "set": lambda x, c: np.full_like(x, c),
    "add_c": np.add,
    "sub_c": np.subtract,
    "mul_c": np.multiply,
    "div_c": np.divide,
}
WITH_ARRAY: dict[str, Callable[..., Numbers]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div_": np.divide,
}
EXACT: dict[str, Callable[..., Numbers]] = {"sqr": np.square, "sqrt_": np.sqrt, "abs_": np.abs}
ROUNDED: dict[str, Callable[..., Numbers]] = {"exp_": np.exp, "ln": np.log}
SPECIAL = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -3e38, 88.8, -104], np.float32)
COUNT = 1025
ROWS, COLUMNS, GAP = 65, 33, 3
PARTS = 300


def cases() -> Iterator[Case]:
    """Yield a case for each of the kernels."""
    x, y = (np.concatenate([SPECIAL, 50 * normal(seed, COUNT - len(SPECIAL))]) for seed in (1, 2))
    with np.errstate(all="ignore"):
        yield from _elementwise(x, y)
    yield _rounding()
    yield from _sums()
    yield from _once_a_step()
    yield from _over_shards()


def _elementwise(x: Numbers, y: Numbers) -> Iterator[Case]:
    c, grid, n = np.float32(-1.7), (2,), {"n": x.size}
    for name, twin in WITH_NUMBER.items():
        yield Case(name, grid, {"x": x, "c": c, **n}, {"x": twin(x, c)})
    yield Case("threshold_lt", grid, {"x": x, "level": c, **n}, {"x": np.maximum(x, c)})
    for name, twin in WITH_ARRAY.items():
        yield Case(name, grid, {"x": x, "y": y, **n}, {"x": twin(x, y)})
    for name, twin in EXACT.items():
        yield Case(name, grid, {"x": x, **n}, {"x": twin(x)})
    for name, twin in ROUNDED.items():
        wanted = twin(x.astype(np.float64)).astype(np.float32)
        yield Case(name, grid, {"x": x, **n}, {"x": wanted}, {"x": 3e-7 * np.abs(wanted) + 1e-44})
    arrays = [x, y[:5], x[:33]]
    sizes = np.array([len(array) for array in arrays], np.int64)
    arguments = {"arrays": arrays, "sizes": sizes, "count": len(arrays), "c": c}
    yield Case("multi_mul_c", (2, len(arrays)), arguments, {"arrays": [array * c for array in arrays]})


def _rounding() -> Case:
    """Numbers between two of bfloat16, halfway, and beyond the largest."""
    x = normal(5, ROWS, COLUMNS + GAP)
    x.view(np.uint32)[:, ::2] &= 0xFFFF8000  # every second one halfway, or on one
    x[0, : len(SPECIAL)] = SPECIAL
    x[1, 0] = np.finfo(np.float32).max
    words = 4 * math.ceil(COLUMNS / 8)
    wanted = np.zeros((ROWS, 2 * words), np.uint16)
    wanted[:, :COLUMNS] = to_bf16(x[:, :COLUMNS])
    sizes = {"rows": ROWS, "n": COLUMNS, "ld": COLUMNS + GAP, "words": words}
    arguments = {"x": x, "y": np.ones((ROWS, words), np.uint32), **sizes}
    return Case("to_bf16", (2,), arguments, {"y": wanted.view(np.uint32)})


def _sums() -> Iterator[Case]:
    x = normal(3, ROWS, COLUMNS + GAP)
    wide = x[:, :COLUMNS].astype(np.float64)
    sizes = {"b": ROWS, "n": COLUMNS, "ld": COLUMNS + GAP}
    yield Case(
        "column_sums",
        (math.ceil(COLUMNS / 32),),
        {"x": x, "sums": np.ones(COLUMNS, np.float32), **sizes, "scale": 0.25, "add": 1},
        {"sums": 1 + 0.25 * wide.sum(axis=0)},
        {"sums": ROWS * EPSILON * (1 + np.abs(wide).sum(axis=0))},
    )
    squares = np.square(x, dtype=np.float64).sum()
    arguments = {"x": x, "parts": nothing(1, dtype=np.float64), "count": x.size}
    yield Case("sum_squares", (1,), arguments, {"parts": [squares]}, {"parts": 1e-13 * squares})


def _once_a_step() -> Iterator[Case]:
    step = 1 << 40
    parts = np.random.default_rng(4).random(PARTS)
    total = parts.sum()
    for last, status in ((total, [total, 10 + total, 0, 0]), (np.inf, [np.inf, np.inf, step, np.inf])):
        given = parts if last is total else np.append(parts, np.inf)
        arguments = {"parts": given, "count": len(given), "status": np.array([7.0, 10, 0, 0]), "step": np.array([step])}
        yield Case("finish_loss", (1,), arguments, {"status": np.array(status)}, {"status": 1e-12 * total})
    length = math.sqrt(total)
    clip: dict[str, Any] = {"parts": parts, "count": PARTS, "limit": 0.5 * length, "scale": nothing(1)}
    yield Case("clip_scale", (1,), clip, {"scale": np.array([0.5])}, {"scale": EPSILON})
    yield Case("begin_step", (1,), {"step": np.array([step])}, {"step": np.array([step + 1])})


def _over_shards() -> Iterator[Case]:
    """Yield the tree's sum, with a part that lies elsewhere and without, and what is summed shard by shard."""
    parts, own = normal(6, SHARDS, COUNT) * np.float32(1e3), normal(7, COUNT)
    sizes = {"apart": COUNT, "n": COUNT}
    for count in (1, 2, 4, SHARDS):
        given = {"parts": parts, "count": count, "out": nothing(COUNT), **sizes}
        yield Case("tree_sum", (2,), {**given, "own": None, "place": 0}, {"out": tree_sum(parts[:count].copy())})
        mine = [own if place == count - 1 else part.copy() for place, part in enumerate(parts[:count])]
        wanted = tree_sum([part.copy() for part in mine])
        yield Case("tree_sum", (1,), {**given, "own": own, "place": count - 1}, {"out": wanted})
    x, first, apart = normal(8, ROWS, COLUMNS), 3, 4
    squares = np.square(x[first::apart], dtype=np.float64).sum()
    rows = {"x": x, "parts": nothing(1, dtype=np.float64), "rows": ROWS, "n": COLUMNS, "first": first, "apart": apart}
    yield Case("sum_squares_of_rows", (1,), rows, {"parts": [squares]}, {"parts": 1e-13 * squares})
    ends, numbers = np.array([7, 7, PARTS]), np.random.default_rng(9).random(PARTS)
    sums, before = [numbers[:7].sum(), 0.0, numbers[7:].sum()], np.arange(6.0).reshape(2, 3)
    once = {"parts": numbers, "ends": ends, "step": np.array([4])}
    kept = {"sums": before, "rows": 2, "add": 0}
    yield Case("part_sums", (3,), {**once, **kept}, {"sums": [before[0], sums]}, {"sums": 1e-12})
    added = {"sums": before[0], "rows": 1, "add": 1}
    yield Case("part_sums", (3,), {**once, **added}, {"sums": before[0] + sums}, {"sums": 1e-12})
