"""The families that a trial may be of: their ranges, what is tried first, and points that are recipes."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

from nnlib.contract import Recipe
from nnlib.families import FAMILIES as FITTED
from nnlib.families import family_of
from nnlib.families.legal import complete_recipe
from regiondag.study import families
from regiondag.study.families import (
    FAMILIES,
    FAMILY,
    FIRST,
    NETWORK,
    SHARED,
    SPACES,
    USUAL,
    describe_recipe,
    drop_repeated,
    first_points,
    list_parameters,
    name_in_study,
    network_space,
    point_of,
    recipe_at,
    space_of,
)
from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real, list_extreme_values, random_point
from regiondag.tuning.domain import domain_of

HIDDEN = Integer("hidden", 2, 8)
MOMENTUM = Real("momentum", 0.1, 0.9, when=(("optimizer", ("sgd",)),))
OPTIMIZER = Choice("optimizer", ("sgd", "adam"))


def shared_by(family):
    """The hyperparameters that a family has by the same names as others."""
    return [parameter for parameter, having in SHARED.items() if family in having]


def domain(space):
    return domain_of(Search("bayes", space, (4,)))


def test_what_a_recipe_need_not_say_is_as_the_families_have_it():
    for family, space in SPACES.items():
        fixed = set(family_of(family).DEFAULTS) - {parameter.name for parameter in (*space, *shared_by(family))}
        assert fixed <= USUAL.get(family, {}).keys(), family
        for name, value in USUAL.get(family, {}).items():
            assert family_of(family).DEFAULTS[name] == value, name


@pytest.mark.parametrize("family", SPACES)
def test_a_recipe_in_words_says_what_was_searched_and_nothing_that_is_as_usual(family):
    usual = complete_recipe(Recipe(family))
    searched = [parameter.name for parameter in (*SPACES[family], *shared_by(family))]
    words = describe_recipe(usual).split(", ")
    shown = [name for name in searched if name not in USUAL.get(family, {})]
    assert words[0] == family and [word.split()[0] for word in words[1:]] == shown
    for name in USUAL.get(family, {}):
        odd = replace(usual, hyperparameters={**usual.hyperparameters, name: 3})
        assert f"{name} 3" in describe_recipe(odd).split(", ")


def test_recipes_in_words():
    found = Recipe("graph", {"ask_half_life": 15.7321, "item_exponent": 0.41237, "fit_half_life": 12345.6})
    assert describe_recipe(found) == "graph, item_exponent 0.412, fit_half_life 12300, ask_half_life 15.7"
    blend = Recipe("blend", members=(found, Recipe("days")), weights=(1.0, 0.33333))
    assert describe_recipe(blend) == "blend of 1 graph, 0.333 days"
    assert describe_recipe(replace(blend, weights=())) == "blend of graph, days"
    assert describe_recipe(Recipe("network")) == "network"
    assert doctest.testmod(families).failed == 0


def test_there_is_a_space_and_a_first_point_of_every_family_that_can_be_fitted():
    assert set(SPACES) == {family for family, _ in FIRST} == set(FITTED) - {"logistic", "blend"}
    assert (*SPACES, "network", "blend") == FAMILIES


def test_everything_that_is_tried_first_is_of_the_space_and_legal():
    space = space_of(SPACES)
    points = first_points(SPACES, space)
    assert [point[FAMILY] for point in points] == [family for family, _ in FIRST]
    for point in points:
        assert domain(space).has(point), point
        complete_recipe(recipe_at(point, 1))


def test_what_is_tried_first_of_popularity_and_cosines():
    space = space_of(["popularity", "knn"])
    cosines = {"family": "knn", "knn_k": 100, "knn_q": 0.35, "ask_half_life": 80.0}
    plain, regional = ((1, 0.0, "raw"), (10, 0.1, "log"))
    names = ("own_weight", "bias", "bias_scale")
    assert first_points(["popularity", "knn"], space) == (
        {"family": "popularity", "popularity_half_life": 10.0, "popularity_own": 0.5},
        {"family": "popularity", "popularity_half_life": 1000.0, "popularity_own": 0.5},
        {**cosines, "fit_half_life": 40.0, **dict(zip(names, plain, strict=True))},
        {"family": "popularity", "popularity_half_life": 40.0, "popularity_own": 0.5},
        {**cosines, "fit_half_life": 10_000.0, **dict(zip(names, regional, strict=True))},
        {"family": "popularity", "popularity_half_life": 1000.0, "popularity_own": 1.0},
    )


def test_a_region_alone_has_no_customers_of_its_own_beside_others():
    space = space_of(["ease", "knn"])
    assert {point["own_weight"] for point in first_points(["ease", "knn"], space)} == {1, 10}
    points = first_points(["ease", "knn"], space, alone=True)
    assert [(point[FAMILY], point["fit_half_life"], point["own_weight"]) for point in points] == [
        *(("ease", 40.0, 1), ("knn", 40.0, 1), ("ease", 10_000.0, 1), ("knn", 10_000.0, 1))
    ]


def test_even_a_short_search_tries_popularity_and_the_likeliest_of_others():
    assert [family for family, _ in FIRST[:4]] == ["popularity", "ease", "days", "graph"]


def test_without_times_nothing_is_tried_twice():
    points = drop_repeated(first_points(SPACES, space_of(SPACES)))
    assert [point[FAMILY] for point in points] == [
        *("popularity", "ease", "days", "graph", "again", "knn"),
        *("knn", "ease", "popularity"),  # with more of the region's own
        *("ials", "elsa"),
    ]


@pytest.mark.parametrize("family", SPACES)
def test_both_ends_of_every_range_are_legal(family):
    first = next(point for name, point in FIRST if name == family)
    for parameter in (*SPACES[family], *shared_by(family)):
        for value in list_extreme_values(parameter):
            complete_recipe(Recipe(family, {**first, parameter.name: value}))


def test_a_drawn_point_has_the_hyperparameters_of_its_family_alone():
    space = space_of(SPACES)
    for seed in range(40):
        point = random_point(space, seed)
        family = point[FAMILY]
        own = {f"{family}_{parameter.name}" for parameter in SPACES[family]}
        assert set(point) - {FAMILY} == own | {parameter.name for parameter in shared_by(family)}
        complete_recipe(recipe_at(point, 1))


def test_a_space_of_fewer_families():
    space = space_of(["popularity", "ease", "blend"])
    assert space[0] == Choice(FAMILY, ("popularity", "ease"))
    assert [parameter.name for parameter in space[1:]] == [
        *("popularity_half_life", "popularity_own", "ease_l2", "fit_half_life", "ask_half_life"),
        *("own_weight", "bias", "bias_scale"),
    ]
    assert {parameter.when for parameter in space[1:]} == {((FAMILY, ("popularity",)),), ((FAMILY, ("ease",)),)}


def test_families_share_what_ages_their_purchases():
    space = space_of(["popularity", "knn", "graph"])
    assert {p.name: p.when for p in space}["fit_half_life"] == ((FAMILY, ("knn", "graph")),)
    assert {p.name: p.when for p in space}["own_weight"] == ((FAMILY, ("knn",)),)
    assert name_in_study("graph", "fit_half_life") == "fit_half_life"
    assert name_in_study("days", "fit_half_life") == "days_fit_half_life"  # of other rows, so it is its own


def test_a_range_of_the_study_stands_in_place_of_the_table():
    given = Real("ease_l2", 5.0, 6.0)
    space = space_of(["popularity", "ease"], (given,))
    [found] = [parameter for parameter in space if parameter.name == "ease_l2"]
    assert found == replace(given, when=((FAMILY, ("ease",)),))
    assert len(space) == len(space_of(["popularity", "ease"]))


def test_what_is_tried_first_lies_in_the_ranges_of_the_study():
    given = (Real("ease_l2", 5.0, 6.0), Choice("own_weight", (3,)), Choice("bias_scale", ("log",)))
    space = space_of(["ease"], given)
    first, last = first_points(["ease"], space)  # the third is the second where own_weight is 3 anyway
    assert first == {
        "family": "ease",
        "ease_l2": 6.0,
        "fit_half_life": 40.0,
        "ask_half_life": 80.0,
        "own_weight": 3,
        "bias": 0.0,
        "bias_scale": "log",
    }
    assert domain(space).has(first) and domain(space).has(last)


def test_what_the_study_makes_the_same_is_tried_once():
    space = space_of(["ease"], (Real("fit_half_life", 100.0, 200.0), Choice("own_weight", (1,))))
    assert [point["fit_half_life"] for point in first_points(["ease"], space)] == [100.0, 200.0]
    space = space_of(["popularity"], (Choice("popularity_half_life", (20.0,)), Choice("popularity_own", (0.5,))))
    assert len(first_points(["popularity"], space)) == 1


def test_ranges_of_families_that_are_not_wanted_are_left_out():
    assert space_of(["popularity"], (Real("ease_l2", 5.0, 6.0), HIDDEN)) == space_of(["popularity"])


def test_the_network_has_its_own_part_of_the_space():
    space = space_of(["popularity", "network"], (HIDDEN, OPTIMIZER, MOMENTUM))
    assert space[-1].when == ((FAMILY, ("network",)), ("optimizer", ("sgd",)))
    assert network_space(space) == (HIDDEN, OPTIMIZER, MOMENTUM)
    assert network_space((HIDDEN, OPTIMIZER)) == (HIDDEN, OPTIMIZER)  # of a study of networks alone
    assert network_space(space_of(["popularity"])) == ()
    for seed in range(20):
        point = random_point(space, seed)
        assert ("hidden" in point) == (point[FAMILY] == NETWORK)


@pytest.mark.parametrize("family", SPACES)
def test_a_point_and_its_recipe_say_the_same(family):
    space = space_of([family])
    for seed in range(5):
        point = random_point(space, seed)
        recipe = recipe_at(point, 7)
        assert recipe.family == family and recipe.seed == 7
        assert point_of(recipe) == point


def test_a_name_that_begins_like_its_family_is_kept():
    assert recipe_at({"family": "ease", "ease_l2": 30.0}, 1) == Recipe("ease", {"l2": 30.0}, 1)
    assert list_parameters()["knn_k"] == replace(SPACES["knn"][0], name="knn_k", when=((FAMILY, ("knn",)),))
    own = {f"{name}_{p.name}" for name, of in SPACES.items() for p in of}
    assert families.list_parameters().keys() == own | {p.name for p in SHARED}
