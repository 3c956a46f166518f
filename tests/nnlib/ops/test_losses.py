"""Every error function against its formula in plain dense NumPy; delta is the derivative of that by a complex step."""

import dataclasses

import numpy as np
import pytest

from nnlib.ops.activations import ROWWISE, activate, apply_dropout
from nnlib.ops.losses import (
    CROSS_ENTROPIES,
    OPEN,
    Entries,
    Error,
    block_error,
    error_of,
    softmax_normalizer,
    softmax_part,
)
from nnlib.spec.types import Activation, Boost, ErrorFunction, Layer, Marginal, NetworkSpec
from tests.nnlib.ops.test_activations import FORMULAS, layer_of

B, N = 4, 6
MARGIN = Marginal(one_target=0.7, zero_target=0.3, one_scale=3.0, zero_scale=0.5)
POINTWISE = [kind for kind in ErrorFunction if kind not in CROSS_ENTROPIES]
PLAIN = Activation.SIGMOID, Activation.TANH, Activation.LINEAR
random = np.random.default_rng(0)
Z = random.normal(scale=1.5, size=(B, N))
Z[:, 0] = np.abs(Z[:, 0])  # RELUMax needs a unit above zero
STORED = random.random((B, N)) < 0.4
VALUES = np.where(STORED, random.uniform(0.2, 1.2, (B, N)) * random.choice([-1, 1], (B, N)), 0)
NO_BOOST = Boost()
WEIGHTS = random.uniform(0.5, 2, (B, 1))


def size(x):
    return np.where(x.real > 0, x, -x)


def reference(error, z, t, stored, weights):
    """Loss of sums z for targets t; sums whose real parts decide may be complex."""
    active = {
        **FORMULAS,
        Activation.RELU: lambda z: np.where(z.real > 0, z, 0),
        Activation.LEAKY_RELU: lambda z: np.where(z.real > 0, z, 0.2 * z),
        Activation.ELU: lambda z: np.where(z.real > 0, z, 1.5 * (np.exp(z) - 1)),
        Activation.SELU: lambda z: 1.1 * np.where(z.real > 0, z, 1.5 * (np.exp(z) - 1)),
        Activation.SOFTSIGN: lambda z: z / (1 + size(z)),
        Activation.RELU_MAX: lambda z: np.where(z.real > 0, z, 0) / np.where(z.real > 0, z, 0).sum(1, keepdims=True),
        Activation.LINEAR_MAX: lambda z: z / size(z).sum(1, keepdims=True),
        Activation.RELU6: lambda z: np.where(z.real <= 0, 0, np.where(z.real < 6, z, 6)),
    }
    a, margin = active[error.layer.activation](z), error.margin
    gates = np.where(stored, a.real < margin.one_target, a.real > margin.zero_target)
    scales = np.where(stored, margin.one_scale, margin.zero_scale)
    d = a - np.abs(t)
    formula = {
        ErrorFunction.L1: lambda: size(a - t),
        ErrorFunction.L2: lambda: (a - t) ** 2 / 2,
        ErrorFunction.HINGE: lambda: np.where((t * a).real < 1, 1 - t * a, 0),
        ErrorFunction.L2_HINGE: lambda: np.where(np.where(t > 0, d.real < 0, d.real > 0), d**2 / 2, 0),
        ErrorFunction.CROSS_ENTROPY: lambda: -t * np.log(a) - (1 - t) * np.log(1 - a),
        ErrorFunction.MARGINAL: lambda: gates * scales * np.where(stored, -np.log(a), -np.log(1 - a)),
        ErrorFunction.DATA_MARGINAL: lambda: gates * scales * np.where(stored, -t * np.log(a), -np.log(1 - a)),
    }[error.kind]
    losses = -t * np.log(a) if error.softmax else formula()
    boost = np.where(stored, error.boost.one, error.boost.zero)
    return (losses * boost * (1 if weights is None else weights)).sum()


