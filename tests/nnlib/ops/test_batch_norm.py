"""Batch normalization of units and of maps: the latter is that of units, with every place an example."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.ops import batch_norm
from nnlib.ops.batch_norm import BatchNorm

B, C, S = 5, 3, 4


def started(n, seed=0):
    random = np.random.default_rng(seed)
    return BatchNorm(*(random.uniform(0.5, 2, n) for _ in range(4)))


def rows(z):
    """Maps (b, C, S) as examples (b S, C)."""
    return z.transpose(0, 2, 1).reshape(-1, z.shape[1]).copy()


@pytest.fixture
def z():
    return np.random.default_rng(1).normal(1, 3, (B, C, S))


def test_maps_are_normalized_over_examples_and_places(z):
    one, other = started(C), started(C)
    wide, out = batch_norm.forward(one, z.copy())
    flat, expected = batch_norm.forward(other, rows(z))
    np.testing.assert_allclose(rows(out), expected, rtol=1e-12)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-12)
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-12)
    delta = np.random.default_rng(2).normal(0, 1, z.shape)
    found, expected_parts = batch_norm.backward(one, wide, delta), batch_norm.backward(other, flat, rows(delta))
    np.testing.assert_allclose(rows(found[0]), expected_parts[0], rtol=1e-9, atol=1e-12)
    for got, wanted in zip(found[1:], expected_parts[1:], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_prediction_of_maps(z):
    norm = started(C)
    np.testing.assert_allclose(
        rows(batch_norm.inference(norm, z.copy())), batch_norm.inference(norm, rows(z)), rtol=1e-12
    )
    np.testing.assert_allclose(
        rows(batch_norm.inference_backward(norm, z.copy())),
        batch_norm.inference_backward(norm, rows(z)),
        rtol=1e-12,
    )


@pytest.mark.parametrize("shape", [(B, C), (B, C, S)])
def test_part_by_part_is_the_whole(shape):
    z = np.random.default_rng(3).normal(0, 2, shape)
    whole, parts = started(C), started(C)
    _, out = batch_norm.forward(whole, z.copy())
    pieces = [batch_norm.forward(parts.part(slice(c, c + 1)), z[:, c : c + 1].copy())[1] for c in range(C)]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), out, rtol=1e-12)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-14)
    np.testing.assert_allclose(parts.variance, whole.variance, rtol=1e-14)


def test_one_example_of_one_unit_gives_the_bias():
    norm = started(2)
    _, out = batch_norm.forward(norm, np.array([[3.0, -1.0]]))
    np.testing.assert_allclose(out[0], norm.bias)
    assert np.isfinite(norm.variance).all()
