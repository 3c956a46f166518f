"""Lists are those of `nnlib predict`; strangers get what is popular; reasons are what the items add to a score."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from nnlib.contract import Recipe
from nnlib.cpu.backend import Cpu
from nnlib.data.events import Events
from nnlib.data.file import read_data, write_data
from nnlib.data.read_events import read_events
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError, NnlibError
from nnlib.families import FAMILIES, family_of
from nnlib.families.fit import fit_recipe
from nnlib.families.model_file import read_recipe_model, write_recipe_model
from nnlib.model.file import write_model
from nnlib.prediction.answering import ByRecipe
from nnlib.prediction.because import falls_without_each
from nnlib.prediction.by_recipe import rank_by_recipe
from nnlib.prediction.predictor import prepare, rank
from nnlib.prediction.recommender import NOTHING_KNOWN, STRANGER, Recommender, measure_data, open_recommender
from tests.nnlib.families.made_up import drawn
from tests.nnlib.prediction.test_predictor import made, raw_network, sets_of

BLEND = Recipe("blend", {}, 1, (Recipe("ease", {"l2": 10}, 1), Recipe("popularity", {}, 1)), (1.0, 0.25))
RECIPES = [*(Recipe(name, {}, 1) for name in FAMILIES if name not in ("logistic", "blend")), BLEND]
LINEAR = ("knn", "ease", "elsa", "graph")
ASKED = drawn(customers=300, regions=("North",))
EMPTY = 3  # the customer who has nothing
FOREVER = {"fit_half_life": 1e9, "ask_half_life": 1e9}


def write(path: Path, events: Events = ASKED, repeats: bool = False) -> Path:
    names = tuple(f"c{n}" for n in range(events.customers))
    sets = (DataSet("input", events.bought, events.items, days=events.days),)
    write_data(path, Data(sets, names, events.regions[0], events.as_of, repeats=repeats))
    return path


def opened(folder: Path, recipe: Recipe = BLEND, events: Events = ASKED, **keys) -> Recommender:
    data = write(folder / "data.nc", events, keys.pop("repeats", False))
    write_recipe_model(folder / "model.nc", fit_recipe(recipe, read_events(data)))
    return open_recommender(folder / "model.nc", data, **keys)


def items_of(answer) -> list[str]:
    return [one.item for one in answer.items]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda one: one.family)
def test_lists_are_those_of_predict_bit_by_bit(tmp_path, recipe):
    region = opened(tmp_path, recipe)
    model = fit_recipe(recipe, ASKED)
    blocks = list(rank_by_recipe(model, ASKED, 5, excluded=ASKED.bought.take))
    items, scores = (np.concatenate([getattr(b, name) for b in blocks]) for name in ("items", "scores"))
    answers = region.recommend(region.customers, 5)
    for n, answer in enumerate(answers):
        if n == EMPTY:
            continue
        assert (answer.customer, answer.known) == (f"c{n}", True)
        assert items_of(answer) == [f"i{unit}" for unit in items[n] if unit >= 0]
        assert [one.score for one in answer.items] == scores[n][items[n] >= 0].tolist()
    [alone] = region.recommend(["c7"], 5)
    assert items_of(alone) == items_of(answers[7])
    assert [one.score for one in alone.items] == pytest.approx([one.score for one in answers[7].items], rel=1e-5)


@pytest.mark.parametrize("values", [False, True])
def test_a_network_answers_as_predict_does(tmp_path, values):
    sets = sets_of(examples=300)
    if values:
        counted = sets["input"].rows
        counted = dataclasses.replace(counted, values=np.full(counted.nonzeros, 2, np.float32))
        sets["input"] = dataclasses.replace(sets["input"], rows=counted)
    model = made(raw_network(), sets)
    write_model(tmp_path / "model.nc", model)
    write_data(tmp_path / "data.nc", Data((sets["input"],), tuple(f"c{n}" for n in range(300))))
    region = open_recommender(tmp_path / "model.nc", tmp_path / "data.nc")
    ready = prepare(model, sets, "data")
    rows = sets["input"].rows
    blocks = list(rank(ready.network, ready.examples, 2, 4, Cpu(), excluded=rows.take))
    items = np.concatenate([b.items for b in blocks])
    scores = np.concatenate([b.scores for b in blocks])
    answers = region.recommend(region.customers, 4, because=2)
    for n, answer in enumerate(answers):
        own = {f"item {unit}" for unit in rows.take(np.array([n])).indices}
        if not own:
            assert answer.by == NOTHING_KNOWN
            continue
        assert items_of(answer) == [f"item {unit}" for unit in items[n]]
        assert [one.score for one in answer.items] == scores[n].tolist()
        assert all(set(one.because) <= own for one in answer.items)
    assert any(one.because for answer in answers for one in answer.items)
    full = next(n for n in range(300) if len(rows.take(np.array([n])).indices) > 5)
    history = [f"item {unit}" for unit in rows.take(np.array([full])).indices]
    again = region.recommend_to_history(history, 4)
    assert (again.known, again.by) == (True, "a network")
    if not values:
        assert items_of(again) == items_of(answers[full])


def test_a_network_that_takes_more_of_a_customer_says_so(tmp_path):
    sets = sets_of()
    sets["age"] = DataSet("age", type_dense(np.arange(50, dtype=np.float32)[:, None]))
    raw = raw_network()
    raw["Layers"].insert(1, {"Name": "Age", "Kind": "Input", "N": "auto", "DataSet": "age"})
    raw["Layers"][2]["Source"] = ["In", "Age"]
    write_model(tmp_path / "model.nc", made(raw, sets))
    write_data(tmp_path / "data.nc", Data((sets["input"], sets["age"])))
    region = open_recommender(tmp_path / "model.nc", tmp_path / "data.nc")
    assert [answer.by for answer in region.recommend(["0", "1"], because=1)] == ["a network"] * 2
    with pytest.raises(DataError, match='takes the dense data set "age" of a customer'):
        region.recommend_to_history(["item 1"])


def type_dense(values):
    from nnlib.data.rows import Dense

    return Dense(values)


def test_strangers_get_what_is_popular_and_are_told(tmp_path):
    region = opened(tmp_path)
    popular = fit_recipe(Recipe("popularity", {}, 1), ASKED).scores(ASKED, np.array([EMPTY]))[0]
    best = [f"i{n}" for n in np.argsort(-popular, kind="stable")[:10]]
    stranger, empty, usual = region.recommend(["nobody", f"c{EMPTY}", "c0"])
    assert (stranger.customer, stranger.known, stranger.by) == ("nobody", False, STRANGER)
    assert (empty.known, empty.by) == (True, NOTHING_KNOWN)
    assert items_of(stranger) == items_of(empty) == best
    assert (usual.known, usual.by) == (True, "a blend of ease, popularity")
    other = opened(tmp_path, Recipe("popularity", {}, 1))
    assert {answer.by for answer in other.recommend(["nobody", "c3", "c1"])} == {"recent popularity"}
    assert other.recommend(["c1"], because=3)[0].items[0].because == ()


def test_the_floor_that_is_given_is_asked(tmp_path):
    rare = dataclasses.replace(
        ASKED, bought=from_rows([[5]] * 9 + [[7]] * 4, 24), region=np.zeros(13, np.int32), days=None
    )
    write_recipe_model(tmp_path / "floor.nc", fit_recipe(Recipe("popularity", {}, 1), rare))
    region = opened(tmp_path, floor=tmp_path / "floor.nc")
    assert items_of(region.recommend(["nobody"], 2)[0]) == ["i5", "i7"]


def test_what_customers_have_and_filters(tmp_path):
    region = opened(tmp_path)
    own = {f"i{unit}" for unit in ASKED.bought.take(np.array([0])).indices}
    assert own
    assert not own & set(items_of(region.recommend(["c0"], 24)[0]))
    everything = items_of(region.recommend(["c0"], 24, owned=True)[0])
    assert set(everything) == set(region.items)
    [first, second, *_] = [item for item in everything if item not in own]
    assert items_of(region.recommend(["c0"], 24, never=[first, "unheard of"])[0])[0] == second
    assert items_of(region.recommend(["c0"], 24, only=[second, first, "unheard of"])[0]) == [first, second]
    assert items_of(region.recommend(["nobody"], 24, only=[first], never=[first])[0]) == []
    again = opened(tmp_path, repeats=True)
    assert set(items_of(again.recommend(["c0"], 24)[0])) == set(region.items)
    assert not own & set(items_of(again.recommend(["c0"], 24, owned=False)[0]))


@pytest.mark.parametrize("k", [0, -1, True, 2.5, "ten"])
def test_wrong_arguments_are_said(tmp_path, k):
    region = opened(tmp_path)
    with pytest.raises(NnlibError, match=r"k: .* is not legal, legal: a whole number from 1"):
        region.recommend(["c0"], k)
    with pytest.raises(
        NnlibError, match="only: none of 2 items is known, legal: some of the model's 24 items, such as"
    ):
        region.recommend(["c0"], only=["x", "y"])


@pytest.mark.parametrize("family", ["knn", "ease"])
def test_reasons_are_the_exact_terms_of_linear_models(tmp_path, family):
    """Reference: entry h of a history q adds q_h B[h] to the scores, by the weights B themselves."""
    hyperparameters = {"fit_half_life": 30.0, "ask_half_life": 25.0, "bias": 0.5}
    model = fit_recipe(Recipe(family, hyperparameters, 1), ASKED)
    likeness = model.fitted.likeness
    if family == "knn":
        weights = likeness.matrix.toarray()
    else:
        weights = np.eye(24) - likeness.matrix.astype(np.float64) / likeness.diagonal
    by = ByRecipe(model, ASKED)
    for customer in (0, 7, 11):
        person = by.people(np.array([customer]))
        history = person.aged_from_last(25.0).toarray()[0]
        owned, falls = falls_without_each(by, person, range(24))
        assert sorted(owned) == np.flatnonzero(history).tolist()
        assert falls == pytest.approx(history[owned, None] * weights[owned], abs=3e-6)


@pytest.mark.parametrize("family", LINEAR)
def test_the_terms_of_linear_models_make_up_the_score(family):
    by = ByRecipe(fit_recipe(Recipe(family, {"fit_half_life": 30.0, "ask_half_life": 25.0}, 1), ASKED), ASKED)
    for customer in (0, 7, 11):
        person = by.people(np.array([customer]))
        _, falls = falls_without_each(by, person, range(24))
        assert falls.sum(axis=0) == pytest.approx(by.strengths(person)[0], rel=1e-3, abs=1e-4)


def test_reasons_are_owned_items_that_raise_the_score_the_best_first(tmp_path):
    region = opened(tmp_path, Recipe("knn", {"k": 24, "q": 0.5, **FOREVER}, 1))
    weights = fit_recipe(Recipe("knn", {"k": 24, "q": 0.5, **FOREVER}, 1), ASKED).fitted.likeness.matrix.toarray()
    own = ASKED.bought.take(np.array([0])).indices
    for one in region.recommend(["c0"], 5, because=3)[0].items:
        terms = weights[own, int(one.item[1:])]
        best = [f"i{own[n]}" for n in np.argsort(-terms, kind="stable")[:3] if terms[n] > 0]
        assert list(one.because) == best


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda one: one.family)
def test_every_model_has_reasons_or_none(tmp_path, recipe):
    region = opened(tmp_path, recipe)
    own = {f"i{unit}" for unit in ASKED.bought.take(np.array([0])).indices}
    reasons = [one.because for one in region.recommend(["c0"], 5, because=2)[0].items]
    assert all(len(some) <= 2 and set(some) <= own for some in reasons)
    assert any(reasons) == (recipe.family not in ("popularity", "again"))


def test_of_a_long_history_the_last_hundred_are_tried(tmp_path):
    width = 400
    long = [list(range(300)), list(range(300, 400)), *[[n, (n + 1) % width] for n in range(width)]]
    days = [[*range(300)], [0] * 100, *[[5, 6]] * width]
    flat = np.array([day for row in days for day in row], np.int32)
    events = Events(
        from_rows(long, width), tuple(f"i{n}" for n in range(width)), np.zeros(len(long), np.int32), ("",), flat, 400
    )
    by = ByRecipe(fit_recipe(Recipe("knn", FOREVER, 1), events), events)
    owned, _ = falls_without_each(by, by.people(np.array([0])), [300])
    assert owned.tolist() == list(range(299, 199, -1))


@pytest.mark.parametrize("recipe", [one for one in RECIPES if one.family != "days"], ids=lambda one: one.family)
def test_somebody_known_by_his_items_alone(tmp_path, recipe):
    timeless = dataclasses.replace(ASKED, days=None, as_of=0)
    region = opened(tmp_path, recipe, timeless)
    own = [f"i{unit}" for unit in ASKED.bought.take(np.array([0])).indices]
    [known] = region.recommend(["c0"], because=1)
    found = region.recommend_to_history([*own, own[0], "unheard of"], because=1)
    assert (found.customer, found.known, found.by) == ("", True, known.by)
    assert [(one.item, one.because) for one in found.items] == [(one.item, one.because) for one in known.items]
    assert region.recommend_to_history(["unheard of"]).by in (NOTHING_KNOWN, "recent popularity")
    assert region.recommend_to_history([]).known is False


def test_names_of_items(tmp_path):
    (tmp_path / "items.csv").write_text('unit,item,description\n0,i0,"Red, big"\n1,i1,\n2,gone,Gone\n')
    region = opened(tmp_path, items=tmp_path / "items.csv")
    assert region.descriptions == {"i0": "Red, big"}
    (tmp_path / "wrong.csv").write_text("item,name\ni0,Red\n")
    with pytest.raises(DataError, match=r"wrong\.csv:1: the columns item, name, legal: with description"):
        open_recommender(tmp_path / "model.nc", tmp_path / "data.nc", items=tmp_path / "wrong.csv")


def test_items_that_the_model_does_not_know_and_customers_without_names(tmp_path):
    write_recipe_model(tmp_path / "model.nc", fit_recipe(BLEND, ASKED))
    names = (*ASKED.items[:12], *(f"new{n}" for n in range(12)))
    sets = (DataSet("input", ASKED.bought, names, days=ASKED.days),)
    write_data(tmp_path / "data.nc", Data(sets, as_of=100))
    region = open_recommender(tmp_path / "model.nc", tmp_path / "data.nc")
    assert region.items == ASKED.items
    assert region.customers[:2] == ("0", "1")
    assert {item[0] for item in items_of(region.recommend(["5"], 24)[0])} == {"i"}


def test_several_threads_may_ask(tmp_path):
    region = opened(tmp_path)
    names = [*region.customers, "nobody"]
    expected = [region.recommend([name], because=1) for name in names]
    fresh = open_recommender(tmp_path / "model.nc", tmp_path / "data.nc")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda name: fresh.recommend([name], because=1), names)) == expected


def test_every_family_is_asked_here():
    assert {recipe.family for recipe in (*RECIPES, Recipe("logistic"))} == set(FAMILIES)
    assert all(family_of(name) for name in LINEAR)


def test_regions_that_one_model_serves_have_it_in_memory_once(tmp_path):
    region = opened(tmp_path)
    other, third = tmp_path / "other.nc", tmp_path / "third.nc"
    other.hardlink_to(tmp_path / "model.nc")
    third.write_bytes(other.read_bytes())
    data = tmp_path / "data.nc"
    assert open_recommender(other, data).model.model is region.model.model
    assert open_recommender(third, data).model.model is not region.model.model
    write_recipe_model(tmp_path / "model.nc", fit_recipe(Recipe("ease", {}, 1), ASKED))
    assert open_recommender(tmp_path / "model.nc", data).model.by == "ease"


SIGNS = tuple(f"sign{n}" for n in range(4))


def write_pictures(path: Path, classes: bool = True) -> Path:
    """Data of bytes that are brighter in a place for each sign, the second sign being the most frequent."""
    random = np.random.default_rng(5)
    answers = np.array([1, 1, 0, 2, 3] * 8)
    values = random.integers(0, 150, (40, 12), np.uint8)
    values[np.arange(40), 3 * answers] += 100
    sets = [DataSet("input", Dense(values)), DataSet("output", from_rows([[int(n)] for n in answers], 4), SIGNS)]
    write_data(path, Data(tuple(sets[: 1 + classes]), tuple(f"p{n}" for n in range(40)), "North"))
    return path


@pytest.fixture
def pictures(tmp_path) -> Path:
    """A folder with pictures and the models of both families that can be fitted to them."""
    history = read_events(write_pictures(tmp_path / "data.nc"), inputs=True)
    for family in ("logistic", "popularity"):
        write_recipe_model(tmp_path / f"{family}.nc", fit_recipe(Recipe(family), history))
    return tmp_path


@pytest.mark.parametrize("family", ["logistic", "popularity"])
@pytest.mark.parametrize("classes", [True, False], ids=["with classes", "pictures alone"])
def test_what_is_told_by_dense_inputs_is_answered_by_these_and_no_class_is_left_out(pictures, family, classes):
    region = open_recommender(pictures / f"{family}.nc", write_pictures(pictures / "asked.nc", classes))
    answers = region.recommend(region.customers, k=4)
    assert all(answer.known and len(answer.items) == 4 for answer in answers)
    assert {answer.by for answer in answers} == {{"logistic": "logistic regression"}.get(family, "recent popularity")}
    model = read_recipe_model(pictures / f"{family}.nc")
    scores = model.scores(read_events(pictures / "data.nc", inputs=True), np.arange(40))
    for answer, row in zip(answers, scores, strict=True):
        assert [float(one.score) for one in answer.items] == sorted(row.tolist(), reverse=True)
        assert items_of(answer) == [SIGNS[n] for n in np.argsort(-row, kind="stable")]
    [reasoned] = region.recommend(["p3"], k=2, because=3)
    assert [one.because for one in reasoned.items] == [(), ()]


@pytest.mark.parametrize("floor", ["logistic.nc", "popularity.nc", None])
def test_strangers_get_the_most_frequent_class_as_nothing_else_is_known_of_them(pictures, floor):
    region = open_recommender(pictures / "logistic.nc", pictures / "data.nc", floor and pictures / floor)
    [answer] = region.recommend(["nobody"], k=2)
    assert (answer.known, answer.by, items_of(answer)[0]) == (False, STRANGER, "sign1")
    with pytest.raises(DataError, match="told by dense inputs, not by items; legal: examples of the data"):
        region.recommend_to_history(["sign1"])


def test_items_of_pictures_are_their_classes_and_not_their_pixels(pictures):
    assert measure_data(pictures / "data.nc") == (40, 4)
    assert measure_data(write(pictures / "history.nc")) == (300, 24)


def test_a_network_of_dense_inputs_answers_for_all_of_its_data(pictures):
    sets = {one.name: one for one in read_data(pictures / "data.nc").sets}
    write_model(pictures / "model.nc", made(raw_network("SoftMax"), sets))
    region = open_recommender(pictures / "model.nc", pictures / "data.nc", pictures / "logistic.nc")
    known, stranger = region.recommend(["p0", "nobody"], k=4)
    assert (known.by, known.known, len(known.items)) == ("a network", True, 4)
    assert sum(one.score for one in known.items) == pytest.approx(1, abs=1e-5)
    assert (stranger.by, items_of(stranger)[0]) == (STRANGER, "sign1")
