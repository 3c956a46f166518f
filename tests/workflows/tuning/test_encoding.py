"""The encoding against scikit-optimize's own, which the default method does not import."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.study.space import Choice, Integer, Real, random_point
from regiondag.tuning.encoding import INACTIVE, Encoding, index_of
from regiondag.tuning.gp.process import GaussianProcess, Observed

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


def test_ordered_options_are_equal_steps_of_one_column():
    space = (
        Choice("size", ("small", "medium", "large"), ordered=True),
        Choice("batch", (128, 64, 32, 16, 8), when=(("size", ("small", "large")),), ordered=True),
        Choice("one", (5,), ordered=True),
        Real("x", 0.0, 1.0, when=(("batch", (32,)),)),
    )
    encoding = Encoding(space)
    points = [
        {"size": "small", "batch": 64, "one": 5},
        {"size": "medium", "one": 5},
        {"size": "large", "batch": 32, "one": 5, "x": 0.25},
    ]
    rows = encoding.coordinates(points)
    assert rows.tolist() == [[0, 0.25, 0, 0.5], [0.5, 0.5, 0, 0.5], [1, 0.5, 0, 0.25]]
    assert encoding.features(rows).tolist() == [[0, 0.25, 0.5], [0.5, 0.5, 0.5], [1, 0.5, 0.25]]
    assert [encoding.point(row) for row in rows] == points
    assert encoding.groups.tolist() == [0, 1, 2] and encoding.columns.tolist() == [0, 1, 2, 2]
    assert encoding.weights.tolist() == [1, 1, 1] and encoding.counts.tolist() == [3, 5, 1, np.inf]
    assert encoding.choices.tolist() == [False] * 4 and encoding.smooth.tolist() == [False] * 3 + [True]
    assert encoding.snap(np.array([[0.7, 0.4, 0.6, 0.9], [0.8, 0.4, 0.6, 0.9]])).tolist() == [
        [0.5, INACTIVE, 0, INACTIVE],
        [1, 0.5, 0, 0.9],
    ]


def test_an_order_makes_the_ends_of_three_options_the_least_alike():
    options = ("small", "medium", "large")
    for ordered, apart in ((True, [0.5, 1.0]), (False, [1.0, 1.0])):
        encoding = Encoding((Choice("size", options, ordered=ordered),))
        seen = encoding.features(encoding.coordinates({"size": size} for size in options)) * encoding.weights
        assert [np.linalg.norm(seen[0] - other) for other in seen[1:]] == pytest.approx(apart)


stepped = st.one_of(
    st.builds(lambda low, n, log: Integer("p", low, low + n, log=log), *[st.integers(1, 60)] * 2, st.booleans()),
    st.builds(lambda low, n, step: Integer("p", low, low + n * step, step=step), *[st.integers(1, 60)] * 3),
    st.builds(lambda low, n: Real("p", low / 10, (low + n) / 10, step=0.1), st.integers(-9, 9), st.integers(1, 30)),
    st.builds(lambda n: Choice("p", tuple(range(n)), ordered=True), st.integers(2, 9)),
)


@given(stepped, st.floats(0, 1), st.floats(0, 1))
def test_coordinates_of_one_value_have_the_same_features_and_others_have_not(parameter, one, other):
    encoding = Encoding((parameter, Real("x", 0.0, 1.0)))
    rows = np.array([[one, 0.25], [other, 0.25]])
    points = [encoding.point(row) for row in rows]
    seen = encoding.features(rows)
    assert (points[0] == points[1]) == (seen[0] == seen[1]).all()
    assert (seen == encoding.features(encoding.coordinates(points))).all()
    assert (seen == encoding.features(encoding.snap(rows))).all()


@given(st.integers(0, 2), st.floats(0, 1), st.integers(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_what_is_inactive_is_not_seen(kind, x, flag, n, else_x, else_n):
    encoding = Encoding(CONDITIONAL)
    rows = np.array(
        [[kind, x, flag, n, 0], [kind, x if kind else else_x, flag, n if flag and kind == 1 else else_n, 0]]
    )
    assert encoding.point(rows[0]) == encoding.point(rows[1])
    assert (encoding.features(rows)[0] == encoding.features(rows)[1]).all()


@pytest.mark.parametrize(
    "space", [(Integer("n", 1, 5), Real("s", 0.0, 1.0, step=0.25)), (Integer("n", 3, 20, log=True),)]
)
def test_the_model_is_flat_within_a_step(space):
    encoding = Encoding(space)
    random = np.random.default_rng(0)
    told = encoding.features(random.random((9, len(space)))) * encoding.weights
    process = GaussianProcess(Observed(told, random.standard_normal(9), encoding.groups), np.zeros((1, len(space) + 2)))
    middle = encoding.snap(random.random((40, len(space))))
    near = np.clip(middle + random.uniform(-0.004, 0.004, middle.shape), 0, 1)
    for there, also in zip(*(process.predict(encoding.features(rows)) for rows in (middle, near)), strict=True):
        assert (there == also).all()


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


def test_a_parameter_is_encoded_among_others_as_alone():
    sizes = Choice("sizes", (1, 2, 4), ordered=True)
    one = Choice("one", ("x",))
    space = (
        *SPACE,
        Real("s", 0.0, 1.0, step=0.1),
        sizes,
        one,
        Integer("t", 10, 50, step=20),
        Choice("b", (False, True)),
    )
    rows = np.random.default_rng(5).random((200, len(space))) * 3.5 - 0.5
    encoding = Encoding(space)
    alone = [Encoding((parameter,)) for parameter in space]
    columns = [rows[:, number, None] for number in range(len(space))]
    for name in ("snap", "features", "active"):
        expected = [getattr(one, name)(column) for one, column in zip(alone, columns, strict=True)]
        assert (getattr(encoding, name)(rows) == np.concatenate(expected, axis=1)).all()
    for name in ("weights", "smooth", "counts", "choices"):
        assert getattr(encoding, name).tolist() == [value for one in alone for value in getattr(one, name).tolist()]
