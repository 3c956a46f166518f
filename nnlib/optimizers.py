"""Applies an update rule to the parameters of a network, each piece as soon as its gradient is known.

Rows of a sparse input's weights that a batch does not touch have a gradient of zero, which still moves them (momentum,
l2). They cost nothing until they are read again: then the steps that they missed are replayed, with the same numbers
in the same order, so that they end as if every step had been done at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.architecture import Edge, NetworkSpec
from nnlib.network import Layout, Network, is_sparse_input, layout_of, owners, units
from nnlib.rules import RULES, Pace, Rule

Floats = NDArray[Any]  # float32, in tests float64
Rate = Callable[[int], float]  # step -> learning rate

CHUNK = 1 << 15  # numbers updated at a time: the five arrays of Adam then stay in a core's cache
PATIENCE = 8  # steps between two looks whether a replay still moves anything


@dataclass(frozen=True, slots=True)
class Hyper:
    """What stays the same in all steps."""

    rule: str = "adam"
    momentum: float = 0.9
    beta2: float = 0.999
    l2: float = 0.0
    l1: float = 0.0


@dataclass(slots=True)
class Slot:
    """One parameter array as rows and columns, the rule's state beside it, and what belongs to it."""

    values: Floats
    states: tuple[Floats, ...]
    l2: float = 0.0
    l1: float = 0.0
    locked: bool = False
    last: NDArray[np.int64] | None = None  # step that each row is at, for rows that are updated when touched


