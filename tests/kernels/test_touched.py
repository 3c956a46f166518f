"""Rows that a batch touches: their update, and the steps that they missed, with the bits of NumPy's updates.

Late rows must end with the bits of rows that are updated in every step, by NumPy and by the kernel of dense updates.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from nnlib.contract import TrainSettings
from nnlib.rules import RULES
from nnlib.settings import rate_of
from nnlib.updates import Hyper, NumpyUpdates, Rate, Slot
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
    random_input,
    same_bits,
    stepped,
    with_noise,
)

UNITS, EXAMPLES = 24, 7
ALL_RULES = list(RULES)
EVERY_RULE = pytest.mark.parametrize("rule", RULES)
FORCES = pytest.mark.parametrize(("l2", "l1"), [(0.0, 0.0), (0.01, 0.0), (0.0, 0.003)])
COLUMNS = [1, 31, 32, 33, 128, 132, 384, 1024, 1025]
GRIDS = pytest.mark.parametrize("grid", [1, 3, 64])


def rate(step: int) -> float:
    return 0.02 / (1 + 0.1 * (step - 1))


WARM = rate_of(TrainSettings(epochs=4, learning_rate=0.01, warmup=1.0, schedule="cosine"), 0.0, 30)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.normal(0, 1, shape).astype(np.float32)


class Store:
    """Weights that are updated when a batch touches them, by the kernels, and beside them the dense ones of NumPy."""

    def __init__(self, hyper: Hyper, w: np.ndarray, rate: Rate = rate, shift: int = 0, steps: int = 12) -> None:
        self.hyper, self.n, self.step = hyper, np.int32(w.shape[1]), 0
        self.w, self.last = w.copy(), np.zeros(len(w), np.int32)
        self.states = [np.zeros_like(w) for _ in range(RULES[hyper.rule].states)]
        self.paces = paces(hyper, rate, steps, shift)
        self.updates = NumpyUpdates(hyper, rate, shift)
        self.dense = Slot(w.copy(), tuple(np.zeros_like(w) for _ in self.states), hyper.l2, hyper.l1)

    def _launch(self, name: str, grid: int, before: list, *after: object) -> None:
        first, second = (*self.states, None, None)[:2]
        rule = np.int32(ALL_RULES.index(self.hyper.rule))
        arrays = [self.w, first, second, self.last, self.n, rule, self.paces, stepped(self.step)]
        self.w, *states, self.last = run("touched", name, (grid,), [*before, *arrays, *after])
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


def train(
    store: Store,
    random: np.random.Generator,
    steps: int,
    settle: bool = True,
    shapes: tuple[int, int] = (EXAMPLES, 0),
    **how: object,
) -> None:
    """Do steps with batches of (examples, and `more` columns of the deltas), each touching other rows."""
    examples, more = shapes
    for _ in range(steps):
        store.step += 1
        x = random_input(random, examples, len(store.w), bool(store.step % 2), most=3)
        rows = np.unique(x.indices)
        if settle:
            store.settle(x, 1)
            assert (store.last[rows] == store.step - 1).all()
        store.touched(x, floats(random, examples, int(store.n) + more), **how)
        assert (store.last[rows] == store.step).all()
        store.same(rows)
    store.settle(None, 0)
    assert (store.last == store.step).all()
    store.same()


@EVERY_RULE
@FORCES
@pytest.mark.parametrize("settle", [True, False])
def test_late_rows_end_as_dense_ones(random, rule, l2, l1, settle):
    train(Store(Hyper(rule, 0.9, 0.99, l2, l1), floats(random, UNITS, 5)), random, 5, settle)


@EVERY_RULE
@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_late_rows_end_as_those_of_the_dense_kernel(random, rule, l2):
    store = Store(Hyper(rule, l2=l2), floats(random, UNITS, 4))
    w, states = store.w.copy(), [np.zeros_like(store.w) for _ in store.states]
    for step in range(1, 6):
        store.step = step
        x, delta = random_input(random, EXAMPLES, UNITS, False, most=2), floats(random, EXAMPLES, 4)
        store.touched(x, delta)
        sizes = [np.int64(w.size), np.int64(w.size), np.int32(ALL_RULES.index(rule))]
        end = [store.paces, stepped(step), hyper_numbers(store.hyper), None]
        args = [w, gradient_of(x, delta), *(*states, None, None)[:2], *sizes, *end]
        w, *found = run("update", "update", (1,), args)
        states = [state for state in found if state is not None]
    store.settle(None, 0)
    for late, dense in zip([store.w, *store.states], [w, *states], strict=True):
        same_bits(late, dense)


@EVERY_RULE
@pytest.mark.parametrize("n", COLUMNS)
def test_any_number_of_columns(random, rule, n):
    more = 4 * (n % 3)  # rows of the deltas may be further apart
    train(Store(Hyper(rule), floats(random, 11, n)), random, 3, shapes=(4, more))


@EVERY_RULE
@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_scaled_gradient(random, rule, scale):
    train(Store(Hyper(rule, l2=0.01), floats(random, UNITS, 5)), random, 4, scale=scale)


@pytest.mark.parametrize("rule", ["adam", "adamw"])
@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_compat_counts_the_steps_of_adam_from_two(random, rule, l2):
    train(Store(Hyper(rule, l2=l2), floats(random, UNITS, 5), shift=1), random, 6)


@EVERY_RULE
@GRIDS
def test_any_grid(random, rule, grid):
    train(Store(Hyper(rule), floats(random, 60, 3)), random, 3, shapes=(40, 0), grid=grid)


@EVERY_RULE
def test_noise(random, rule):
    store = Store(Hyper(rule), floats(random, UNITS, 5))
    train(store, random, 6, p=0.6)


@EVERY_RULE
@pytest.mark.parametrize("examples", [0, 1, 2])
def test_batches_that_touch_nothing_or_little(random, rule, examples):
    train(Store(Hyper(rule), floats(random, UNITS, 5)), random, 3, shapes=(examples, 0))


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


@EVERY_RULE
@pytest.mark.parametrize(("force", "schedule"), [(0.0, rate), (0.0, WARM), (0.003, rate)], ids=["", "warm", "forced"])
def test_pauses(random, rule, force, schedule):
    w = floats(random, 8, 6) * np.logspace(-12, 1, 6).astype(np.float32)
    w[1] = w[5] = 0
    store = Store(Hyper(rule, l2=force, l1=force), w, schedule, steps=600)
    for steps in (7, 60, 500):
        once_touched(store, random)
        pause(store, steps)
        store.settle(None, 0)
        store.same()


@pytest.mark.parametrize("rule", ["momentum", "nesterov", "rmsprop", "adadelta", "adam", "adamw"])
@pytest.mark.parametrize(("mu", "beta2"), [(0.7, 0.8), (0.125, 0.5)])  # subnormal for ever, and zero
def test_a_pause_until_all_states_are_as_small_as_can_be(random, rule, mu, beta2):
    store = Store(Hyper(rule, mu, beta2), floats(random, 4, 6), steps=1001)
    once_touched(store, random)
    pause(store, 1000)
    store.settle(None, 0)
    store.same()
    assert all(np.max(np.abs(state)) < 1e-44 for state in store.states)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ALL_RULES),
    st.one_of(st.floats(0, 0.9999), st.sampled_from([0.0, 0.5, 0.9, 0.99])),
    st.one_of(st.floats(0, 0.9999), st.sampled_from([0.0, 0.5, 0.9, 0.999])),
    st.sampled_from([0.0, 0.0, 1e-3]),
    st.lists(st.integers(0, 120), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_any_pauses(rule, mu, beta2, force, pauses, warm, seed):
    random = np.random.default_rng(seed)
    w = floats(random, 6, 4) * 10.0 ** random.integers(-30, 4, (6, 4)).astype(np.float32)
    steps = sum(pauses) + len(pauses)
    store = Store(Hyper(rule, mu, beta2, force, force), w, WARM if warm else rate, steps=steps)
    with np.errstate(all="ignore"):
        for steps in pauses:
            once_touched(store, random)
            pause(store, steps)
            store.settle(None, 0)
            store.same()


def test_rows_that_are_up_to_date_are_left_alone(random):
    store = Store(Hyper("adam"), floats(random, UNITS, 5))
    once_touched(store, random)
    before = store.w.copy()
    store.settle(None, 1)  # half of the rows are a step further already
    assert (store.last == np.repeat([1, 0], UNITS // 2)).all()
    same_bits(store.w, before)
