import numpy as np
import pytest

from nnlib.model.initial_weights import initial_weights
from nnlib.spec.types import Scheme, WeightInit


def weights_of(scheme, scale=1.0, compat=False):
    return initial_weights(WeightInit(scheme, scale), (100, 50), np.random.default_rng(0), compat)


@pytest.mark.parametrize(
    ("scheme", "scale", "low", "high", "deviation"),
    [
        (Scheme.XAVIER, 1, -0.2, 0.2, 0.2 / 3**0.5),
        (Scheme.XAVIER, 3, -0.6, 0.6, 0.6 / 3**0.5),
        (Scheme.CAFFE_XAVIER, 1, -(0.06**0.5), 0.06**0.5, 0.02**0.5),
        (Scheme.UNIFORM, 2, -2, 2, 2 / 3**0.5),
        (Scheme.UNIT_BALL, 2, 0, 2, 1 / 3**0.5),
        (Scheme.GAUSSIAN, 2, -12, 12, 2),
        (Scheme.SELU, 9, -0.6, 0.6, 0.1),
        (Scheme.CONSTANT, 2, 2, 2, 0),
    ],
)
def test_schemes(scheme, scale, low, high, deviation):
    weights = weights_of(scheme, scale)
    assert weights.dtype == np.float32
    assert weights.shape == (100, 50)
    assert low <= weights.min() <= weights.max() <= high + 1e-6
    assert weights.std() == pytest.approx(deviation, rel=0.03, abs=1e-6)
    assert weights.mean() == pytest.approx((low + high) / 2, abs=deviation / 20)


def test_schemes_as_in_dsstne():
    np.testing.assert_allclose(weights_of(Scheme.XAVIER, 3, True), weights_of(Scheme.XAVIER, 3) / 2, rtol=1e-6)
    assert weights_of(Scheme.SELU, compat=True).std() == pytest.approx(0.01, rel=0.03)
    assert np.all(weights_of(Scheme.CONSTANT, 2, True) == -2)
    for scheme in set(Scheme) - {Scheme.XAVIER, Scheme.SELU, Scheme.CONSTANT}:
        np.testing.assert_array_equal(weights_of(scheme, 2, True), weights_of(scheme, 2))


def test_unit_ball_has_no_zero():
    class Zeros:
        def random(self, shape, dtype):
            return np.zeros(shape, dtype)

    assert np.all(initial_weights(WeightInit(Scheme.UNIT_BALL, 2.0), (3, 2), Zeros()) == 2)
