import numpy as np
import pytest

from nnlib import optimizers
from nnlib.errors import NnlibError
from nnlib.optimizers import Optimizer

RATE, L2 = 0.01, 0.1


def textbook(name, gradients, weights, l2):
    w, m, v = weights.copy(), np.zeros_like(weights), np.zeros_like(weights)
    for step, gradient in enumerate(gradients, 1):
        g = gradient + l2 * w
        if name == "sgd":
            w = w - RATE * g
        elif name == "rmsprop":
            v = 0.9 * v + 0.1 * g**2
            w = w - RATE * g / np.sqrt(np.maximum(1e-9, v))
        else:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            w = w - RATE * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return w


@pytest.mark.parametrize("chunk", [1 << 15, 8])
@pytest.mark.parametrize("l2", [0.0, L2])
@pytest.mark.parametrize("name", ["sgd", "rmsprop", "adam"])
def test_rules_are_the_textbook_ones(monkeypatch, name, l2, chunk):
    monkeypatch.setattr(optimizers, "CHUNK", chunk)
    random = np.random.default_rng(0)
    start, bias = random.normal(size=(11, 4)), random.normal(size=4)
    gradients = random.normal(size=(5, 11, 4))
    gradients[np.arange(5)[:, None], random.integers(0, 11, (5, 6))] = 0  # rows a batch did not touch
    dense, sparse, biases = start.copy(), start.copy(), bias.copy()
    first = Optimizer(name, RATE, l2, [dense], [biases])
    second = Optimizer(name, RATE, l2, [sparse], [bias.copy()])
    for gradient in gradients:
        rows = np.flatnonzero(gradient.any(axis=1))
        for optimizer in (first, second):
            optimizer.step += 1
        second.touched(0, rows, gradient[rows].copy())
        first.rows(0, 0, gradient[:5].copy())
        first.rows(0, 5, gradient[5:].copy())
        first.bias(0, 0, gradient[0].copy())
    np.testing.assert_allclose(dense, textbook(name, gradients, start, l2), rtol=1e-12)
    np.testing.assert_allclose(sparse, dense, rtol=1e-13)
    np.testing.assert_allclose(biases, textbook(name, gradients[:, 0], bias, 0), rtol=1e-12)


def test_unknown_optimizer():
    with pytest.raises(NnlibError, match="'adamm' is not legal, legal: sgd, rmsprop, adam"):
        Optimizer("adamm", RATE, 0, [], [])
