"""Asks a network on a GPU. Twin: cpu/evaluator.py."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nnlib.data.blockwise import BATCH
from nnlib.data.rows import Csr
from nnlib.gpu.feed import prepare_ahead
from nnlib.gpu.forward import DeviceBatch
from nnlib.gpu.output import ADDED
from nnlib.gpu.packing import ABSENT, Packing
from nnlib.gpu.runtime import MOST_PARTS, Array, part_blocks
from nnlib.gpu.session import Session
from nnlib.model.batches import batches_of
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.ops import ranking
from nnlib.ops.activations import activate
from nnlib.ops.finite import mean_error, require_finite
from nnlib.spec.types import LayerKind
from nnlib.util.arrays import Floats

MOST_RANKED = 1024  # items that the kernel `top` ranks


class GpuEvaluator:
    """Several threads may ask; they prepare their batches at the same time and take turns on the GPU."""

    def __init__(self, session: Session, threads: int) -> None:
        """Ask the network of a session; `threads` prepare batches."""
        self._session, self._runtime, self._threads = session, session.runtime, threads
        self._lock = threading.Lock()
        runtime, most = session.runtime, BATCH
        self._ranked: Array = runtime.zeros(most * MOST_RANKED, np.int32)
        self._best: Array = runtime.zeros(most * MOST_RANKED)
        self._parts: Array = runtime.zeros(MOST_PARTS, np.float64)

    @property
    def network(self) -> Network:
        """See `engines.Evaluator`."""
        return self._session.parameters.pull()

    def mean_loss(self, examples: Examples) -> float:
        """See `engines.Evaluator`."""
        session, losses = self._session, self._session.losses
        packing = self._packing(examples)

        def work(batch: DeviceBatch) -> None:
            session.forward.run(batch)
            losses.run(batch, only=True)

        with self._lock:
            self._runtime.upload(losses.status, np.zeros(4))
            places = [np.arange(low, high) for low, high in batches_of(examples.count, BATCH)]
            prepared = prepare_ahead(lambda rows: packing.pack(examples, rows), places, self._threads)
            for words, rows in zip(prepared, places, strict=True):
                session.run("loss", words, packing, len(rows), work)
            total = float(self._runtime.download(losses.status)[ADDED])
        return mean_error(total, examples.count)

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> tuple[NDArray[np.int64], Floats]:
        """See `engines.Evaluator`."""
        session, count = self._session, examples.count
        node, ld = session.graph.node(output), session.forward.rooms[output].ld
        k = min(k, node.units)
        if k > MOST_RANKED:
            return ranking.top(self.sums(examples, output), k, owned)
        packing = self._packing(examples)
        words = packing.pack(examples, np.arange(count), targets=False, owned=owned)
        where = (packing.at(ABSENT, "starts"), packing.at(ABSENT, "items")) if owned is not None else (ABSENT, ABSENT)
        ranked, best = self._ranked[: count * k], self._best[: count * k]
        size = (count - 1) * ld + node.units

        def work(batch: DeviceBatch) -> None:
            session.forward.run(batch)
            sums, launch = session.forward.sums(batch, node), self._runtime.launch
            self._runtime.clear(self._parts)
            launch("sum_squares", (part_blocks(size),), sums, self._parts, size)
            launch("top", (count,), sums, count, node.units, ld, batch.words, *where, k, ranked, best)

        with self._lock:
            session.run(("top", output, k, owned is None), words, packing, count, work, graph=count == BATCH)
            if np.isfinite(self._runtime.download(self._parts)).all():
                items, sums = self._runtime.download(ranked), self._runtime.download(best)
                return items.reshape(count, k).astype(np.int64), sums.reshape(count, k)
        require_finite(self.sums(examples, output))  # which says which example it is
        raise AssertionError("squares of finite sums are finite in double precision")

    def sums(self, examples: Examples, output: int) -> Floats:
        """See `engines.Evaluator`."""
        node = self._session.graph.node(output)
        return self._ask(examples, output, lambda batch: self._session.forward.sums(batch, node))

    def values(self, examples: Examples, layer: int) -> Floats:
        """See `engines.Evaluator`."""
        node = self._session.graph.node(layer)
        if node.layer.kind is LayerKind.OUTPUT:
            return activate(node.layer, self.sums(examples, layer))
        return self._ask(examples, layer, lambda batch: self._session.forward.out(batch, layer))

    def _ask(self, examples: Examples, layer: int, found: Callable[[DeviceBatch], Array]) -> Floats:
        """Return what the forward pass of some examples leaves in a place, (b, units)."""
        packing, count, places = self._packing(examples), examples.count, []

        def work(batch: DeviceBatch) -> None:
            self._session.forward.run(batch)
            places.append(found(batch))

        words = packing.pack(examples, np.arange(count), targets=False)
        with self._lock:
            self._session.run(("values", layer), words, packing, count, work, graph=False)
            return require_finite(self._runtime.rows(places[0]))

    def _packing(self, examples: Examples) -> Packing:
        return Packing(self._session.graph.network.spec, examples.sets, BATCH)
