"""Model files give the same scores bit by bit, and damaged ones are refused."""

from contextlib import suppress
from dataclasses import replace
from functools import cache

import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib.contract import Recipe
from nnlib.errors import DataError, DivergedError
from nnlib.families.blend import Blend
from nnlib.families.fit import fit_recipe
from nnlib.families.logistic import Logistic
from nnlib.families.model_file import read_recipe_model, write_recipe_model
from nnlib.util import netcdf
from tests.nnlib.families.made_up import drawn, events, everybody
from tests.nnlib.families.test_fit import BLEND, THERE

HISTORY = drawn()
OWN = {"own_weight": 3.0, "bias": 0.1, "bias_scale": "log"}
RECIPES = [*(Recipe(name, {}, 1) for name in THERE), Recipe("ease", OWN, 1), Recipe("knn", OWN, 2), BLEND]


def titled(recipe):
    return "-".join([recipe.family, *recipe.hyperparameters])


@pytest.mark.parametrize("recipe", RECIPES, ids=titled)
def test_what_is_read_scores_bit_by_bit_as_what_was_written(tmp_path, recipe):
    model = fit_recipe(recipe, HISTORY)
    write_recipe_model(tmp_path / "model.nc", model)
    found = read_recipe_model(tmp_path / "model.nc")
    assert found.scores(HISTORY, everybody(HISTORY)).tobytes() == model.scores(HISTORY, everybody(HISTORY)).tobytes()
    for name in ("recipe", "items", "regions", "fitted_until", "repeats"):
        assert getattr(found, name) == getattr(model, name)
    write_recipe_model(tmp_path / "again.nc", found)
    assert (tmp_path / "again.nc").read_bytes() == (tmp_path / "model.nc").read_bytes()


def test_a_model_of_data_in_which_buying_again_counts_says_so(tmp_path):
    for mark in (False, True):
        model = fit_recipe(Recipe("again"), replace(HISTORY, repeats=mark))
        write_recipe_model(tmp_path / "model.nc", model)
        with netCDF4.Dataset(tmp_path / "model.nc") as file:
            assert ("repeats" in file.ncattrs()) is mark
        assert read_recipe_model(tmp_path / "model.nc").repeats is model.repeats is mark


def test_a_history_of_nothing_and_a_region_without_a_name_have_a_file(tmp_path):
    history = events([[], []], items=2, regions=("",))
    for name in ("popularity", "knn", "ease"):
        write_recipe_model(
            tmp_path / "model.nc", fit_recipe(Recipe(name, OWN if name != "popularity" else {}, 1), history)
        )
        assert not read_recipe_model(tmp_path / "model.nc").scores(history, everybody(history)).any()


@pytest.fixture
def damage(tmp_path):
    """Return a function that changes a file of a model and says how reading it is refused."""

    def say(change, recipe=BLEND):
        path = tmp_path / "model.nc"
        write_recipe_model(path, fit_recipe(recipe, HISTORY))
        with netCDF4.Dataset(str(path), "a") as file:
            change(file)
        with pytest.raises(DataError) as error:
            read_recipe_model(path)
        text = str(error.value)
        assert text.startswith(str(path))
        return text.removeprefix(f"{path}: ")

    return say


