"""The encoding against scikit-optimize's own, which the default method does not import."""

import numpy as np
import pytest

from regiondag.study.space import Choice, Integer, Real, random_point
from regiondag.tuning.encoding import INACTIVE, Encoding, index_of

SPACE = (
    Real("a", -3.0, 7.5),
    Real("b", 1e-5, 1e-1, log=True),
    Integer("n", -2, 11),
    Integer("m", 3, 900, log=True),
    Choice("two", ("x", "y")),
    Choice("more", ("adam", "rmsprop", "sgd")),
)


def test_features_are_scikit_optimizes():
    from skopt.space import Categorical, Space
    from skopt.space import Integer as SkInteger
    from skopt.space import Real as SkReal
    from skopt.utils import normalize_dimensions

    theirs = normalize_dimensions(
        [
            SkReal(-3.0, 7.5),
            SkReal(1e-5, 1e-1, prior="log-uniform"),
            SkInteger(-2, 11),
            SkInteger(3, 900, prior="log-uniform"),
            Categorical(["x", "y"]),
            Categorical(["adam", "rmsprop", "sgd"]),
        ]
    )
    assert isinstance(theirs, Space)
    points = [random_point(SPACE, seed) for seed in range(50)]
    encoding = Encoding(SPACE)
    ours = encoding.features(encoding.coordinates(points))
    assert ours == pytest.approx(np.asarray(theirs.transform([list(p.values()) for p in points]), float), abs=1e-9)


def test_points_come_back():
    encoding = Encoding(SPACE)
    points = [random_point(SPACE, seed) for seed in range(50)]
    rows = encoding.coordinates(points)
    assert np.allclose(encoding.snap(rows), rows)
    for point, row in zip(points, rows, strict=True):
        back = encoding.point(row)
        assert {k: v for k, v in back.items() if k not in "ab"} == {k: v for k, v in point.items() if k not in "ab"}
        assert [back["a"], back["b"]] == pytest.approx([point["a"], point["b"]], rel=1e-5, abs=1e-5)


def test_snapping_finds_values_that_exist():
    space = (Real("s", 0.0, 1.0, step=0.1), Integer("t", 10, 50, step=20), Integer("n", 1, 100, log=True))
    encoding = Encoding(space)
    for row in encoding.snap(np.random.default_rng(0).random((100, 3))):
        point = encoding.point(row)
        assert point["s"] in [n / 10 for n in range(11)] and point["t"] in (10, 30, 50)
        assert encoding.coordinates([point])[0] == pytest.approx(row, abs=1e-12)


def test_inactive_parameters_do_not_tell_points_apart():
    space = (
        Choice("optimizer", ("adam", "sgd", "rmsprop")),
        Real("momentum", 0.0, 0.9, when=(("optimizer", ("sgd",)),)),
        Choice("nesterov", ("no", "yes", "late"), when=(("momentum_on", (True,)),)),
        Choice("momentum_on", (False, True), when=(("optimizer", ("sgd",)),)),
    )
    encoding = Encoding(space)
    rows = np.array([[0.0, 0.1, 1.0, 1.0], [0.0, 0.9, 2.0, 0.0]])
    snapped = encoding.snap(rows)
    assert (encoding.features(snapped)[0] == encoding.features(snapped)[1]).all()
    assert snapped[0, 1] == INACTIVE and encoding.point(snapped[0]) == {"optimizer": "adam"}
    active = encoding.snap(np.array([[1.0, 0.1, 2.0, 1.0]]))
    assert encoding.point(active[0]) == {"optimizer": "sgd", "momentum": 0.09, "nesterov": "late", "momentum_on": True}


CONDITIONAL = (
    Choice("kind", ("a", "b", "c")),
    Real("x", -2.0, 6.0, when=(("kind", ("b", "c")),)),
    Choice("flag", (False, True), when=(("kind", ("b",)),)),
    Integer("n", 1, 5, when=(("flag", (True,)),)),
    Choice("one", (5,)),
)


def test_coordinates_are_places_on_the_scale_of_each_parameter():
    point = {"a": 2.25, "b": 1e-3, "n": 4, "m": 30, "two": "y", "more": "rmsprop"}
    expected = [0.5, 0.5, 6 / 13, np.log(10) / np.log(300), 1.0, 1.0]
    assert Encoding(SPACE).coordinates([point])[0] == pytest.approx(expected)
    assert Encoding(SPACE).coordinates([]).shape == (0, 6)
    low = {"a": -3.0, "b": 1e-5, "n": -2, "m": 3, "two": "x", "more": "adam"}
    high = {"a": 7.5, "b": 1e-1, "n": 11, "m": 900, "two": "y", "more": "sgd"}
    rows = Encoding(SPACE).coordinates([low, high])
    assert rows.tolist() == [[0.0] * 6, [1.0] * 4 + [1.0, 2.0]]
    assert Encoding(SPACE).point(rows[0]) == low and Encoding(SPACE).point(rows[1]) == high


