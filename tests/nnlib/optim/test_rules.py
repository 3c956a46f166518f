"""Each update rule by itself, against its formula in plain Python numbers, and what the table says of it."""

import math

import numpy as np
import pytest

from nnlib.optim.rules import RULES, Pace

EVERY = pytest.mark.parametrize("name", RULES)
RATE, MU, BETA2 = 0.1, 0.8, 0.95
WEIGHTS = (0.5, -2.0, 0.25, 1.0)
GRADIENTS = ((0.5, -1.0, 1e-8, 0.0), (-0.25, 3.0, -2e-8, 1.0), (0.125, 0.0, 1e-6, 0.0))  # the third unit's are tiny


def by_hand(name, w, gradients):
    """One weight after these gradients, as the head of nnlib/optim/rules.py has it."""
    v = s = m = 0.0
    for t, g in enumerate(gradients, 1):
        match name:
            case "sgd":
                w -= RATE * g
            case "momentum":
                v = MU * v - RATE * g
                w += v
            case "nesterov":
                before, v = v, MU * v - RATE * g
                w += v + MU * (v - before)
            case "adagrad":
                v += g * g
                w -= RATE * g / math.sqrt(max(1e-9, v))
            case "rmsprop":
                v = MU * v + (1 - MU) * g * g
                w -= RATE * g / math.sqrt(max(1e-9, v))
            case "adadelta":
                s = MU * s + (1 - MU) * g * g
                d = g * math.sqrt(max(1e-9, v) / max(1e-9, s))
                v = MU * v + (1 - MU) * d * d
                w -= d
            case "adam" | "adamw":
                m = MU * m + (1 - MU) * g
                s = BETA2 * s + (1 - BETA2) * g * g
                w -= RATE * (m / (1 - MU**t)) / (math.sqrt(s / (1 - BETA2**t)) + 1e-8)
    return w


def stepped(name, w, states, gradient, step, **other):
    """Do one step in place."""
    pace = Pace(**({"step": step, "rate": RATE, "momentum": MU, "beta2": BETA2} | other))
    RULES[name].update(w, np.array(gradient, w.dtype), states, pace, np.empty_like(w))


@EVERY
def test_steps_are_those_of_the_formula(name):
    w, states = np.array(WEIGHTS), [np.zeros(4) for _ in range(RULES[name].states)]
    for step, gradient in enumerate(GRADIENTS, 1):
        stepped(name, w, states, gradient, step)
        wanted = [by_hand(name, WEIGHTS[n], [g[n] for g in GRADIENTS[:step]]) for n in range(4)]
        np.testing.assert_allclose(w, wanted, rtol=1e-13)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_first_gradient_as_small_as_the_epsilon_makes_half_a_step(name):
    """There m / (1 - mu) is g, and the root is |g|: the step is a g / (|g| + 1e-8)."""
    w = np.zeros(2)
    stepped(name, w, [np.zeros(2), np.zeros(2)], [1e-8, -1e-8], 1)
    np.testing.assert_allclose(w, [-RATE / 2, RATE / 2], rtol=1e-7)


@EVERY
def test_what_a_gradient_of_zero_does_is_what_the_table_says(name):
    rule = RULES[name]
    w, states = np.array(WEIGHTS), [np.array([0.5, 0.25, 2.0, 1.0]) for _ in range(rule.states)]
    before = [w.copy(), *(state.copy() for state in states)]
    stepped(name, w, states, np.zeros(4), 3)
    same = [np.array_equal(*pair) for pair in zip(before, [w, *states], strict=True)]
    assert same[0] is not rule.moves
    assert all(same) is rule.still
    assert rule.decoupled is (name == "adamw")


@pytest.mark.parametrize("name", ["momentum", "adam", "adamw"])
def test_weights_that_rest_stay_where_they_are(name):
    """Of rules whose moves shrink: once a step moves no bit, no later one does."""
    assert RULES[name].rests
    w = np.array([1.0, -3.0, 7.0], np.float32)
    states = [np.array([0.5, 0.001, 1e-6], np.float32) for _ in range(RULES[name].states)]
    moved = []
    for step in range(1, 150):
        before = w.copy()
        stepped(name, w, states, np.zeros(3), step, rate=0.01, momentum=0.7, beta2=0.99)
        moved.append(not np.array_equal(before, w))
    assert moved[0]
    assert not moved[-1]
    assert moved == sorted(moved, reverse=True)
