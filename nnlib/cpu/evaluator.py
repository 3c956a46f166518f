"""Asks a network on the processors of this machine. Twin: gpu/evaluator.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nnlib.cpu.forward import Forward
from nnlib.cpu.maps.pieces import choose_at_once
from nnlib.cpu.output import sum_errors
from nnlib.cpu.products import FLOAT32
from nnlib.data.blockwise import BATCH
from nnlib.data.rows import Csr
from nnlib.errors import NotFiniteError
from nnlib.model.batches import Batch, batch_of, batches_of, inputs_of
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.ops.activations import activate
from nnlib.ops.finite import mean_error, require_finite
from nnlib.ops.ranking import NO_ITEM, best_of, top
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut, Range
from nnlib.shards.errors import Errors
from nnlib.spec.types import LayerKind
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, map_in_turn


class CpuEvaluator:
    """See `engines.Evaluator`.

    Under a `cut`, `network` is what this rank has of the whole one. All ranks ask for the same at the same time, and
    all get the same answers, about all units by their numbers in the whole network.
    """

    def __init__(
        self,
        network: Network,
        each: Each,
        split: bool = False,
        cut: Cut | None = None,
        together: Collectives = ALONE,
    ) -> None:
        self.network, self._each, self._cut, self._together = network, each, cut, together
        self._forward = Forward(network, each if split else map_in_turn, FLOAT32, cut, together)
        self._at_once = choose_at_once(self._forward)

    @property
    def at_once(self) -> int:
        """See `engines.Evaluator`; as many as one thread asks about together, so that others have some, too."""
        return min(BATCH, self._at_once)

    def mean_loss(self, examples: Examples) -> float:
        """See `engines.Evaluator`."""
        return mean_error(self.total_loss(examples, 0, examples.count), examples.count)

    def total_loss(self, examples: Examples, low: int, high: int) -> float:
        """Return the error function summed over the examples from `low` to `high`."""
        network, errors = self.network, Errors(self._together)
        forward = Forward(network, self._each, FLOAT32, self._cut, self._together)
        for first, last in batches_of(high - low, self.at_once):
            rows = np.arange(low + first, low + last)
            batch = self._part(batch_of(network.spec, examples, rows, network.dtype))
            with np.errstate(all="ignore"):
                values = forward.run(batch.inputs, wanted=())
                errors.add(sum_errors(forward, values, batch.targets), values.errors)
        return errors.total()

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> tuple[NDArray[np.int64], Floats]:
        """See `engines.Evaluator`."""
        part, sums = self._shared(output), self._output_sums(examples, output)
        if part is None:
            return top(sums, k, owned)
        best = min(k, part.units), min(k, part.count)
        items, scores = top(sums, k, None if owned is None else owned.units(part.place.start, part.place.stop))
        room = ((0, 0), (0, best[0] - best[1]))  # ranks may have other numbers of units
        places = np.where(items == NO_ITEM, NO_ITEM, part.numbers(items))
        places = self._side_by_side(np.pad(places, room, constant_values=NO_ITEM).astype(np.float64)).astype(np.int64)
        scores = self._side_by_side(np.pad(scores, room, constant_values=-np.inf))
        return best_of(places, scores, best[0])  # those of a rank are before the next one's

    def sums(self, examples: Examples, output: int) -> Floats:
        """See `engines.Evaluator`."""
        part, sums = self._shared(output), self._output_sums(examples, output)
        if part is None:
            return sums
        whole = self._side_by_side(np.pad(sums, ((0, 0), (0, len(part.own) * part.each - part.count))))
        return np.ascontiguousarray(whole[:, : part.units])

    def values(self, examples: Examples, layer: int) -> Floats:
        """See `engines.Evaluator`."""
        about = self.network.spec.layers[layer]
        if about.kind is LayerKind.OUTPUT:
            return activate(about, self.sums(examples, layer))
        with np.errstate(all="ignore"):
            return self._in_parts(examples, lambda inputs: require_finite(self._forward.activations(inputs, layer)))

    def _output_sums(self, examples: Examples, output: int) -> Floats:
        return self._in_parts(examples, lambda inputs: self._forward.output_sums(inputs, output))

    def _in_parts(self, examples: Examples, ask: Callable[[dict[int, object]], Floats]) -> Floats:
        """Return what `ask` gives for the inputs of examples, of so many at a time that their maps fit into memory."""
        found = []
        for low, high in batches_of(max(1, examples.count), self._at_once):
            some = examples if high - low >= examples.count else examples.take(np.arange(low, high))
            try:
                found.append(ask(self._inputs(some)))
            except NotFiniteError as error:
                raise NotFiniteError(low + error.example) from None
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _shared(self, output: int) -> Range | None:
        """Return what this rank has of an output layer that others have parts of, too."""
        return self._forward.part(self._forward.node(output)) if self._together.ranks > 1 else None

    def _side_by_side(self, columns: Floats) -> Floats:
        """Return the columns (b, n) of all ranks, (b, ranks n)."""
        return np.concatenate(list(self._together.gather(np.ascontiguousarray(columns))), axis=1)

    def _inputs(self, examples: Examples) -> dict[int, object]:
        batch = Batch(inputs_of(self.network.spec, examples, self.network.dtype), {}, examples.count)
        return dict(self._part(batch).inputs)

    def _part(self, batch: Batch) -> Batch:
        return self._cut.batch(batch) if self._cut else batch
