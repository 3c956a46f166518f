"""Update rules applied to parameter arrays, and the replay of steps that rows missed; in NumPy and compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from nnlib.optim.hyper import ADAMS, USUAL, Hyper, Pacing, Rate
from nnlib.optim.rules import EPSILON, RULES, Pace
from nnlib.util.arrays import Floats, Longs

CHUNK = 1 << 15  # numbers updated at a time: the five arrays of Adam then stay in a core's cache
PATIENCE = 8  # steps between two looks whether a replay still moves anything


@dataclass(slots=True)
class Slot:
    """One parameter array as rows and columns, the rule's state beside it, and what belongs to it."""

    values: Floats
    states: tuple[Floats, ...]
    l2: float = 0.0
    l1: float = 0.0
    locked: bool = False
    last: Longs | None = None  # step that each row is at, for rows that are updated when touched
    pacing: Pacing = USUAL


class Updates(Protocol):
    """An update rule at work."""

    def follow(self, rate: Rate) -> None:
        """Use other learning rates from now on; no row lags behind."""

    def update(self, slot: Slot, low: int, gradient: Floats, step: int) -> None:
        """Update the rows from `low` with their gradient (rows, columns); it may be overwritten."""

    def replay(self, slot: Slot, rows: Longs, step: int, gradient: Floats | None = None) -> None:
        """Bring some rows to `step`; the last step has `gradient` (len(rows), columns), the others zero."""


