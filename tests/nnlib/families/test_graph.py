"""The graph filters against the same formulas on dense matrices, with the whole spectrum."""

import math

import numpy as np
import pytest

from nnlib.families import graph
from tests.nnlib.families.few import few_events
from tests.nnlib.families.made_up import from_last

EVENTS = few_events()
ALL = np.arange(EVENTS.customers)
SETTINGS = dict(graph.DEFAULTS, vectors=4, fit_half_life=50.0, ask_half_life=20.0)


def power(sums, exponent):
    return np.array([value**exponent if value else 0.0 for value in sums])


def by_hand(hyperparameters):
    counts = EVENTS.aged(hyperparameters["fit_half_life"]).toarray().astype(float)
    asked = from_last(EVENTS, hyperparameters["ask_half_life"])
    scale = power(counts.sum(0), -hyperparameters["item_exponent"])
    normalised = power(counts.sum(1), -hyperparameters["customer_exponent"])[:, None] * counts * scale
    normalised /= np.linalg.norm(normalised, 2)
    linear = normalised.T @ normalised
    values, vectors = np.linalg.eigh(linear)
    first = vectors[:, np.argsort(-values)[: hyperparameters["vectors"]]]
    ideal = np.diag(scale) @ first @ first.T @ np.diag([1 / one if one else 0 for one in scale])
    blurred = asked @ (linear + hyperparameters["low_pass"] * ideal)
    time = hyperparameters["sharpen"]
    return sum(blurred @ np.linalg.matrix_power(-time * linear, n) / math.factorial(n) for n in range(5))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sharpen": 1.5},
        {"customer_exponent": 0.3, "item_exponent": 0.7},
        {"customer_exponent": 0.1, "item_exponent": 0.2, "sharpen": 2.0},  # the largest value would be far from 1
        {"low_pass": 0.0, "fit_half_life": 1e9, "ask_half_life": 1e9},
        {"vectors": 1000},
    ],
)
def test_scores_are_the_filters_of_the_dense_graph(changes, monkeypatch):
    monkeypatch.setattr(graph, "BLOCK", 7)  # the last block is shorter
    hyperparameters = SETTINGS | changes
    scores = graph.fit(EVENTS, hyperparameters, 0).scores(EVENTS, ALL)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, by_hand(hyperparameters), rtol=1e-4, atol=1e-5)


def test_vectors_span_what_the_whole_decomposition_begins_with():
    """More columns than the search holds, so that it has to converge; two groups make two large values."""
    model = graph.fit(few_events(400, 60), SETTINGS, 0)
    matrix = model.normalised
    largest, found = graph.singular_vectors(matrix, model.transposed, 2, 5)
    assert largest == pytest.approx(1, rel=1e-5)  # fitted models are normalised to that
    right = np.linalg.svd(matrix.toarray().astype(float))[2][:2].T
    np.testing.assert_allclose(found @ found.T, right @ right.T, atol=1e-5)


def test_who_has_nothing_and_what_nobody_took_score_zero():
    scores = graph.fit(EVENTS, SETTINGS | {"sharpen": 1.0}, 0).scores(EVENTS, ALL)
    assert not scores[-1].any()
    assert not scores[:, -1].any()


def test_data_of_no_purchases_and_of_a_low_rank_have_as_many_vectors_as_their_rank():
    nobody = few_events(density=0.0)
    assert graph.fit(nobody, SETTINGS, 0).vectors.shape == (25, 0)
    assert not graph.fit(nobody, SETTINGS, 0).scores(EVENTS, ALL).any()
    alike = few_events(10, 25, density=0.6).take(np.array([0, 1, 0, 1, 1, 0, 0, 1]))
    assert graph.fit(alike, SETTINGS, 0).vectors.shape == (25, 2)