def derivative(loss, z):
    """The derivative of a function of sums, to the last digit."""
    result = np.empty(z.shape)
    for place in np.ndindex(z.shape):
        step = np.zeros_like(z, complex)
        step[place] = 1e-30j
        result[place] = loss(z + step).imag / 1e-30
    return result


def error_like(kind, activation, boost=NO_BOOST, compat=False, margin=MARGIN):
    layer = layer_of(activation)
    spec = NetworkSpec((layer,), error=kind, marginal=margin, boost=boost, compat=compat)
    return error_of(spec, layer)


def target_of(error, form):
    """Return what to pass as targets, the dense targets, and which of them are stored."""
    rows, columns = np.nonzero(STORED)
    if form == "ones":
        return Entries(rows, columns), STORED * 1.0, STORED
    if form == "values":
        return Entries(rows, columns, VALUES[STORED]), VALUES, STORED
    t = np.where(STORED, 1.0, -1.0) if error.kind is ErrorFunction.HINGE else VALUES
    return t, t, t != 0


def check(error, form, weights=None):
    target, t, stored = target_of(error, form)
    normalizer = shares = None
    if error.softmax:
        normalizer = softmax_normalizer([softmax_part(Z)])
        if form == "ones":  # entries without values share a target of one
            t = t / np.maximum(t.sum(axis=1, keepdims=True), 1)
            target = dataclasses.replace(target, values=t[stored])
        shares = t.sum(axis=1, keepdims=True)
    wanted = reference(error, Z, t, stored, weights)
    delta = derivative(lambda z: reference(error, z, t, stored, weights), Z)
    z = Z.copy()
    found = block_error(error, z, target, weights, normalizer, shares)
    assert found == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(z, delta, rtol=1e-11, atol=1e-12)


FORMS = pytest.mark.parametrize("form", ["ones", "values", "dense"])
WEIGHED = pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])


@WEIGHED
@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("kind", POINTWISE)
def test_errors_of_single_outputs(kind, activation, weights):
    for form in ("dense",) if kind is ErrorFunction.HINGE else ("ones", "values", "dense"):
        check(error_like(kind, activation, NO_BOOST if weights is None else Boost(2.0, 0.25)), form, weights)
        check(error_like(kind, activation, Boost(1.0, 2.0)), form, weights)


@WEIGHED
@FORMS
@pytest.mark.parametrize("boost", [NO_BOOST, Boost(2.0, 0.25), Boost(0.0, 3.0)])
def test_cross_entropy_of_sigmoid_units(form, weights, boost):
    check(error_like(ErrorFunction.CROSS_ENTROPY, Activation.SIGMOID, boost), form, weights)


@FORMS
@WEIGHED
@pytest.mark.parametrize("kind", [ErrorFunction.MARGINAL, ErrorFunction.DATA_MARGINAL])
def test_margins_of_sigmoid_units(kind, form, weights):
    """Boost is for the other errors."""
    for margin in (MARGIN, OPEN, Marginal(0.8, 0.0, 30, 2), Marginal(1.0, 0.4, 1, 1)):
        check(error_like(kind, Activation.SIGMOID, Boost(5, 5), margin=margin), form, weights)


@FORMS
@WEIGHED
def test_cross_entropy_of_softmax_units(form, weights):
    check(error_like(ErrorFunction.CROSS_ENTROPY, Activation.SOFTMAX), form, weights)
    check(error_like(ErrorFunction.MARGINAL, Activation.SOFTMAX, margin=OPEN), form, weights)


@WEIGHED
@pytest.mark.parametrize("form", ["values", "dense"])
def test_margins_of_softmax_units(form, weights):
    """DSSTNE's delta, which is no derivative of its loss."""
    error = error_like(ErrorFunction.MARGINAL, Activation.SOFTMAX, margin=Marginal(0.2, 0.15, 2, 3))
    target, t, stored = target_of(error, form)
    a, shares, w = FORMULAS[Activation.SOFTMAX](Z), t.sum(axis=1, keepdims=True), 1 if weights is None else weights
    wanted = np.where(stored, (a < 0.2) * (a * shares - 2 * t), (a > 0.15) * 3 * a * shares) * w
    loss = -(w * 2 * t * np.log(a) * (a < 0.2)).sum()
    z = Z.copy()
    assert block_error(error, z, target, weights, softmax_normalizer([softmax_part(Z)]), shares) == pytest.approx(loss)
    np.testing.assert_allclose(z, wanted, atol=1e-12)


