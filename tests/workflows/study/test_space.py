import hashlib
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.study.space import (
    Choice,
    Integer,
    Real,
    count_grid_points,
    grid_point,
    is_legal,
    largest_value,
    level,
    list_extreme_values,
    list_grid_values,
    list_levels,
    parameter_from_json,
    parameter_to_json,
    random_point,
    seed_of,
    value_at,
    with_defaults,
    without_inactive,
)

names = st.text("abc_", min_size=1)
reals = st.tuples(st.floats(1e-6, 1.0), st.floats(1.1, 1e6), st.booleans()).map(lambda t: Real("x", *t))
integers = st.tuples(st.integers(1, 50), st.integers(51, 9999), st.booleans()).map(lambda t: Integer("n", *t))
options = st.lists(st.integers() | st.text() | st.booleans(), min_size=1)
choices = st.builds(lambda values, ordered: Choice("c", tuple(values), ordered=ordered), options, st.booleans())
steps = st.builds(lambda n, low: Real("s", low, low + n * 0.25, step=0.25), st.integers(1, 9), st.integers(-3, 3))
conditional = st.builds(lambda p: replace(p, when=(("c", (1, "x")),), default=3), reals | choices)
parameters = reals | integers | choices | steps | conditional


@given(parameters)
def test_json_round_trip(parameter):
    assert parameter_from_json(json.loads(json.dumps(parameter_to_json(parameter)))) == parameter


def test_choices_of_older_runs_have_no_order():
    raw = {"name": "c", "choice": [1, 2], "when": [], "default": None}
    assert parameter_from_json(raw) == Choice("c", (1, 2)) and not Choice("c", (1, 2)).ordered


@given(parameters, st.floats(0, 1))
def test_every_point_of_the_unit_interval_is_legal(parameter, unit):
    value = value_at(parameter, unit)
    if isinstance(parameter, Choice):
        assert value in parameter.options
    else:
        assert parameter.low <= value <= parameter.high
        assert isinstance(value, int if isinstance(parameter, Integer) else float)


def test_steps_are_as_people_write_them():
    parameter = Real("x", 0.0, 0.9, step=0.1)
    assert list_grid_values(parameter) == tuple(n / 10 for n in range(10)) and list_levels(parameter) == 10
    assert [level(Real("x", -0.25, 1.0, step=0.05), n) for n in (0, 1, 25)] == [-0.25, -0.2, 1.0]
    assert list(list_grid_values(Integer("n", 64, 256, step=64))) == [64, 128, 192, 256]
    assert {value_at(Integer("n", 64, 256, step=64), i / 100) for i in range(101)} == {64, 128, 192, 256}


def test_parameters_exist_where_their_condition_and_their_parents_hold():
    space = (
        Real("momentum", 0.0, 0.9, when=(("optimizer", ("sgd",)), ("deep", (True,)))),
        Choice("optimizer", ("sgd", "adam"), when=(("deep", (True,)),), default="adam"),
        Choice("deep", (True, False)),
    )
    values = {"momentum": 0.5, "optimizer": "sgd", "deep": True}
    assert without_inactive(space, values) == values
    assert without_inactive(space, {**values, "optimizer": "adam"}) == {"optimizer": "adam", "deep": True}
    shallow = without_inactive(space, {**values, "deep": False})
    assert shallow == {"deep": False}
    assert with_defaults(space, shallow) == {"deep": False, "optimizer": "adam"}


@pytest.mark.parametrize(
    ("parameter", "good", "bad"),
    [
        (Real("x", 0.5, 2.0), [0.5, 2.0, 1, 1.3], [0.49, 2.01, True, "1", None]),
        (Real("x", 0.0, 0.9, step=0.1), [0.0, 0.3, 0.9], [0.25, 0.30000000000000004, 1.0]),
        (Integer("n", 2, 9), [2, 9], [1, 10, 2.0, True]),
        (Integer("n", 2, 8, step=3), [2, 5, 8], [3, 4, 6, 7]),
        (Choice("c", (1, "a", False)), [1, "a", False], [1.0, True, 0, "b"]),
    ],
)
def test_what_is_a_value(parameter, good, bad):
    assert [is_legal(parameter, value) for value in good] == [True] * len(good)
    assert [is_legal(parameter, value) for value in bad] == [False] * len(bad)


def test_how_many_values():
    assert (
        list_levels(Choice("c", (1, 2, 3))) == 3
        and list_levels(Integer("n", 4, 6)) == 3
        and list_levels(Real("x", 0, 1)) is None
    )
    assert list_levels(Integer("n", 4, 8, step=2)) == list_levels(Real("x", 0.1, 0.3, step=0.1)) == 3
    assert [level(Integer("n", 4, 6), index) for index in range(3)] == [4, 5, 6]
    assert level(Real("x", 10.0, 30.0, step=10.0), 1) == 20.0


