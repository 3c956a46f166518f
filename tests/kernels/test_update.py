"""Update rules of whole arrays: the bits of nnlib.cpu.updates.NumpyUpdates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.cpu.updates import NumpyUpdates, Slot
from nnlib.optim.hyper import Hyper
from nnlib.optim.rules import RULES
from tests.kernels.host import run
from tests.kernels.sparse_batch import hyper_numbers, paces, same_bits, stepped

EVERY_RULE = pytest.mark.parametrize("rule", RULES)
ALL_RULES = list(RULES)
SIZES = [(0, 0), (4, 4), (4, 0), (32, 4), (36, 36), (1028, 512)]  # how many numbers, how many of them decay
SPECIAL = np.array([0.0, -0.0, 1e-45, -1e-40, 1e-30, 1.5, -2, 1e20, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)


def rate(step: int) -> float:
    return 0.02 / (1 + 0.1 * (step - 1))


class Parameters:
    """The numbers that decay and the others, updated by NumPy and by the kernel; both must agree after each step."""

    def __init__(self, hyper: Hyper, w: np.ndarray, decayed: int, shift: int = 0) -> None:
        self.hyper, self.decayed = hyper, decayed
        self.w, self.paces = w.copy(), paces(hyper, rate, 12, shift)
        self.states = [np.zeros_like(w) for _ in range(RULES[hyper.rule].states)]
        self.broken = np.zeros(2, np.int32)  # the step in which the numbers of a half were first not finite
        self.updates = NumpyUpdates(hyper, rate, shift)
        halves = [(slice(0, decayed), hyper.l2, hyper.l1), (slice(decayed, len(w)), 0.0, 0.0)]
        self.slots = [
            Slot(w[half][:, None].copy(), tuple(state[half][:, None].copy() for state in self.states), l2, l1)
            for half, l2, l1 in halves
        ]

    def update(self, gradient: np.ndarray, step: int, scale: float | None = None, grid: int = 2) -> None:
        numbers = [hyper_numbers(self.hyper), None if scale is None else np.array([scale], np.float32)]
        first, second = (*self.states, None, None)[:2]
        sizes = [np.int64(len(self.w)), np.int64(self.decayed), np.int32(ALL_RULES.index(self.hyper.rule))]
        ends, before = np.array([self.decayed, len(self.w)]), self.broken
        marks = [stepped(100 + step), ends, np.int32(2), before]
        args = [self.w, gradient, first, second, *sizes, self.paces, stepped(step), *numbers, *marks]
        self.w, *states, self.broken = run("update", "update", (grid,), args)
        finite = [np.isfinite(half).all() for half in np.split(self.w, [self.decayed])]
        np.testing.assert_array_equal(self.broken, np.where(finite | (before > 0), before, 100 + step))
        self.states = [state for state in states if state is not None]
        scaled = gradient if scale is None else gradient * np.float32(scale)
        for slot, g in zip(self.slots, np.split(scaled, [self.decayed]), strict=True):
            if len(g):
                self.updates.update(slot, 0, g[:, None].copy(), step)
        same_bits(self.w, np.concatenate([slot.values[:, 0] for slot in self.slots]))
        for n, state in enumerate(self.states):
            same_bits(state, np.concatenate([slot.states[n][:, 0] for slot in self.slots]))


def numbers(random: np.random.Generator, size: int) -> np.ndarray:
    return (random.normal(0, 1, size) * 10.0 ** random.integers(-4, 2, size)).astype(np.float32)


@EVERY_RULE
@pytest.mark.parametrize(("size", "decayed"), SIZES)
@pytest.mark.parametrize(("l2", "l1"), [(0.0, 0.0), (0.01, 0.0), (0.0, 0.003), (0.02, 0.001)])
def test_steps(rule, size, decayed, l2, l1):
    random = np.random.default_rng(size)
    parameters = Parameters(Hyper(rule, 0.9, 0.99, l2, l1), numbers(random, size), decayed)
    for step in (1, 2, 3):
        parameters.update(numbers(random, size), step, grid=step)


@EVERY_RULE
def test_more_numbers_than_threads(rule):
    random = np.random.default_rng(1)
    parameters = Parameters(Hyper(rule, l2=0.01), numbers(random, 2 * 1024 + 8), 1024 + 4)
    parameters.update(numbers(random, 2 * 1024 + 8), 1, grid=1)


@EVERY_RULE
@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_scaled_gradient(rule, scale):
    random = np.random.default_rng(2)
    parameters = Parameters(Hyper(rule, l2=0.01, l1=0.01), numbers(random, 32), 16)
    for step in (1, 2):
        parameters.update(numbers(random, 32), step, scale)


@pytest.mark.parametrize("rule", ["adam", "adamw"])
def test_compat_counts_the_steps_of_adam_from_two(rule):
    random = np.random.default_rng(3)
    parameters = Parameters(Hyper(rule, l2=0.01), numbers(random, 32), 16, shift=1)
    for step in (1, 2, 12):
        parameters.update(numbers(random, 32), step)


@EVERY_RULE
@pytest.mark.parametrize("force", [0.0, 0.01])
def test_special_numbers(rule, force):
    w, g = (part.ravel() for part in np.meshgrid(SPECIAL, SPECIAL))
    w, g = np.append(w, np.zeros(-len(w) % 8, np.float32)), np.append(g, np.zeros(-len(g) % 8, np.float32))
    parameters = Parameters(Hyper(rule, l2=force, l1=force), w, len(w) // 8 * 4)
    with np.errstate(all="ignore"):
        for step in (1, 2, 3):
            parameters.update(g, step)
        parameters.update(np.zeros_like(g), 4)
    assert np.isnan(parameters.w[np.isnan(g)]).all()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ALL_RULES),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([0.0, 1e-6, 0.3]),
    st.sampled_from([0.0, 1e-6, 0.3]),
    st.integers(0, 2**32),
)
def test_any_constants(rule, mu, beta2, l2, l1, seed):
    random = np.random.default_rng(seed)
    parameters = Parameters(Hyper(rule, mu, beta2, l2, l1), numbers(random, 64), 32)
    with np.errstate(all="ignore"):
        for step in (1, 2, 7):
            parameters.update(numbers(random, 64), step)
