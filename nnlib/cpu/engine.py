"""Trains a network on the processors of this machine. Twin: gpu/engine.py."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.contract import TrainSettings
from nnlib.cpu.backward import backward
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.cpu.forward import Forward, Values
from nnlib.cpu.gradients import Gradients
from nnlib.cpu.maps.pieces import by_examples
from nnlib.cpu.optimizer import Optimizer
from nnlib.cpu.products import products_of
from nnlib.cpu.sparse_products import touched_by
from nnlib.engines import Evaluator, StepFailure
from nnlib.model.augmentation import augmented
from nnlib.model.batches import DROPOUT, Batch, add_noise, batch_of, draw_from, part_of, updates_before
from nnlib.model.examples import Examples
from nnlib.model.network import (
    Layout,
    Network,
    block_starts,
    name_broken_layer,
    name_broken_values,
    needs_whole_gradients,
)
from nnlib.ops.finite import all_finite
from nnlib.optim.hyper import hyper_of, pacings_of, rates_of, slowed
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut
from nnlib.shards.errors import Errors
from nnlib.shards.plan import EXAMPLES
from nnlib.spec.types import LayerKind
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each

SOUND = 1e30  # a sum of squares so far below the largest float32 that no product of two such lengths is above it


class CpuEngine:
    """See `engines.Engine`; what came of a batch is known at once.

    Under a `cut`, `network` is what this rank has of the whole one, as are the arrays of `pull` and `states`, while
    examples and batches are whole. All ranks do the same at the same time: run a batch, and ask for the `total`, for
    what is `broken`, and the `evaluator`.
    """

    def __init__(
        self,
        network: Network,
        examples: Examples,
        settings: TrainSettings,
        each: Each,
        cut: Cut | None = None,
        together: Collectives = ALONE,
    ) -> None:
        self._network, self._examples, self._each = network, examples, each
        self._cut, self._together, self._errors = cut, together, Errors(together)
        self._rate = rates_of(network, examples.count, settings)
        pacings = pacings_of(network, examples.count, settings)
        owned = cut.owned(network) if cut else network
        self._optimizer = Optimizer(owned, hyper_of(settings), self._rate, each, pacings)
        is_cut = cut is not None and cut.plan.kind == EXAMPLES
        products = products_of(settings.precision.lower(), network.dtype, is_cut)
        self._forward = Forward(network, each, products, cut, together)
        self._settings, self.versions = settings, products.versions
        whole = settings.clip or settings.accumulate > 1 or needs_whole_gradients(network.spec)
        self._gradients = Gradients(network, cut, together) if whole else None
        self._failure: StepFailure | None = None
        self._moved = [*network.biases, *(a for norm in network.norms.values() for a in (norm.scale, norm.bias))]
        self.step = 0

    def slow_down(self, factor: float) -> None:
        """See `engines.Engine`."""
        self._optimizer.follow(slowed(self._rate, factor))

    def begin_epoch(self, total: float) -> None:
        """See `engines.Engine`."""
        self._errors.begin(total)

    def batches(self, examples: Iterable[Longs]) -> Generator[Any, None, None]:
        """See `engines.Engine`."""
        seed, spec = self._settings.seed, self._network.spec
        for found, rows in augmented(spec, self._examples, examples, seed, self.step, self._each):
            yield batch_of(spec, found, rows, self._network.dtype)

    def run(self, batch: Any) -> None:
        """See `engines.Engine`."""
        optimizer, spec = self._optimizer, self._network.spec
        self.step += 1
        part = part_of(self._examples.count, self._settings, self.step)
        if part.first:
            optimizer.begin()
        if self._gradients is not None:
            self._gradients.begin(part.share)
        batch = add_noise(spec, batch, self._settings.seed, self.step)
        batch = self._cut.batch(batch) if self._cut else batch
        values = self._forward.run(batch.inputs, self._keep, True, self._settle(batch))
        error = backward(self._forward, values, batch.targets, self._gradients or optimizer)
        if self._gradients is not None and part.last:
            self._gradients.give(optimizer, self._settings.clip)
        if part.last:
            optimizer.finish()
        self._errors.add(error, values.errors)
        self._look_at(error + sum(values.errors.values()), values)

    def _look_at(self, error: float, values: Values) -> None:
        """Note the first failure."""
        if self._failure is None and not self._is_sound(error, values):
            where = self._first_broken(values, error) or self._name_broken(self._finite())
            if where or not math.isfinite(error):
                self._failure = StepFailure(self.step, error, where)

    def failed(self, wait: bool = False) -> StepFailure | None:  # noqa: ARG002 (nothing to wait for)
        """See `engines.Engine`."""
        return self._failure

    def total(self) -> float:
        """See `engines.Engine`."""
        return self._errors.total()

    def settle(self) -> None:
        """See `engines.Engine`."""
        self._optimizer.settle_all()

    def broken(self) -> str:
        """See `engines.Engine`."""
        return self._name_broken(np.min(self._together.numbers(self._finite()), axis=0))

    def pull(self) -> Network:
        """See `engines.Engine`."""
        return self._network

    def states(self) -> Mapping[str, Floats]:
        """See `engines.Engine`; these are the arrays that are trained with."""
        return self._optimizer.arrays()

    def resume(self, step: int, states: Mapping[str, Floats]) -> None:
        """See `engines.Engine`."""
        for name, array in self._optimizer.arrays().items():
            array[...] = states[name]
        self.step = step
        self._optimizer.resume(updates_before(self._examples.count, self._settings, step))

    def evaluator(self) -> Evaluator:
        """See `engines.Engine`."""
        return CpuEvaluator(self._network, self._each, cut=self._cut, together=self._together)

    def _is_sound(self, error: float, values: Values) -> bool:
        """Whether all is finite for sure: the error, what hidden layers gave, and what the update made of it.

        A weight moves by no more than rate |delta| |x|, and a bias by the sum of delta. So as long as the lengths of
        the hidden layers' values and of all biases are nowhere near what float32 holds, weights are, too; else they
        have to be looked at one by one.
        """
        hidden = (values.out[node.number] for node in self._forward.nodes if node.layer.kind is LayerKind.HIDDEN)
        return abs(error) < SOUND and all(np.vdot(array, array) < SOUND for array in (*hidden, *self._moved))

    def _finite(self) -> list[bool]:
        """Return which of this rank's parameter arrays have finite numbers alone."""
        return [all_finite(array) for _, array in self._network.arrays()]

    def _name_broken(self, finite: Iterable[float]) -> str:
        names = [name for name, _ in self._network.arrays()]
        found = {name for name, is_finite in zip(names, finite, strict=True) if is_finite}
        return name_broken_layer(self._network.spec, found)

    def _first_broken(self, values: Values, error: float) -> str:
        for node in self._forward.nodes:
            out = values.out.get(node.number)
            broken = (
                not math.isfinite(error) if out is None else not all_finite(out.data if sparse.issparse(out) else out)
            )
            if broken:
                return name_broken_values(node.layer.name)
        return ""

    def _keep(self, layer: int, shape: tuple[int, int], low: int = 0) -> NDArray[np.bool_]:
        """Return what dropout keeps of the batch's examples from `low` on."""
        layers, (examples, units) = self._forward.network.spec.layers, shape
        number, keep = self.step * len(layers) + layer, np.empty(shape, np.bool_)

        def some(rows: slice) -> None:
            at = low + rows.start
            random = draw_from(at * units, (rows.stop - rows.start, units), self._settings.seed, DROPOUT, number)
            np.greater_equal(random, layers[layer].dropout, out=keep[rows])

        by_examples(self._each, some, examples, units)
        return keep

    def _settle(self, batch: Batch) -> Values:
        """Bring the weights that the batch will read up to date; return what is known of its sparse inputs."""
        values = Values()
        for node in self._forward.nodes:
            for edge in node.edges:
                if edge.owner in self._network.locked or not sparse.issparse(batch.inputs.get(edge.source)):
                    continue
                if edge.source not in values.touched:
                    values.touched[edge.source] = touched_by(batch.inputs[edge.source])
                rows = values.touched[edge.source].rows
                if self._forward.layouts[edge.number] is Layout.BLOCKED:
                    tables = [self._forward.table(edge, low).start for low in block_starts(node.units)]
                    rows = np.concatenate([rows + start for start in tables])
                self._optimizer.settle(edge.owner, rows)
        return values
