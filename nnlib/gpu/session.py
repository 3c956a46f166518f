"""One network on a GPU: its parameters, room to compute it, and the graphs that were captured of what is done often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.gpu.cublas import FLOAT32
from nnlib.gpu.feed import Feed, Words
from nnlib.gpu.forward import DeviceBatch, Forward
from nnlib.gpu.output import Losses
from nnlib.gpu.packing import Packing
from nnlib.gpu.parameters import Parameters
from nnlib.gpu.runtime import MOST_PARTS, Runtime, part_blocks
from nnlib.gpu.shards.exchange import Exchange
from nnlib.model.graph import Graph
from nnlib.model.network import Network
from nnlib.shards.collectives import Collectives
from nnlib.shards.cut import Cut


class Session:
    """See the head of this module."""

    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        most: int,
        rule: str | None = None,
        seed: int = 0,
        precision: str = FLOAT32,
        lazy: bool = True,
        *,
        cut: Cut | None,
        together: Collectives,
        shards: range | None = None,
    ) -> None:
        """Copy a network to the GPU, for batches of up to `most` examples.

        With a `cut` the network is a rank's part of one, and `together` joins the ranks. For `rule`, `lazy` and
        `shards` see `Parameters`.
        """
        self.runtime, self.cut = runtime, cut
        self.exchange = Exchange(runtime, together)
        self.graph = Graph(network)
        self.parameters = Parameters(runtime, network, rule, lazy, shards)
        train = rule is not None
        self.forward = Forward(self.graph, self.parameters, most, train, seed, precision, cut, self.exchange)
        self.losses = Losses(self.forward, most)  # of what is measured, not of what is trained
        self._feed = Feed(runtime)
        arrays = sum(1 for _ in network.arrays())
        self._parts = runtime.zeros((arrays, MOST_PARTS), np.float64)
        self._done = set[Any]()
        self._graphs: dict[Any, Any] = {}

    def run(
        self,
        kind: Any,
        words: Words,
        packing: Packing,
        size: int,
        work: Callable[[DeviceBatch], None],
        train: bool = False,
        graph: bool = True,
        exchange: Exchange | None = None,
    ) -> None:
        """Bring a batch and launch `work` on it.

        The first of a kind and size is launched piece by piece, which loads what is needed; the second is captured as a
        graph, which those after it launch as a whole. Without `graph` all are launched piece by piece, as they are when
        other ranks are met in this machine's memory. `exchange`: another one than the session's that `work` has.
        """
        exchange = exchange or self.exchange
        self._feed.put(words)
        batch = DeviceBatch(self._feed.words, packing, size, train)
        key = kind, size, packing.key
        if graph and key in self._done and exchange.captured:
            place = *key, self._feed.generation
            if place not in self._graphs:
                self._graphs = {other: graph for other, graph in self._graphs.items() if other[-1] == place[-1]}
                self._graphs[place] = exchange.capture(lambda: work(batch))
            exchange.replay(self._graphs[place])
        else:
            work(batch)
            self._done.add(key)

    def finite(self) -> set[str]:
        """Return the names of the arrays of parameters, as in `Network.arrays`, that are finite on all ranks."""
        names = [name for name, _ in self.parameters.network.arrays()]
        self.runtime.clear(self._parts)
        for name, part in zip(names, self._parts, strict=True):
            values = self.parameters.values(name)
            self.runtime.launch("sum_squares", (part_blocks(values.size),), values, part, values.size)
        sums: NDArray[np.float64] = self.runtime.download(self._parts)
        finite = self.exchange.numbers([float(np.isfinite(part).all()) for part in sums])
        return {name for n, name in enumerate(names) if finite[:, n].all()}