def test_inactive_parameters_stand_at_their_place():
    encoding = Encoding(CONDITIONAL)
    points = [{"kind": "a", "one": 5}, {"kind": "b", "x": 0.0, "flag": True, "n": 2, "one": 5}]
    points.append({"kind": "b", "x": 6.0, "flag": False, "one": 5})
    rows = encoding.coordinates(points)
    assert rows.tolist() == [[0, 0.5, 0, 0.5, 0], [1, 0.25, 1, 0.25, 0], [1, 1.0, 0, 0.5, 0]]
    assert [encoding.point(row) for row in rows] == points
    expected = [[1, 0, 0, 0, 1], [1, 1, 1, 1, 1], [1, 1, 1, 0, 1]]
    assert encoding.active(rows).tolist() == [list(map(bool, row)) for row in expected]
    messy = np.array([[0.2, 0.9, 1.0, 0.9, 0.0], [1.4, 0.25, 0.6, 0.3, 0.4], [0.9, 7.0, 0.4, 0.9, -0.4]])
    assert encoding.snap(messy).tolist() == rows.tolist()
    before = messy.copy()
    encoding.snap(messy)
    assert (messy == before).all()


def test_features_are_one_hot_and_zero_where_inactive():
    encoding = Encoding(CONDITIONAL)
    points = [{"kind": "a", "one": 5}, {"kind": "b", "x": 0.0, "flag": True, "n": 2, "one": 5}]
    points.append({"kind": "c", "x": 2.0, "one": 5})
    found = encoding.features(encoding.coordinates(points))
    assert found.tolist() == [[1, 0, 0, 0.5, 0, 0.5], [0, 1, 0, 0.25, 1, 0.25], [0, 0, 1, 0.5, 0, 0.5]]
    assert encoding.groups.tolist() == [0, 0, 0, 1, 2, 3]  # what is fixed has none
    assert encoding.columns.tolist() == [0, 3, 4, 5, 5]
    assert encoding.weights == pytest.approx([2**-0.5] * 3 + [1.0] * 3)
    inactive = Encoding((Choice("on", ("no", "yes")), Choice("which", ("a", "b", "c"), when=(("on", ("yes",)),))))
    assert inactive.features(np.array([[0.0, 0.0], [1.0, 0.0]])).tolist() == [[0, 0, 0, 0], [1, 1, 0, 0]]


def test_two_options_lie_one_apart():
    encoding = Encoding((Choice("two", ("x", "y")), Choice("four", (1, 2, 3, 4))))
    rows = encoding.coordinates([{"two": "x", "four": 1}, {"two": "y", "four": 1}, {"two": "x", "four": 4}])
    seen = encoding.features(rows) * encoding.weights
    assert [np.linalg.norm(seen[0] - other) for other in seen[1:]] == pytest.approx([1.0, 1.0])


def test_kinds_of_parameters():
    space = (*SPACE, Real("s", 0.0, 1.0, step=0.25), Integer("t", 10, 50, step=20), Choice("one", (5,)))
    encoding = Encoding(space)
    assert encoding.smooth.tolist() == [True, True] + [False] * 7
    assert encoding.counts.tolist() == [np.inf, np.inf, 14, 898, 2, 3, 5, 3, 1]
    assert encoding.choices.tolist() == [False] * 4 + [True, True, False, False, True]


def test_coordinates_beyond_the_ends_are_moved_to_them():
    space = (*SPACE, Real("s", 0.0, 1.0, step=0.25), Integer("t", 10, 50, step=20))
    encoding = Encoding(space)
    rows = encoding.snap(np.array([[-0.4] * 8, [3.7] * 8]))
    assert rows[0].tolist() == [0.0] * 8 and rows[1] == pytest.approx([1.0] * 4 + [1.0, 2.0] + [1.0] * 2)
    ends = [
        encoding.point(np.array(row))
        for row in ([-0.4, -0.4, -0.4, -0.4, 0, 0, -0.4, -0.4], [1.7] * 4 + [1, 2, 1.7, 1.7])
    ]
    assert list(ends[0].values()) == [-3.0, 1e-5, -2, 3, "x", "adam", 0.0, 10]
    assert list(ends[1].values()) == [7.5, 0.1, 11, 900, "y", "sgd", 1.0, 50]


def test_reals_are_rounded_to_six_digits_of_their_range_or_of_themselves():
    encoding = Encoding((Real("x", 0.0, 1.0), Real("wide", -5000.0, 5000.0), Real("b", 1e-5, 1e-1, log=True)))
    point = encoding.point(np.array([1 / 3, 1 / 3, 1 / 3]))
    assert point["x"] == 0.333333 and point["wide"] == pytest.approx(-1666.67, abs=0.005)
    assert point["wide"] == round(point["wide"], 2)
    assert point["b"] == pytest.approx(1e-5 * 10 ** (4 / 3), rel=1e-6) and point["b"] == float(f"{point['b']:.7g}")
    assert encoding.point(np.array([0.1234567, 0.0, 0.0]))["x"] == 0.123457
    small = Encoding((Real("x", 2.0, 2.004),)).point(np.array([0.123456789]))["x"]
    assert small == 2.000493827


@pytest.mark.parametrize("log", [False, True])
def test_snapped_whole_numbers_are_those_of_their_points(log):
    space = (Integer("n", 2, 37, log=log), Integer("fixed", 4, 5))
    encoding = Encoding(space)
    rows = encoding.snap(np.random.default_rng(0).random((200, 2)))
    for row in rows:
        assert encoding.coordinates([encoding.point(row)])[0] == pytest.approx(row, abs=1e-12)
    assert len(np.unique(rows[:, 0])) > 25


def test_one_as_a_number_a_truth_and_a_fraction_are_three_options():
    choice = Choice("a", (1, True, 1.0, "1"))
    assert [index_of(choice, value) for value in (1, True, 1.0, "1")] == [0, 1, 2, 3]
    for value in (False, 2, "one"):
        with pytest.raises(ValueError):
            index_of(choice, value)
