"""EASE against its formula with NumPy's dense inverse, with a region's own weight in both ways."""

import numpy as np
import pytest

from nnlib.errors import DivergedError
from nnlib.families import ease
from nnlib.families.common import regional
from tests.nnlib.families.made_up import dense, drawn, events, everybody, from_last

HISTORY = drawn()
ONLY = {"l2": 5.0, "fit_half_life": 30.0, "ask_half_life": 50.0, "own_weight": 1.0, "bias": 0.0, "bias_scale": "raw"}


def formula(history, region=None, weight=1.0, l2=5.0):
    """Steck's scores with the rows of a region counted `weight` times."""
    counts = dense(history, 30.0) * np.sqrt(np.where(history.region == region, weight, 1.0))[:, None]
    inverse = np.linalg.inv(counts.T @ counts + l2 * np.eye(counts.shape[1]))
    weights = inverse / -np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return from_last(history, 50.0) @ weights


def fitted(history=HISTORY, **changed):
    return ease.fit(history, ONLY | changed, 1)


def test_the_scores_are_stecks(backend):
    found = fitted().scores(HISTORY, everybody(HISTORY))
    assert found.dtype == np.float32
    assert found == pytest.approx(formula(HISTORY), abs=1e-5)
    assert not found[3].any()  # has nothing


@pytest.mark.parametrize("items", [24, 200])  # more than twice the region's customers: by correction; else fitted again
def test_rows_of_a_region_count_so_many_times_for_it(items):
    history = drawn(items=items, density=0.1)
    found = fitted(history, own_weight=4.0).scores(history, everybody(history))
    for region in (0, 1):
        some = history.region == region
        assert found[some] == pytest.approx(formula(history, region, 4.0)[some], abs=2e-5)
    assert np.abs(found - formula(history)).max() > 1e-3


def test_a_region_that_the_model_does_not_know_has_the_weights_of_all():
    elsewhere = drawn(regions=("East", "West"))
    found = fitted(own_weight=4.0, bias=0.5).scores(elsewhere, everybody(elsewhere))
    share = dense(HISTORY, 30.0).sum(axis=0) / (HISTORY.customers - 1)  # one has nothing
    assert found == pytest.approx(formula(HISTORY) + 0.5 * share, abs=1e-5)


@pytest.mark.parametrize("scale", ["raw", "log"])
def test_the_regions_own_popularity_is_added(scale):
    found = fitted(bias=0.5, bias_scale=scale).scores(HISTORY, everybody(HISTORY))
    for region in (0, 1):
        some = HISTORY.region == region
        count = dense(HISTORY, 30.0)[some].sum(axis=0)
        customers = (dense(HISTORY)[some].sum(axis=1) > 0).sum()
        added = np.log1p(count) if scale == "log" else count / customers
        assert found[some] == pytest.approx(formula(HISTORY)[some] + 0.5 * added, abs=1e-5)


def test_a_customers_scores_do_not_depend_on_who_else_is_asked_about():
    model = fitted()
    assert model.scores(HISTORY, np.array([7])).tobytes() == model.scores(HISTORY, everybody(HISTORY))[7].tobytes()


def test_few_regions_are_kept_and_one_is_made_once(monkeypatch):
    made = []
    correct = ease._correct
    monkeypatch.setattr(ease, "_correct", lambda *given: made.append(1) or correct(*given))
    history = drawn(items=200, density=0.1, regions=("a", "b", "c"))
    model = fitted(history, own_weight=2.0)
    for region in (0, 1, 1, 2, 2, 0):
        model.scores(history, np.flatnonzero(history.region == region))
    assert len(made) == 4
    assert len(model.latest.made) == regional.KEPT


def test_the_inverse_of_several_blocks_is_mirrored(monkeypatch):
    whole = fitted().arrays()["inverse"]
    assert np.array_equal(whole, whole.T)
    monkeypatch.setattr(ease, "BLOCK", 7)
    assert np.array_equal(fitted().arrays()["inverse"], whole)


def test_without_days_nothing_ages():
    history = events([[0, 1], [0, 1], [1, 2]])
    model = fitted(history)
    assert model.scores(history, np.array([0]))[0, 2] > 0


def test_too_little_l2_is_said(monkeypatch):
    monkeypatch.setattr(ease, "gram", lambda _: -np.eye(4, dtype=np.float32))
    with pytest.raises(DivergedError, match=r"l2 0\.001; raise l2"):
        fitted(l2=0.001)


def test_memory_is_that_of_items_squared():
    size = ease.Size(1000, 30_000, 10_000)
    assert ease.bytes_needed(size, ONLY) // 2**30 == 3
    assert ease.bytes_needed(size, ONLY | {"own_weight": 2.0}) // 2**30 == 6
