"""The moving mean of a network's parameters."""

import dataclasses

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.model.examples import examples_of
from nnlib.training import loop
from nnlib.training.average import Average
from tests.nnlib.samples import bits, network_of
from tests.nnlib.training.test_loop import NOISY, PLAIN, SETS, fit


def with_biases(network, value):
    """A network whose last biases have a value."""
    made = network.copy()
    made.biases[-1][:] = value
    return made


def test_it_is_the_sum_of_the_closed_formula():
    """Of values 5 and 7 after updates 1 to 3 and 4: what is kept of the start is the product of (1 + t) / (10 + t)."""
    network = network_of(PLAIN, SETS)
    average = Average(with_biases(network, 1.0), 0.99)
    average.add(with_biases(network, 5.0), 1, 3)
    kept = 2 / 11 * 3 / 12 * 4 / 13
    np.testing.assert_allclose(average.network.biases[-1], 5 + kept * (1 - 5), rtol=1e-6)
    average.add(with_biases(network, 7.0), 4, 4)
    np.testing.assert_allclose(average.network.biases[-1], 7 + 5 / 14 * (5 + kept * (1 - 5) - 7), rtol=1e-6)


def test_a_long_training_has_the_decay_that_was_asked_for():
    network = network_of(PLAIN, SETS)
    average = Average(with_biases(network, 1.0), 0.9)
    average.add(with_biases(network, 0.0), 1001, 1010)
    np.testing.assert_allclose(average.network.biases[-1], 0.9**10, rtol=1e-6)


def test_what_never_moves_stays_to_the_bit():
    network = network_of(PLAIN, SETS)
    average = Average(network.copy(), 0.5)
    for epoch in range(5):
        average.add(network, 4 * epoch + 1, 4 * epoch + 4)
    assert bits(average.network) == bits(network)


def test_the_mean_is_validated_and_kept(backend):
    """Epochs of one update each: the last network of trainings of 1, 2, 3 epochs are what the mean is of."""
    parts = [fit(NOISY, epochs=epochs, batch=99)[0].network for epochs in (1, 2, 3)]
    average = Average(network_of(NOISY, SETS), 0.4)
    for update, part in enumerate(parts, 1):
        average.add(part, update, update)
    seen = []
    found, _, trained = fit(NOISY, epochs=3, batch=99, ema=0.4, validate=lambda e: seen.append(bits(e.network)) or 1.0)
    assert seen[-1] == bits(average.network)
    assert bits(found.network) == seen[0]  # the metric is never better than after the first epoch
    assert bits(trained) == bits(parts[-1])
    without, _, _ = fit(NOISY, epochs=3, batch=99, ema=0.4)
    assert bits(without.network) == bits(average.network)


@pytest.mark.parametrize("rule", ["adam", "momentum"])
def test_locked_weights_stay(backend, rule):
    network = dataclasses.replace(network_of(PLAIN, SETS), locked=frozenset({0}))
    before = network.stores[0].tobytes()
    given = TrainSettings(epochs=3, batch=16, ema=0.9, optimizer=rule, accumulate=2)
    found = loop.fit(network, examples_of(network.spec, SETS, "d"), given, Cpu(), lambda _: None)
    assert found.network.stores[0].tobytes() == before
