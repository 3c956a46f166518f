"""What no step in bfloat16 goes below: the time of its products' instructions, and that of its weights' bytes.

For processors with AVX-512's instructions for bfloat16.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.bf16 import LANES, PAIRS, WORDS
from nnlib.compiled.compiler import compile_loop, emit, ir
from nnlib.compiled.vectors import NOTHING, VECTOR, Builder, Value, plus, repeat, store
from scripts.bench.common.workload import Work, count_operations, widths

TRIES = 20
SUMS = 16  # that wait for nothing but their own last instruction
OPERATIONS = 4 * LANES  # of an instruction: two products and two sums in each lane
COUNT = 50_000
STATES = 2  # of Adam, beside the weights


def _add_only(builder: Builder, out: Value, count: Value, *_: Value) -> None:
    kind = ir.FunctionType(VECTOR, [VECTOR, PAIRS, PAIRS])
    add = builder.module.declare_intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", fnty=kind)
    words = builder.bitcast(builder.load(builder.inttoptr(out, ir.PointerType(WORDS)), align=4), PAIRS)

    def step(_: Value, totals: list[Value]) -> list[Value]:
        return [builder.call(add, [total, words, words]) for total in totals]

    for number, total in enumerate(repeat(builder, count, [NOTHING] * SUMS, step)):
        store(builder, total, plus(builder, out, number * LANES))


_add = emit(_add_only)


@compile_loop
def _multiply_in_registers(out: NDArray[np.float32], count: int) -> None:
    _add(out.ctypes.data, count, 0, 0, 0, 0)


def least_by_operations(work: Work) -> float:
    """Return the milliseconds of a step's products by instructions that wait for no memory, on one thread."""
    out = np.zeros((SUMS, LANES), np.float32)
    each = fastest(lambda: _multiply_in_registers(out, COUNT), 1, time.thread_time)
    return each * count_operations(work) / (COUNT * SUMS * OPERATIONS)


def least_by_bytes(work: Work) -> float:
    """Return the milliseconds in which a thread reads and writes once all weights and the optimizer's states."""
    count = sum(below * above for below, above in pairwise(widths(work)))
    numbers = np.ones((1 + STATES) * count, np.float32)
    return fastest(lambda: np.negative(numbers, out=numbers), work.steps, time.thread_time)


def fastest(act: Callable[[], object], steps: int, clock: Callable[[], float]) -> float:
    """Return the milliseconds of a call in the fastest of some rounds, by a clock."""
    found = []
    for _ in range(TRIES):
        begun = clock()
        for _ in range(steps):
            act()
        found.append(1e3 * (clock() - begun) / steps)
    return min(found)
