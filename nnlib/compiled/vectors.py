"""Instructions of vectors for LLVM: what tiles and rows of sums are written in.

Numbers are float32, addresses whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnlib.compiled.compiler import has, ir

MASKED = has("avx512f")  # some lanes of a vector are loaded and stored as fast as all of them
LANES = 16 if has("avx512f") else 8 if has("avx2") else 4

LONG, INT, SHORT, FLOAT = ir.IntType(64), ir.IntType(32), ir.IntType(16), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
NOTHING = ir.Constant(VECTOR, [0.0] * LANES)
FUSED = ("contract",)
BITS = ir.VectorType(ir.IntType(1), LANES)

Value = Any  # of LLVM
Builder = Any


def load(builder: Builder, address: Value, kind: Any = VECTOR) -> Value:
    """Load a vector, or another kind of number."""
    return builder.load(builder.inttoptr(address, ir.PointerType(kind)), align=8 if kind is LONG else 4)


def store(builder: Builder, value: Value, address: Value) -> None:
    """Store a vector or a number."""
    builder.store(value, builder.inttoptr(address, ir.PointerType(value.type)), align=4)


def load_some(builder: Builder, address: Value, bits: Value) -> Value:
    """Load the lanes that have a bit, see `load_bits`; the others are 0, and nothing is read there."""
    kind = ir.FunctionType(VECTOR, [ir.PointerType(), INT, BITS, VECTOR])
    masked_load = builder.module.declare_intrinsic(f"llvm.masked.load.v{LANES}f32.p0", fnty=kind)
    return builder.call(masked_load, [builder.inttoptr(address, ir.PointerType()), INT(4), bits, NOTHING])


def store_some(builder: Builder, vector: Value, address: Value, bits: Value) -> None:
    """Store the lanes that have a bit; nothing is written where the others are."""
    kind = ir.FunctionType(ir.VoidType(), [VECTOR, ir.PointerType(), INT, BITS])
    masked_store = builder.module.declare_intrinsic(f"llvm.masked.store.v{LANES}f32.p0", fnty=kind)
    builder.call(masked_store, [vector, builder.inttoptr(address, ir.PointerType()), INT(4), bits])


def load_bits(builder: Builder, address: Value, wanted: Value | None = None) -> Value:
    """Load 16 bits, of which the lowest are those of the lanes; none if they are not `wanted`."""
    bits = builder.load(builder.inttoptr(address, ir.PointerType(SHORT)), align=2)
    bits = bits if wanted is None else builder.select(wanted, bits, SHORT(0))
    return builder.bitcast(builder.trunc(bits, ir.IntType(LANES)) if LANES < 16 else bits, BITS)


def prefetch(builder: Builder, address: Value, *, to_write: bool = False) -> None:
    """Have the line of an address on its way to the cache; it may be anywhere, and nothing is read."""
    kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(), INT, INT, INT])
    fetch = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=kind)
    builder.call(fetch, [builder.inttoptr(address, ir.PointerType()), INT(int(to_write)), INT(3), INT(1)])


def give_up(builder: Builder, address: Value) -> None:
    """Have the line of an address in no cache, and what was written to it in memory."""
    kind = ir.FunctionType(ir.VoidType(), [ir.PointerType()])
    flush = builder.module.declare_intrinsic("llvm.x86.clflushopt", fnty=kind)
    builder.call(flush, [builder.inttoptr(address, ir.PointerType())])


def plus(builder: Builder, address: Value, numbers: int) -> Value:
    """Return the address so many float32 numbers further."""
    return builder.add(address, LONG(4 * numbers)) if numbers else address


def row_address(builder: Builder, address: Value, number: int, pitch: Value) -> Value:
    """Return where a row begins, of rows `pitch` numbers apart."""
    return builder.add(address, builder.mul(pitch, LONG(4 * number)))


def left_rows(builder: Builder, a: Value, strides: Value, rows: int) -> tuple[list[Value], Value]:
    """Return where the rows of a left factor begin, and how far it is to what meets the next of the right one.

    strides[0] bytes lie from row to row, strides[1] along k.
    """
    across, along = (load(builder, builder.add(strides, LONG(8 * n)), LONG) for n in range(2))
    return [builder.add(a, builder.mul(across, LONG(row))) for row in range(rows)], along


def store_rows(builder: Builder, totals: Sequence[Value], vectors: int, z: Value, pitch: Value) -> None:
    """Write sums row by row, so many vectors each, to rows that are `pitch` numbers apart."""
    for number, total in enumerate(totals):
        row, n = divmod(number, vectors)
        store(builder, total, plus(builder, row_address(builder, z, row, pitch), n * LANES))


def pick(builder: Builder, vector: Value, lanes: Sequence[int]) -> Value:
    """Return a vector of some lanes of another."""
    mask = ir.Constant(ir.VectorType(INT, len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def everywhere(builder: Builder, number: Value) -> Value:
    """Return a vector with a number in each lane."""
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, INT(0))
    return pick(builder, one, [0] * LANES)


def every(builder: Builder, parts: Sequence[Value]) -> Value:
    """Return every lane of a vector, every other one of two, every fourth of four."""
    return dealt(builder, parts)[0]


def dealt(builder: Builder, parts: Sequence[Value]) -> list[Value]:
    """Return as many vectors as there are, 1, 2 or 4, to which the lanes of all go in turn."""
    if len(parts) == 1:
        return list(parts)
    halves = []
    for first in (0, 1):
        lanes = ir.Constant(ir.VectorType(INT, LANES), list(range(first, 2 * LANES, 2)))
        pairs = (parts[n : n + 2] for n in range(0, len(parts), 2))
        halves.append(dealt(builder, [builder.shuffle_vector(*pair, lanes) for pair in pairs]))
    return [vector for pair in zip(*halves, strict=True) for vector in pair]


def add_lanes(builder: Builder, vectors: Sequence[Value]) -> list[Value]:
    """Add up the lanes of each vector; return vectors of these sums, which stand there as `order_of` says.

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


def turned(builder: Builder, vectors: Sequence[Value]) -> list[Value]:
    """Return vectors of which each has a lane of all of these; those that are missing are 0."""
    found, kind = [*vectors, *[NOTHING] * (LANES - len(vectors))], ir.VectorType(INT, LANES)
    size = LANES // 2
    while size:
        low = [lane + LANES - size if lane & size else lane for lane in range(LANES)]
        high = [lane + LANES if lane & size else lane + size for lane in range(LANES)]
        for n in (n for n in range(LANES) if not n & size):
            pair = found[n], found[n + size]
            found[n], found[n + size] = (
                builder.shuffle_vector(*pair, ir.Constant(kind, lanes)) for lanes in (low, high)
            )
        size //= 2
    return found


def order_of(count: int) -> tuple[int, ...]:
    """Return where the sums of so many vectors stand in what `add_lanes` gives: as they come, if there are enough."""
    owners = [[number] for number in range(count)]
    size = LANES
    while size > 1:
        owners = [owners[n] + owners[min(n + 1, len(owners) - 1)] for n in range(0, len(owners), 2)]
        size //= 2
    flat = [owner for lanes in owners for owner in lanes]
    return tuple(flat.index(number) for number in range(count))


def add_product(builder: Builder, a: Value, b: Value, total: Value) -> Value:
    """Return total + a b."""
    return builder.fadd(total, builder.fmul(a, b, flags=FUSED), flags=FUSED)


def repeat(
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
