"""The epoch loop: shuffle, denoise, batches, validation, early stopping; it can be left and resumed at any batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.backward import backward
from nnlib.batches import DROPOUT, Batch, Examples, batch_of, batches_of, epoch_order, noisy, stream
from nnlib.contract import TrainSettings
from nnlib.errors import DataError, DivergedError
from nnlib.gather import touched_by
from nnlib.gradients import Gradients
from nnlib.graph import Graph, Values
from nnlib.metrics import mean_loss
from nnlib.network import Layout, Network, block_starts, is_lazy, is_sparse_input
from nnlib.optimizers import Optimizer
from nnlib.settings import rate_of
from nnlib.sinks import Sink
from nnlib.threads import Each, one_by_one
from nnlib.updates import Hyper

OnBatch = Callable[[int, int, int], None]  # (epoch, examples done in it, of how many)

LOSS_BOUND = 10  # times the loss before training: a training this much worse than none has diverged
FIRST_EXAMPLES = 1024  # on which that is measured
ADVICE = "lower learning_rate, or set clip"


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one epoch gave. `loss` is the mean over the examples, `value` the validation metric."""

    epoch: int
    loss: float
    value: float | None
    seconds: float
    examples: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A trained network: the parameters of its best epoch, or of its last one without validation."""

    network: Network
    epochs: int
    best_epoch: int


@dataclass(slots=True)
class Position:
    """How far a training has come: the epoch it is in, and the batches of it that are done."""

    epoch: int = 1
    batch: int = 0
    step: int = 0
    total: float = 0.0  # error of the epoch so far, summed over its examples
    first: float = 0.0  # mean error before the first batch
    best_value: float = math.inf  # of the metric, or of minus the metric when more is better
    best_epoch: int = 0
    seconds: float = 0.0  # of this epoch before the training was resumed


class Keeper(Protocol):
    """What saves a training on its way and ends it when it is told to."""

    def restore(self, training: Training) -> None:
        """Put a training where the last one was left, if there is one."""

    def after_batch(self, training: Training) -> None:
        """Save and raise EvictedError or CheckpointedError when it is time to; called after every batch."""


class Step:
    """One batch after the other through a network and into its optimizer."""

    def __init__(self, network: Network, optimizer: Optimizer, settings: TrainSettings, each: Each) -> None:
        self.graph = Graph(network, each)
        self.broken = ""  # the layer whose outputs were the first that are not finite, after an error that is not
        self._optimizer, self._settings = optimizer, settings
        self._gradients = Gradients(network) if settings.clip or _needs_whole_gradients(network) else None

    def run(self, batch: Batch) -> float:
        """Train on a batch; return its error, summed over the examples."""
        optimizer, spec = self._optimizer, self.graph.network.spec
        optimizer.begin()
        batch = noisy(spec, batch, self._settings.seed, optimizer.step)
        values = self.graph.forward(batch.inputs, self._keep, True, self._settle(batch))
        sink: Sink = self._gradients or optimizer
        error = backward(self.graph, values, batch.targets, sink)
        if self._gradients is not None:
            self._gradients.give(optimizer, self._settings.clip)
        optimizer.finish()
        if not math.isfinite(error):
            self.broken = self._first_broken(values)
        return error

    def _first_broken(self, values: Values) -> str:
        for node in self.graph.nodes:
            out = values.out.get(node.number)
            if out is None or not np.isfinite(out.data if sparse.issparse(out) else out).all():
                return f", layer {node.layer.name} gives numbers that are not finite"
        return ""

    def _keep(self, layer: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
        layers = self.graph.network.spec.layers
        random = stream(self._settings.seed, DROPOUT, self._optimizer.step * len(layers) + layer)
        return np.asarray(random.random(shape, np.float32) >= layers[layer].dropout)

    def _settle(self, batch: Batch) -> Values:
        """Bring the weights that the batch will read up to date; return what is known of its sparse inputs."""
        values = Values()
        for node in self.graph.nodes:
            for edge in node.edges:
                if not sparse.issparse(batch.inputs.get(edge.source)):
                    continue
                if edge.source not in values.touched:
                    values.touched[edge.source] = touched_by(batch.inputs[edge.source])
                rows = values.touched[edge.source].rows
                if self.graph.layouts[edge.number] is Layout.BLOCKED:
                    tables = [self.graph.table(edge, low).start for low in block_starts(node.units)]
                    rows = np.concatenate([rows + start for start in tables])
                self._optimizer.settle(edge.owner, rows)
        return values


class Training:
    """A network on its way: what changes from batch to batch, and all that is needed to go on from there."""

    def __init__(
        self,
        network: Network,
        examples: Examples,
        settings: TrainSettings,
        validate: Callable[[Network], float] | None = None,
        minimize: bool = False,
        each: Each = one_by_one,
    ) -> None:
        """Prepare a training of `network` in place; without `validate` all epochs are run and the last one counts."""
        self.network, self.settings, self.position = network, settings, Position()
        self.best: Network | None = None
        self._examples, self._validate, self._minimize = examples, validate, minimize
        self._batches = batches_of(examples.count, settings.batch)
        numbers = map(float, (settings.momentum, settings.beta2, settings.l2, settings.l1))  # may be whole in a file
        hyper = Hyper(settings.optimizer.lower(), *numbers)
        rate = rate_of(replace(settings, schedule=settings.schedule.lower()), network.spec.decay, len(self._batches))
        self._optimizer = Optimizer(network, hyper, rate, each)
        self._step = Step(network, self._optimizer, settings, each)
        self._started = time.perf_counter()

    def run(
        self, report: Callable[[Epoch], None], keeper: Keeper | None = None, on_batch: OnBatch | None = None
    ) -> Fit:
        """Train to the end and return the best parameters. Raises DivergedError, and what `keeper` raises."""
        if keeper is not None:
            keeper.restore(self)
        if not self.position.step:
            self.position.first = self._first_loss()
        position, settings = self.position, self.settings
        while position.epoch <= settings.epochs and not self._stalled():
            self._started = time.perf_counter()
            with np.errstate(all="ignore"):  # infinities and NaN end as DivergedError
                self._run_epoch(keeper, on_batch)
            self._end_epoch(report)
        return Fit(self.best or self.network, position.epoch - 1, position.best_epoch or position.epoch - 1)

    def _stalled(self) -> bool:
        """Whether the metric has not become better for `stop_after` epochs."""
        position, patience = self.position, self.settings.stop_after
        return bool(self._validate and patience and position.epoch - 1 - position.best_epoch >= patience)

    def _run_epoch(self, keeper: Keeper | None, on_batch: OnBatch | None) -> None:
        position, spec = self.position, self.network.spec
        order = epoch_order(self.settings.seed, position.epoch, self._examples.count, spec.shuffle)
        for low, high in self._batches[position.batch :]:
            batch = batch_of(spec, self._examples, order[low:high], self.network.dtype)
            error = self._step.run(batch)
            position.step, position.batch = self._optimizer.step, position.batch + 1
            if not math.isfinite(error):
                raise DivergedError(f"{self._place()}: loss is {error}{self._step.broken}; {ADVICE}")
            position.total += error
            if on_batch is not None:
                on_batch(position.epoch, high, self._examples.count)
            if keeper is not None:
                keeper.after_batch(self)

    def _first_loss(self) -> float:
        """Return the mean error of the untrained network on examples from all over the data; 0 for no bound."""
        some = np.linspace(0, self._examples.count - 1, min(FIRST_EXAMPLES, self._examples.count)).astype(np.int64)
        try:
            return mean_loss(self.network, self._examples.take(np.unique(some)))
        except DivergedError:  # the first batch will say it better
            return 0.0

    def _end_epoch(self, report: Callable[[Epoch], None]) -> None:
        position = self.position
        self._optimizer.settle_all()
        broken, loss = _broken_layer(self.network), position.total / self._examples.count
        if broken:
            raise DivergedError(f"{self._place()}: the last update failed{broken}; {ADVICE}")
        if loss > LOSS_BOUND * position.first > 0:
            raise DivergedError(f"{self._place()}: loss {loss:.6g}, the first was {position.first:.6g}; {ADVICE}")
        value = self._validate(self.network) if self._validate else None
        seconds = position.seconds + time.perf_counter() - self._started
        report(Epoch(position.epoch, loss, value, seconds, self._examples.count))
        if value is not None:
            better = value if self._minimize else -value
            if better < position.best_value:
                position.best_value, position.best_epoch, self.best = better, position.epoch, self.network.copy()
        position.epoch, position.batch, position.total, position.seconds = position.epoch + 1, 0, 0.0, 0.0

    def _place(self) -> str:
        return f"epoch {self.position.epoch}, batch {self.position.batch}, step {self.position.step}"

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Return everything that a resumed training needs, as arrays and numbers."""
        self._optimizer.settle_all()
        arrays = dict(self.network.arrays()) | dict(self._optimizer.arrays())
        if self.best is not None:
            arrays |= {f"best_{name}": array for name, array in self.best.arrays()}
        seconds = self.position.seconds + time.perf_counter() - self._started
        return arrays, asdict(replace(self.position, seconds=seconds))

    def resume(self, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, float]) -> None:
        """Go on from what `state` gave; DataError when it is of another network."""
        wanted = dict(self.network.arrays()) | dict(self._optimizer.arrays())
        if int(numbers["best_epoch"]):
            self.best = self.network.copy()
            wanted |= {f"best_{name}": array for name, array in self.best.arrays()}
        for name, array in wanted.items():
            if name not in arrays or arrays[name].size != array.size or arrays[name].dtype != array.dtype:
                raise DataError(f"{name} does not fit the network")
            array[...] = arrays[name].reshape(array.shape)
        kinds = {name: type(value) for name, value in asdict(Position()).items()}
        self.position = Position(**{name: kinds[name](numbers[name]) for name in kinds})
        self._optimizer.resume(self.position.step)


