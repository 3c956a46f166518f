"""The benchmark of nights: who is asked in a week, what serves whom, and how sure a mean over weeks is."""

import csv
import gzip
from datetime import date, timedelta

import numpy as np
import pytest

from nnlib.contract import Recipe, recipe_from_json
from nnlib.data.read_events import read_events
from nnlib.families.fit import fit_recipe
from nnlib.prediction.match_items import match_history
from nnlib.util.threads import map_in_turn
from regiondag.champions.chance import estimate
from regiondag.study.model import POOLED
from scripts.bench.quality.nights_served import (
    BESTSELLERS,
    Fits,
    Served,
    Week,
    by_customer,
    first_recipes,
    read_week,
    serve,
    text_of,
)
from scripts.bench.quality.runs import read_purchases, write_table

NIGHT = date(2011, 12, 3)
ONE, TWO = ("up-here", "1"), ("down", "1")


def write_purchases(path):
    """Ten weeks of two regions; in the last one `new` is sold for the first time."""
    rows = [("Up Here", "1", f"item{n}", NIGHT - timedelta(days=63 - n)) for n in range(5)]
    rows += [("Up Here", "2", f"item{n}", NIGHT - timedelta(days=1)) for n in range(4)]
    rows += [("Down", "1", f"item{n}", NIGHT - timedelta(days=1)) for n in (0, 1, 2, 3, 9)]
    rows += [("Down", "3", f"item{n}", NIGHT - timedelta(days=60)) for n in range(5)]
    after = [("Up Here", "1", "item9"), ("Up Here", "1", "item0"), ("Up Here", "2", "new"), ("Down", "1", "new")]
    rows += [(*row, NIGHT + timedelta(days=6)) for row in after]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("region", "customer", "item", "date"), *rows])


def test_the_week_asks_who_had_five_items_for_what_is_new_to_him(tmp_path):
    write_purchases(tmp_path / "table.csv")
    week = read_week(tmp_path / "table.csv", tmp_path / "data", 7)
    assert set(week.customers) == {ONE, TWO}  # Up Here's 2 had four items, Down's 3 took nothing
    items = week.window.asked.items
    wanted = week.window.wanted
    takes = {who: [items[n] for n in wanted.take(np.array([row])).indices] for row, who in enumerate(week.customers)}
    assert takes == {ONE: ["item9"], TWO: ["new"]}
    assert week.window.asked.as_of == (NIGHT - date(1970, 1, 1)).days


def test_a_model_of_the_night_knows_nothing_of_the_weeks_new_items(tmp_path):
    write_purchases(tmp_path / "table.csv")
    week = read_week(tmp_path / "table.csv", tmp_path / "data", 7)
    history = read_events(tmp_path / "data" / "down.final.nc")
    history = match_history(history, tuple(item for item in history.items if item != "new"))
    model = fit_recipe(recipe_from_json(BESTSELLERS), history)
    found = dict(zip(week.customers, week.measure(model, map_in_turn).T.tolist(), strict=True))
    assert found == {ONE: pytest.approx([1.0, 0.1]), TWO: [0.0, 0.0]}  # item9 is all that is left for the one


def test_each_region_gets_what_its_recipe_gives():
    week = Week(None, (ONE, TWO, ONE))
    values = {name: np.full((2, 3), value) for name, value in (("a", 1.0), ("b", 2.0), ("c", 3.0))}
    served = Served("a", {"down": "b", POOLED: "a"}, {}, "", {})
    assert serve(week, values, served.recipe).tolist() == [[1.0, 2.0, 1.0]] * 2
    assert serve(week, values, lambda _: "c").tolist() == [[3.0] * 3] * 2


def test_a_customer_of_several_weeks_is_one_customer():
    values = np.random.default_rng(0).normal(size=200)
    names = [("up", str(n)) for n in range(200)]
    once, plain = estimate(by_customer(values, names)), estimate(values)
    assert (once.mean, once.low, once.high, once.n) == pytest.approx((plain.mean, plain.low, plain.high, plain.n))
    again = estimate(by_customer(np.tile(values, 4), names * 4))
    assert (again.low, again.high, again.n) == pytest.approx((once.low, once.high, once.n))
    uneven = np.concatenate([values, np.full(50, 2.0)])
    assert estimate(by_customer(uneven, names + names[:1] * 50)).mean == pytest.approx(uneven.mean())


def test_the_table_of_a_night_ends_before_it(tmp_path):
    purchases = read_purchases(("Belgium", "Portugal"))
    write_table(tmp_path / "table.csv.gz", purchases, NIGHT)
    with gzip.open(tmp_path / "table.csv.gz", "rt", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == purchases[0] and {line[0] for line in lines} == {"Belgium", "Portugal"}
    assert max(line[3] for line in lines) < NIGHT.isoformat() < max(line[3] for line in purchases[1:])


def test_blends_share_their_members_and_are_what_they_are_alone(tmp_path):
    write_purchases(tmp_path / "table.csv")
    week = read_week(tmp_path / "table.csv", tmp_path / "data", 7)
    history = read_events(tmp_path / "data" / "down.final.nc")
    members = tuple(recipe_from_json(text) for text in (BESTSELLERS, first_recipes("knn")[0]))
    blend, fits = Recipe("blend", {}, 1, members, (1.0, 0.5)), Fits(history)
    ours, alone = fits.model(blend), fit_recipe(blend, history)
    assert ours.fitted.members[1] is fits.model(members[1]).fitted and text_of(ours.recipe) == text_of(alone.recipe)
    asked = week.window.asked
    np.testing.assert_array_equal(ours.scores(asked, np.arange(2)), alone.scores(asked, np.arange(2)))
