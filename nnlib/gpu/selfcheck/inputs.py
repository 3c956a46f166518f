"""Sparse inputs, the update of weights, and the best items: gather.cu, touched.cu, update.cu and top.cu in kernels/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from nnlib.data.rows import Csr
from nnlib.gpu.optimizer import RULE_NAMES, hyper_constants, tabulate_paces
from nnlib.gpu.selfcheck.batches import (
    LAYER,
    LAYERS,
    gradient_of,
    noise_key,
    noise_of,
    packed,
    packed_input,
    random_input,
    with_noise,
)
from nnlib.gpu.selfcheck.case import Case, Numbers, normal, nothing
from nnlib.ops import ranking
from nnlib.optim.hyper import Hyper
from nnlib.optim.rules import RULES, Pace
from nnlib.shards.tree import SHARDS, tree_sum

B, UNITS, N, MORE = 30, 40, 36, 4
STEP, P = 9, 0.4
RATE, L2 = 0.02, 0.01
COUNT, DECAYED = 1028, 512  # parameters, and how many of them feel l2
ITEMS, BEST = 5000, 100


def cases() -> Iterator[Case]:
    """Yield at least one case for each of the kernels."""
    x = random_input(np.random.default_rng(1), B, UNITS, False)
    yield from _gathers(x)
    yield from _gradients(x)
    for rule in RULES:
        yield from _rows(x, Hyper(rule, 0.9, 0.99, L2))
        yield _update(Hyper(rule, 0.9, 0.99, L2))
    yield _top()


def _noise() -> dict[str, Any]:
    step = np.array([STEP], np.int64)
    return {"noise": noise_of(P), "key": noise_key(), "step": step, "layers": LAYERS, "layer": LAYER}


def _at(at: dict[str, int], *names: str) -> dict[str, int]:
    """Return the words of the header that a kernel asks for."""
    return {f"{name}_at": at[name] for name in names}


def _gathers(x: Any) -> Iterator[Case]:
    left, (batch, at) = with_noise(x, P, STEP), packed_input(x, False)
    shared = {"batch": batch, **_at(at, "starts", "items", "values"), "b": B, **_noise()}
    w, before = normal(2, UNITS, N), normal(3, B, N)
    strides = {"row_stride": N, "column_stride": 1}
    arguments = {"w": w, **strides, "z": before, "n": N, "ld": N, "add": 1, **shared}
    yield Case("gather", (B, 1), arguments, {"z": before + left @ w})
    yield _gather_shards(x)
    z, wanted = (normal(4, B, UNITS) for _ in range(2))
    np.add.at(wanted, (np.repeat(np.arange(B), np.diff(left.indptr)), left.indices), left.data)
    yield Case("skip_add", (1,), {"z": z, "n": UNITS, "ld": UNITS, **shared}, {"z": wanted})


def _gather_shards(x: Any) -> Case:
    """Return the sum over two of eight shards, whose noise is that of the whole batch."""
    left, w, own = with_noise(x, P, STEP), normal(17, UNITS, N), range(2, 4)
    wanted = tree_sum([np.asarray(_columns(left, shard) @ w) for shard in own])
    shard, places = np.repeat(np.arange(B) * 2, np.diff(x.indptr)) + x.indices % SHARDS - own[0], np.arange(x.nnz)
    places = places[np.isin(x.indices % SHARDS, own)]
    places = places[np.argsort(shard[places], kind="stable")]
    starts = np.searchsorted(shard[places], np.arange(2 * B + 1))
    items = x.indices[places] // SHARDS * 2 + x.indices[places] % SHARDS - own[0]
    batch, at = packed(starts=starts, items=items, places=places, values=x.data)
    mine = np.stack([w[shard::SHARDS] for shard in own], axis=1).reshape(-1, N)
    given = {"batch": batch, **_at(at, "starts", "items", "places", "values"), "shards": 2, "w": mine, **_noise()}
    return Case("gather_shards", (B, 1), {**given, "z": nothing(B, N), "b": B, "n": N}, {"z": wanted})


def _columns(x: Any, shard: int) -> Any:
    """Return a matrix with the entries of one shard alone."""
    keep = x.indices % SHARDS == shard
    starts = np.append(0, np.cumsum(keep))[x.indptr]
    return sparse.csr_array((x.data[keep], x.indices[keep], starts), shape=x.shape)


def _touched(x: Any, delta: Numbers) -> dict[str, Any]:
    batch, at = packed_input(x, False)
    names = ("count", "rows", "row_starts", "examples", "places", "values")
    return {"batch": batch, **_at(at, *names), "delta": delta, "ld": N + MORE, "n": N, **_noise()}


def _gradients(x: Any) -> Iterator[Case]:
    delta = normal(5, B, N + MORE)
    gradient, shared = gradient_of(with_noise(x, P, STEP), delta[:, :N]), _touched(x, delta)
    squares = np.square(gradient, dtype=np.float64).sum()
    arguments = {"parts": nothing(1, dtype=np.float64), **shared}
    yield Case("touched_squares", (1,), arguments, {"parts": [squares]}, {"parts": 1e-13 * squares})
    before = normal(6, UNITS, N)
    arguments = {"gradient": before, "row_stride": N, "column_stride": 1, **shared}
    yield Case("touched_add", (3,), arguments, {"gradient": before + gradient})


def _rows(x: Any, hyper: Hyper) -> Iterator[Case]:
    """Yield the update of the rows that a batch touches, late by up to four steps, and what settles them."""
    delta, scale = normal(7, B, N + MORE), np.array([0.37], np.float32)
    gradient = gradient_of(with_noise(x, P, STEP), delta[:, :N]) * scale
    w, states = normal(8, UNITS, N), [np.abs(normal(9 + n, UNITS, N)) for n in range(RULES[hyper.rule].states)]
    last = (STEP - 1 - np.arange(UNITS) % 5).astype(np.int32)
    shared = {"w": w, **_states(states), "last": last, **_rule(hyper)}
    touched = np.unique(x.indices)

    wanted, late = [array.copy() for array in (w, *states)], last.copy()
    _train(hyper, wanted, late, touched, STEP, gradient)
    update = {**_touched(x, delta), **shared, "scale": scale, "broken": np.zeros(1, np.int32)}
    yield Case("touched_update", (3,), update, _wanted(wanted, last=late, broken=np.zeros(1)))

    behind, (batch, at) = 1, packed_input(x, False)
    wanted, late = [array.copy() for array in (w, *states)], last.copy()
    _train(hyper, wanted, late, touched, STEP - behind)
    settle = {"batch": batch, **_at(at, "count", "rows"), "rows": UNITS, "n": N, **shared, "behind": behind}
    yield Case("settle", (3,), settle, _wanted(wanted, last=late))


def _train(
    hyper: Hyper, arrays: list[Numbers], last: Numbers, rows: Numbers, upto: int, gradient: Numbers | None = None
) -> None:
    """Bring rows of weights and states to a step, one by one: gradients are zero but for the last step's."""
    for row in rows:
        w, *states = (array[row : row + 1] for array in arrays)
        for step in range(int(last[row]) + 1, upto + 1):
            now = gradient is not None and step == upto
            g = gradient[row : row + 1].copy() if now and gradient is not None else np.zeros_like(w)
            _step(hyper, w, g, states, step, hyper.l2)
        last[row] = max(last[row], upto)


