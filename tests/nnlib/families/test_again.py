"""Buying again: sums over days, against days that are written out, and a shop of people who come every week."""

from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest

from nnlib import cli
from nnlib.contract import Recipe
from nnlib.data.read_events import read_events, read_window
from nnlib.families import again
from nnlib.families.blend import Blend, find_weights
from nnlib.families.fit import fit_recipe
from nnlib.families.measure import measure
from tests.nnlib.families.made_up import drawn, events, everybody

ONLY = {"half_life": 20.0}
FIRST_DAY = date(2026, 1, 1)


def bought_on(*days, as_of=100):
    """The history of one customer who bought item 1, of three, on these days."""
    history = events([[1]], days=[[min(days)]], items=3, as_of=as_of)
    return replace(history, last=np.array([max(days)], np.int32), counts=np.array([len(days)], np.int32))


def score(history, half_life=20.0):
    found = again.fit(history, {"half_life": half_life}, 1).scores(history, everybody(history))
    assert found.dtype == np.float32 and not found[0, [0, 2]].any()  # what he does not have is worth nothing
    return found[0, 1]


def test_each_day_counts_by_its_age():
    assert score(bought_on(80)) == pytest.approx(1 / 2)
    assert score(bought_on(60, 80)) == pytest.approx(1 / 4 + 1 / 2)
    assert score(bought_on(100, as_of=100)) == 1


@pytest.mark.parametrize("half_life", [5.0, 40.0, 1000.0])
def test_days_between_the_first_and_the_last_are_as_if_evenly_spread(half_life):
    days = np.arange(10, 96, 5)
    assert score(bought_on(*days), half_life) == pytest.approx(np.exp2((days - 100) / half_life).sum())


def test_without_ageing_it_is_the_number_of_days():
    assert score(bought_on(*range(3, 90, 7)), 1e9) == pytest.approx(13)
    assert score(bought_on(1, 99), 0.1) == pytest.approx(2**-10)  # far below: no error, and no more than the last day


def test_where_data_know_the_first_day_alone_that_counts_once():
    history = drawn()
    found = again.fit(history, ONLY, 1).scores(history, everybody(history))
    assert found == pytest.approx(history.aged(20.0).toarray())
    untimed = replace(history, days=None)
    assert again.fit(untimed, ONLY, 1).scores(untimed, np.array([1])).max() == 1


def test_some_customers_are_scored_as_all_are():
    history = drawn()
    last = np.random.default_rng(1).integers(history.days, 100).astype(np.int32)
    history = replace(history, last=last, counts=(1 + last - history.days).astype(np.int32))
    model = again.fit(history, ONLY, 1)
    everything = model.scores(history, everybody(history))
    assert model.scores(history, np.array([7, 2])).tobytes() == everything[[7, 2]].tobytes()


# --- a shop --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weekly_shop(tmp_path_factory):
    """Sixteen weeks of customers who take four items of their own each week, and once one that everybody takes then."""
    folder = tmp_path_factory.mktemp("weekly")
    lines = ["region,customer,item,date"]
    for customer in range(12):
        for week in range(16):
            for item in (*(f"own{(3 * customer + n) % 20}" for n in range(4)), f"of-week-{week:02}"):
                lines.append(f"a,c{customer:02},{item},{FIRST_DAY + timedelta(7 * week + customer % 7)}")
    (folder / "shop.csv").write_text("\n".join(lines) + "\n")
    assert cli.main(f"import {folder}/shop.csv --out {folder} --test 7d --validate 7d --repeats".split()) == 0
    return folder


def test_who_comes_every_week_is_served_what_he_always_takes(weekly_shop):
    """Four of his five targets are his own items, first in rank; the item of the week nobody had."""
    history, window = read_events(weekly_shop / "a.train.nc"), read_window(weekly_shop / "a.valid.nc")
    mine, popular = (fit_recipe(Recipe(name), history).fitted for name in ("again", "popularity"))
    found, floor = (measure(model, window, ["ndcg@4", "recall@5", "ndcg@20"]) for model in (mine, popular))
    assert found["ndcg@4"].tolist() == [1.0] * 12 and found["recall@5"] == pytest.approx(np.full(12, 0.8))
    assert 0 < floor["ndcg@4"].mean() < 0.5 and floor["ndcg@20"].mean() < found["ndcg@20"].mean()
    owned_out = replace(window, asked=replace(window.asked, repeats=False))
    left_out = measure(mine, owned_out, ["recall@20", "ndcg@20"])
    assert left_out["recall@20"].max() <= 0.2 and left_out["ndcg@20"].mean() < floor["ndcg@20"].mean()


def test_a_blend_weighs_it_by_what_it_finds(weekly_shop):
    history, window = read_events(weekly_shop / "a.train.nc"), read_window(weekly_shop / "a.valid.nc")
    members = [fit_recipe(Recipe(name), history).fitted for name in ("popularity", "again")]
    weights = find_weights(members, window)
    assert weights[1] > 0
    best = measure(Blend(tuple(members), weights), window)["ndcg@20"].mean()
    assert best >= measure(members[1], window)["ndcg@20"].mean()
