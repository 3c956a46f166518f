"""Weights of which the kernels update the rows that a batch touches, beside those that NumPy updates as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from nnlib.contract import TrainSettings
from nnlib.cpu.updates import NumpyUpdates, Slot
from nnlib.optim.hyper import Hyper, Rate, rate_of
from nnlib.optim.rules import RULES
from tests.kernels.host import run
from tests.kernels.sparse_batch import (
    LAYER,
    LAYERS,
    MISSING,
    gradient_of,
    hyper_numbers,
    noise_key,
    noise_of,
    paces,
    packed_input,
    same_bits,
    stepped,
    with_noise,
)

ALL_RULES = list(RULES)


def rate(step: int) -> float:
    return 0.02 / (1 + 0.1 * (step - 1))


WARM = rate_of(TrainSettings(epochs=4, learning_rate=0.01, warmup=1.0, schedule="cosine"), 0.0, 30)


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.normal(0, 1, shape).astype(np.float32)


class Store:
    """Weights that are updated when a batch touches them, by the kernels, and beside them the dense ones of NumPy."""

    def __init__(self, hyper: Hyper, w: np.ndarray, rate: Rate = rate, shift: int = 0, steps: int = 12) -> None:
        self.hyper, self.n, self.step = hyper, np.int32(w.shape[1]), 0
        self.w, self.last = w.copy(), np.zeros(len(w), np.int32)
        self.states = [np.zeros_like(w) for _ in range(RULES[hyper.rule].states)]
        self.broken = np.zeros(1, np.int32)
        self.paces = paces(hyper, rate, steps, shift)
        self.updates = NumpyUpdates(hyper, rate, shift)
        self.dense = Slot(w.copy(), tuple(np.zeros_like(w) for _ in self.states), hyper.l2, hyper.l1)

    def _launch(self, name: str, grid: int, before: Sequence[object], *after: object) -> None:
        first, second = (*self.states, None, None)[:2]
        rule = np.int32(ALL_RULES.index(self.hyper.rule))
        arrays = [self.w, first, second, self.last, self.n, rule, self.paces, stepped(self.step)]
        marks = [self.broken] if name == "touched_update" else []
        self.w, *states, self.last = found = run("touched", name, (grid,), [*before, *arrays, *after, *marks])
        if marks:
            *states, self.last, self.broken = found[1:]
        self.states = [state for state in states if state is not None]

    def settle(self, x: sparse.csr_array | None, behind: int, grid: int = 3) -> None:
        """Bring rows, those that `x` touches or all, to the step before or to this one."""
        batch, at = (None, {}) if x is None else packed_input(x, True)
        place = [at.get("count", MISSING), at.get("rows", MISSING), np.int64(len(self.w))]
        self._launch("settle", grid, [batch, *place], np.int32(behind), hyper_numbers(self.hyper))

    def touched(
        self, x: sparse.csr_array, delta: np.ndarray, scale: float | None = None, p: float = 0.0, grid: int = 3
    ) -> None:
        """Update with the gradient of a batch."""
        ones = bool(np.all(x.data == 1))
        batch, at = packed_input(x, ones)
        places = [at[name] for name in ("count", "rows", "row_starts", "examples", "places", "values")]
        factor = None if scale is None else np.array([scale], np.float32)
        noise = [noise_of(p), noise_key(), np.int32(LAYERS), np.int32(LAYER)]
        before = [batch, *places, delta, np.int32(delta.shape[1])]
        self._launch("touched_update", grid, before, hyper_numbers(self.hyper), factor, *noise)
        gradient = gradient_of(with_noise(x, p, self.step), delta[:, : self.n])
        self.updates.update(self.dense, 0, gradient * np.float32(1 if scale is None else scale), self.step)

    def same(self, rows: np.ndarray | slice = slice(None)) -> None:
        """Fail unless the rows are what NumPy has."""
        same_bits(self.w[rows], self.dense.values[rows])
        for state, wanted in zip(self.states, self.dense.states, strict=True):
            same_bits(state[rows], wanted[rows])


def once_touched(store: Store, random: np.random.Generator) -> None:
    """Do one step that touches the first half of the rows."""
    store.step += 1
    half = len(store.w) // 2
    x = sparse.csr_array((np.ones(half, np.float32), np.arange(half), [0, half]), shape=(1, len(store.w)))
    store.touched(x, floats(random, 1, int(store.n)))


def pause(store: Store, steps: int) -> None:
    """Let steps pass that touch nothing."""
    for _ in range(steps):
        store.step += 1
        store.updates.update(store.dense, 0, np.zeros_like(store.w), store.step)
