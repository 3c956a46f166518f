"""Jobs of recipes in this process: what they fit, what they measure of each customer, what they leave and refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnlib.contract import (
    Metric,
    Recipe,
    Role,
    Status,
    TrainSettings,
    Trial,
    result_from_json,
    result_to_json,
    sha256_of,
)
from nnlib.data.file import write_data
from nnlib.data.read_events import read_events, read_window
from nnlib.data.rows import Csr, Dense, from_rows, offsets_of
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError, NnlibError
from nnlib.families.fit import fit_recipe
from nnlib.families.legal import complete_recipe
from nnlib.families.measure import measure
from nnlib.families.model_file import read_recipe_model
from nnlib.worker.recipe_job import run_recipe
from nnlib.worker.scores import write_scores

ITEMS, CUSTOMERS, AS_OF = 20, 30, 1000
NAMES = tuple(f"i{n}" for n in range(ITEMS))
POPULARITY = Recipe("popularity", {"half_life": 30.0, "own": 0.5})
KNN = Recipe("knn", {"k": 8, "q": 0.4, "fit_half_life": 100.0})
EASE = Recipe("ease", {"l2": 10.0})
EVER = Recipe("popularity", {"half_life": 1e9, "own": 1.0})
ELSA = Recipe("elsa", {"dims": 4, "epochs": 2})
BLEND = Recipe("blend", {}, 1, (KNN, POPULARITY, EASE))
COMPARED = {"bestsellers": EVER, "floor": POPULARITY, "simple": EASE}
FILES = {"train": AS_OF - 28, "valid": AS_OF - 28, "final": AS_OF, "test": AS_OF, "all": AS_OF + 28}


def took(as_of: int) -> tuple[list[list[int]], list[list[int]]]:
    """The items that customers of two tastes had before a day, and the days."""
    rng = np.random.default_rng(3)
    items, days = [], []
    for customer in range(CUSTOMERS):
        mine = rng.permutation(np.arange(customer % 2, ITEMS, 2))[:8]
        when = np.sort(rng.integers(AS_OF - 200, AS_OF + 28, len(mine)))
        items.append([int(item) for item, day in zip(mine, when, strict=True) if day < as_of])
        days.append([int(day) for day in when if day < as_of])
    return items, days


def write_part(path, part, asked_of=None):
    """Write a part as an import does: two regions; windows of 28 days, whose last customer took nothing."""
    as_of = FILES[part]
    items, days = took(as_of)
    order = [np.argsort(row, kind="stable") for row in items]
    items = [[row[n] for n in by] for row, by in zip(items, order, strict=True)]
    flat = np.array([row[n] for row, by in zip(days, order, strict=True) for n in by], np.int32)
    sets = [DataSet("input", from_rows(items, ITEMS), NAMES, days=flat)]
    if part in ("valid", "test"):
        after, _ = took(as_of + 28)
        new = [sorted(set(late) - set(early)) for late, early in zip(after, items, strict=True)]
        new[-1] = []
        sets.append(DataSet("output", from_rows(new, ITEMS), NAMES))
    regions = np.repeat(np.arange(2, dtype=np.int32), [20, CUSTOMERS - 20])
    write_data(path, Data(tuple(sets), as_of=asked_of or as_of, regions=("North", "South"), region_of=regions))


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for part in FILES:
        write_part(folder / f"data.{part}.nc", part)
    return folder


@pytest.fixture
def folder(parts, tmp_path):
    for file in parts.iterdir():
        (tmp_path / file.name).hardlink_to(file)
    return tmp_path


def trial(recipe, role=Role.TUNE, **more):
    tune = role is Role.TUNE
    base = Trial(
        node="pooled_t0001",
        region="all regions",
        number=1,
        role=role,
        network="",
        hyperparameters={},
        train=TrainSettings(),
        metric=Metric("ndcg@5"),
        train_files=("data.train.nc" if tune else "data.final.nc",),
        valid_file="data.valid.nc" if tune else None,
        test_file=None if tune else "data.test.nc",
        recipe=recipe,
        compare={} if tune else COMPARED,
        all_files=() if tune else ("data.all.nc",),
    )
    return replace(base, **more)


def measured(folder, recipe, history="train", window="valid"):
    """The same measured by hand: fitted on the history, and asked with the window's."""
    model = fit_recipe(recipe, read_events(folder / f"data.{history}.nc"))
    return measure(model.fitted, read_window(folder / f"data.{window}.nc"), ("ndcg@5", "p@10", "ndcg@20"))


