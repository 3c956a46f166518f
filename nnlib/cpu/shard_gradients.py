"""Gradients of networks that every rank has whole, and of a batch some examples: from shards to an update.

A shard's gradient is one flat array. The tree adds those of all shards, and a rank gets its rows of every weight
matrix, bias and batch normalization of the sum. Of these it keeps the optimizer's state, as in ZeRO-1 (Rajbhandari et
al. 2020), and gives the new parameters to all others. Where it is said that an array has rows, one without columns has
one number in each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nnlib.cpu.forward import PIECE
from nnlib.cpu.gradients import clip_scale, divisors_of
from nnlib.cpu.optimizer import Optimizer
from nnlib.model.network import Network, find_live_layers
from nnlib.shards.collectives import Collectives
from nnlib.shards.cut import Cut, Rows
from nnlib.shards.tree import SHARDS, tree_sum
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, consume


@dataclass(frozen=True, slots=True)
class Place:
    """Where the gradient of an array lies: its rows, made a multiple of 8, from `low` on."""

    name: str  # of the array, as in `Network.arrays`
    array: Floats  # the parameters
    rows: Rows
    low: int
    number: int  # of the edge, or of the layer that is normalized

    @property
    def kind(self) -> str:
        """What it is, without a number."""
        return re.sub(r"\d+", "", self.name)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self.array.size // len(self.array)

    @property
    def size(self) -> int:
        """Numbers of a shard."""
        return self.rows.each * self.width

    def view(self, flat: Floats, shards: int) -> Floats:
        """Return the rows of so many shards in a flat array of these."""
        low = self.low // SHARDS * shards
        return flat[low : low + self.size * shards].reshape(-1, *self.array.shape[1:])


def lay_out(network: Network, cut: Cut) -> tuple[Place, ...]:
    """Return where the gradients of all parameters lie that a batch changes.

    Of weights that are shared those of each edge: at the end are all but the first ones.
    """
    spec, live, low, found = network.spec, find_live_layers(network.spec), 0, []
    edges = [edge for edge in spec.edges if edge.target in live and edge.owner not in network.locked]
    arrays = [(f"weights{edge.owner}", network.stores[edge.owner], edge.number) for edge in edges]
    arrays += [(f"bias{edge.number}", network.biases[edge.number], edge.number) for edge in edges]
    for n in sorted(live & network.learned_norms):
        arrays += [(f"norm{n}_{name}", getattr(network.norms[n], name), n) for name in ("scale", "bias")]
    names = [name for name, *_ in arrays]
    again = [n for n, name in enumerate(names) if name in names[:n]]
    for name, array, number in [*(one for n, one in enumerate(arrays) if n not in again), *(arrays[n] for n in again)]:
        found.append(Place(name, array, cut.updated(name), low, number))
        low += found[-1].size * SHARDS
    return tuple(found)


class ShardGradients:
    """A sink (see `sink.Sink`) of the sum over the own shards of a batch, in the same memory for each batch.

    Of weights that are shared it keeps apart what each edge gives: the tree adds these first.
    """

    def __init__(self, network: Network, places: tuple[Place, ...]) -> None:
        self.flat = np.zeros(sum(place.size for place in places) * SHARDS, network.dtype)
        self._of = {(place.kind, place.number): place.view(self.flat, SHARDS) for place in places}
        self._share = network.dtype.type(1)

    def begin(self, share: float) -> None:
        """Start on a batch, whose gradient counts `share` in that of its update; 0: this rank has no examples."""
        self._share = self.flat.dtype.type(share)
        if not share:
            self.flat[...] = 0

    def rows(self, edge: int, low: int, gradient: Floats) -> None:
        """Take the gradient of the rows from `low` of an edge's store."""
        self._take("weights", edge, low, gradient)

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """Take the gradient of the biases from `low`."""
        self._take("bias", edge, low, gradient)

    def touched(self, edge: int, low: int, rows: NDArray[np.int64], gradient: Floats) -> None:
        """Not called: a plan by examples has no sparse inputs."""
        raise NotImplementedError

    def norm(self, layer: int, scale: Floats, bias: Floats) -> None:
        """Take the own shards' part in the gradients of a batch normalization."""
        self._take("norm_scale", layer, 0, scale)
        self._take("norm_bias", layer, 0, bias)

    def _take(self, kind: str, number: int, low: int, gradient: Floats) -> None:
        np.multiply(gradient, self._share, out=self._of[kind, number][low : low + len(gradient)])


