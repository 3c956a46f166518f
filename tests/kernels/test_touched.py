"""Rows that a batch touches: their update, and the steps that they missed, with the bits of NumPy's updates.

Late rows must end with the bits of rows that are updated in every step, by NumPy and by the kernel of dense updates.
"""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.optim.hyper import Hyper
from nnlib.optim.rules import RULES
from tests.kernels.host import run
from tests.kernels.late_rows import ALL_RULES, Store, floats
from tests.kernels.sparse_batch import gradient_of, hyper_numbers, random_input, same_bits, stepped

UNITS, EXAMPLES = 24, 7
EVERY_RULE = pytest.mark.parametrize("rule", RULES)
FORCES = pytest.mark.parametrize(("l2", "l1"), [(0.0, 0.0), (0.01, 0.0), (0.0, 0.003)])
COLUMNS = [1, 31, 32, 33, 128, 132, 384, 1024, 1025]
GRIDS = pytest.mark.parametrize("grid", [1, 3, 64])


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


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
        marks = [stepped(step), np.array([w.size]), np.int32(1), None]
        end = [store.paces, stepped(step), hyper_numbers(store.hyper), None, *marks]
        args = [w, gradient_of(x, delta), *(*states, None, None)[:2], *sizes, *end]
        w, *found = run("update", "update", (1,), args)
        states = [state for state in found if state is not None]
    store.settle(None, 0)
    for late, dense in zip([store.w, *store.states], [w, *states], strict=True):
        same_bits(late, dense)


@EVERY_RULE
@pytest.mark.parametrize("n", COLUMNS)
def test_any_number_of_columns(random, rule, n):
    more = n % 3  # rows of the deltas may be further apart
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


@EVERY_RULE
@pytest.mark.parametrize("n", [4, 132])
def test_arrays_that_are_not_aligned(random, rule, n):
    def unaligned(array: np.ndarray) -> np.ndarray:
        longer = np.empty(array.size + 1, array.dtype)
        longer[1:] = array.ravel()
        return longer[1:].reshape(array.shape)

    for which in range(3):
        store = Store(Hyper(rule), floats(random, UNITS, n))
        store.w = unaligned(store.w) if which == 0 else store.w
        store.states = [unaligned(state) if which == 1 else state for state in store.states]
        delta = floats(random, EXAMPLES, n)
        store.step = 1
        store.touched(random_input(random, EXAMPLES, UNITS, True), unaligned(delta) if which == 2 else delta)
        store.settle(None, 0)
        store.same()
