"""Pauses of rows that no batch touches: a replay ends with the bits of NumPy's updates with gradients of zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.optim.hyper import Hyper
from nnlib.optim.rules import RULES
from tests.kernels.late_rows import ALL_RULES, WARM, Store, floats, once_touched, pause, rate
from tests.kernels.sparse_batch import same_bits

EVERY_RULE = pytest.mark.parametrize("rule", RULES)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


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


def extremes(random: np.random.Generator, low: int, high: int) -> np.ndarray:
    """Return numbers of all magnitudes, some of them powers of two, some zero."""
    found = floats(random, 6, 4) * 10.0 ** random.integers(low, high, (6, 4))
    found[random.random((6, 4)) < 0.1] = 0
    powers = random.random((6, 4)) < 0.3
    found[powers] = 2.0 ** np.floor(np.log2(np.abs(found[powers]) + 1e-44))
    return found.astype(np.float32)


@settings(max_examples=80, deadline=None)
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
    steps = sum(pauses) + len(pauses)
    store = Store(Hyper(rule, mu, beta2, force, force), extremes(random, -35, 8), WARM if warm else rate, steps=steps)
    for n, state in enumerate(store.states):
        state[...] = extremes(random, -44, 2)
        if n or rule in ("adagrad", "rmsprop", "adadelta"):
            np.abs(state, out=state)
        store.dense.states[n][...] = state
    with np.errstate(all="ignore"):
        for steps in pauses:
            once_touched(store, random)
            pause(store, steps)
            store.settle(None, 0)
            store.same()


@pytest.mark.parametrize("rule", ["adam", "adamw"])
@pytest.mark.parametrize(("mu", "beta2", "growth"), [(0.95, 0.9999, 1.1), (0.99, 0.5, 1.0)])  # by the rate, by the rule
def test_moves_that_grow_in_a_pause(random, rule, mu, beta2, growth):
    w = floats(random, 8, 64) * np.logspace(-1, 8, 64).astype(np.float32)
    store = Store(Hyper(rule, mu, beta2), w, lambda step: 1e-3 * growth**step, steps=81)
    once_touched(store, random)
    pause(store, 80)
    store.settle(None, 0)
    store.same()


@pytest.mark.parametrize("rule", ["adam", "adamw"])
def test_moves_by_subnormal_numbers(random, rule):
    w = np.logspace(-38, -20, 64).astype(np.float32).reshape(8, 8)
    store = Store(Hyper(rule, 0.9, 0.9), w, steps=600)
    for states in (store.states, store.dense.states):
        states[0][...], states[1][...] = 1e-43, 1
    pause(store, 600)
    store.settle(None, 0)
    store.same()
    assert (store.w != w).any()


def test_rows_that_are_up_to_date_are_left_alone(random):
    store = Store(Hyper("adam"), floats(random, 8, 5))
    once_touched(store, random)
    before = store.w.copy()
    store.settle(None, 1)  # half of the rows are a step further already
    assert (store.last == np.repeat([1, 0], 4)).all()
    same_bits(store.w, before)
