"""What decides in nnlib.cpu.updates: when a replay may stop, what a chunk is, and what compiled loops are given."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from nnlib.cpu.updates import PATIENCE, CompiledUpdates, NumpyUpdates, Slot, tabulate_paces
from nnlib.optim.hyper import ADAMS, Hyper
from nnlib.optim.rules import EPSILON, RULES, Pace


def constant(_step):
    return 0.01


def slot_of(rule, rows, columns=2, **more):
    random = np.random.default_rng(3)
    states = tuple(random.random((rows, columns)) for _ in range(RULES[rule].states))
    return Slot(random.normal(size=(rows, columns)), states, **more)


def later_moves(mu, b, step, number=60):
    """How far Adam moves a weight from `step` on, with gradients of zero; without the 1 - mu^t, which only shrinks."""
    m, s, moves = 1.0, 1.0, []
    for t in range(step, step + number):
        moves.append(m / math.sqrt(s / (1 - b**t)))
        m, s = mu * m, b * s
    return moves


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("b", [0.05, 0.3, 0.8, 0.85, 0.95, 0.999])
@pytest.mark.parametrize("mu", [0.2, 0.5, 0.874, 0.9, 0.93, 0.97])
def test_weights_may_rest_when_every_later_move_of_adam_is_smaller(mu, b, shift):
    updates = NumpyUpdates(Hyper("adam", mu, b), constant, shift)
    for step in (PATIENCE, 3 * PATIENCE):
        moves = later_moves(mu, b, step + shift)
        wanted = all(after <= before for before, after in itertools.pairwise(moves))
        assert updates._may_rest(step, updates._pace(step), forced=False) is wanted


def test_weights_rest_only_where_nothing_can_move_them_again():
    def rate(step):
        return {8: 0.1, 9: 0.2, 10: 0.05, 16: 0.1, 17: 0.1, 18: 0.2, 24: 0.1, 25: 0.05}.get(step, 0.1)

    def rests(rule, step, forced=False, **hyper):
        updates = NumpyUpdates(Hyper(rule, **hyper), rate)
        return updates._may_rest(step, updates._pace(step), forced)

    for rule in ("momentum", "adam", "adamw"):
        assert not rests(rule, 8)  # the rate grows in the next step
        assert rests(rule, 16) and rests(rule, 24)  # it stays, it falls
        assert not rests(rule, 16, forced=True)  # l2 or l1 pull
        assert not any(rests(rule, step) for step in range(1, PATIENCE))  # not looked at
    assert not any(rests(rule, 16) for rule in RULES.keys() - {"momentum", "adam", "adamw"})
    assert not rests("adam", 16, beta2=0.0)  # the root is zero at once, m is not
    assert rests("momentum", 16, beta2=0.0) and rests("momentum", 16, momentum=0.99, beta2=0.5)  # it has no root


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [1, 6, 1 << 15])
@pytest.mark.parametrize("pulls", [{}, {"l2": 0.1}, {"l1": 0.1}])
def test_rows_replayed_late_are_those_done_in_time(monkeypatch, rule, size, pulls):
    """One row alone, rows in any order, without and with a gradient in the last step."""
    monkeypatch.setattr("nnlib.cpu.updates.CHUNK", size)
    for rows in ([3], [4, 0, 2]):
        for given in (False, True):
            updates = NumpyUpdates(Hyper(rule), constant)
            late, twin = (slot_of(rule, 5, last=np.array([0, 9, 3, 7, 5]), **pulls) for _ in range(2))
            others = [row for row in range(5) if row not in rows]
            before = late.values.copy()
            gradient = np.random.default_rng(4).normal(size=(len(rows), 2)) if given else None
            for n, row in enumerate(rows):
                for step in range(twin.last[row] + 1, 11):
                    last = given and step == 10
                    updates.update(twin, row, gradient[n : n + 1].copy() if last else np.zeros((1, 2)), step)
            updates.replay(late, np.array(rows), 10, None if gradient is None else gradient.copy())
            assert late.last.tolist() == [10 if row in rows else twin.last[row] for row in range(5)]
            np.testing.assert_array_equal(late.values[others], before[others])
            for found, wanted in zip((late.values, *late.states), (twin.values, *twin.states), strict=True):
                np.testing.assert_array_equal(found[rows], wanted[rows])


@pytest.mark.parametrize("rule", RULES)
def test_rows_that_come_to_rest_end_as_if_every_step_had_been_done(rule):
    """In single precision, where the last moves are lost in rounding: weights, and states that still shrink."""
    late, twin = (slot_of(rule, 4, last=np.array([0, 0, 90, 41])) for _ in range(2))
    for slot in (late, twin):
        slot.values = slot.values.astype(np.float32)
        slot.states = tuple(state.astype(np.float32) for state in slot.states)
    updates = NumpyUpdates(Hyper(rule, 0.3, 0.9), constant)
    for row, last in enumerate(twin.last):
        for step in range(last + 1, 121):
            updates.update(twin, row, np.zeros((1, 2), np.float32), step)
    updates.replay(late, np.arange(4), 120)
    for found, wanted in zip((late.values, *late.states), (twin.values, *twin.states), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("rule", ["momentum", "adam", "adamw"])
def test_weights_at_rest_are_not_computed_again(monkeypatch, rule):
    """The last steps of a long replay shrink the states alone."""
    slot = slot_of(rule, 3, last=np.array([0, 0, 0]))
    slot.values = slot.values.astype(np.float32)
    slot.states = tuple(state.astype(np.float32) for state in slot.states)
    updates, steps = NumpyUpdates(Hyper(rule, 0.3, 0.9), constant), []
    apply = updates._apply
    monkeypatch.setattr(updates, "_apply", lambda *args: (steps.append(args[-1].step), apply(*args)))
    updates.replay(slot, np.arange(3), 1000)
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) < 100
    assert not len(steps) % PATIENCE


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [1, 4, 5])
def test_pieces_of_a_gradient_do_what_the_whole_does(monkeypatch, rule, size):
    (cut, whole), updates = (slot_of(rule, 7) for _ in range(2)), NumpyUpdates(Hyper(rule), constant)
    gradient = np.random.default_rng(5).normal(size=(5, 2))
    updates.update(whole, 1, gradient.copy(), 1)
    monkeypatch.setattr("nnlib.cpu.updates.CHUNK", size)
    updates.update(cut, 1, gradient.copy(), 1)
    for found, wanted in zip((cut.values, *cut.states), (whole.values, *whole.states), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_adam_counts_from_one_unless_it_is_shifted():
    asked = []
    updates = NumpyUpdates(Hyper("adam"), lambda step: asked.append(step) or 0.5)
    assert (updates._pace(3).step, NumpyUpdates(Hyper("adam"), constant, 1)._pace(3).step) == (3, 4)
    assert (updates._pace(3).rate, asked[-1]) == (0.5, 3)  # the rate is that of the step as it is
    loops = SimpleNamespace(adam=lambda *args: asked.append(args[5]), replay_adam=None)
    slot = slot_of("adam", 2)
    for shift, step in (((), 3), ((0,), 3), ((2,), 5)):
        CompiledUpdates(loops, Hyper("adam"), constant, *shift).update(slot, 0, np.zeros((2, 2)), 3)
        assert asked[-1] == step


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("l2", "l1"), [(0.5, 0.0), (0.0, 0.25), (0.5, 0.25)])
def test_weights_are_pulled_to_zero_by_their_size_and_their_sign(rule, l2, l1):
    """As if the gradient were g + l2 w + l1 sign(w); AdamW takes a l2 w from the weights first."""
    w, g = np.array([[2.0, -1.0], [0.5, 0.0]]), np.array([[1.0, 0.25], [-2.0, 1.0]])
    pulled, plain = (slot_of(rule, 2) for _ in range(2))
    updates = NumpyUpdates(Hyper(rule), constant)
    pulled.values[:], pulled.l2, pulled.l1 = w, l2, l1
    if rule == "adamw":
        plain.values[:] = w - 0.01 * l2 * w
        whole = g + l1 * np.sign(w)
    else:
        plain.values[:] = w
        whole = g + l2 * w + l1 * np.sign(w)
    updates.update(pulled, 0, g.copy(), 1)
    updates.update(plain, 0, whole, 1)
    for found, wanted in zip((pulled.values, *pulled.states), (plain.values, *plain.states), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("rule", RULES)
def test_rows_that_are_not_asked_for_stay(rule):
    slot, updates = slot_of(rule, 6), NumpyUpdates(Hyper(rule), constant)
    before = [slot.values.copy(), *(state.copy() for state in slot.states)]
    updates.update(slot, 2, np.ones((3, 2)), 1)
    for old, new in zip(before, (slot.values, *slot.states), strict=True):
        assert (old != new).any(axis=1).tolist() == [False, False, True, True, True, False]


def compiled(rule, hyper=None, rate=constant, shift=0):
    """The compiled rules over loops that note what they are given."""
    given = []
    loops = SimpleNamespace(
        **{rule: lambda *args: given.append(args), f"replay_{rule}": lambda *args: given.append(args)}
    )
    return CompiledUpdates(loops, hyper or Hyper(rule, 0.8, 0.95), rate, shift), given


NUMBERS = {  # between the arrays and l2: rate, step and constants, as the loops of each rule take them
    "sgd": (0.01,),
    "momentum": (0.01, 0.8),
    "nesterov": (0.01, 0.8),
    "adagrad": (0.01,),
    "rmsprop": (0.01, 0.8),
    "adadelta": (0.8,),
    "adam": (0.01, 7, 0.8, 0.95, EPSILON),
    "adamw": (0.01, 7, 0.8, 0.95, EPSILON),
}


@pytest.mark.parametrize("rule", RULES)
def test_compiled_loops_get_the_rows_and_the_numbers_of_their_rule(rule):
    updates, given = compiled(rule, shift=1)
    slot = slot_of(rule, 5, l2=0.25, l1=0.125)
    gradient = np.arange(6.0).reshape(3, 2)
    updates.update(slot, 1, gradient, 6)
    [(values, flat, *rest)] = given
    assert np.shares_memory(values, slot.values)
    np.testing.assert_array_equal(values, slot.values[1:4].reshape(-1))
    np.testing.assert_array_equal(flat, np.arange(6.0))
    for state, whole in zip(rest, slot.states, strict=False):
        assert np.shares_memory(state, whole)
        np.testing.assert_array_equal(state, whole[1:4].reshape(-1))
    assert tuple(rest[len(slot.states) :]) == (*NUMBERS[rule], 0.25, 0.125)


@pytest.mark.parametrize("rule", RULES)
def test_compiled_replays_get_the_rates_of_all_steps(rule):
    updates, given = compiled(rule, shift=1)
    slot, rows = slot_of(rule, 5, l2=0.25, l1=0.125, last=np.arange(5)), np.array([2, 0])
    for gradient in (None, np.ones((2, 2))):
        updates.replay(slot, rows, 6, gradient)
    for (values, *rest), length in zip(given, (0, 2), strict=True):
        assert values is slot.values
        states, rest = rest[: len(slot.states)], rest[len(slot.states) :]
        assert all(found is whole for found, whole in zip(states, slot.states, strict=True))
        asked, last, step, *rest = rest
        assert asked is rows and last is slot.last and step == 6
        if rule != "adadelta":
            rates, *rest = rest
            np.testing.assert_array_equal(rates[1:7, 0] if rule in ADAMS else rates[1:7], [0.01] * 6)
        constants = {"sgd": 0, "adagrad": 0}.get(rule, 3 if rule in ADAMS else 1)
        assert tuple(rest[:constants]) == (0.8, 0.95, EPSILON)[:constants]
        l2, l1, found = rest[constants:]
        assert (l2, l1, len(found)) == (0.25, 0.125, length)


def test_rates_by_step_reach_as_far_as_they_are_asked_for():
    asked = []
    updates, _ = compiled("sgd", rate=lambda step: asked.append(step) or 1 / step)
    for step in (1, 2, 2, 3, 4, 8, 30, 5):
        rates = updates._table_up_to(step)
        assert len(rates) > step
        np.testing.assert_array_equal(rates[1:], [1 / n for n in range(1, len(rates))])
    assert asked == sorted(set(asked))  # none is computed twice


@pytest.mark.parametrize("shift", [1, 0, -2])
def test_paces_of_adam_are_those_of_each_step_and_say_since_when_rates_have_not_grown(shift):
    rates = np.array([0, 0.1, 0.1, 0.05, 0.2, 0.2, 0.1])
    found = tabulate_paces(Hyper("adam", 0.8, 0.95), rates, shift)
    first = max(1, 1 - shift)
    for step in range(first, len(rates)):
        pace = Pace(step + shift, rates[step], 0.8, 0.95)
        assert found[step, :3].tolist() == [pace.rate, pace.corrected_rate, pace.correction]
        calm = next(n for n in range(1, step + 1) if np.all(np.diff(rates[n : step + 1]) <= 0))
        assert max(found[step, 3], first) == max(calm, first)
    assert not found[:first, 1:].any()