def test_a_trial_says_what_each_customer_got(folder):
    result = run_recipe(trial(KNN), folder)
    values = np.load(folder / "scores.npy")
    wanted = measured(folder, KNN)
    assert values.shape == (1, 3, CUSTOMERS) and values.dtype == np.float32
    np.testing.assert_array_equal(values[0], [wanted["ndcg@5"], wanted["p@10"], wanted["ndcg@20"]])
    counts = np.diff(read_window(folder / "data.valid.nc").wanted.indptr)
    assert counts[-1] == 0 < counts.max()
    np.testing.assert_array_equal(np.isnan(values[0, 0]), counts == 0)  # who took nothing says nothing
    known = values[0, 0][counts > 0].astype(float)
    assert result.status is Status.OK and result.customers == len(known)
    assert result.value == result.metrics["ndcg@5"] == pytest.approx(known.mean(), rel=1e-6)
    assert result.stderr == pytest.approx(known.std(ddof=1) / len(known) ** 0.5)
    assert result.fitted_until == AS_OF - 28 and result.examples == CUSTOMERS
    assert result.scores == sha256_of(folder / "scores.npy") and result.recipe == complete_recipe(KNN)
    assert (result.model, result.floor, result.baseline, result.compared) == ("", "", {}, {})
    assert result_from_json(result_to_json(result)) == result


def test_a_blend_without_weights_gets_those_that_are_best(folder):
    result = run_recipe(trial(BLEND), folder)
    alone = {member.family: run_recipe(trial(member), folder).value for member in BLEND.members}
    assert result.recipe.weights and all(result.recipe.weights) and result.recipe.family == "blend"
    assert len(result.recipe.members) == len(result.recipe.weights) <= 3
    assert {member.family for member in result.recipe.members} <= set(alone)
    assert result.value >= max(alone.values())  # by the metric that trials are judged by
    again = run_recipe(trial(result.recipe), folder)  # as its recipe is tried the next night
    assert again.recipe == result.recipe and again.value == result.value


@pytest.mark.parametrize("recipe", [KNN, replace(BLEND, weights=(1.0, 0.0, 0.25))])
def test_the_final_job_tests_the_recipe_beside_others_and_fits_it_on_all_days(folder, recipe):
    result = run_recipe(trial(recipe, Role.FINAL), folder)
    values = np.load(folder / "scores.npy")
    assert values.shape == (4, 3, CUSTOMERS)  # its own, and then the others in the order of their names
    for found, one in zip(values, (recipe, EVER, POPULARITY, EASE), strict=True):
        np.testing.assert_array_equal(found[0], measured(folder, one, "final", "test")["ndcg@5"])
    assert result.baseline == result.compared["bestsellers"] and set(result.compared) == set(COMPARED)
    assert result.compared["floor"]["ndcg@5"] == pytest.approx(np.nanmean(values[2, 0]), rel=1e-6)
    assert result.fitted_until == AS_OF
    whole = read_events(folder / "data.all.nc")
    for file, one, digest in (("model.nc", recipe, result.model), ("floor.nc", POPULARITY, result.floor)):
        model = read_recipe_model(folder / file)
        assert sha256_of(folder / file) == digest and model.recipe == complete_recipe(one)
        assert model.fitted_until == AS_OF + 28
        wanted, rows = fit_recipe(one, whole), np.arange(CUSTOMERS)
        np.testing.assert_array_equal(model.scores(whole, rows), wanted.scores(whole, rows))


@pytest.mark.parametrize("recipe", [POPULARITY, KNN, EASE, ELSA, BLEND])
def test_the_same_bits_again_and_on_two_threads(folder, recipe):
    found = []
    for threads in (1, 1, 2):
        result = run_recipe(trial(recipe), folder, threads)
        found.append((result_to_json(result), (folder / "scores.npy").read_bytes()))
    assert found[0] == found[1] == found[2]


