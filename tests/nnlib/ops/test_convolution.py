"""Convolution against its definition, and its gradients against what they are derivatives of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.ops import convolution
from nnlib.spec.geometry import Maps, Sweep, Window
from tests.nnlib.sweeps import arrays_of, convolve, sweep_over, sweeps


@settings(deadline=None, max_examples=60)
@given(sweeps(most=3, channels=2), st.integers(1, 3))
def test_it_is_its_definition(sweep, examples):
    x, w, _ = arrays_of(sweep, examples)
    np.testing.assert_allclose(convolution.forward(x, w, sweep), convolve(x, w, sweep), rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(sweeps(), st.integers(0, 3))
def test_its_gradients_are_those_of_a_bilinear_function(sweep, examples):
    # It is linear in x and in w: so the sum of delta z has delta's pull on each for a gradient, and nothing else.
    x, w, delta = arrays_of(sweep, examples)
    found = convolution.input_gradient(delta, w, sweep), convolution.weight_gradient(x, delta, sweep)
    assert [part.shape for part in found] == [x.shape, w.shape]
    for direction_x, direction_w, _ in (arrays_of(sweep, examples, seed) for seed in (2, 3)):
        for part, direction, moved in (
            (found[0], direction_x, convolution.forward(direction_x, w, sweep)),
            (found[1], direction_w, convolution.forward(x, direction_w, sweep)),
        ):
            np.testing.assert_allclose(np.sum(part * direction), np.sum(delta * moved), rtol=1e-9, atol=1e-9)


def test_its_gradients_are_finite_differences():
    sweep = sweep_over((Window(5, 3, 2, 1, 0, 1), Window(4, 2, 1, 0, 2, 2)), 4, 6, groups=2)
    x, w, delta = arrays_of(sweep, 2)
    for part, gradient in (
        (x, convolution.input_gradient(delta, w, sweep)),
        (w, convolution.weight_gradient(x, delta, sweep)),
    ):
        for place in np.ndindex(part.shape):
            kept, ends = part[place], []
            for step in (1e-6, -1e-6):
                part[place] = kept + step
                ends.append(np.sum(delta * convolution.forward(x, w, sweep)))
            part[place] = kept
            assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)


def test_a_kernel_is_not_turned_around():
    sweep = sweep_over((Window(4, 2, 1, 0, 0),), 1, 1)
    z = convolution.forward(np.array([[1.0, 2, 3, 4]]), np.array([[10.0, 1]]), sweep)
    assert z.tolist() == [[12, 23, 34]]


def test_maps_of_one_value_are_a_layer_of_units():
    sweep = Sweep(Maps(3, ()), Maps(2, ()), ())
    x, w, delta = arrays_of(sweep, 4)
    np.testing.assert_allclose(convolution.forward(x, w, sweep), x @ w.T)
    np.testing.assert_allclose(convolution.weight_gradient(x, delta, sweep), delta.T @ x)


@given(st.sampled_from([np.float32, np.float64]))
def test_the_type_of_numbers_stays(dtype):
    sweep = sweep_over((Window(4, 2, 1, 0, 1),), 2, 4, groups=2)
    x, w, delta = arrays_of(sweep, 2, dtype=dtype)
    assert convolution.forward(x, w, sweep).dtype == dtype
    assert convolution.input_gradient(delta, w, sweep).dtype == dtype
    assert convolution.weight_gradient(x, delta, sweep).dtype == dtype