class Summed:
    """The own rows of the gradient of an update, summed over all shards and ranks."""

    def __init__(self, network: Network, places: tuple[Place, ...], cut: Cut, together: Collectives) -> None:
        self._network, self._together, self._own = network, together, len(cut.own)
        self._firsts = {place.name: place for place in reversed(places)}  # of weights that are shared one edge's
        self._places, self._all = [*reversed(self._firsts.values())], places
        self._kept: Floats | None = None
        self._divisors = {f"weights{n}": divisor for n, divisor in divisors_of(network).items()}

    def add(self, flat: Floats, is_last: bool) -> None:
        """Add a batch's gradient, of which this is the sum over the own shards; all ranks do it at once.

        `is_last`: `give` comes next, and the memory is used again after that only.
        """
        ranks = self._together.ranks
        slices = flat[None]
        if ranks > 1:
            parts = (place.view(flat, SHARDS).reshape(ranks, -1) for place in self._all)
            slices = np.concatenate(list(parts), axis=1)
        own = self._together.scatter_sum(slices)
        for place in self._all[len(self._places) :]:
            self._firsts[place.name].view(own, self._own)[...] += place.view(own, self._own)
        if self._kept is None:
            self._kept = own if is_last else own.copy()
        else:
            self._kept += own

    def give(self, optimizer: Optimizer, limit: float, each: Each) -> None:
        """Update the own rows, by a gradient of length `limit` at most (0: any); all ranks get all new parameters."""
        assert self._kept is not None, "an update has a batch"
        scale = clip_scale(limit, self._length)
        for place in self._places:
            gradient = place.view(self._kept, self._own)[: place.rows.count]
            factor = scale / self._divisors.get(place.name, 1)
            if factor != 1:
                gradient *= gradient.dtype.type(factor)
            consume(each(partial(_take, _taker(optimizer, place.name), gradient), range(0, len(gradient), PIECE)))
        self._kept = None
        if self._together.ranks > 1:
            self._collect()

    def _length(self) -> float:
        """Return the Euclidean norm of the gradient: squares by shard, whoever has it."""
        squares = [sum(_squares(rows) for rows in self._rows_of(shard)) for shard in range(self._own)]
        return math.sqrt(tree_sum(self._together.numbers(squares).reshape(-1).tolist()))

    def _rows_of(self, shard: int) -> Iterator[Floats]:
        assert self._kept is not None, "an update has a batch"
        for place in self._places:
            yield place.view(self._kept, self._own)[shard * place.rows.each : (shard + 1) * place.rows.each]

    def _collect(self) -> None:
        """Give the own rows of all parameters to the other ranks, and take theirs."""
        mine = np.zeros(sum(place.size for place in self._places) * self._own, self._network.dtype)
        for place in self._places:
            rows = place.rows.take(place.array)
            place.view(mine, self._own)[: len(rows)] = rows
        for rank, row in enumerate(self._together.collect(mine)):
            for place in self._places:
                theirs = Rows(place.rows.units, range(rank * self._own, (rank + 1) * self._own))
                local = place.view(row, self._own)[: theirs.count]
                theirs.put(local, place.array)


def _taker(optimizer: Optimizer, name: str) -> Callable[[int, Floats], None]:
    """Return what updates an array, by its name."""
    kind = name.rstrip("0123456789")
    if kind in ("weights", "bias"):
        return partial(optimizer.rows if kind == "weights" else optimizer.bias, int(name.removeprefix(kind)))
    layer, _, of = name.removeprefix("norm").partition("_")
    return partial(optimizer.norm_array, int(layer), of)


def _take(take: Callable[[int, Floats], None], gradient: Floats, low: int) -> None:
    take(low, gradient[low : low + PIECE])


def _squares(rows: Floats) -> float:
    return float(np.square(rows, dtype=np.float64).sum())
