import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.space import (
    Choice,
    Integer,
    Real,
    at,
    grid_point,
    grid_size,
    grid_values,
    parameter_from_json,
    parameter_to_json,
    random_point,
    seed_of,
)

names = st.text("abc_", min_size=1)
reals = st.tuples(st.floats(1e-6, 1.0), st.floats(1.1, 1e6), st.booleans()).map(lambda t: Real("x", *t))
integers = st.tuples(st.integers(1, 50), st.integers(51, 9999), st.booleans()).map(lambda t: Integer("n", *t))
choices = st.lists(st.integers() | st.text() | st.booleans(), min_size=1).map(lambda v: Choice("c", tuple(v)))
parameters = reals | integers | choices


@given(parameters)
def test_json_round_trip(parameter):
    assert parameter_from_json(json.loads(json.dumps(parameter_to_json(parameter)))) == parameter


@given(parameters, st.floats(0, 1))
def test_every_point_of_the_unit_interval_is_legal(parameter, unit):
    value = at(parameter, unit)
    if isinstance(parameter, Choice):
        assert value in parameter.options
    else:
        assert parameter.low <= value <= parameter.high
        assert isinstance(value, int if isinstance(parameter, Integer) else float)


def test_log_scale_is_uniform_in_the_logarithm():
    assert at(Real("x", 1e-4, 1.0, log=True), 0.5) == pytest.approx(1e-2)


def test_whole_numbers_are_equally_likely():
    counts = [at(Integer("n", 1, 4), i / 1000) for i in range(1000)]
    assert [counts.count(n) for n in (1, 2, 3, 4)] == pytest.approx([250] * 4, abs=2)


def test_grid_enumerates_every_combination_once():
    space = (Choice("a", ("x", "y")), Integer("n", 1, 3), Real("r", 0.0, 1.0, points=2))
    points = [grid_point(space, i) for i in range(grid_size(space))]
    assert len(points) == 12 == len({tuple(p.values()) for p in points})
    assert points[0] == {"a": "x", "n": 1, "r": 0.0} and points[-1] == {"a": "y", "n": 3, "r": 1.0}


def test_grid_values_on_a_log_scale():
    values = grid_values(Real("lr", 1e-4, 1e-1, log=True, points=4))
    assert values == pytest.approx((1e-4, 1e-3, 1e-2, 1e-1))
    assert grid_values(Integer("n", 1, 4, log=True, points=4)) == (1, 2, 3, 4)
    assert grid_values(Real("x", 2.0, 3.0, points=1)) == (2.0,)


def test_a_grid_of_a_real_needs_points():
    with pytest.raises(ValueError, match="points"):
        grid_values(Real("x", 0.0, 1.0))


def test_random_points_depend_on_the_seed_alone():
    space = (Real("x", 0.0, 1.0), Choice("c", ("a", "b")))
    assert random_point(space, 5) == random_point(space, 5) != random_point(space, 6)
    # The same on every machine and Python: these figures may never change.
    assert seed_of("retail", 7) == 2974214294196867695
    assert math.isclose(random_point(space, 5)["x"], 0.6229016948897019)