@pytest.mark.parametrize("form", ["ones", "values", "dense"])
@pytest.mark.parametrize("activation", [Activation.SIGMOID, Activation.SOFTMAX])
def test_an_output_that_is_just_at_its_margin_has_reached_it(activation, form):
    """Both outputs are 1/2, which is neither below the one's margin nor above the other's."""
    error = error_like(ErrorFunction.MARGINAL, activation, margin=Marginal(0.5, 0.5, 3.0, 2.0))
    z, t = np.zeros((1, 2)), np.array([[0.0, 1.0]])
    stored = np.array([0]), np.array([1])
    target = {"ones": Entries(*stored), "values": Entries(*stored, np.ones(1)), "dense": t}[form]
    normalizer = softmax_normalizer([softmax_part(z)]) if error.softmax else None
    assert block_error(error, z, target, None, normalizer, np.ones((1, 1))) == 0
    assert z.tolist() == [[0, 0]]


@pytest.mark.parametrize("form", ["ones", "values", "dense"])
def test_no_sigmoid_is_above_one(form):
    check(error_like(ErrorFunction.MARGINAL, Activation.SIGMOID, margin=Marginal(0.9, 1.0, 1, 1)), form)


def test_the_normalizer_of_softmax_does_not_depend_on_blocks():
    whole = softmax_normalizer([softmax_part(Z)])
    np.testing.assert_allclose(whole, np.log(np.exp(Z).sum(axis=1, keepdims=True)))
    parts = [softmax_part(Z[:, low : low + 2]) for low in (0, 2, 4)]
    np.testing.assert_allclose(softmax_normalizer(parts), whole, rtol=1e-14)
    np.testing.assert_allclose(softmax_normalizer([softmax_part(Z - 1e6), softmax_part(Z)]), whole)


CASES = pytest.mark.parametrize(
    ("kind", "activation"),
    [
        (kind, activation)
        for kind in ErrorFunction
        for activation in Activation
        if kind in POINTWISE
        or activation is Activation.SIGMOID
        or (activation is Activation.SOFTMAX and kind is not ErrorFunction.DATA_MARGINAL)
    ],
)


def errors_of(kind, activation, z):
    """Yield loss and delta of the sums z for every form of targets."""
    for form in ("dense",) if kind is ErrorFunction.HINGE else ("values", "dense"):
        error, delta = error_like(kind, activation), z.copy()
        target, t, _ = target_of(error, form)
        normalizer = softmax_normalizer([softmax_part(z)]) if error.softmax else None
        with np.errstate(all="ignore"):
            loss = block_error(error, delta, target, None, normalizer, t.sum(axis=1, keepdims=True).astype(z.dtype))
        yield loss, delta


@CASES
def test_sums_far_out_have_finite_errors(kind, activation):
    z = np.full((B, N), 1e4, np.float32)
    z[1] = -1e4
    z[2:, ::2] = -1e4
    for loss, delta in errors_of(kind, activation, z):
        assert delta.dtype == np.float32
        assert np.isfinite(loss)
        some = [0, 2, 3] if activation is Activation.RELU_MAX else slice(None)  # a row of zeros has a huge derivative
        assert np.isfinite(delta[some]).all()


@CASES
def test_nan_stays_nan(kind, activation):
    for place in np.argmax(STORED[0]), np.argmin(STORED[0]):
        z = Z.astype(np.float32)
        z[0, place] = np.nan
        for loss, delta in errors_of(kind, activation, z):
            assert np.isnan(loss)
            assert np.isnan(delta[0, place]) or kind is ErrorFunction.HINGE