def test_models_are_the_same_on_two_threads(folder):
    digests = set()
    for threads in (1, 2):
        result = run_recipe(trial(KNN, Role.FINAL), folder, threads)
        digests.add((result.model, result.floor, result.scores))
    assert len(digests) == 1


# --- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"train_files": ("data.final.nc",)},
         f"data.final.nc: goes on to day {AS_OF}, the window begins on {AS_OF - 28}: what is learned from would know "
         "what is asked; import both at once"),
        ({"train_files": ()}, r"trial.json: train_files: [] is not legal for a recipe, legal: one data file"),
        ({"train_files": ("data.train.nc", "data.final.nc")}, "trial.json: train_files: ['data.train.nc', "),
        ({"valid_file": None}, "trial.json: valid_file: null is not legal for role tune, legal: a data file"),
        ({"metric": Metric("loss", minimize=True)}, "trial.json: metric.name: loss is not legal for families"),
        ({"recipe": Recipe("ease", {"l3": 1.0})}, 'ease: no hyperparameter "l3", legal: l2, fit_half_life'),
        ({"recipe": Recipe("network")}, 'family: "network" is none that can be fitted'),
        ({"valid_file": "data.train.nc"}, "data.train.nc: no data set"),
    ],
)  # fmt: skip
def test_a_job_that_is_refused(folder, changes, problem):
    with pytest.raises(NnlibError) as caught:
        run_recipe(replace(trial(KNN), **changes), folder)
    assert problem in str(caught.value)
    assert not (folder / "scores.npy").exists()


def test_a_history_that_ends_a_day_too_late(folder):
    (folder / "data.train.nc").unlink()
    write_part(folder / "data.train.nc", "train", asked_of=AS_OF - 27)
    with pytest.raises(DataError, match=f"data.train.nc: goes on to day {AS_OF - 27}, the window begins on"):
        run_recipe(trial(KNN), folder)


def test_a_blend_whose_weights_are_not_known_is_not_tested(folder):
    with pytest.raises(NnlibError, match=r"recipe: weights: none are not legal for the final training"):
        run_recipe(trial(BLEND, Role.FINAL), folder)


def test_histories_of_other_items_are_refused(folder):
    (folder / "data.train.nc").unlink()
    rows = from_rows([[0, 1]] * 3, ITEMS)
    names = (*NAMES[:-1], "another")
    write_data(folder / "data.train.nc", Data((DataSet("input", rows, names),), region="North"))
    with pytest.raises(DataError, match=r"data\.train\.nc: other items than those that are asked for"):
        run_recipe(trial(KNN), folder)


def test_where_buying_again_counts_owned_items_are_ranked_and_all_models_say_so(folder):
    """Who wants what he had last: with the mark it is found, without it nobody's model finds anything."""
    found = {}
    for mark in (False, True):
        for part in FILES:
            (folder / f"data.{part}.nc").unlink()
            items, _ = took(FILES[part])
            sets = [DataSet("input", from_rows([sorted(row) for row in items], ITEMS), NAMES)]
            if part in ("valid", "test"):
                sets.append(DataSet("output", from_rows([row[-1:] for row in items], ITEMS), NAMES))
            write_data(folder / f"data.{part}.nc", Data(tuple(sets), region="North", repeats=mark))
        blend = replace(BLEND, members=(POPULARITY, Recipe("again")))
        found[mark] = [run_recipe(trial(recipe), folder).value for recipe in (POPULARITY, Recipe("again"), blend)]
        run_recipe(trial(Recipe("again"), Role.FINAL), folder)
        assert {read_recipe_model(folder / name).repeats for name in ("model.nc", "floor.nc")} == {mark}
    assert found[False] == [0, 0, 0] and found[True][2] > 0.4 > 0.2 > found[True][0]


