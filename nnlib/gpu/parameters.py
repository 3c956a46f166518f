"""The parameters of a network in the memory of a GPU, with the optimizer's state beside them.

Everything that a training step updates as a whole lies in one flat array, gradients and states in others of the same
shape: first the weights, which decay, then biases and batch normalizations, which do not. The weights of a sparse input
are tables by themselves, of which a step updates the rows that it touches.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nnlib.gpu.runtime import Array, Runtime, align
from nnlib.model.network import (
    Layout,
    Network,
    bias_count,
    find_live_layers,
    is_lazy,
    iterate_owners,
    join_blocks,
    lay_out_weights,
    layout_of,
    norm_count,
    weight_shape,
)
from nnlib.optim.rules import RULES
from nnlib.shards.tree import SHARDS
from nnlib.spec.types import Edge, NetworkSpec
from nnlib.util.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Weights (units, n) whose rows are updated when a batch touches them, and the step that each row is at."""

    values: Array
    states: tuple[Array, ...]
    last: Array  # (units,) of int32


@dataclass(slots=True, eq=False)
class ParameterBlock:
    """One array of parameters: where it is, and if it is trained as a whole its gradient."""

    values: Array
    gradient: Array | None = None


class Parameters:
    """See the head of this module. Weights are (in, out); those of a convolution, and those that a dense layer gives an
    output layer, (out, in).
    """

    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        rule: str | None = None,
        lazy: bool = True,
        shards: range | None = None,
    ) -> None:
        """Copy a network's parameters to the GPU; with a `rule` they are to be trained, as a whole unless `lazy`.

        `shards`: of the flat arrays, cut into eight equal slices, those that are updated here; None: they are not cut.
        """
        self.runtime, self.network, self._shards = runtime, network, shards
        spec = network.spec
        self._count = RULES[rule].states if rule else 0
        self.live = find_live_layers(spec)
        trained = {e.number for e in spec.edges if rule and e.target in self.live and e.owner not in network.locked}
        self.tables: dict[int, Table] = {}
        self.parts: dict[str, ParameterBlock] = {}
        dense: list[tuple[str, tuple[int, ...]]] = []
        for edge in iterate_owners(spec):
            uses = {other.number for other in spec.edges if other.owner == edge.number}
            if not uses & trained:
                self.parts[_weights(edge.number)] = ParameterBlock(runtime.zeros(_shape(spec, edge)))
            elif lazy and is_lazy(spec, edge):
                self.tables[edge.number] = self._table(_shape(spec, edge))
            else:
                dense.append((_weights(edge.number), _shape(spec, edge)))
        still: list[tuple[str, tuple[int, ...]]] = [(f"bias{e.number}", (bias_count(spec, e),)) for e in spec.edges]
        normed: list[tuple[str, tuple[int, ...]]] = [
            (f"norm{n}_{name}", (norm_count(spec, n),)) for n in network.norms for name in ("scale", "bias")
        ]
        learning = self.live - network.fixed
        of_trained = {f"bias{number}" for number in trained} | {
            name for name, _ in normed if network.layer_of(name) in learning
        }
        others = [(name, shape) for name, shape in still + normed if rule and name in of_trained]
        self.flat_order: list[tuple[str, int, int]] = []  # name, where it begins and where the next one does
        self.decayed = self._lay_out(dense, others)
        for name, shape in still + normed:
            if name not in self.parts:
                self.parts[name] = ParameterBlock(runtime.zeros(shape))
        for n in network.norms:
            for name in ("mean", "variance"):
                self.parts[f"norm{n}_{name}"] = ParameterBlock(runtime.zeros((norm_count(spec, n),)))
        self.push()

    def _table(self, shape: tuple[int, ...]) -> Table:
        zeros = self.runtime.zeros
        return Table(zeros(shape), tuple(zeros(shape) for _ in range(self._count)), zeros(shape[0], np.int32))

    def _lay_out(self, *groups: list[tuple[str, tuple[int, ...]]]) -> int:
        """Make the flat arrays; return where the second group begins.

        `states` have what lies within `own` of the others: all of it, if they are not cut.
        """
        places, end, ends = {}, 0, []
        for group in groups:
            for name, shape in group:
                places[name] = end
                end += align(int(np.prod(shape)))
                self.flat_order.append((name, places[name], end))
            ends.append(end)
        self.own = slice(0, end)
        if self._shards is not None:
            each = align(-(-end // SHARDS))
            end = SHARDS * each
            self.own = slice(each * self._shards.start, each * self._shards.stop)
        self.flat, self.gradient = self.runtime.zeros(end), self.runtime.zeros(end if places else 0)
        self.states = tuple(self.runtime.zeros(self.own.stop - self.own.start) for _ in range(self._count))
        self._places = {
            name: (slice(places[name], places[name] + int(np.prod(shape))), shape)
            for name, shape in (pair for group in groups for pair in group)
        }
        for name in self._places:
            self.parts[name] = ParameterBlock(self._view(name, self.flat), self._view(name, self.gradient))
        return ends[0]

    def beside(self, gradient: Array) -> Parameters:
        """Return the same parameters with another flat gradient."""
        other = copy.copy(self)
        other.gradient, other.parts = gradient, dict(self.parts)
        for name in self._places:
            other.parts[name] = ParameterBlock(self.parts[name].values, self._view(name, gradient))
        return other

    def _view(self, name: str, flat: Array) -> Array:
        place, shape = self._places[name]
        return flat[place].reshape(shape)

    def weights(self, owner: int) -> Array:
        """Return the weights of an edge."""
        return self.tables[owner].values if owner in self.tables else self.parts[_weights(owner)].values

    def is_trained(self, edge: Edge) -> bool:
        """Whether training changes the weights that an edge uses."""
        return edge.owner in self.tables or self.parts[_weights(edge.owner)].gradient is not None

    def gradient_of(self, name: str) -> Array | None:
        """Return where the gradient of an array goes, None when it is not trained."""
        return self.parts[name].gradient

    def is_flipped(self, edge: Edge) -> bool:
        """Whether the weights lie as (out, in) as this edge uses them."""
        owner = self.network.spec.edges[edge.owner]
        return edge.transposed != (layout_of(self.network.spec, owner) is Layout.BY_OUTPUT)

    def push(self) -> None:
        """Copy the parameters of the network to the GPU."""
        for name, array in self.network.arrays():
            self._put(name, self.values(name), array)

    def pull(self) -> Network:
        """Copy the parameters of the GPU into the network, and return it."""
        for name, array in self.network.arrays():
            self._take(name, self.values(name), array)
        return self.network

    def pull_states(self, whole: Callable[[Array], Array] = lambda state: state) -> Mapping[str, Floats]:
        """Return the optimizer's states in this machine's memory, by the names and in the layouts that a CPU has.

        `whole` makes of a flat array of states, which may be a rank's part, that of all ranks.
        """
        found = {}
        for n in range(self._count):
            flat = whole(self.states[n])
            for name, array, table in self._find_trained():
                host = found[f"{name}_state{n}"] = np.zeros_like(array)
                if table is not None:
                    self._take(name, table.states[n], host)
                elif name in self._places:
                    self._take(name, self._view(name, flat), host)
        return found

    def push_states(self, step: int, states: Mapping[str, Floats]) -> None:
        """Go on with states as `pull_states` gives them; every row is at `step`."""
        for n in range(self._count):
            flat = self.states[n] if self._shards is None else self.runtime.zeros(self.flat.size)
            for name, _, table in self._find_trained():
                if table is not None:
                    self._put(name, table.states[n], states[f"{name}_state{n}"])
                elif name in self._places:
                    self._put(name, self._view(name, flat), states[f"{name}_state{n}"])
            if self._shards is not None:
                self.runtime.move(self.states[n], flat[self.own])
        for table in self.tables.values():
            self.runtime.upload(table.last, np.full(table.last.size, step))

    def _find_trained(self) -> Iterator[tuple[str, Floats, Table | None]]:
        """Yield name, array and table, if it is one, of everything that has an optimizer's state on a CPU."""
        for name, array in self.network.arrays():
            if name.endswith(("_mean", "_variance")):
                continue
            owner = _owner(name)
            yield name, array, None if owner is None else self.tables.get(owner)

    def values(self, name: str) -> Array:
        """Return an array by its name in `Network.arrays`."""
        owner = _owner(name)
        return self.parts[name].values if owner is None else self.weights(owner)

    def _put(self, name: str, target: Array, array: Floats) -> None:
        owner = _owner(name)
        if owner is not None and self._is_blocked(owner):
            array = join_blocks(self.network.spec, self.network.spec.edges[owner], array)
        self.runtime.upload(target, array)

    def _take(self, name: str, origin: Array, array: Floats) -> None:
        owner, values = _owner(name), self.runtime.download(origin)
        if owner is not None and self._is_blocked(owner):
            values = lay_out_weights(self.network.spec, self.network.spec.edges[owner], values)
        array[...] = values.reshape(array.shape)

    def _is_blocked(self, owner: int) -> bool:
        return layout_of(self.network.spec, self.network.spec.edges[owner]) is Layout.BLOCKED


def _shape(spec: NetworkSpec, owner: Edge) -> tuple[int, int]:
    below, above = weight_shape(spec, owner)
    return (above, below) if layout_of(spec, owner) is Layout.BY_OUTPUT else (below, above)


def _weights(owner: int) -> str:
    return f"weights{owner}"


def _owner(name: str) -> int | None:
    """Return the edge of `weights3`, None for other names."""
    return int(name.removeprefix("weights")) if name.startswith("weights") else None