@pytest.mark.parametrize(
    ("kind", "activation"),
    [
        *((kind, activation) for kind in POINTWISE if kind is not ErrorFunction.HINGE for activation in PLAIN),
        *((kind, Activation.SIGMOID) for kind in CROSS_ENTROPIES),
    ],
)
def test_entries_alone_when_zeros_are_ignored(kind, activation):
    error, usual, z = error_like(kind, activation, margin=OPEN), Z.copy(), Z.copy()
    target, t, stored = target_of(error, "values")
    block_error(error, usual, target)
    found = block_error(error, z, dataclasses.replace(target, alone=True))
    everything = reference(error, Z, t, stored, None)
    zeros = reference(dataclasses.replace(error, boost=Boost(0, 1)), Z, t, stored, None)
    assert found == pytest.approx(everything - zeros)
    assert not z[~stored].any()
    np.testing.assert_allclose(z[stored], usual[stored])


@pytest.mark.parametrize("kind", POINTWISE)
@pytest.mark.parametrize("activation", PLAIN)
def test_dropped_outputs_have_no_delta(kind, activation):
    layer = layer_of(activation, 0.4)
    error = Error(kind, layer, MARGIN, NO_BOOST, False)
    keep, t = np.random.default_rng(3).random((B, N)) >= 0.4, np.where(STORED, 1.0, -1.0)
    z = Z.copy()
    found = block_error(error, z, t, keep=keep)
    a = apply_dropout(layer, activate(layer, Z.copy()), keep)
    wanted = reference(dataclasses.replace(error, layer=layer_of(Activation.LINEAR)), a, t, t != 0, None)
    assert found == pytest.approx(wanted)
    assert not z[~keep].any()


def test_a_dropped_sigmoid_output_gives_a_half():
    error = Error(ErrorFunction.CROSS_ENTROPY, layer_of(Activation.SIGMOID, 0.4), OPEN, NO_BOOST, False)
    keep, z = STORED, Z.copy()
    found = block_error(error, z, VALUES, keep=keep)
    wanted = reference(error, Z * keep, VALUES, VALUES != 0, None)
    assert found == pytest.approx(wanted)
    np.testing.assert_allclose(z, keep * (1 / (1 + np.exp(-Z)) - VALUES), atol=1e-12)


def test_as_in_dsstne_every_entry_counts_as_one_and_boost_is_not_in_the_loss():
    boost = Boost(2.0, 0.5)
    rows, columns = np.nonzero(STORED)
    for kind in (ErrorFunction.CROSS_ENTROPY, ErrorFunction.L2):
        compat, plain = error_like(kind, Activation.SIGMOID, boost, compat=True), error_like(kind, Activation.SIGMOID)
        values = VALUES[STORED] if kind is ErrorFunction.CROSS_ENTROPY else None
        z, usual = Z.copy(), Z.copy()
        loss = block_error(compat, z, Entries(rows, columns, values))
        assert loss == pytest.approx(block_error(plain, usual, Entries(rows, columns)))
        np.testing.assert_allclose(z, usual * np.where(STORED, 2.0, 0.5))
    dense, usual = Z.copy(), Z.copy()
    compat, plain = (error_like(ErrorFunction.CROSS_ENTROPY, Activation.SIGMOID, b, True) for b in (boost, NO_BOOST))
    assert block_error(compat, dense, VALUES) == block_error(plain, usual, VALUES)
    np.testing.assert_array_equal(dense, usual)


def test_what_is_computed_in_blocks():
    def blockwise(kind, activation):
        return Error(kind, Layer("O", "Output", 1, activation=activation), OPEN, NO_BOOST, False).blockwise

    assert blockwise(ErrorFunction.L2, Activation.SIGMOID)
    assert blockwise(ErrorFunction.CROSS_ENTROPY, Activation.SOFTMAX)
    assert not any(blockwise(ErrorFunction.L2, activation) for activation in ROWWISE)