def test_histories_and_windows_that_differ_in_buying_again_are_refused(folder):
    rows = from_rows([[0, 1]] * 3, ITEMS)
    (folder / "data.train.nc").unlink()
    write_data(folder / "data.train.nc", Data((DataSet("input", rows, NAMES),), region="North", repeats=True))
    with pytest.raises(
        DataError, match=r"data\.train\.nc: what a customer has is ranked .*, in data\.valid\.nc it has no"
    ):
        run_recipe(trial(KNN), folder)


def test_a_window_in_which_nobody_took_anything(folder):
    (folder / "data.valid.nc").unlink()
    asked, nothing = (
        from_rows([[0, 1]] * 3, ITEMS),
        Csr(offsets_of(np.zeros(3, np.int64)), np.empty(0, np.int32), ITEMS),
    )
    sets = (DataSet("input", asked, NAMES), DataSet("output", nothing, NAMES))
    write_data(folder / "data.valid.nc", Data(sets, region="North"))
    with pytest.raises(DataError, match=r"data\.valid\.nc: no customer has a target, so nothing can be measured"):
        run_recipe(trial(KNN), folder)


def test_data_without_times_say_nothing_of_days(folder):
    for part in ("train", "valid"):
        (folder / f"data.{part}.nc").unlink()
        items, _ = took(FILES[part])
        sets = [DataSet("input", from_rows([sorted(row) for row in items], ITEMS), NAMES)]
        if part == "valid":
            sets.append(DataSet("output", from_rows([[row[0]] if row else [] for row in items], ITEMS), NAMES))
        write_data(folder / f"data.{part}.nc", Data(tuple(sets), region="North"))
    result = run_recipe(trial(KNN), folder)
    assert result.status is Status.OK and result.fitted_until is None


def test_scores_are_small_numbers_of_three_dimensions(tmp_path):
    of_customers = {name: np.array([0.5, np.nan], np.float32) for name in ("ndcg@5", "p@10", "ndcg@20")}
    write_scores(tmp_path / "scores.npy", [of_customers] * 2, Metric("ndcg@5"))
    found = np.load(tmp_path / "scores.npy", allow_pickle=False)
    assert found.shape == (2, 3, 2) and found.dtype == np.float32
    np.testing.assert_array_equal(found[:, 0], [[0.5, np.nan]] * 2)


def test_a_recipe_told_by_dense_inputs_is_measured_beside_others_and_fitted_on_all_days(tmp_path):
    random = np.random.default_rng(0)
    for name in ("train", "valid", "final", "test", "all"):
        answers = random.choice(3, 60, p=(0.5, 0.3, 0.2))
        values = random.integers(0, 170, (60, 8), np.uint8)
        values[np.arange(60), answers] += 80
        rows = from_rows([[int(one)] for one in answers], 3)
        sets = DataSet("input", Dense(values)), DataSet("output", rows, ("up", "down", "left"))
        write_data(tmp_path / f"data.{name}.nc", Data(sets))

    def by_hand(recipe, history, window):
        model = fit_recipe(recipe, read_events(tmp_path / f"data.{history}.nc", inputs=True)).fitted
        return measure(model, read_window(tmp_path / f"data.{window}.nc", inputs=True), ("p@1",))["p@1"]

    one, metric = Recipe("logistic", {"l2": 1.0}), Metric("p@1")
    result = run_recipe(trial(one, metric=metric), tmp_path)
    assert result.value == pytest.approx(by_hand(one, "train", "valid").mean(dtype=float)) and result.value > 0.6
    often = run_recipe(trial(POPULARITY, metric=metric), tmp_path)
    assert often.value == pytest.approx(by_hand(POPULARITY, "train", "valid").mean(dtype=float)) and often.value < 0.6
    more = {"compare": {"floor": POPULARITY}, "metric": metric}
    final = run_recipe(trial(one, Role.FINAL, **more), tmp_path)
    assert final.value == pytest.approx(by_hand(one, "final", "test").mean(dtype=float))
    assert final.compared["floor"]["p@1"] == pytest.approx(by_hand(POPULARITY, "final", "test").mean(dtype=float))
    served = read_recipe_model(tmp_path / "model.nc").fitted
    assert served.weights.tobytes() == (
        fit_recipe(one, read_events(tmp_path / "data.all.nc", inputs=True)).fitted.weights.tobytes()
    )
