"""The encoding against scikit-optimize's own, which the default method does not import."""

import numpy as np
import pytest

from workflows.space import Choice, Integer, Real, random_point
from workflows.tuning.encoding import INACTIVE, Encoding

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
