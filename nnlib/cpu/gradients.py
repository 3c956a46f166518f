"""Gradients kept whole: for weights that several edges share or whose norm is limited, for clipping, to be checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nnlib.cpu.forward import PIECE
from nnlib.cpu.sink import Sink
from nnlib.model.network import Network, is_lazy, iterate_owners
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut, Items, Range
from nnlib.shards.tree import tree_sum
from nnlib.util.arrays import Floats, Longs

Pieces = Sequence[tuple[Longs | None, Floats]]  # rows of an array, None for all, and their gradients


class Gradients:
    """A sink (see `sink.Sink`) that adds up what batches give it; `give` passes it on to another one.

    Under a `cut` it has this rank's part of the network, and all ranks ask for its `length` together.
    """

    def __init__(self, network: Network, cut: Cut | None = None, together: Collectives = ALONE) -> None:
        self._network, self._cut, self._together = network, cut, together
        self._divisors = divisors_of(network)
        self._lazy = {edge.number for edge in iterate_owners(network.spec) if is_lazy(network.spec, edge)}
        self._whole: dict[int, Floats] = {}
        self._some: dict[int, list[tuple[int, NDArray[np.int64], Floats]]] = {}
        self._biases: dict[int, Floats] = {}
        self._norms: dict[int, tuple[Floats, Floats]] = {}
        self._batches, self._share = 0, 1.0

    def begin(self, share: float) -> None:
        """Start on a batch, whose gradient is to count so much."""
        self._batches, self._share = self._batches + 1, share

    def _part(self, gradient: Floats) -> Floats:
        return gradient if self._share == 1 else gradient * gradient.dtype.type(self._share)

    def rows(self, edge: int, low: int, gradient: Floats) -> None:
        """Add the gradient of the rows of an edge's store from `low`."""
        self._of(self._network.spec.edges[edge].owner)[low : low + len(gradient)] += self._part(gradient)

    def touched(self, owner: int, low: int, rows: NDArray[np.int64], gradient: Floats) -> None:
        """Add the gradient of some rows of the table that starts at `low`."""
        if owner not in self._lazy:
            self._of(owner)[low + rows] += self._part(gradient)
        else:
            self._some.setdefault(owner, []).append((low, rows, self._part(gradient)))

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """Add the gradient of the biases from `low`."""
        if edge not in self._biases:
            self._biases.setdefault(edge, np.zeros_like(self._network.biases[edge]))
        self._biases[edge][low : low + len(gradient)] += self._part(gradient)

    def norm(self, layer: int, scale: Floats, bias: Floats) -> None:
        """Add the gradients of a batch normalization."""
        pair = self._part(scale), self._part(bias)
        if layer in self._norms:
            pair = self._norms[layer][0] + pair[0], self._norms[layer][1] + pair[1]
        self._norms[layer] = pair

    def _merge(self) -> None:
        """Add up what several batches gave to the same rows, in the order of the batches."""
        for owner, pieces in self._some.items():
            rows = np.concatenate([low + rows for low, rows, _ in pieces])
            order = np.argsort(rows, kind="stable")
            starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
            if len(rows):
                gradient = np.concatenate([gradient for _, _, gradient in pieces])[order]
                self._some[owner] = [(0, rows[order][starts], np.add.reduceat(gradient, starts, axis=0))]

    def _of(self, owner: int) -> Floats:
        if owner not in self._whole:
            self._whole.setdefault(owner, np.zeros_like(self._network.stores[owner]))
        return self._whole[owner]

    def length(self) -> float:
        """Return the Euclidean norm of the gradient of all parameters that training may change."""
        total, shards = 0.0, np.zeros(len(self._together.own))
        for rows, pieces in self._trained():
            if rows is not None:
                shards += _squares_by_shard(rows, pieces)
                continue
            for _, gradient in pieces:
                total += float(np.square(gradient, dtype=np.float64).sum())
        if self._cut:
            total += float(tree_sum(self._together.numbers(shards.tolist()).reshape(-1).tolist()))
        return math.sqrt(total)

    def _trained(self) -> Iterator[tuple[Items | Range | None, Pieces]]:
        """Yield the gradients of what training may change, in pieces, and which rows of it this rank has; None: all."""
        locked, edges = self._network.locked, self._network.spec.edges
        for owner, gradient in sorted(self._whole.items()):
            if owner not in locked:
                yield self._rows_of(f"weights{owner}"), [(None, gradient)]
        for owner, pieces in sorted(self._some.items()):
            if owner not in locked:
                order = sorted(pieces, key=lambda piece: (piece[0], int(piece[1][0])))
                yield self._rows_of(f"weights{owner}"), [(low + rows, gradient) for low, rows, gradient in order]
        for edge, gradient in sorted(self._biases.items()):
            if edges[edge].owner not in locked:
                yield self._rows_of(f"bias{edge}"), [(None, gradient)]
        for _, pair in sorted(self._norms.items()):
            yield from ((None, [(None, gradient)]) for gradient in pair)

    def _rows_of(self, name: str) -> Items | Range | None:
        return self._cut.units_of(name) if self._cut else None

    def give(self, sink: Sink, limit: float = 0.0) -> None:
        """Give everything to `sink`, scaled so that its norm is at most `limit` (0: as it is), and forget it."""
        if self._batches > 1:
            self._merge()
        scale = clip_scale(limit, self.length)
        for owner, gradient in self._whole.items():
            sink.rows(owner, 0, gradient * gradient.dtype.type(scale / self._divisors[owner]))
        for owner, pieces in self._some.items():
            for low, rows, gradient in pieces:
                sink.touched(owner, low, rows, gradient * gradient.dtype.type(scale))
        for edge, gradient in self._biases.items():
            sink.bias(edge, 0, gradient * gradient.dtype.type(scale))
        for layer, (of_scale, of_bias) in self._norms.items():
            sink.norm(layer, of_scale * of_scale.dtype.type(scale), of_bias * of_bias.dtype.type(scale))
        for kept in (self._whole, self._some, self._biases, self._norms):
            kept.clear()
        self._batches = 0

    def arrays(self) -> Mapping[str, Floats]:
        """Return the gradients by the names of `Network.arrays`, zero where there are none."""
        found = {name: np.zeros_like(array) for name, array in self._network.arrays()}
        for owner, gradient in self._whole.items():
            found[f"weights{owner}"] += gradient
        for owner, pieces in self._some.items():
            for low, rows, gradient in pieces:
                found[f"weights{owner}"][low + rows] += gradient
        for edge, gradient in self._biases.items():
            found[f"bias{edge}"] += gradient
        for layer, (of_scale, of_bias) in self._norms.items():
            found[f"norm{layer}_scale"] += of_scale
            found[f"norm{layer}_bias"] += of_bias
        return found


