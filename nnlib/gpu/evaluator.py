"""Asks a network on a GPU; see `compute.Evaluator`."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from nnlib import ranking
from nnlib.batches import Examples, batches_of
from nnlib.data import Csr
from nnlib.errors import DivergedError
from nnlib.gpu.forward import Batch
from nnlib.gpu.losses import ADDED
from nnlib.gpu.packing import ABSENT, Packing
from nnlib.gpu.runtime import MOST_PARTS, Array, part_blocks
from nnlib.gpu.session import Session
from nnlib.network import Network

MOST_RANKED = 1024  # items that the kernel `top` ranks


class GpuEvaluator:
    """Several threads may ask; they prepare their batches at the same time and take turns on the GPU."""

    def __init__(self, session: Session) -> None:
        self._session, self._runtime = session, session.runtime
        self._lock = threading.Lock()
        runtime, most = session.runtime, session.most
        self._ranked: Array = runtime.zeros(most * MOST_RANKED, np.int32)
        self._scores: Array = runtime.zeros(most * MOST_RANKED)
        self._parts: Array = runtime.zeros(MOST_PARTS, np.float64)

    @property
    def network(self) -> Network:
        """See `compute.Evaluator`."""
        return self._session.parameters.pull()

    def mean_loss(self, examples: Examples) -> float:
        """See `compute.Evaluator`."""
        session, losses = self._session, self._session.losses
        packing = Packing(session.graph.network.spec, examples.sets, session.most)

        def work(batch: Batch) -> None:
            session.forward.run(batch)
            losses.run(batch, only=True)

        with self._lock:
            self._runtime.upload(losses.status, np.zeros(4))
            for low, high in batches_of(examples.count, session.most):
                words = packing.pack(examples, np.arange(low, high))
                session.run("loss", words, packing, high - low, work)
            total = float(self._runtime.download(losses.status)[ADDED])
        if not np.isfinite(total):
            raise DivergedError(f"the validation loss is {total}; lower learning_rate")
        return total / examples.count

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> NDArray[np.int64]:
        """See `compute.Evaluator`."""
        session, count = self._session, examples.count
        node = session.graph.node(output)
        k = min(k, node.units)
        packing = Packing(session.graph.network.spec, examples.sets, session.most)
        words = packing.pack(examples, np.arange(count), targets=False, owned=owned)
        where = (packing.at(ABSENT, "starts"), packing.at(ABSENT, "items")) if owned is not None else (ABSENT, ABSENT)
        by_kernel = k <= MOST_RANKED
        ranked, scores = self._ranked[: count * k], self._scores[: count * k]

        def work(batch: Batch) -> None:
            session.forward.run(batch)
            sums, ld = session.forward.sums(batch, node), session.forward.rooms[output].ld
            launch = self._runtime.launch
            size = (count - 1) * ld + node.units
            launch("sum_squares", (part_blocks(size),), sums, self._parts, size)
            if by_kernel:
                launch("top", (count,), sums, count, node.units, ld, batch.words, *where, k, ranked, scores)

        with self._lock:
            session.run(("top", output, k, owned is None), words, packing, count, work)
            if not np.isfinite(self._runtime.download(self._parts)).all():
                raise DivergedError("an output is not a finite number; lower learning_rate")
            if by_kernel:
                return self._runtime.download(ranked).reshape(count, k).astype(np.int64)
            sums = self._runtime.rows(session.forward.rooms[output].sums[:count])
        return ranking.top(sums, k, owned)[0]
