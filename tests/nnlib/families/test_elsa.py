"""The gradient of ELSA against finite differences, and its loss against the definition."""

import numpy as np

from nnlib.families import elsa
from tests.nnlib.families.few import few_events
from tests.nnlib.families.made_up import from_last

EVENTS = few_events()
SETTINGS = dict(elsa.DEFAULTS, dims=6, epochs=20, batch=16, fit_half_life=50.0)


def asked_rows():
    counts = EVENTS.aged(50.0).astype(np.float64)
    return counts[np.flatnonzero(np.diff(counts.indptr) >= elsa.AT_LEAST)]


def loss_by_hand(x, weights):
    a = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    y = x @ a @ a.T - x
    lengths = [np.linalg.norm(one, axis=1, keepdims=True) for one in (x, y)]
    weight = (x**2).sum(axis=1) / (x > 0).sum(axis=1)
    return (weight * ((y / lengths[1] - x / lengths[0]) ** 2).sum(axis=1)).mean()


def test_the_gradient_is_that_of_the_loss_as_defined():
    x, weights = asked_rows(), np.random.default_rng(2).standard_normal((25, 6))
    dense = x.toarray()
    loss, slope = elsa.loss_and_gradient(x, weights)
    np.testing.assert_allclose(loss, loss_by_hand(dense, weights), rtol=1e-12)
    wanted = np.empty_like(weights)
    for place in np.ndindex(weights.shape):
        step = np.zeros_like(weights)
        step[place] = 1e-6
        wanted[place] = (loss_by_hand(dense, weights + step) - loss_by_hand(dense, weights - step)) / 2e-6
    np.testing.assert_allclose(slope, wanted, rtol=1e-5, atol=1e-8)


def test_fitting_lowers_the_loss():
    start = np.random.default_rng(0).standard_normal((25, 6))
    fitted = elsa.fit(EVENTS, SETTINGS, 0).items
    np.testing.assert_allclose(np.linalg.norm(fitted, axis=1), 1, rtol=1e-5)
    assert loss_by_hand(asked_rows().toarray(), fitted) < 0.7 * loss_by_hand(asked_rows().toarray(), start)


def test_scores_are_the_history_times_the_weights():
    model, rows = elsa.fit(EVENTS, SETTINGS, 0), np.array([3, 3, 59, 0])
    weights = model.items @ model.items.T - np.eye(25)
    history = from_last(EVENTS, SETTINGS["ask_half_life"])[rows]
    np.testing.assert_allclose(model.scores(EVENTS, rows), history @ weights, atol=1e-5)


def test_data_in_which_nobody_has_two_items_leave_the_start():
    lonely = few_events(density=0.01).take(np.array([59, 59]))
    assert np.isfinite(elsa.fit(lonely, SETTINGS, 0).scores(EVENTS, np.arange(60))).all()