def divisors_of(network: Network) -> dict[int, int]:
    """Return by the number of its owner by what a gradient of weights is divided.

    In compat mode that of shared weights is the mean over the edges that share them, as in DSSTNE.
    """
    spec = network.spec
    return {n: sum(edge.owner == n for edge in spec.edges) if spec.compat else 1 for n in network.stores}


def clip_scale(limit: float, length: Callable[[], float]) -> float:
    """Return by what a gradient is multiplied so that its length is at most `limit`; 0: any, none is measured."""
    if not limit:
        return 1.0
    found = length()
    return limit / found if found > limit else 1.0


def _squares_by_shard(rows: Items | Range, pieces: Pieces) -> Floats:
    """Return the sum of squares of the gradients of each own shard: of each row first, so that pieces may be any."""
    numbers = [np.arange(len(gradient)) if some is None else some for some, gradient in pieces]
    shards = rows.shards(np.concatenate(numbers))
    squares = np.concatenate([_row_squares(gradient) for _, gradient in pieces])
    return np.array([squares[shards == n].sum() for n in range(len(rows.own))])


def _row_squares(gradient: Floats) -> Floats:
    rows = gradient.reshape(len(gradient), -1)
    parts = (rows[low : low + PIECE] for low in range(0, max(len(rows), 1), PIECE))
    return np.concatenate([np.square(part, dtype=np.float64).sum(axis=1) for part in parts])
