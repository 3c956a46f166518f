"""The minimiser against SciPy's, and what it promises: inside the box, downhill, each row on its own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from regiondag.tuning.gp import bfgs as module
from regiondag.tuning.gp.bfgs import SMALL, SUFFICIENT, minimise


class Recorded:
    """A function that remembers at which rows it was called."""

    def __init__(self, function):
        self.function, self.calls = function, []

    def __call__(self, rows):
        self.calls.append(rows.copy())
        return self.function(rows)

    @property
    def rows(self):
        return sum(len(rows) for rows in self.calls)


def quadratic(dimensions, seed, condition=100.0):
    """Return a bowl whose curvatures differ by `condition`, and where its bottom is."""
    random = np.random.default_rng(seed)
    turned = np.linalg.qr(random.standard_normal((dimensions, dimensions)))[0]
    matrix = turned @ np.diag(np.geomspace(1.0, condition, dimensions)) @ turned.T
    bottom = random.uniform(-1.5, 1.5, dimensions)

    def function(rows):
        slope = (rows - bottom) @ matrix
        return 0.5 * np.einsum("ki,ki->k", rows - bottom, slope), slope

    return function, bottom


def rosenbrock(rows):
    values = np.array([optimize.rosen(row) for row in rows])
    return values, np.array([optimize.rosen_der(row) for row in rows])


def scipys(function, start, low, high):
    def alone(row):
        value, gradient = function(row[None])
        return value[0], gradient[0]

    bounds = list(zip(low, high, strict=True))
    return optimize.minimize(alone, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15})


@pytest.mark.parametrize("seed", range(6))
def test_bowls_in_boxes_end_where_scipys_does(seed):
    dimensions = 2 + seed
    function, _ = quadratic(dimensions, seed)
    low, high = np.full(dimensions, -1.0), np.linspace(0.2, 1.5, dimensions)
    starts = np.random.default_rng(seed + 50).uniform(low, high, (5, dimensions))
    ends, values = minimise(function, starts, low, high, 200)
    expected = scipys(function, starts[0], low, high)
    assert values == pytest.approx(np.full(5, expected.fun), rel=1e-6, abs=1e-8)
    assert ends == pytest.approx(np.tile(expected.x, (5, 1)), abs=1e-3)
    assert function(ends)[0] == pytest.approx(values)


@pytest.mark.parametrize("dimensions", [2, 4])
def test_rosenbrocks_valley_in_a_box_ends_where_scipys_does(dimensions):
    low, high = np.full(dimensions, -1.5), np.full(dimensions, 0.7)
    starts = np.random.default_rng(1).uniform(0.0, 0.7, (4, dimensions))
    ends, values = minimise(rosenbrock, starts, low, high, 300)
    for start, end, value in zip(starts, ends, values, strict=True):
        expected = scipys(rosenbrock, start, low, high)
        assert end == pytest.approx(expected.x, abs=1e-3) and value == pytest.approx(expected.fun, abs=1e-6)


def test_a_narrow_bowl_takes_few_calls_as_the_curvature_is_learned():
    function = Recorded(quadratic(6, 0, condition=1e4)[0])
    ends, values = minimise(function, np.full((1, 6), 2.0), np.full(6, -3.0), np.full(6, 3.0), 500)
    assert values[0] < 1e-7
    assert len(function.calls) < 60  # steepest descent takes thousands
    assert ends[0] == pytest.approx(quadratic(6, 0)[1], abs=1e-2)


def test_the_update_is_scipys():
    random = np.random.default_rng(4)
    matrix = np.cov(random.standard_normal((4, 9)))
    inverse, scaled = np.tile(np.eye(4), (3, 1, 1)), np.zeros(3, dtype=bool)
    theirs = [optimize.BFGS(init_scale="auto") for _ in range(3)]
    for one in theirs:
        one.initialize(4, "inv_hess")
    for _ in range(5):
        step = random.standard_normal((3, 4))
        change = step @ matrix
        module._update(inverse, scaled, step, change, np.array([True, False, True]))
        for row in (0, 2):
            theirs[row].update(step[row], change[row])
            assert inverse[row] == pytest.approx(theirs[row].get_matrix(), rel=1e-9, abs=1e-9)
            assert inverse[row] @ change[row] == pytest.approx(step[row])  # the secant equation
    assert scaled.tolist() == [True, False, True] and (inverse[1] == np.eye(4)).all()


def test_what_bends_down_or_hardly_at_all_teaches_no_curvature():
    inverse, scaled = np.tile(np.eye(2), (3, 1, 1)), np.zeros(3, dtype=bool)
    step = np.array([[1.0, 0.0], [1e-6, 0.0], [1e-6, 0.0]])
    change = np.array([[-1.0, 0.0], [0.5e-6, 0.0], [2e-6, 0.0]])
    module._update(inverse, scaled, step, change, np.ones(3, dtype=bool))
    assert scaled.tolist() == [False, False, True]
    assert (inverse[:2] == np.eye(2)).all() and inverse[2] == pytest.approx(np.eye(2) * 0.5)


def test_rows_go_their_ways_independently():
    function, _ = quadratic(3, 9)
    starts = np.random.default_rng(2).uniform(-2, 2, (6, 3))
    low, high = np.full(3, -1.0), np.full(3, 1.2)
    together = minimise(function, starts, low, high, 7)
    for row, start in enumerate(starts):
        end, value = minimise(function, start[None], low, high, 7)
        assert together[0][row] == pytest.approx(end[0]) and together[1][row] == pytest.approx(value[0])


def test_every_row_may_have_a_box_of_its_own():
    function, bottom = quadratic(2, 3)
    low = np.array([[-3.0, -3.0], [0.5, -3.0], [bottom[0] - 0.5, 2.0]])
    high = np.array([[3.0, 3.0], [0.5, 3.0], [bottom[0] + 0.5, 2.0]])  # a coordinate that must stay, too
    ends, _ = minimise(function, np.zeros((3, 2)), low, high, 100)
    for row in range(3):
        assert ends[row] == pytest.approx(scipys(function, (low[row] + high[row]) / 2, low[row], high[row]).x, abs=1e-4)
    assert ends[1, 0] == 0.5 and ends[2, 1] == 2.0


def test_nothing_is_asked_outside_the_box_and_starts_there_are_moved_in():
    function = Recorded(quadratic(3, 5)[0])
    low, high = np.array([-0.4, -0.3, -0.2]), np.array([0.4, 0.3, 0.2])
    ends, _ = minimise(function, np.array([[5.0, -5.0, 0.1], [0.0, 9.0, 0.0]]), low, high, 50)
    assert function.calls[0] == pytest.approx(np.array([[0.4, -0.3, 0.1], [0.0, 0.3, 0.0]]))
    for rows in [*function.calls, ends]:
        assert (rows >= low).all() and (rows <= high).all()


def test_parts_that_are_infinite_are_kept_out_of():
    function, bottom = quadratic(2, 6)

    def walled(rows):
        value, gradient = function(rows)
        return np.where(rows[:, 0] > bottom[0] + 1e-3, np.inf, value), gradient

    start = np.array([[bottom[0] - 1.0, bottom[1] + 0.7]])
    ends, values = minimise(walled, start, np.full(2, -3.0), np.full(2, 3.0), 100)
    assert np.isfinite(values[0]) and values[0] < 1e-4 and ends[0] == pytest.approx(bottom, abs=0.02)


def test_no_steps_leave_the_starts_and_more_steps_never_end_higher():
    function, _ = quadratic(4, 7)
    starts, low, high = np.random.default_rng(0).uniform(-2, 2, (3, 4)), np.full(4, -2.0), np.full(4, 2.0)
    ends, values = minimise(function, starts, low, high, 0)
    assert (ends == starts).all() and (values == function(starts)[0]).all()
    for steps in range(1, 12):
        found = minimise(function, starts, low, high, steps)[1]
        assert (found <= values).all() and ((found < values).all() or values.max() < 1e-6)
        values = found


def test_where_nothing_can_be_gained_the_function_is_called_once():
    def plane(rows):
        return rows @ np.array([1.0, -2.0]), np.tile([1.0, -2.0], (len(rows), 1))

    function = Recorded(plane)
    ends, values = minimise(function, np.array([[0.0, 1.0]]), np.zeros(2), np.ones(2), 50)  # the best corner
    assert len(function.calls) == 1 and ends.tolist() == [[0.0, 1.0]] and values.tolist() == [-2.0]
    function = Recorded(plane)
    ends, _ = minimise(function, np.array([[1.0, 0.0]]), np.zeros(2), np.ones(2), 50)  # the worst
    assert ends.tolist() == [[0.0, 1.0]]
    for size, calls in ((SMALL, 1), (3 * SMALL, 2)):
        function = Recorded(lambda rows, size=size: (size * rows[:, 0], np.full((len(rows), 1), size)))
        minimise(function, np.array([[0.5]]), np.zeros(1), np.ones(1), 1)
        assert len(function.calls) == calls


@pytest.mark.parametrize("slope", [1e-3, 30.0])
def test_starts_in_corners_leave_them_however_small_the_slope(slope):
    def bowl(rows):
        return 0.5 * slope * ((rows - 0.4) ** 2).sum(axis=1), slope * (rows - 0.4)

    starts = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    ends, _ = minimise(bowl, starts, np.zeros(2), np.ones(2), 50)
    assert ends == pytest.approx(np.full((4, 2), 0.4), abs=1e-4)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_coordinate_leaves_its_bound_only_by_its_own_slope(side):
    slopes = iter([[2.0, side], [0.5, 0.0], [0.5, 0.0]])  # what is learned on the way to the bound points back inside
    values = iter([9.0, 5.0, 1.0])
    function = Recorded(lambda rows: (np.array([next(values)]), np.array([next(slopes)])))
    low, high = np.array([0.0, -0.5 + 0.5 * side]), np.array([1.0, 0.5 + 0.5 * side])
    minimise(function, np.array([[0.5, 0.05 * side]]), low, high, 2)
    assert function.calls[1][0] == pytest.approx([0.4, 0.0])
    assert function.calls[2][0, 0] < 0.4 and function.calls[2][0, 1] == 0.0


@pytest.mark.parametrize("spoiled", [-1.0, 0.0])
def test_where_rounding_has_spoiled_what_was_learned_it_starts_again_along_the_slope(monkeypatch, spoiled):
    seen = []
    update = module._update

    def spoil(inverse, scaled, step, change, moved):
        seen.append(inverse.copy())
        update(inverse, scaled, step, change, moved)
        if len(seen) == 1:
            inverse[:] = spoiled * np.eye(2)

    def bowl(rows):  # so flat that its slopes are far below 1
        away = rows - [0.3, -0.2]
        return 0.01 * (away**2) @ [1.0, 3.0], 0.02 * away * [1.0, 3.0]

    monkeypatch.setattr(module, "_update", spoil)
    function = Recorded(bowl)
    ends, _ = minimise(function, np.array([[1.0, 1.0]]), np.full(2, -1.0), np.full(2, 1.0), 60)
    assert ends == pytest.approx(np.array([[0.3, -0.2]]), abs=1e-3)
    second = function.calls[2][0] - function.calls[1][0]
    slope = bowl(function.calls[1])[1][0]
    assert second / np.linalg.norm(second) == pytest.approx(-slope / np.linalg.norm(slope))
    assert (seen[1] == np.eye(2)).all()


def test_a_new_start_along_the_slope_is_a_careful_one(monkeypatch):
    def spoil(inverse, scaled, *_):
        inverse[:], scaled[:] = -np.eye(1), True

    monkeypatch.setattr(module, "_update", spoil)
    function = Recorded(lambda rows: (100 * rows[:, 0], np.full((len(rows), 1), 100.0)))
    minimise(function, np.array([[0.9]]), np.zeros(1), np.ones(1), 2)
    assert [rows[0, 0] for rows in function.calls] == pytest.approx([0.9, 0.8, 0.7])


def test_nothing_is_searched_where_every_row_has_ended(monkeypatch):
    monkeypatch.setattr(module, "_search", lambda *_: pytest.fail("searched"))
    function, bottom = quadratic(3, 11)
    ends, _ = minimise(function, bottom[None], np.full(3, -4.0), np.full(3, 4.0), 50)
    assert (ends[0] == bottom).all()


def test_a_row_that_has_ended_is_asked_no_more():
    function = Recorded(quadratic(3, 11)[0])
    bottom = quadratic(3, 11)[1]
    minimise(function, np.array([bottom, bottom + 0.9, bottom]), np.full(3, -4.0), np.full(3, 4.0), 50)
    assert len(function.calls[0]) == 3 and all(len(rows) == 1 for rows in function.calls[1:])
    assert len(function.calls) < 30  # and none goes on where no more is gained


def test_the_first_step_is_a_tenth_of_the_box_at_the_most():
    def steep(rows):
        return 1e6 * rows @ np.array([1.0, 0.5]), np.tile([1e6, 5e5], (len(rows), 1))

    def gentle(rows):
        return 1e-3 * rows.sum(axis=1), np.full(rows.shape, 1e-3)

    low, high = np.array([-2.0, -1.0]), np.array([2.0, 1.0])
    for function, expected in ((steep, [-0.4, -0.2]), (gentle, [-1e-3, -1e-3])):
        recorded = Recorded(function)
        minimise(recorded, np.zeros((1, 2)), low, high, 1)
        assert recorded.calls[1][0] == pytest.approx(expected)


def test_once_the_curvature_is_known_whole_steps_are_taken():
    function = Recorded(lambda rows: (0.5 * (rows[:, 0] - 30) ** 2, rows - 30))
    minimise(function, np.zeros((1, 1)), np.full(1, -10.0), np.full(1, 90.0), 2)
    assert [rows[0, 0] for rows in function.calls] == pytest.approx([0.0, 10.0, 30.0])


def test_a_step_has_to_bring_its_share_of_what_the_slope_promises():
    def lying(share):  # as if the function fell by 1 a step, of which it keeps a share
        return Recorded(lambda rows: (-share * rows[:, 0], np.full((len(rows), 1), -1.0)))

    for share, moves in ((0.5 * SUFFICIENT, False), (2 * SUFFICIENT, True), (-0.1, False), (0.0, False)):
        function = lying(share)
        ends, values = minimise(function, np.array([[0.5]]), np.zeros(1), np.ones(1), 1)
        assert (ends[0, 0] > 0.5) == moves and values[0] == pytest.approx(-share * ends[0, 0])
        if not moves:
            assert ends[0, 0] == 0.5 and len(function.calls) == 1 + 12
            tried = np.array([rows[0, 0] - 0.5 for rows in function.calls[1:]])
            assert tried[1:] == pytest.approx(0.3 * tried[:-1], rel=1e-6)  # shorter and shorter ones


def test_a_search_that_fails_for_one_row_goes_on_for_the_others():
    def function(rows):
        wrong = rows[:, 1] > 0.5  # there the gradient lies
        value = np.where(wrong, -1.0, 1.0) * rows[:, 0]
        return value, np.stack([np.ones(len(rows)), np.zeros(len(rows))], axis=1)

    ends, values = minimise(function, np.array([[0.5, 0.0], [0.5, 1.0], [0.25, 0.0]]), np.zeros(2), np.ones(2), 50)
    assert ends.tolist() == [[0.0, 0.0], [0.5, 1.0], [0.0, 0.0]] and values.tolist() == [0.0, -0.5, 0.0]


def test_what_gains_next_to_nothing_ends():
    function = Recorded(lambda rows: (1e3 + 1e-7 * rows[:, 0], np.full((len(rows), 1), 1e-7)))
    minimise(function, np.array([[1.0]]), np.zeros(1), np.ones(1), 50)
    assert len(function.calls) == 2  # 1e-14 a step, of a thousand


@pytest.mark.parametrize(("level", "slope", "goes_on"), [(1e3, 1e-4, False), (0.0, 3.9e-5, True), (0.0, 3.1e-5, False)])
def test_how_little_is_next_to_nothing_depends_on_how_large_the_values_are(level, slope, goes_on):
    function = Recorded(lambda rows: (level + slope * rows[:, 0], np.full((len(rows), 1), slope)))
    minimise(function, np.zeros((1, 1)), np.full(1, -50.0), np.full(1, 50.0), 2)  # a step gains the slope's square
    assert len(function.calls) == (3 if goes_on else 2)


@pytest.mark.parametrize("direction", [0.5, 0.0])
def test_no_row_moves_where_the_slope_promises_nothing(direction):
    at, one = np.array([[0.5]]), np.ones(1, dtype=bool)
    new, value, _, moved = module._search(
        lambda rows: (np.full(len(rows), -7.0), np.ones((len(rows), 1))),
        at, np.zeros(1), np.ones((1, 1)), np.array([[direction]]), np.ones(1), one, np.zeros((1, 1)), np.ones((1, 1)),
    )  # fmt: skip
    assert not moved[0] and new[0] == 0.5 and value[0] == 0.0


def test_a_gain_of_just_next_to_nothing_ends_too():
    values = iter([0.0, -SMALL, -1.0])
    function = Recorded(lambda rows: (np.array([next(values)]), np.full((1, 1), 1e-4)))
    minimise(function, np.zeros((1, 1)), np.full(1, -1.0), np.full(1, 1.0), 2)
    assert len(function.calls) == 2