def _step(hyper: Hyper, w: Numbers, g: Numbers, states: list[Numbers], step: int, l2: float) -> None:
    """Do one step of a rule, in place; g is overwritten."""
    rule, tmp = RULES[hyper.rule], np.empty_like(w)
    if l2 and rule.decoupled:
        w -= w * np.float32(_rate(step) * l2)
    elif l2:
        g += w * np.float32(l2)
    rule.update(w, g, states, Pace(step, _rate(step), hyper.momentum, hyper.beta2), tmp)


def _rate(step: int) -> float:
    return RATE / (1 + 0.1 * (step - 1))


def _rule(hyper: Hyper) -> dict[str, Any]:
    paces = tabulate_paces(hyper, _rate, STEP + 1, 0)
    step = np.array([STEP], np.int64)
    return {"rule": RULE_NAMES.index(hyper.rule), "paces": paces, "hyper": hyper_constants(hyper), "step": step}


def _states(states: list[Numbers]) -> dict[str, Numbers | None]:
    first, second = (*states, None, None)[:2]
    return {"state0": first, "state1": second}


def _wanted(arrays: list[Numbers], **others: Numbers) -> dict[str, Numbers]:
    return dict(zip(("w", "state0", "state1"), arrays, strict=False)) | others


def _update(hyper: Hyper) -> Case:
    """Return the update of all weights and others at once, of which the last becomes infinite."""
    w, g, scale = normal(11, COUNT), normal(12, COUNT), np.array([0.37], np.float32)
    w[-1] = np.inf
    states = [np.abs(normal(13 + n, COUNT)) for n in range(RULES[hyper.rule].states)]
    wanted = [array.copy() for array in (w, *states)]
    for part, l2 in ((slice(0, DECAYED), hyper.l2), (slice(DECAYED, COUNT), 0.0)):
        own, *others = (array[part] for array in wanted)
        _step(hyper, own, g[part] * scale, others, STEP, l2)
    sizes = {"count": COUNT, "decayed": DECAYED, "scale": scale}
    marks = {"now": np.array([STEP], np.int64), "ends": np.array([DECAYED, COUNT]), "parts": 2}
    given = {
        "w": w,
        "gradient": g,
        **_states(states),
        **sizes,
        **_rule(hyper),
        **marks,
        "broken": np.zeros(2, np.int32),
    }
    return Case("update", (2,), given, _wanted(wanted, broken=np.array([0, STEP])))


def _top() -> Case:
    b, random = 3, np.random.default_rng(15)
    scores = np.round(normal(16, b, ITEMS) * 100) / np.float32(100)  # with ties
    items = np.sort(random.choice(ITEMS, (b, 30), replace=False), axis=1).astype(np.int32)
    excluded = Csr(np.arange(0, 30 * b + 1, 30), items.reshape(-1), ITEMS)
    ranked, values = ranking.top(scores.copy(), BEST, excluded)
    batch, at = packed(starts=excluded.indptr, items=excluded.indices)
    found = {"ranked": nothing(b, BEST, dtype=np.int32), "values": nothing(b, BEST)}
    arguments = {"scores": scores, "b": b, "n": ITEMS, "ld": ITEMS, "batch": batch, **_at(at, "starts", "items")}
    return Case("top", (b,), {**arguments, "k": BEST, **found}, {"ranked": ranked, "values": values})
