"""Half steps of iALS against one dense solution for each row."""

import numpy as np
import pytest

from nnlib.families import ials
from tests.nnlib.families.few import few_events
from tests.nnlib.families.made_up import from_last

EVENTS = few_events(80, 40, density=0.25)
SETTINGS = dict(ials.DEFAULTS, dims=8, fit_half_life=50.0, ask_half_life=20.0)


def solved_by_hand(counts, factors, alpha, l2, nu):
    rows = []
    for row in counts:
        ridge = l2 * (row.sum() + alpha * len(factors)) ** nu
        normal = (factors.T * (row + alpha)) @ factors + ridge * np.eye(factors.shape[1])
        rows.append(np.linalg.solve(normal, factors.T @ row))
    return np.array(rows)


def loss(counts, customers, items, alpha, l2, nu):
    predicted = customers @ items.T
    whole = (counts * (1 - predicted) ** 2).sum() + alpha * (predicted**2).sum()
    for side, sums, others in ((customers, counts.sum(1), items), (items, counts.sum(0), customers)):
        whole += (l2 * (sums + alpha * len(others)) ** nu * (side**2).sum(1)).sum()
    return whole


@pytest.mark.parametrize("room", [1, 500, 1 << 22])  # blocks of one row, of some, of all
@pytest.mark.parametrize(("alpha", "l2", "nu"), [(0.3, 0.003, 1.0), (1.0, 0.1, 0.5), (0.0, 1.0, 0.0)])
def test_a_half_step_solves_every_row(monkeypatch, room, alpha, l2, nu):
    monkeypatch.setattr(ials, "ROOM", room)
    counts = EVENTS.aged(50.0)
    lengths = np.diff(counts.indptr)
    assert lengths.min() == 0 < SETTINGS["dims"] < lengths.max()  # both ways to solve are taken
    factors = np.random.default_rng(3).standard_normal((40, 8)).astype(np.float32)
    found = ials.half_step(counts, factors, SETTINGS | {"alpha": alpha, "l2": l2, "nu": nu})
    wanted = solved_by_hand(counts.toarray().astype(float), factors.astype(float), alpha, l2, nu)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_no_half_step_raises_the_loss():
    counts, weights = EVENTS.aged(50.0), {name: SETTINGS[name] for name in ("alpha", "l2", "nu")}
    items = np.random.default_rng(3).standard_normal((40, 8)).astype(np.float32)
    losses, dense = [], counts.toarray()
    for _ in range(4):
        customers = ials.half_step(counts, items, SETTINGS)
        losses.append(loss(dense, customers, items, **weights))
        items = ials.half_step(counts.T.tocsr(), customers, SETTINGS)
        losses.append(loss(dense, customers, items, **weights))
    assert losses == sorted(losses, reverse=True)


def test_scores_fold_the_asked_history_in():
    model = ials.fit(EVENTS, SETTINGS, 0)
    rows = np.array([5, 0, 79])
    asked = from_last(EVENTS, 20.0)[rows]
    customers = solved_by_hand(asked, model.items.astype(float), 0.3, 0.003, 1.0)
    np.testing.assert_allclose(model.scores(EVENTS, rows), customers @ model.items.T, rtol=1e-3, atol=1e-4)
    assert not model.scores(EVENTS, rows)[2].any()  # who has nothing
