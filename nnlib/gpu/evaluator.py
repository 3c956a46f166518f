"""Asks a network on a GPU. Twin: cpu/evaluator.py."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nnlib.data.blockwise import BATCH
from nnlib.data.rows import Csr
from nnlib.errors import NotFiniteError
from nnlib.gpu.feed import prepare_ahead
from nnlib.gpu.forward import DeviceBatch
from nnlib.gpu.maps.layers import count_asked
from nnlib.gpu.output import ADDED
from nnlib.gpu.packing import ABSENT, OWNED, Packing
from nnlib.gpu.runtime import MOST_PARTS, Array, part_blocks
from nnlib.gpu.session import Session
from nnlib.model.batches import batches_of
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.ops import ranking
from nnlib.ops.activations import activate
from nnlib.ops.finite import mean_error, require_finite
from nnlib.shards.errors import Errors
from nnlib.spec.types import LayerKind
from nnlib.util.arrays import Floats

MOST_RANKED = 1024  # items that the kernel `top` ranks


class GpuEvaluator:
    """Several threads may ask; they prepare their batches at the same time and take turns on the GPU."""

    at_once = BATCH

    def __init__(self, session: Session, threads: int) -> None:
        """Ask the network of a session; `threads` prepare batches."""
        self._session, self._runtime, self._threads = session, session.runtime, threads
        self._lock = threading.Lock()
        runtime = session.runtime
        self._most = most = count_asked(session.graph.network.spec)
        pieces = len(session.exchange.own) if session.forward.wide_outputs else 1  # of an output layer
        self._ranked: Array = runtime.zeros(pieces * most * MOST_RANKED, np.int32)
        self._best: Array = runtime.zeros(pieces * most * MOST_RANKED)
        self._parts: Array = runtime.zeros((pieces, MOST_PARTS), np.float64)

    @property
    def network(self) -> Network:
        """See `engines.Evaluator`."""
        return self._session.parameters.pull()

    def mean_loss(self, examples: Examples) -> float:
        """See `engines.Evaluator`."""
        return mean_error(self.total_loss(examples, 0, examples.count), examples.count)

    def total_loss(self, examples: Examples, low: int, high: int) -> float:
        """Return the error function summed over the examples from `low` to `high`."""
        session, losses = self._session, self._session.losses
        packing = self._packing(examples)

        def work(batch: DeviceBatch) -> None:
            session.forward.run(batch)
            losses.run(batch, only=True)

        with self._lock:
            self._runtime.upload(losses.status, np.zeros(4))
            self._runtime.clear(losses.by_shard)
            places = [low + np.arange(first, last) for first, last in batches_of(high - low, self._most)]
            prepared = prepare_ahead(lambda rows: packing.pack(examples, rows), places, self._threads)
            for words, rows in zip(prepared, places, strict=True):
                session.run("loss", words, packing, len(rows), work)
            if session.cut is None:
                return float(self._runtime.download(losses.status)[ADDED])
            errors = Errors(session.exchange.together)
            losses.add_to(errors, np.zeros(1, np.int64))
            return errors.total()

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> tuple[NDArray[np.int64], Floats]:
        """See `engines.Evaluator`."""
        session, count = self._session, examples.count
        node, pieces = session.graph.node(output), session.forward.rooms[output].pieces
        wide = session.forward.wide_outputs.get(output)
        k = min(k, wide.units if wide else node.units)
        if k > MOST_RANKED:
            return ranking.top(self.sums(examples, output), k, owned)
        if count > self._most:
            return self._top_of_parts(examples, output, k, owned)
        packing = self._packing(examples)
        some = [] if owned is None else [owned.units(piece.low, piece.low + piece.z.shape[1]) for piece in pieces]
        words = packing.pack(examples, np.arange(count), targets=False, owned=some)
        ranked, best = (
            array[: len(pieces) * count * k].reshape(len(pieces), count, k) for array in (self._ranked, self._best)
        )

        def work(batch: DeviceBatch) -> None:
            session.forward.run(batch)
            self._runtime.clear(self._parts)
            for place, sums in enumerate(session.forward.sums(batch, node)):
                n, ld = sums.shape[1], pieces[place].ld
                size = (count - 1) * ld + n
                self._runtime.launch("sum_squares", (part_blocks(size),), sums, self._parts[place], size)
                where = [packing.at(ABSENT, f"{name}{place}") if some else ABSENT for name in OWNED]
                found = ranked[place], best[place]
                self._runtime.launch("top", (count,), sums, count, n, ld, batch.words, *where, min(k, n), *found)

        with self._lock:
            session.run(("top", output, k, owned is None), words, packing, count, work, graph=count == self._most)
            finite = np.isfinite(self._runtime.download(self._parts)).all()
            if session.exchange.numbers([finite]).all():
                return self._merge(output, self._runtime.download(ranked), self._runtime.download(best))
        require_finite(self.sums(examples, output))  # which says which example it is
        raise AssertionError("squares of finite sums are finite in double precision")

    def _top_of_parts(
        self, examples: Examples, output: int, k: int, owned: Csr | None
    ) -> tuple[NDArray[np.int64], Floats]:
        parts = [np.arange(low, high) for low, high in batches_of(examples.count, self._most)]
        found = []
        for rows in parts:
            try:
                some = None if owned is None else owned.take(rows)
                found.append(self.top(examples.take(rows), output, k, some))
            except NotFiniteError as error:
                raise NotFiniteError(int(rows[0]) + error.example) from None
        items, best = (np.concatenate(some) for some in zip(*found, strict=True))
        return items, best

    def sums(self, examples: Examples, output: int) -> Floats:
        """See `engines.Evaluator`."""
        session, node = self._session, self._session.graph.node(output)
        pieces = self._ask(examples, output, lambda batch: session.forward.sums(batch, node))
        wide = session.forward.wide_outputs.get(output)
        if wide is None:
            return require_finite(pieces[0])
        own = np.zeros((examples.count, len(wide.own) * wide.each), np.float32)
        for piece, sums in zip(session.forward.rooms[output].pieces, pieces, strict=True):
            own[:, piece.at] = sums
        every = session.exchange.gather_here(own).transpose(1, 0, 2).reshape(examples.count, -1)
        return require_finite(np.ascontiguousarray(every[:, : wide.units]))

    def values(self, examples: Examples, layer: int) -> Floats:
        """See `engines.Evaluator`."""
        node = self._session.graph.node(layer)
        if node.layer.kind is LayerKind.OUTPUT:
            return activate(node.layer, self.sums(examples, layer))
        [found] = self._ask(examples, layer, lambda batch: [self._session.forward.out(batch, layer)])
        return require_finite(found)

    def _ask(self, examples: Examples, layer: int, found: Callable[[DeviceBatch], list[Array]]) -> list[Floats]:
        """Return what the forward pass of some examples leaves in some places, (b, units) each."""
        if examples.count > self._most:
            parts = [np.arange(low, high) for low, high in batches_of(examples.count, self._most)]
            every = [self._ask(examples.take(rows), layer, found) for rows in parts]
            return [np.concatenate(some) for some in zip(*every, strict=True)]
        packing, count = self._packing(examples), examples.count
        places = list[Array]()

        def work(batch: DeviceBatch) -> None:
            self._session.forward.run(batch)
            places.extend(found(batch))

        words = packing.pack(examples, np.arange(count), targets=False)
        with self._lock:
            self._session.run(("values", layer), words, packing, count, work, graph=False)
            return [self._runtime.rows(place) for place in places]

    def _merge(self, output: int, ranked: NDArray[np.int32], best: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return the best items of a layer from those of its pieces, (own pieces, b, k) in all ranks' memory.

        A piece with fewer units than k has its items at the start of its memory. Pieces have ascending items, so that a
        stable order by sums has equal ones by item.
        """
        pieces, (_, count, k) = self._session.forward.rooms[output].pieces, ranked.shape
        if output not in self._session.forward.wide_outputs:
            return ranked[0].astype(np.int64), best[0]
        items = np.full((len(pieces), count, k), ranking.NO_ITEM, np.int32)
        sums = np.full((len(pieces), count, k), -np.inf, np.float32)
        for place, piece in enumerate(pieces):
            shape = count, min(k, piece.z.shape[1])
            own = ranked[place].reshape(-1)[: math.prod(shape)].reshape(shape)
            items[place, :, : shape[1]] = np.where(own >= 0, own + piece.low, ranking.NO_ITEM)
            sums[place, :, : shape[1]] = best[place].reshape(-1)[: math.prod(shape)].reshape(shape)
        exchange = self._session.exchange
        every = [exchange.gather_here(x).reshape(-1, count, k).transpose(1, 0, 2) for x in (items, sums)]
        found, scores = (x.reshape(count, -1) for x in every)
        return ranking.best_of(found.astype(np.int64), scores, k)

    def _packing(self, examples: Examples) -> Packing:
        return Packing(self._session.graph.network.spec, examples.sets, self._most, self._session.cut)
