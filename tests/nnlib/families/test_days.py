"""The day ridge against rows that are written out one by one, and what it is there for: order and season."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from nnlib.errors import DivergedError, NnlibError
from nnlib.families import days
from nnlib.families.common import products
from tests.nnlib.families.made_up import drawn, events, everybody

HISTORY = drawn()
ONLY = {"l2": 2.0, "fit_half_life": 40.0, "ask_half_life": 30.0, "ahead_half_life": 15.0}


def season(day):
    waves = [2 * np.pi * day / 365.25 * n for n in (1, 2, 3)]
    return np.hstack([1, np.sin(waves), np.cos(waves)])


def repeated(history=HISTORY, seed=4):
    """The same history of customers who may have bought an item once more, which is asked for, too."""
    last = np.random.default_rng(seed).integers(history.days, 100).astype(np.int32)
    return replace(history, last=last, counts=(1 + (last > history.days)).astype(np.int32), repeats=True)


def formula(history, most=30):
    """Weights by plain loops and NumPy's solver, in double precision."""
    last_days = history.days if history.last is None else history.last
    rows, targets, weights = [], [], []
    bought = history.bought
    for customer in range(history.customers):
        part = slice(bought.indptr[customer], bought.indptr[customer + 1])
        items, pairs = bought.indices[part], np.array([history.days[part], last_days[part]], float).T
        for day in np.unique(pairs)[1:][-most:]:
            had, later = np.zeros(bought.width), np.zeros(bought.width)
            for item, pair in zip(items, pairs, strict=True):
                before, after = pair[pair < day], pair[pair >= day]
                had[item] = 2 ** ((before.max() - day) / 30) if len(before) else 0
                later[item] = 2 ** ((day - after.min()) / 15) if len(after) else 0
            rows.append(np.hstack([had, season(day)]))
            targets.append(np.where(later > days.LEAST_TARGET, later, 0))
            weights.append(2 ** ((day - history.as_of) / 40))
    x, y, w = np.array(rows), np.array(targets), np.diag(weights)
    ridge = np.diag([2.0] * bought.width + [days.SEASON_L2] * days.SEASON)
    return np.linalg.solve(x.T @ w @ x + ridge, x.T @ w @ y)


def fitted(history=HISTORY, **changed):
    return days.fit(history, ONLY | changed, 1)


@pytest.mark.parametrize("history", [HISTORY, repeated()], ids=["once", "again"])
def test_the_weights_are_those_of_rows_written_out(history):
    found = fitted(history).weights
    assert found.dtype == np.float32 and found.flags.c_contiguous
    assert found == pytest.approx(formula(history), abs=1e-5)


def test_the_scores_are_of_the_day_that_is_asked_about(backend):
    model = fitted()
    x = np.hstack([HISTORY.aged(30.0).toarray(), np.tile(season(100), (HISTORY.customers, 1))])
    found = model.scores(HISTORY, everybody(HISTORY))
    assert found.dtype == np.float32
    assert found == pytest.approx(x @ model.weights, abs=1e-5)
    assert model.scores(HISTORY, np.array([7])).tobytes() == found[7].tobytes()


def test_only_a_customers_last_days_count(monkeypatch):
    monkeypatch.setattr(days, "MOST_DAYS", 2)
    assert fitted().weights == pytest.approx(formula(HISTORY, most=2), abs=1e-5)


def test_rows_are_the_days_of_a_customer_but_his_first():
    history = events([[0, 1, 2, 3], [], [0, 1], [2]], days=[[9, 5, 5, 7], [], [5, 5], [8]])
    customer, day = days.list_days(history)
    assert customer.tolist() == [0, 0] and day.tolist() == [7, 9]
    history = replace(history, last=np.array([9, 6, 5, 7, 5, 9, 9], np.int32))
    customer, day = days.list_days(history)
    assert customer.tolist() == [0, 0, 0, 2, 3] and day.tolist() == [6, 7, 9, 9, 9]