class NumpyUpdates:
    """The rules of `rules`, a chunk that fits the cache at a time."""

    def __init__(self, hyper: Hyper, rate: Rate, shift: int = 0) -> None:
        """Use `rate` for the learning rates; `shift` is added to the step that Adam sees."""
        self._hyper, self._rule, self._rate, self._shift = hyper, RULES[hyper.rule], rate, shift

    def follow(self, rate: Rate) -> None:
        """See `Updates`."""
        self._rate = rate

    def update(self, slot: Slot, low: int, gradient: Floats, step: int) -> None:
        """See `Updates`."""
        pace, size = self._pace(step, slot.pacing), max(1, CHUNK // gradient.shape[1])
        for start in range(0, len(gradient), size):
            g = gradient[start : start + size]
            place = slice(low + start, low + start + len(g))
            self._apply(slot, slot.values[place], g, [state[place] for state in slot.states], pace)

    def replay(self, slot: Slot, rows: Longs, step: int, gradient: Floats | None = None) -> None:
        """See `Updates`."""
        assert slot.last is not None
        size, upto = max(1, CHUNK // slot.values.shape[1]), step if gradient is None else step - 1
        late = np.argsort(slot.last[rows], kind="stable")  # those that missed most come first
        for low in range(0, len(rows), size):
            order = late[low : low + size]
            some = rows[order]
            arrays = [slot.values[some], *(state[some] for state in slot.states)]
            if self._acts_on_zero(slot) and slot.last[some[0]] < upto:
                self._catch_up(slot, arrays, slot.last[some], upto)
            if gradient is not None:
                self._apply(slot, arrays[0], gradient[order], arrays[1:], self._pace(step, slot.pacing))
            for array, piece in zip((slot.values, *slot.states), arrays, strict=True):
                array[some] = piece
        slot.last[rows] = step

    def _acts_on_zero(self, slot: Slot) -> bool:
        return not self._rule.still or bool(slot.l2 or slot.l1)

    def _pace(self, step: int, own: Pacing = USUAL) -> Pace:
        rate = own.factor * self._rate(step)
        return Pace(step + self._shift - own.since, rate, self._hyper.momentum, self._hyper.beta2)

    def _apply(self, slot: Slot, w: Floats, g: Floats, states: Sequence[Floats], pace: Pace) -> None:
        """Apply the rule to w and its states, in place; overwrites g."""
        tmp = np.empty_like(w)
        if self._rule.decoupled and slot.l2:
            np.multiply(w, pace.rate * slot.l2, out=tmp)
            w -= tmp
        elif slot.l2:
            np.multiply(w, slot.l2, out=tmp)
            g += tmp
        if slot.l1:
            np.sign(w, out=tmp)
            tmp *= slot.l1
            g += tmp
        self._rule.update(w, g, states, pace, tmp)

    def _catch_up(self, slot: Slot, arrays: Sequence[Floats], last: Longs, upto: int) -> None:
        """Replay rows in ascending order of `last`: at each step only the first ones have something to catch up with.

        Rows whose weights have come to rest need no more than their states shrunk.
        """
        forced, resting = bool(slot.l2 or slot.l1), 0
        for step in range(int(last[0]) + 1, upto + 1):
            count, pace = int(np.searchsorted(last, step)), self._pace(step, slot.pacing)
            if resting:
                self._shrink([state[:resting] for state in arrays[1:]], pace)
            if resting == count:
                continue
            w, *states = (array[resting:count] for array in arrays)
            if not (forced or self._rule.moves):
                self._shrink(states, pace)
                continue
            before = w.copy() if self._may_rest(step, pace, forced) else None
            self._apply(slot, w, np.zeros_like(w), states, pace)
            if before is not None and np.array_equal(before, w):
                resting = count

    def _may_rest(self, step: int, pace: Pace, forced: bool) -> bool:
        """Whether weights that do not move in this step, with a gradient of zero, will not move in later ones.

        That is so when every later move is smaller: the rate does not grow (it falls for good once it falls), and for
        Adam m shrinks faster than the root of the corrected s.
        """
        if forced or not self._rule.rests or step % PATIENCE:
            return False
        b, t = pace.beta2, pace.step
        growth = pace.momentum * math.sqrt((1 - b ** (t + 1)) / ((1 - b**t) * b)) if 0 < b < 1 else math.inf
        return self._rate(step + 1) <= self._rate(step) and (self._rule.states < 2 or growth <= 1)

    def _shrink(self, states: Sequence[Floats], pace: Pace) -> None:
        """Do to the states what a step with a gradient of zero does."""
        for state, second in zip(states, (False, True), strict=False):
            state *= pace.beta2 if second and self._rule.rests else pace.momentum


class CompiledUpdates:
    """The same rules as compiled loops."""

    def __init__(self, loops: ModuleType, hyper: Hyper, rate: Rate, shift: int = 0) -> None:
        """See `NumpyUpdates`; `loops` is nnlib.compiled.loops."""
        self._hyper, self._shift = hyper, shift
        self._update, self._replay = getattr(loops, hyper.rule), getattr(loops, f"replay_{hyper.rule}")
        self.follow(rate)

    def follow(self, rate: Rate) -> None:
        """See `Updates`."""
        self._rate, self._tables = rate, dict[Pacing, Floats]()

    def update(self, slot: Slot, low: int, gradient: Floats, step: int) -> None:
        """See `Updates`."""
        place = slice(low, low + len(gradient))
        arrays = [array[place].reshape(-1) for array in slot.states]
        own = slot.pacing
        numbers = self._numbers(own.factor * self._rate(step), step + self._shift - own.since)
        flat = np.ascontiguousarray(gradient).reshape(-1)
        self._update(slot.values[place].reshape(-1), flat, *arrays, *numbers, slot.l2, slot.l1)

    def replay(self, slot: Slot, rows: Longs, step: int, gradient: Floats | None = None) -> None:
        """See `Updates`."""
        numbers = self._numbers(self._table_up_to(step, slot.pacing))
        given = slot.values[:0] if gradient is None else gradient
        self._replay(slot.values, *slot.states, rows, slot.last, step, *numbers, slot.l2, slot.l1, given)

    def _numbers(self, rate: float | Floats, *step: int) -> tuple[Any, ...]:
        """Return what a loop takes between the arrays and l2: the rate or table, the step if it asks, constants."""
        hyper = self._hyper
        if hyper.rule in ADAMS:
            return (rate, *step, hyper.momentum, hyper.beta2, EPSILON)
        if hyper.rule == "adadelta":
            return (hyper.momentum,)
        return (rate,) if hyper.rule in ("sgd", "adagrad") else (rate, hyper.momentum)

    def _table_up_to(self, step: int, own: Pacing = USUAL) -> Floats:
        """Return the rates by step, of Adam the paces, up to `step` at least; several threads may ask at once."""
        adam = self._hyper.rule in ADAMS
        table = self._tables.get(own, np.zeros((1, 4) if adam else 1))
        if len(table) <= step:
            more = [own.factor * self._rate(n) for n in range(len(table), max(step + 1, 2 * len(table)))]
            rates = np.concatenate([table[:, 0] if adam else table, more])
            self._tables[own] = table = tabulate_paces(self._hyper, rates, self._shift - own.since) if adam else rates
        return table


def tabulate_paces(hyper: Hyper, rates: Floats, shift: int = 0) -> Floats:
    """Return what a replay of Adam asks of each step, (steps, 4), from the rates by step, of which 0 is none.

    These are the rate, rate and correction as `Pace` has them, and the first step from which the rate has not grown.
    Adam counts from step + `shift`; before 1 it does nothing.
    """
    found, calm = np.zeros((len(rates), 4)), 0
    found[:, 0] = rates
    for step in range(max(1, 1 - shift), len(rates)):
        pace = Pace(step + shift, float(rates[step]), hyper.momentum, hyper.beta2)
        calm = step if pace.rate > rates[step - 1] else calm
        found[step, 1:] = pace.corrected_rate, pace.correction, calm
    return found