def test_where_a_parameter_ends():
    assert list_extreme_values(Real("x", 0.5, 2.0)) == (0.5, 2.0) and list_extreme_values(Choice("c", (1, 2))) == (1, 2)
    assert list_extreme_values(Integer("n", 1, 5, default=3)) == (1, 5, 3) and list_extreme_values(
        Integer("n", 1, 5, default=5)
    ) == (1, 5)
    assert largest_value(Integer("n", 1, 5, default=3)) == 5 and largest_value(Choice("c", (2, "a", 1))) == 2
    assert largest_value(Choice("c", ("a", "b"))) in ("a", "b")


def test_places_on_the_scale():
    assert [value_at(Choice("c", ("a", "b")), unit) for unit in (0, 0.49, 0.5, 0.99, 1)] == ["a", "a", "b", "b", "b"]
    assert [value_at(Real("x", 1.0, 3.0), unit) for unit in (0, 0.25, 1)] == [1.0, 1.5, 3.0]
    assert [value_at(Integer("n", 1, 2), unit) for unit in (0, 0.49, 0.51, 1)] == [1, 1, 2, 2]
    # On a log scale n has the room from n - 1/2 to n + 1/2: 1 has ln 3 of ln 9.
    assert [value_at(Integer("n", 1, 4, log=True), unit) for unit in (0.49, 0.51)] == [1, 2]


def test_a_grid_in_words():
    assert list(list_grid_values(Integer("n", 1, 3))) == [1, 2, 3]
    assert list_grid_values(Integer("n", 1, 3, points=9)) == (1, 2, 3)  # none twice
    assert list_grid_values(Integer("n", 0, 10, points=2)) == (0, 10) and list_grid_values(Choice("c", (5, 4))) == (
        5,
        4,
    )
    assert list_grid_values(Real("x", 0.0, 1.0, points=3)) == (0.0, 0.5, 1.0)
    space = (Choice("a", (1, 2)), Choice("b", (1, 2, 3)))
    assert [tuple(grid_point(space, index).values()) for index in range(4)] == [(1, 1), (1, 2), (1, 3), (2, 1)]


def test_a_seed_is_one_of_its_parts():
    assert len({seed_of("a", 1), seed_of("a", 2), seed_of("b", 1), seed_of("a1"), seed_of("a"), seed_of(1, "a")}) == 6
    digest = hashlib.sha256(b"a\x001").hexdigest()
    assert seed_of("a", 1) == int(digest[:16], 16)


def test_log_scale_is_uniform_in_the_logarithm():
    assert value_at(Real("x", 1e-4, 1.0, log=True), 0.5) == pytest.approx(1e-2)


def test_whole_numbers_are_equally_likely():
    counts = [value_at(Integer("n", 1, 4), i / 1000) for i in range(1000)]
    assert [counts.count(n) for n in (1, 2, 3, 4)] == pytest.approx([250] * 4, abs=2)


def test_grid_enumerates_every_combination_once():
    space = (Choice("a", ("x", "y")), Integer("n", 1, 3), Real("r", 0.0, 1.0, points=2))
    points = [grid_point(space, i) for i in range(count_grid_points(space))]
    assert len(points) == 12 == len({tuple(p.values()) for p in points})
    assert points[0] == {"a": "x", "n": 1, "r": 0.0} and points[-1] == {"a": "y", "n": 3, "r": 1.0}


def test_grid_values_on_a_log_scale():
    values = list_grid_values(Real("lr", 1e-4, 1e-1, log=True, points=4))
    assert values == pytest.approx((1e-4, 1e-3, 1e-2, 1e-1))
    assert list_grid_values(Integer("n", 1, 4, log=True, points=4)) == (1, 2, 3, 4)
    assert list_grid_values(Real("x", 2.0, 3.0, points=1)) == (2.0,)


def test_a_grid_of_a_real_needs_points():
    with pytest.raises(ValueError, match="points"):
        list_grid_values(Real("x", 0.0, 1.0))


def test_random_points_depend_on_the_seed_alone():
    space = (Real("x", 0.0, 1.0), Choice("c", ("a", "b")))
    assert random_point(space, 5) == random_point(space, 5) != random_point(space, 6)
    # The same on every machine and Python: these figures may never change.
    assert seed_of("retail", 7) == 2974214294196867695
    assert math.isclose(random_point(space, 5)["x"], 0.6229016948897019)