def fit(
    network: Network,
    examples: Examples,
    settings: TrainSettings,
    report: Callable[[Epoch], None],
    validate: Callable[[Network], float] | None = None,
    minimize: bool = False,
    each: Each = one_by_one,
    keeper: Keeper | None = None,
    on_batch: OnBatch | None = None,
) -> Fit:
    """Train `network` in place and return its best parameters; see `Training`."""
    return Training(network, examples, settings, validate, minimize, each).run(report, keeper, on_batch)


def _needs_whole_gradients(network: Network) -> bool:
    """Whether weights are shared, or those of a sparse input cannot be updated row by row."""
    spec = network.spec
    return any(
        edge.owner != edge.number or (is_sparse_input(spec.layers[edge.source]) and not is_lazy(spec, edge))
        for edge in spec.edges
    )


def _broken_layer(network: Network) -> str:
    """Name the first layer whose parameters are not finite."""
    spec = network.spec
    for edge in spec.edges:
        if not (np.isfinite(network.stores[edge.owner]).all() and np.isfinite(network.biases[edge.number]).all()):
            return f", weights into layer {spec.layers[edge.target].name} are not finite"
    for number, norm in network.norms.items():
        if not all(np.isfinite(array).all() for array in (norm.scale, norm.bias, norm.mean, norm.variance)):
            return f", the batch normalization of layer {spec.layers[number].name} is not finite"
    return ""