def put(name, place, value):
    return lambda file: file[name].__setitem__(place, value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.delncattr("recipe"), "no attribute recipe"),
        (lambda f: f.setncattr("recipe", "{}"), "not a recipe: seen nothing, legal: the keys family"),
        (lambda f: f.setncattr("recipe", '{"family": "gru", "hyperparameters": {}, "seed": 1}'), "is none that can be"),
        (lambda f: f.setncattr("recipe_version", np.uint32(2)), "recipe_version: 2, this nnlib reads 1"),
        (lambda f: f.setncattr("fitted_until", "today"), "fitted_until: 'today' is not legal"),
        (lambda f: f.setncattr("repeats", np.uint32(7)), "attribute repeats: 7 is not legal, legal: 0, 1"),
        (lambda f: f.renameVariable("items", "itms"), "variable items: 0 names"),
        (put("items", 1, "i0"), "24 names, legal: one at least, and each once"),
        (put("array_member0_inverse", (2, 3), np.nan), "array_member0_inverse: a number is not finite"),
        (lambda f: f.renameVariable("array_member0_inverse", "array_x"), "no array 'inverse'"),
        (put("array_member0_width", 0, 23), "inverse: float32 (24, 24), legal: float32, 23 x 23"),
        (put("array_member0_width", 0, 2**62), "legal: 1 to 2147483647"),
        (put("array_member1_width", 0, 25), "legal: 24, as there are items"),
        (put("array_member1_counts_indices", 0, 24), "counts_indices: legal: 0 to 23"),
        (put("array_member1_counts_starts", 1, 10**9), "never falling"),
        (put("array_member1_customers", 0, -1), "legal: 2, as there are regions"),
        (put("array_member0_inverse", (2, 2), -1.0), "legal: a diagonal above 0"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(damage, change, said):
    assert said in damage(change)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("knn", put("array_neighbours_indices", 0, -1), "neighbours_indices: legal: 0 to 23"),
        ("knn", put("array_learned_region", 0, 2), "learned_region: legal: 0 to 1"),
        ("ease", put("array_learned_starts", 0, 1), "learned_starts: legal: from 0"),
    ],
)
def test_what_is_wrong_with_a_regions_own_is_said(damage, name, change, said):
    assert said in damage(change, Recipe(name, OWN, 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("array_width", 0, 23), "weights_of_inputs: float32 (40, 24), legal: float32, any x 23"),
        (put("array_width", 0, 0), "width: 0, legal: 1 to"),
        (put("array_weights_of_inputs", (3, 5), np.inf), "array_weights_of_inputs: a number is not finite"),
        (lambda f: f.renameVariable("array_weights_of_inputs", "array_x"), "no array 'weights_of_inputs'"),
        (lambda f: f.renameVariable("array_intercepts", "array_x"), "no array 'intercepts'"),
        (put("array_weights_of_inputs", (slice(None), 5), 3e38), "a score is not a finite number"),
    ],
)
def test_what_is_wrong_with_logistic_regression_is_said(damage, change, said):
    assert said in damage(change, Recipe("logistic"))


def test_weights_of_no_input_and_members_of_different_inputs_are_refused(tmp_path):
    def refuse(recipe, fitted):
        write_recipe_model(tmp_path / "model.nc", replace(fit_recipe(recipe, HISTORY), fitted=fitted))
        with pytest.raises(DataError) as error:
            read_recipe_model(tmp_path / "model.nc")
        return str(error.value)

    alone, few = Recipe("logistic"), Logistic(np.zeros((3, 24), np.float32), np.zeros(24, np.float32))
    assert "weights_of_inputs: of no input, legal: one at least" in refuse(alone, replace(few, weights=few.weights[:0]))
    recipe = Recipe("blend", {}, 1, (alone, alone), (1.0, 1.0))
    members = (fit_recipe(alone, HISTORY).fitted, few)
    assert "weights_of_inputs: 3 and 40 rows, legal: as many in each" in refuse(recipe, Blend(members, (1.0, 1.0)))


def test_arrays_of_other_types_and_models_of_other_items_are_refused(damage):
    text = damage(lambda f: f.createVariable("array_x", "u1", ("itemsDim",)))
    assert "variable array_x: legal: an array of int32, int64, float32 or float64" in text


def test_a_file_of_data_is_no_model(tmp_path):
    netcdf.write(tmp_path / "data.nc", netcdf.Content({"datasets": np.uint32(1)}, {}))
    with pytest.raises(DataError, match="no attribute recipe"):
        read_recipe_model(tmp_path / "data.nc")


ODD = st.sampled_from(
    [0, 1, -1, 23, 24, 25, 1e-30, -1e-30, 1e30, 2**31 - 1, -(2**31), 2**62, float("nan"), float("inf")]
)
HOSTILE = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FITTED = cache(lambda n: fit_recipe(RECIPES[n], HISTORY))


@pytest.mark.parametrize("n", range(len(RECIPES)), ids=[titled(recipe) for recipe in RECIPES])
@HOSTILE
@given(st.data())
def test_arrays_that_lie_are_refused_or_score_every_item(tmp_path, n, data):
    path = tmp_path / "lies.nc"
    write_recipe_model(path, FITTED(n))
    with netCDF4.Dataset(str(path), "a") as file:
        names = sorted(name for name in file.variables if name.startswith("array_") and file[name].size)
        variable = file[data.draw(st.sampled_from(names))]
        values = np.array(variable[:])
        kind = np.iinfo(values.dtype) if values.dtype.kind == "i" else None
        for place in data.draw(st.lists(st.integers(0, values.size - 1), min_size=1, max_size=3)):
            odd = data.draw(ODD)
            with np.errstate(over="ignore"):
                values.flat[place] = odd if kind is None else int(np.clip(np.nan_to_num(odd), kind.min, kind.max / 2))
        variable[:] = values
    try:
        model = read_recipe_model(path)
    except DataError as error:
        assert str(error).startswith(str(path))
        return
    with suppress(DivergedError):
        assert model.scores(HISTORY, everybody(HISTORY)).shape == (60, 24)