def test_what_is_bought_again_is_told_where_that_is_asked_for():
    """Item 0 is bought twice by all who have it, item 1 never."""
    history = events([[0, 1], [0, 1], [2, 3]] * 20, days=[[10, 10], [40, 40], [30, 50]] * 20)
    last = np.where(history.bought.indices == 0, 80, history.days).astype(np.int32)
    asked = events([[0, 1]], days=[[70, 70]], items=4)
    only = {"fit_half_life": 1e9, "ask_half_life": 1e9, "ahead_half_life": 1e9}
    scores = fitted(replace(history, last=last), **only).scores(asked, everybody(asked))[0]
    assert scores[0] > scores[1] + 0.3


@pytest.mark.parametrize("module", [days, products])
def test_the_size_of_blocks_changes_nothing_but_rounding(monkeypatch, module):
    whole = fitted().weights
    monkeypatch.setattr(module, "ENTRIES", 50)
    assert fitted().weights == pytest.approx(whole, abs=1e-5)


def test_bits_do_not_depend_on_blas_threads():
    history = drawn(customers=300, items=300, density=0.1)
    found = []
    for threads in (1, 8):
        with threadpool_limits(threads, user_api="blas"):
            found.append(fitted(history).scores(history, everybody(history)).tobytes())
    assert found[0] == found[1]


def test_what_comes_first_tells_what_comes_next_and_not_the_other_way_round():
    history = events([[0, 1, 2], [0, 1, 3], [0, 1, 2]] * 20, days=[[10, 20, 5], [40, 60, 30], [70, 80, 60]] * 20)
    asked = events([[0], [1]], days=[[90], [90]], items=4)
    scores = fitted(history, fit_half_life=1e9, ask_half_life=1e9).scores(asked, everybody(asked))
    assert scores[0, 1] > scores[1, 0] + 0.3


def test_the_season_tells_what_is_taken():
    """Item 1 is taken in winter, item 2 in summer, by customers who all had item 0."""
    years = 365 * np.arange(30)
    taken, when = [[0, 1], [0, 2]] * 30, [day for year in years for day in ([year, year + 365], [year, year + 547])]
    history = events(taken, days=when, as_of=365 * 31)
    model = fitted(history, fit_half_life=1e9)
    for day, more, less in ((365 * 32, 1, 2), (365 * 32 + 182, 2, 1)):
        asked = events([[0]], days=[[day - 365]], items=3, as_of=day)
        scores = model.scores(asked, everybody(asked))[0]
        assert scores[more] > scores[less] + 0.1


def test_customers_with_one_day_leave_nothing_to_learn():
    history = events([[0, 1], []], days=[[3, 3], []], items=2)
    assert not fitted(history).scores(history, everybody(history)).any()


def test_half_lives_far_below_and_above_all_ages_are_numbers():
    for half_life in (0.1, 1e9):
        every = {f"{name}_half_life": half_life for name in ("fit", "ask", "ahead")}
        assert np.isfinite(fitted(**every).weights).all()


def test_without_days_there_is_nothing_to_learn():
    with pytest.raises(NnlibError, match=r"have no times.*import purchases with dates"):
        fitted(events([[0, 1], [1, 2]]))


def test_too_little_l2_is_said(monkeypatch):
    monkeypatch.setattr(days, "SEASON_L2", -1e9)
    with pytest.raises(DivergedError, match="raise l2"):
        fitted()


def test_weights_of_another_shape_are_refused():
    arrays = fitted().arrays()
    weights = arrays["weights"]
    assert days.restore(arrays, ONLY, ()).weights is weights
    for wrong in (weights[:-1], weights.astype(np.float64), np.ones((), np.float32)):
        with pytest.raises(ValueError, match=r"weights: .* legal: float32, 31 x 24"):
            days.restore(arrays | {"weights": wrong}, ONLY, ())


def test_memory_is_that_of_twice_items_squared():
    assert round(days.bytes_needed(days.Size(1000, 30_000, 10_000), ONLY) / 2**30, 2) == 6.76