class Optimizer:
    """A sink of gradients (see `backward.Sink`) that applies them at once.

    Call `begin` before each batch, `settle` before its forward pass, `finish` after its backward pass.
    """

    def __init__(self, network: Network, hyper: Hyper, rate: Rate) -> None:
        """Start with zero states; `rate` gives the learning rate of step 1, 2, ..."""
        self.network, self.hyper = network, hyper
        self.step = 0
        self._rule: Rule = RULES[hyper.rule]
        self._rate = rate
        spec = network.spec
        self._weights = {n: self._slot(store, n in network.locked, hyper) for n, store in network.stores.items()}
        self._biases = [
            self._slot(bias[:, None], spec.edges[n].owner in network.locked) for n, bias in enumerate(network.biases)
        ]
        self._norms = {
            n: (self._slot(norm.scale[:, None]), self._slot(norm.bias[:, None])) for n, norm in network.norms.items()
        }
        for owner in self._lazy(spec):
            slot = self._weights[owner]
            slot.last = np.zeros(len(slot.values), np.int64)

    def _slot(self, values: Floats, locked: bool = False, hyper: Hyper | None = None) -> Slot:
        states = tuple(np.zeros_like(values) for _ in range(self._rule.states))
        return Slot(values, states, hyper.l2 if hyper else 0.0, hyper.l1 if hyper else 0.0, locked)

    def _lazy(self, spec: NetworkSpec) -> list[int]:
        """Return the edges whose rows are updated when touched: from sparse inputs, not shared, without a limit."""
        shared = {edge.owner for edge in spec.edges if edge.owner != edge.number}
        return [
            edge.number
            for edge in owners(spec)
            if is_sparse_input(spec.layers[edge.source])
            and edge.number not in shared
            and not spec.layers[edge.target].weight_norm
        ]

    def arrays(self) -> Mapping[str, Floats]:
        """Return the states by name, for a checkpoint; call `settle_all` before."""
        found: dict[str, Floats] = {}
        for owner, slot in self._weights.items():
            found |= {f"weights{owner}_state{n}": state for n, state in enumerate(slot.states)}
        for number, slot in enumerate(self._biases):
            found |= {f"bias{number}_state{n}": state for n, state in enumerate(slot.states)}
        for layer, pair in self._norms.items():
            for name, slot in zip(("scale", "bias"), pair, strict=True):
                found |= {f"norm{layer}_{name}_state{n}": state for n, state in enumerate(slot.states)}
        return found

    def resume(self, step: int) -> None:
        """Go on after `step`; the states were filled by way of `arrays`."""
        self.step = step
        for slot in self._weights.values():
            if slot.last is not None:
                slot.last[:] = step

    def begin(self) -> None:
        """Start the next step."""
        self.step += 1

    def settle(self, owner: int, rows: NDArray[np.int64]) -> None:
        """Bring rows of a store to the step before this one."""
        slot = self._weights[owner]
        if slot.last is not None and not slot.locked and (not self._rule.still or slot.l2 or slot.l1):
            self._replay(slot, rows, self.step - 1)

    def settle_all(self) -> None:
        """Bring all rows to this step; call it before parameters are read other than by a forward pass."""
        for slot in self._weights.values():
            if slot.last is not None and not slot.locked and (not self._rule.still or slot.l2 or slot.l1):
                self._replay(slot, np.arange(len(slot.values)), self.step)

    def rows(self, owner: int, low: int, gradient: Floats) -> None:
        """Update the rows of a store from `low` with their dense gradient (rows, columns)."""
        self._update(self._weights[owner], low, gradient)

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """Update the biases from `low` with their gradient (n,)."""
        self._update(self._biases[edge], low, gradient[:, None])

    def norm(self, layer: int, scale: Floats, bias: Floats) -> None:
        """Update a batch normalization."""
        for slot, gradient in zip(self._norms[layer], (scale, bias), strict=True):
            self._update(slot, 0, gradient[:, None])

    def touched(self, owner: int, low: int, rows: NDArray[np.int64], gradient: Floats) -> None:
        """Update the rows that have a gradient; the others of the table are left for `settle`."""
        slot = self._weights[owner]
        if slot.locked:
            return
        if slot.last is None:
            height = units(self.network.spec, self.network.spec.edges[owner].source)
            whole = np.zeros((height, gradient.shape[1]), gradient.dtype)
            whole[rows] = gradient
            self._update(slot, low, whole)
            return
        rows = low + rows
        pace, step = self._pace(self.step), max(1, CHUNK // slot.values.shape[1])
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            w, states = slot.values[some], [state[some] for state in slot.states]
            self._apply(slot, w, gradient[start : start + step], states, pace)
            slot.values[some] = w
            for state, piece in zip(slot.states, states, strict=True):
                state[some] = piece
        slot.last[rows] = self.step

    def finish(self) -> None:
        """End the step: apply the limits of WeightNorm."""
        spec = self.network.spec
        for edge in owners(spec):
            limit = spec.layers[edge.target].weight_norm
            if limit and edge.number not in self.network.locked:
                _limit(spec, edge, self.network.stores[edge.number], limit)

    def _pace(self, step: int) -> Pace:
        shift = 1 if self.network.spec.compat else 0  # DSSTNE's Adam starts with t = 2
        return Pace(step + shift, self._rate(step), self.hyper.momentum, self.hyper.beta2)

    def _update(self, slot: Slot, low: int, gradient: Floats) -> None:
        if slot.locked:
            return
        pace, step = self._pace(self.step), max(1, CHUNK // gradient.shape[1])
        for start in range(0, len(gradient), step):
            g = gradient[start : start + step]
            place = slice(low + start, low + start + len(g))
            self._apply(slot, slot.values[place], g, [state[place] for state in slot.states], pace)

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

    def _replay(self, slot: Slot, rows: NDArray[np.int64], upto: int) -> None:
        """Apply to each of `rows` the steps with a gradient of zero from the one it is at up to `upto`."""
        assert slot.last is not None
        rows = rows[slot.last[rows] < upto]
        rows = rows[np.argsort(slot.last[rows], kind="stable")]  # those that missed most come first
        step = max(1, CHUNK // slot.values.shape[1])
        for low in range(0, len(rows), step):
            some = rows[low : low + step]
            arrays = [slot.values[some], *(state[some] for state in slot.states)]
            self._replay_chunk(slot, arrays, slot.last[some], upto)
            for array, piece in zip((slot.values, *slot.states), arrays, strict=True):
                array[some] = piece
        slot.last[rows] = upto

    def _replay_chunk(self, slot: Slot, arrays: Sequence[Floats], last: NDArray[np.int64], upto: int) -> None:
        """Replay rows in ascending order of `last`: at each step only the first ones have something to catch up with.

        Rows whose weights have come to rest need no more than their states shrunk.
        """
        forced, resting = bool(slot.l2 or slot.l1), 0
        for step in range(int(last[0]) + 1, upto + 1):
            count, pace = int(np.searchsorted(last, step)), self._pace(step)
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


def _limit(spec: NetworkSpec, edge: Edge, store: Floats, limit: float) -> None:
    """Scale down, in place, the weights into each unit whose norm is above the limit."""
    layout, below = layout_of(spec, edge), units(spec, edge.source)
    axis = 1 if layout is Layout.BY_OUTPUT else 0
    tables = np.split(store, len(store) // below) if layout is Layout.BLOCKED else [store]
    for table in tables:
        norms = np.linalg.norm(table, axis=axis, keepdims=True)
        table *= np.minimum(1, limit / np.maximum(norms, np.finfo(table.dtype).tiny))
