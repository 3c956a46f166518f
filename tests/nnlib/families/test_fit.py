"""Recipes become models: what is legal, what takes too much memory, and the same bits each time."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from nnlib.contract import Recipe
from nnlib.errors import DivergedError, MachineError, NnlibError
from nnlib.families import FAMILIES, family_of, fit
from nnlib.families.family import Size
from nnlib.families.fit import fit_recipe
from nnlib.families.legal import LEGAL, Range, complete_recipe
from tests.nnlib.families.made_up import drawn, everybody

HISTORY = drawn()
MEMBERS = (Recipe("ease", {"l2": 10}, 1), Recipe("popularity", {}, 1))
BLEND = Recipe("blend", {}, 1, MEMBERS, (1.0, 0.5))
THERE = [name for name in FAMILIES if name != "blend"]


def refused(recipe):
    with pytest.raises(NnlibError) as error:
        complete_recipe(recipe)
    return str(error.value)


@pytest.mark.parametrize("name", THERE)
def test_every_hyperparameter_of_a_family_has_a_legal_default(name):
    family = family_of(name)
    assert set(family.DEFAULTS) == set(LEGAL[name])
    assert complete_recipe(Recipe(name, {}, 1)).hyperparameters == family.DEFAULTS
    assert fit_recipe(Recipe(name, {}, 1), HISTORY).scores(HISTORY, everybody(HISTORY)).shape == (60, 24)


def test_a_name_that_is_no_family_is_said():
    assert refused(Recipe("eas", {}, 1)) == 'family: "eas" is none that can be fitted, did you mean "ease"?'
    assert "legal: popularity, knn, ease" in refused(Recipe("network", {}, 1))
    with pytest.raises(KeyError):
        family_of("network")


def test_every_hyperparameter_that_is_not_legal_is_said():
    wrong = {"l2": -1, "bias_scale": "cubic", "own_weight": True, "fit_half_live": 3, "bias": "much"}
    assert refused(Recipe("ease", wrong, 1)).split("\n") == [
        "ease: l2: seen -1, legal: a number from 0.001 to 1e+07",
        'ease: bias_scale: seen "cubic", legal: raw, log',
        "ease: own_weight: seen true, legal: a number from 1 to 1000",
        'ease: no hyperparameter "fit_half_live", did you mean "fit_half_life"?',
        'ease: bias: seen "much", legal: a number from 0 to 1000',
    ]
    assert refused(Recipe("knn", {"k": 2.5}, 1)) == "knn: k: seen 2.5, legal: a whole number from 1 to 10000"


@pytest.mark.parametrize("end", ["low", "high"])
def test_the_ends_of_ranges_are_legal(end):
    for name in THERE:
        legal = LEGAL[name]
        values = {key: getattr(one, end) for key, one in legal.items() if isinstance(one, Range) and not one.whole}
        complete_recipe(Recipe(name, values, 1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", [name for name in THERE if any("half_life" in key for key in LEGAL[name])])
def test_what_is_hundreds_of_half_lives_old_leaves_no_score_without_a_number(name):
    shortest = {key: legal.low for key, legal in LEGAL[name].items() if "half_life" in key}
    scores = fit_recipe(Recipe(name, shortest, 1), HISTORY).scores(HISTORY, everybody(HISTORY))
    assert np.isfinite(scores).all()


def test_whole_numbers_become_the_numbers_that_a_family_takes():
    one, other = (complete_recipe(Recipe("ease", {"l2": value}, 1)) for value in (10, 10.0))
    assert one == other
    assert type(one.hyperparameters["l2"]) is float


def test_members_are_a_blends_alone_and_each_has_a_weight():
    assert "has members, legal: none but in a blend" in refused(dataclasses.replace(BLEND, family="ease"))
    for wrong in ({"members": (), "weights": ()}, {"weights": (0.0, 0.0)}, {"hyperparameters": {"k": 3}}):
        assert "one member at least, a weight other than 0" in refused(dataclasses.replace(BLEND, **wrong))
    for wrong in ({"weights": (1.0,)}, {"members": (BLEND, *MEMBERS[1:])}):
        assert "one weight a member, and no members of members" in refused(dataclasses.replace(BLEND, **wrong))
    assert "l2: seen 0" in refused(dataclasses.replace(BLEND, members=(Recipe("ease", {"l2": 0}, 1), MEMBERS[1])))


def test_a_model_knows_its_recipe_and_until_when_it_has_seen():
    model = fit_recipe(BLEND, HISTORY)
    assert model.recipe == complete_recipe(BLEND)
    assert (model.items, model.regions, model.fitted_until) == (HISTORY.items, HISTORY.regions, 100)
    assert (
        fit_recipe(BLEND, HISTORY).scores(HISTORY, everybody(HISTORY)).tobytes()
        == model.scores(HISTORY, everybody(HISTORY)).tobytes()
    )


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_the_bits_do_not_depend_on_blas_threads(weight):
    history = drawn(customers=600, items=400)  # so large that BLAS would share the work
    found = []
    for threads in (1, 8):
        with threadpool_limits(threads, user_api="blas"):
            model = fit_recipe(Recipe("ease", {"own_weight": weight}, 1), history)
            found.append(model.scores(history, everybody(history)).tobytes())
    assert found[0] == found[1]


def test_a_score_that_is_no_number_is_said():
    class Broken:
        def scores(self, asked, rows):
            return np.full((len(rows), 24), np.nan, np.float32)

    model = dataclasses.replace(fit_recipe(MEMBERS[1], HISTORY), fitted=Broken())
    with pytest.raises(DivergedError, match="popularity: a score is not a finite number"):
        model.scores(HISTORY, everybody(HISTORY))


def test_too_little_memory_is_said_before_the_work_with_what_to_do(monkeypatch):
    monkeypatch.setattr(fit, "available_bytes", lambda: 1 << 20)
    monkeypatch.setattr(fit, "_fit", lambda *_: pytest.fail("began"))
    with pytest.raises(
        MachineError,
        match=r"out of memory: ease of 24 items .* 1.0 MiB are free; take a larger machine, or elsa, whose",
    ):
        fit_recipe(Recipe("ease", {}, 1), HISTORY)
    with pytest.raises(MachineError, match=r"out of memory: ease of 24 items .* with the other members "):
        fit_recipe(BLEND, HISTORY)
    monkeypatch.setattr(fit, "available_bytes", lambda: 10)
    with pytest.raises(MachineError, match=r"popularity of 24 items .* or fewer items"):
        fit_recipe(MEMBERS[1], HISTORY)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe("popularity", {}, 1),
        Recipe("knn", {"k": 50}, 1),
        Recipe("knn", {"k": 2000, "own_weight": 2}, 1),
        Recipe("ease", {}, 1),
        Recipe("ease", {"own_weight": 2, "bias": 0.1}, 1),
        Recipe("days", {}, 1),
        Recipe("logistic", {}, 1),
    ],
    ids=lambda recipe: "-".join([recipe.family, *recipe.hyperparameters]),
)
def test_memory_stays_below_what_is_asked_for(recipe):
    history = drawn(customers=1500, items=1500, density=0.01)
    recipe = complete_recipe(recipe)
    tracemalloc.start()
    model = family_of(recipe.family).fit(history, recipe.hyperparameters, 1)
    if recipe.hyperparameters.get("own_weight", 1) != 1:
        model.scores(history, np.flatnonzero(history.region == 0)[:1])  # makes what the region has of its own
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = Size(history.customers, history.bought.width, history.bought.nonzeros, history.inputs.width)
    needed = family_of(recipe.family).bytes_needed(size, recipe.hyperparameters)
    assert needed / 40 < peak <= needed
