"""Gradients kept whole: for weights that several edges share or whose norm is limited, for clipping, to be checked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nnlib.cpu.sink import Sink
from nnlib.model.network import Network, is_lazy, iterate_owners
from nnlib.util.arrays import Floats


class Gradients:
    """A sink (see `sink.Sink`) that adds up what it gets; `give` passes it on to another one."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._uses = {n: sum(edge.owner == n for edge in network.spec.edges) for n in network.stores}
        self._lazy = {edge.number for edge in iterate_owners(network.spec) if is_lazy(network.spec, edge)}
        self._whole: dict[int, Floats] = {}
        self._some: dict[int, list[tuple[int, NDArray[np.int64], Floats]]] = {}
        self._biases: dict[int, Floats] = {}
        self._norms: dict[int, tuple[Floats, Floats]] = {}

    def rows(self, owner: int, low: int, gradient: Floats) -> None:
        """Add the gradient of the rows of a store from `low`."""
        self._of(owner)[low : low + len(gradient)] += gradient

    def touched(self, owner: int, low: int, rows: NDArray[np.int64], gradient: Floats) -> None:
        """Add the gradient of some rows of the table that starts at `low`."""
        if owner not in self._lazy:
            self._of(owner)[low + rows] += gradient
        else:
            self._some.setdefault(owner, []).append((low, rows, gradient))

    def bias(self, edge: int, low: int, gradient: Floats) -> None:
        """Add the gradient of the biases from `low`."""
        if edge not in self._biases:
            self._biases.setdefault(edge, np.zeros_like(self._network.biases[edge]))
        self._biases[edge][low : low + len(gradient)] += gradient

    def norm(self, layer: int, scale: Floats, bias: Floats) -> None:
        """Keep the gradients of a batch normalization."""
        self._norms[layer] = scale, bias

    def _of(self, owner: int) -> Floats:
        if owner not in self._whole:
            self._whole.setdefault(owner, np.zeros_like(self._network.stores[owner]))
        return self._whole[owner]

    def length(self) -> float:
        """Return the Euclidean norm of the gradient of all parameters that training may change."""
        locked = self._network.locked
        parts = [g for owner, g in sorted(self._whole.items()) if owner not in locked]
        for owner, pieces in sorted(self._some.items()):
            parts += [
                g for _, _, g in sorted(pieces, key=lambda piece: (piece[0], int(piece[1][0]))) if owner not in locked
            ]
        edges = self._network.spec.edges
        parts += [g for edge, g in sorted(self._biases.items()) if edges[edge].owner not in locked]
        parts += [g for _, pair in sorted(self._norms.items()) for g in pair]
        return float(np.sqrt(sum(np.square(part, dtype=np.float64).sum() for part in parts)))

    def give(self, sink: Sink, limit: float = 0.0) -> None:
        """Give everything to `sink`, scaled so that its norm is at most `limit` (0: as it is), and forget it.

        In compat mode the gradient of shared weights is the mean over the edges that share them, as in DSSTNE.
        """
        length = self.length() if limit else 0.0
        scale = limit / length if limit and length > limit else 1.0
        for owner, gradient in self._whole.items():
            share = self._uses[owner] if self._network.spec.compat else 1
            sink.rows(owner, 0, gradient * gradient.dtype.type(scale / share))
        for owner, pieces in self._some.items():
            for low, rows, gradient in pieces:
                sink.touched(owner, low, rows, gradient * gradient.dtype.type(scale))
        for edge, gradient in self._biases.items():
            sink.bias(edge, 0, gradient * gradient.dtype.type(scale))
        for layer, (of_scale, of_bias) in self._norms.items():
            sink.norm(layer, of_scale * of_scale.dtype.type(scale), of_bias * of_bias.dtype.type(scale))
        for kept in (self._whole, self._some, self._biases, self._norms):
            kept.clear()

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
