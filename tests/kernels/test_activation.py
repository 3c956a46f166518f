"""Activations and dropout of whole layers, forwards and backwards, against activations.py and backward.py."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from nnlib.cpu import backward
from nnlib.model.batches import DROPOUT, generator_for
from nnlib.ops.activations import ROWWISE, activate, apply_dropout, dropout_constants
from nnlib.ops.limits import MEAN_FLOOR
from nnlib.spec.types import Activation, Layer, LayerKind, Sparseness
from nnlib.util.threads import map_in_turn
from tests.kernels.host import poisoned, run

EPSILON = float(np.finfo(np.float32).eps)
KINDS = {kind: np.int32(number) for number, kind in enumerate(Activation)}
EVERY = pytest.mark.parametrize("kind", Activation)
SHAPES = [(1, 1), (3, 5), (2, 33), (1, 1025), (5, 256)]
SEED, STEP, LAYERS, LAYER = 987_654_321, 1_234_567, 5, 3
DRAWN = [np.uint64(SEED << 8 | DROPOUT), np.array([STEP], np.int64), np.int32(LAYERS), np.int32(LAYER)]
NOISE = [*DRAWN, np.int64(0)]  # of a mask from its start on


def layer_of(kind: Activation, dropout: float = 0.0) -> Layer:
    """Return a layer whose constants are floats without rounding, so that both precisions have the same."""
    return Layer("H", LayerKind.HIDDEN, 6, activation=kind, slope=0.25, alpha=1.5, selu_lambda=1.125, dropout=dropout)


def unit_of(layer: Layer) -> np.ndarray:
    return np.array(
        [layer.slope, layer.alpha, layer.selu_lambda, *dropout_constants(layer), layer.dropout, 0], np.float32
    )


def kept(shape: tuple[int, int], p: float) -> np.ndarray:
    return generator_for(SEED, DROPOUT, STEP * LAYERS + LAYER).random(shape, np.float32) >= p


def activated(layer: Layer, z: np.ndarray) -> np.ndarray:
    """The twin but for what rowwise.cu does."""
    return z if layer.activation in ROWWISE else activate(layer, z)


def forward(layer, z, bias=None, out=None, sums=None, grid=1):
    """Return what the kernel makes of the arrays; what is not finite has its mark."""
    args = [z, out, bias, sums, np.int64(z.size), np.int32(z.shape[1]), KINDS[layer.activation], unit_of(layer), *NOISE]
    *found, broken = run("activation", "bias_activation_dropout", (grid,), [*args, np.zeros(1, np.int32)])
    assert broken == (0 if np.isfinite(found[0]).all() else STEP)
    return found


def test_the_first_step_that_is_not_finite_keeps_its_mark():
    z = np.array([[np.nan, 1.0]], np.float32)
    layer = layer_of(Activation.TANH)
    args = [z, None, None, None, np.int64(2), np.int32(2), KINDS[layer.activation], unit_of(layer), *NOISE]
    for mark in (np.array([STEP - 1], np.int32), None):
        assert run("activation", "bias_activation_dropout", (1,), [*args, mark])[-1] == mark


def misaligned(array: np.ndarray, by: int) -> np.ndarray:
    """Return a copy that starts `by` floats behind a place where four can be loaded at once."""
    room = np.empty(array.size + 8, array.dtype)
    start = -(room.ctypes.data // 4) % 4 + by
    copy = room[start : start + array.size].reshape(array.shape)
    copy[...] = array
    return copy


@EVERY
def test_activations_of_sums_and_biases(kind):
    layer, random = layer_of(kind), np.random.default_rng(0)
    for b, n in SHAPES:
        z, bias = random.normal(0, 3, (b, n)).astype(np.float32), random.normal(0, 1, n).astype(np.float32)
        wanted = activated(layer, (z + bias).astype(np.float64))
        found, _, sums = forward(layer, z, bias, sums=poisoned((b, n)))
        np.testing.assert_array_equal(sums, z + bias)
        # exp, log and tanh are wrong by at most two digits on a GPU, and two or three more operations follow
        np.testing.assert_allclose(found, wanted, rtol=8 * EPSILON, atol=1e-37)
        np.testing.assert_array_equal(forward(layer, z + bias)[0], found)


@EVERY
def test_activations_of_extreme_sums(kind):
    layer = layer_of(kind)
    ends = [0, 1e-40, 1e-30, 1e-7, 17, 88, 89, 104, 1e4, 3e38, np.inf]
    z = np.array([[*ends, *(-end for end in ends), np.nan]], np.float32)
    with np.errstate(all="ignore"):
        wanted = activated(layer, z.copy())
    np.testing.assert_allclose(forward(layer, z)[0], wanted, rtol=8 * EPSILON, atol=1e-37)


@EVERY
def test_dropout_draws_what_numpy_draws(kind):
    layer, random = layer_of(kind, 0.375), np.random.default_rng(1)
    for number, (b, n) in enumerate(SHAPES):
        z = misaligned(random.normal(0, 2, (b, n)).astype(np.float32), number % 4)
        a, out, _ = forward(layer, z, out=poisoned((b, n)), grid=1 + number)
        np.testing.assert_array_equal(a, forward(layer, z)[0])
        wanted = apply_dropout(layer, a, kept((b, n), layer.dropout))
        np.testing.assert_array_equal(out, wanted)
        args = [a, poisoned((b, n)), np.int64(a.size), unit_of(layer), *NOISE]
        np.testing.assert_array_equal(run("activation", "dropout", (1 + number,), args)[0], wanted)


def test_dropout_of_a_dense_input():
    layer = Layer("I", LayerKind.INPUT, 70, activation=Activation.SIGMOID, dropout=0.75)
    a = np.random.default_rng(2).normal(size=(4, 70)).astype(np.float32)
    args = [a, poisoned((4, 70)), np.int64(280), unit_of(layer), *NOISE]
    np.testing.assert_array_equal(
        run("activation", "dropout", (1,), args)[0], apply_dropout(layer, a, kept((4, 70), layer.dropout))
    )


@pytest.mark.parametrize("before", [1, 7, 8, 13, 16, 1027])
def test_the_mask_of_some_examples_is_their_part_of_the_whole(before):
    layer, random = layer_of(Activation.TANH, 0.375), np.random.default_rng(4)
    z, delta = random.normal(0, 2, (2, 5, 33)).astype(np.float32)
    keep = kept((1, before + z.size), layer.dropout)[0, before:].reshape(z.shape)
    noise, shared = [*DRAWN, np.int64(before)], [np.int64(z.size), unit_of(layer)]
    args = [z, poisoned(z.shape), None, None, shared[0], np.int32(33), KINDS[layer.activation], shared[1], *noise]
    a, out, *_ = run("activation", "bias_activation_dropout", (2,), [*args, None])
    np.testing.assert_array_equal(out, apply_dropout(layer, a, keep))
    found = run("activation", "dropout", (1,), [z, poisoned(z.shape), *shared, *noise])[0]
    np.testing.assert_array_equal(found, apply_dropout(layer, z, keep))
    sizes = [shared[0], np.int32(33), KINDS[Activation.LINEAR], shared[1], np.int32(1), np.int32(0)]
    found = run("activation", "activation_dropout_backward", (2,), [delta, a, None, None, *sizes, *noise])[0]
    np.testing.assert_array_equal(found, delta * np.where(keep, unit_of(layer)[3], np.float32(0)))


def through_layer(layer, delta, a, out, keep, compat, rule):
    """backward._through_layer without a graph; rowwise layers as linear ones, which have the same dropout."""
    if layer.activation in ROWWISE:
        layer = dataclasses.replace(layer, activation=Activation.LINEAR)
    spec = SimpleNamespace(compat=compat, sparseness_of=lambda layer: rule)
    keeps = {} if keep is None else {0: keep}
    values = SimpleNamespace(keep=keeps, totals={}, out={0: out}, active=lambda number: a)
    graph = SimpleNamespace(network=SimpleNamespace(spec=spec), each=map_in_turn)
    return backward._through_layer(graph, SimpleNamespace(number=0, layer=layer), values, delta)


def penalty_of(rule, seen):
    mean = np.clip(seen.mean(axis=0), MEAN_FLOOR, 1 - MEAN_FLOOR)
    return (rule.beta / len(seen)) * ((1 - rule.p) / (1 - mean) - rule.p / mean)


def check_backward(layer, shape, compat, rule, offset):
    random = np.random.default_rng(offset)
    delta, z = random.normal(size=(2, *shape)).astype(np.float32)
    keep = kept(shape, layer.dropout) if layer.dropout else None
    a = activated(layer, z)
    out = a if keep is None else apply_dropout(layer, a, keep)
    unmasked = compat and keep is not None
    wide = [array.astype(np.float64) for array in (delta, a, out)]
    penalty = penalty_of(rule, wide[2 if unmasked else 1]).astype(np.float32) if rule.beta else None
    count, n = np.int64(delta.size), np.int32(shape[1])
    flags = [np.int32(keep is not None), np.int32(compat)]
    given = misaligned(delta, offset % 4), a, out, penalty, count, n, KINDS[layer.activation], unit_of(layer)
    found = run("activation", "activation_dropout_backward", (1 + offset,), [*given, *flags, *NOISE])[0]
    wanted = through_layer(layer, *wide, keep, compat, rule)
    # A derivative of 0 to 2 is a difference of numbers that size, and so is the sum that it multiplies.
    sizes = (np.abs(delta) + (0 if penalty is None else np.abs(penalty))) * 2 * (1 + unit_of(layer)[3])
    assert np.all(np.abs(found - wanted) <= 8 * EPSILON * sizes)


@EVERY
@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("dropout", [0, 0.25])
def test_backward(kind, dropout, compat):
    for offset, shape in enumerate(SHAPES):
        for rule in (Sparseness(), Sparseness(0.25, 0.5)):
            check_backward(layer_of(kind, dropout), shape, compat, rule, offset)


@EVERY
def test_backward_reads_only_what_it_needs(kind):
    layer, delta, a = layer_of(kind, 0.25), *np.full((2, 3, 5), 0.5, np.float32)
    linear = kind is Activation.LINEAR or kind in ROWWISE
    for unmasked in (0, 1):
        seen = [None, None] if linear else [None, a] if unmasked else [a, None]
        numbers = [np.int64(15), np.int32(5), KINDS[kind], unit_of(layer), np.int32(1), np.int32(unmasked)]
        run("activation", "activation_dropout_backward", (1,), [delta, *seen, None, *numbers, *NOISE])


def test_nothing_to_do():
    nothing = np.empty((0, 3), np.float32)
    assert forward(layer_of(Activation.SIGMOID), nothing, out=nothing.copy())[0].size == 0
    args = [np.ones(4, np.float32), np.ones(4, np.float32), np.int32(0), np.int32(4), np.int32(4)]
    np.testing.assert_array_equal(run("activation", "add_bias", (1,), args)[0], 1)
    args[2:4] = np.int32(4), np.int32(0)
    np.testing.assert_array_equal(run("activation", "add_bias", (1,), args)[0], 1)


@pytest.mark.parametrize("grid", [1, 2, 7])
@pytest.mark.parametrize(("b", "n", "ld"), [(1, 1, 1), (5, 3, 4), (40, 33, 40), (3, 257, 257), (2, 1025, 1030)])
def test_add_bias(b, n, ld, grid):
    random = np.random.default_rng(3)
    z, bias = random.normal(size=(b, ld)).astype(np.float32), random.normal(size=n).astype(np.float32)
    wanted = z.copy()
    wanted[:, :n] += bias
    args = [z, bias, np.int32(b), np.int32(n), np.int32(ld)]
    np.testing.assert_array_equal(run("activation", "add_bias", (grid,), args)[0], wanted)
