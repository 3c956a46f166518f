"""Compiled batch normalization of maps against NumPy's, in pieces of any channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.cpu.maps import norms
from nnlib.cpu.maps.norms import normalize, normalize_back
from nnlib.ops import batch_norm
from nnlib.ops.batch_norm import BatchNorm, Normed

ROUNDINGS = {np.float32: 2e-6, np.float64: 1e-12}


def started(channels: int, dtype: Any) -> BatchNorm:
    random = np.random.default_rng(channels)
    return BatchNorm(*(random.uniform(0.5, 2, channels).astype(dtype) for _ in range(4)))


def forward(norm: BatchNorm, z: Any, cuts: list[slice]) -> tuple[Normed, Any]:
    normal, out, inverse = z.copy(), np.empty_like(z), np.empty(z.shape[1], z.dtype)
    for channels in cuts:
        normalize(norm, normal, channels, inverse, out)
    return Normed(normal, inverse), out


def backward(norm: BatchNorm, normed: Normed, delta: Any, cuts: list[slice]) -> tuple[Any, Any, Any]:
    below, scale, bias = delta.copy(), np.empty_like(norm.scale), np.empty_like(norm.bias)
    for channels in cuts:
        normalize_back(norm, normed, below, channels, scale, bias)
    return below, scale, bias


def assert_near(found: Any, wanted: Any, rounding: float) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=rounding * max(1, np.abs(other).max()))


@pytest.mark.parametrize("dtype", ROUNDINGS)
@given(shape=st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 70)), cut=st.integers(0, 6))
def test_it_is_the_reference(dtype, shape, cut):
    random = np.random.default_rng(shape)
    z, delta = (random.normal(3, 2, shape).astype(dtype) for _ in range(2))
    cut, (ours, theirs) = min(cut, shape[1]), (started(shape[1], kind) for kind in (dtype, np.float64))
    cuts, rounding = [slice(0, cut), slice(cut, shape[1])], ROUNDINGS[dtype] * (4 if shape[0] * shape[2] > 2 else 1e4)
    normed, out = forward(ours, z, cuts)
    wanted, wanted_out = batch_norm.forward(theirs, z.astype(np.float64))
    assert_near((normed.normal, out, ours.mean), (wanted.normal, wanted_out, theirs.mean), rounding)
    assert_near((ours.variance, normed.inverse), (theirs.variance, wanted.inverse), rounding * wanted.inverse.max())
    given_normal = Normed(wanted.normal.astype(dtype), wanted.inverse.astype(dtype))
    found = backward(ours, given_normal, delta, cuts)
    expected = batch_norm.backward(theirs, wanted, delta.astype(np.float64))
    assert_near(found, expected, rounding * wanted.inverse.max())


@pytest.mark.parametrize("area", [1, 7, 49, 3136])
def test_any_pieces_give_the_same_bits(area):
    z, delta = np.random.default_rng(area).normal(0, 1, (2, 4, 9, area)).astype(np.float32)
    found = []
    for step in (1, 4, 9):
        norm, cuts = started(9, np.float32), [slice(low, min(low + step, 9)) for low in range(0, 9, step)]
        normed, out = forward(norm, z, cuts)
        parts = (normed.normal, normed.inverse, out, norm.mean, norm.variance, *backward(norm, normed, delta, cuts))
        found.append([part.tobytes() for part in parts])
    assert found[0] == found[1] == found[2]


def test_maps_far_from_zero_keep_their_variance():
    z = (1e4 + np.random.default_rng(1).normal(0, 1, (8, 2, 4000))).astype(np.float32)
    norm = BatchNorm.start(2)
    normed, _ = forward(norm, z, [slice(0, 2)])
    exact = z.astype(np.float64)
    np.testing.assert_allclose(1 / normed.inverse**2, exact.var(axis=(0, 2)), rtol=1e-4)
    np.testing.assert_allclose(norm.mean / batch_norm.NEWEST, exact.mean(axis=(0, 2)), rtol=1e-6)


def test_what_is_not_finite_shows():
    z = np.ones((2, 3, 5), np.float32)
    z[1, 1, 3] = np.nan
    _, out = forward(BatchNorm.start(3), z, [slice(0, 3)])
    assert np.isnan(out[:, 1]).all() and np.isfinite(out[:, [0, 2]]).all()


def test_without_numba_numpy_computes(monkeypatch):
    z = np.random.default_rng(2).normal(0, 1, (3, 4, 6)).astype(np.float32)
    ours, theirs = started(4, np.float32), started(4, np.float32)
    monkeypatch.setattr(norms, "LOOPS", None)
    normed, out = forward(ours, z, [slice(0, 3), slice(3, 4)])
    wanted, wanted_out = batch_norm.forward(theirs, z.copy())
    found = backward(ours, normed, z, [slice(0, 4)])
    assert_near((out, normed.normal, ours.variance), (wanted_out, wanted.normal, theirs.variance), 1e-6)
    assert_near(found, batch_norm.backward(theirs, wanted, z), 1e-6)
