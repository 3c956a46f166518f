"""Applies an update rule to a network, each piece as soon as its gradient is known. Twin: gpu/optimizer.py.

Rows of a sparse input's weights that a batch does not touch have a gradient of zero, which still moves them (momentum,
l2). They cost nothing until they are read again: then the steps that they missed are replayed, with the same numbers
in the same order, so that they end as if every step had been done at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nnlib.compiled.select import LOOPS
from nnlib.cpu.updates import CompiledUpdates, NumpyUpdates, Slot, Updates
from nnlib.model.network import (
    Layout,
    Network,
    count_units,
    find_live_layers,
    is_lazy,
    iterate_limited_edges,
    iterate_owners,
    layout_of,
)
from nnlib.ops.limits import limit_norms
from nnlib.optim.hyper import USUAL, Hyper, Pacing, Rate, step_shift
from nnlib.optim.rules import RULES
from nnlib.spec.types import Edge, NetworkSpec
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each, consume, map_in_turn

SHARE = 1024  # rows that one thread brings up to date
UNMET = np.iinfo(np.int64).max >> 1  # a step after all others: zero gradients do nothing to rows that never had another


class Optimizer:
    """A sink of gradients (see `sink.Sink`) that applies them at once.

    Call `begin` before each batch, `settle` before its forward pass, `finish` after its backward pass.
    """

    def __init__(
        self,
        network: Network,
        hyper: Hyper,
        rate: Rate,
        each: Each = map_in_turn,
        pacings: Sequence[Pacing] = (),
    ) -> None:
        """Start with zero states; `rate` gives the learning rate of step 1, 2, ..., of which layers have `pacings`."""
        self.network, self.hyper = network, hyper
        self.step = 0
        self._rule, self._each = RULES[hyper.rule], each
        self._pacings = pacings or (USUAL,) * len(network.spec.layers)
        spec = network.spec
        shift = step_shift(spec)
        self._updates: Updates = (
            CompiledUpdates(LOOPS, hyper, rate, shift) if LOOPS else NumpyUpdates(hyper, rate, shift)
        )
        edges, locked = spec.edges, network.locked
        self._weights = {
            n: self._slot(store, edges[n].target, n in locked, hyper) for n, store in network.stores.items()
        }
        self._biases = [
            self._slot(bias[:, None], edges[n].target, edges[n].owner in locked)
            for n, bias in enumerate(network.biases)
        ]
        self._norms = {
            (n, name): self._slot(array[:, None], n)
            for n, norm in network.norms.items()
            for name, array in (("scale", norm.scale), ("bias", norm.bias))
        }
        live = find_live_layers(spec)
        for edge in iterate_owners(spec):
            if is_lazy(spec, edge) and edge.target in live:
                slot = self._weights[edge.number]
                slot.last = np.full(len(slot.values), 0 if slot.l2 or slot.l1 else UNMET)

    def _slot(self, values: Floats, layer: int, locked: bool = False, hyper: Hyper | None = None) -> Slot:
        # Memory that is zero by itself: what no row is met of is never taken, as `zeros_like` would.
        states = tuple(np.zeros(values.shape, values.dtype) for _ in range(self._rule.states))
        l2, l1 = (hyper.l2, hyper.l1) if hyper else (0.0, 0.0)
        return Slot(values, states, l2, l1, locked, pacing=self._pacings[layer])

    def arrays(self) -> Mapping[str, Floats]:
        """Return the states by name, for a checkpoint; call `settle_all` before."""
        found: dict[str, Floats] = {}
        for owner, slot in self._weights.items():
            found |= {f"weights{owner}_state{n}": state for n, state in enumerate(slot.states)}
        for number, slot in enumerate(self._biases):
            found |= {f"bias{number}_state{n}": state for n, state in enumerate(slot.states)}
        for (layer, name), slot in self._norms.items():
            found |= {f"norm{layer}_{name}_state{n}": state for n, state in enumerate(slot.states)}
        return found

    def resume(self, step: int) -> None:
        """Go on after `step`; the states were filled by way of `arrays`."""
        self.step = step
        for slot in self._weights.values():
            if slot.last is not None:
                slot.last[...] = np.where(_met(slot), step, UNMET)

    def follow(self, rate: Rate) -> None:
        """Use other learning rates from the next step on; call `settle_all` before."""
        self._updates.follow(rate)

    def begin(self) -> None:
        """Start the next step."""
        self.step += 1

    def settle(self, owner: int, rows: Longs) -> None:
        """Bring rows of a store, as far as their weights are concerned, to the step before this one."""
        slot = self._weights[owner]
        if slot.last is not None and not slot.locked and (self._rule.moves or slot.l2 or slot.l1):
            self._replay(slot, rows, self.step - 1)

    def settle_all(self) -> None:
        """Bring all rows to this step; call it before parameters are read other than by a forward pass."""
        for slot in self._weights.values():
            if slot.last is not None and not slot.locked and (not self._rule.still or slot.l2 or slot.l1):
                self._replay(slot, np.flatnonzero(slot.last < self.step), self.step)

    def rows(self, owner: int, low: int, gradient: Floats) -> None:
        """Update the rows of a store from `low` with their dense gradient (rows, columns)."""
        self._update(self._weights[owner], low, gradient)

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """Update the biases from `low` with their gradient (n,)."""
        self._update(self._biases[edge], low, gradient[:, None])

    def norm(self, layer: int, scale: Floats, bias: Floats) -> None:
        """Update a batch normalization."""
        for name, gradient in (("scale", scale), ("bias", bias)):
            self.norm_array(layer, name, 0, gradient)

    def norm_array(self, layer: int, name: str, low: int, gradient: Floats) -> None:
        """Update the scale or the bias of a batch normalization from `low` with its gradient (n,)."""
        self._update(self._norms[layer, name], low, gradient[:, None])

    def touched(self, owner: int, low: int, rows: Longs, gradient: Floats) -> None:
        """Update the rows that have a gradient; the others are left for `settle`.

        Only for weights that `network.is_lazy` names; those of other sparse inputs come whole, see `Gradients`.
        """
        slot = self._weights[owner]
        if not slot.locked:
            self._updates.replay(slot, low + rows, self.step, gradient)

    def finish(self) -> None:
        """End the step."""
        limit_weights(self.network)

    def _update(self, slot: Slot, low: int, gradient: Floats) -> None:
        if not slot.locked:
            self._updates.update(slot, low, gradient, self.step)

    def _replay(self, slot: Slot, rows: Longs, step: int) -> None:
        assert slot.last is not None
        late = rows[slot.last[rows] < step]

        def share(low: int) -> None:
            self._updates.replay(slot, late[low : low + SHARE], step)

        consume(self._each(share, range(0, len(late), SHARE)))


def limit_weights(network: Network) -> None:
    """Apply the limits of WeightNorm, to weights that are not shared."""
    spec = network.spec
    for edge in iterate_limited_edges(network):
        _limit(spec, edge, network.stores[edge.number], spec.layers[edge.target].weight_norm)


def _met(slot: Slot) -> NDArray[np.bool_]:
    """Return which rows zero gradients may change: those with a bit of state; all, where weights are pulled to zero."""
    met = np.full(len(slot.values), bool(slot.l2 or slot.l1))
    for state in slot.states:
        for low in range(0, len(met), SHARE):
            met[low : low + SHARE] |= state[low : low + SHARE].view(np.uint8).any(axis=1)
    return met


def _limit(spec: NetworkSpec, edge: Edge, store: Floats, limit: float) -> None:
    """Scale down, in place, the weights into each unit whose norm is above the limit."""
    layout, below = layout_of(spec, edge), count_units(spec, edge.source)
    axis = 1 if layout is Layout.BY_OUTPUT else 0
    tables = np.split(store, len(store) // below) if layout is Layout.BLOCKED else [store]
    for table in tables:
        limit_norms(table, limit, axis)
