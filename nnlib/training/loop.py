"""The epoch loop: shuffle, denoise, batches, validation, early stopping; it can be left and resumed at any batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import TrainSettings
from nnlib.engines import Backend, Engine, Evaluator
from nnlib.epoch_log import Epoch
from nnlib.errors import DataError, DivergedError
from nnlib.model.batches import batches_of, epoch_order, part_of, updates_of
from nnlib.model.examples import Examples
from nnlib.model.fine_tuning import freeze
from nnlib.model.network import Network
from nnlib.training.average import Average

OnBatch = Callable[[int, int, int], None]  # (epoch, examples done in it, of how many)
Rungs = Iterable[tuple[int, float]]  # (epoch, value)
Validate = Callable[[Evaluator], float]  # measures a network on what was held out

LOSS_BOUND = 10  # times the loss before training: a training this much worse than none has diverged
FIRST_EXAMPLES = 1024  # on which that is measured
BITS = "factor_bits"  # a checkpoint's name for the significand of the factors of products
FACTOR_BITS = {"float32": 24, "tf32": 11, "bf16": 8}
ADVICE = "lower learning_rate, or set clip"


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A trained network: the parameters of its best epoch, or of its last one without validation."""

    network: Network
    epochs: int
    best_epoch: int
    precision: str  # in which it was trained
    pruned: bool = False  # a rung was not reached


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
    least: float = math.inf  # of what the schedule `plateau` looks at: as `best_value`, or the loss without validation
    least_epoch: int = 0  # in which it was found, or the rate was lowered last
    drops: int = 0  # how often it was
    seconds: float = 0.0  # of this epoch before the training was resumed


class Keeper(Protocol):
    """What saves a training on its way and ends it when it is told to."""

    def restore(self, training: Training) -> None:
        """Put a training where the last one was left, if there is one."""

    def after_batch(self, training: Training) -> None:
        """Save and raise EvictedError or CheckpointedError when it is time to; called after every batch."""


class Training:
    """A network on its way: what changes from batch to batch, and all that is needed to go on from there."""

    def __init__(
        self,
        network: Network,
        examples: Examples,
        settings: TrainSettings,
        backend: Backend,
        validate: Validate | None = None,
        minimize: bool = False,
        rungs: Rungs = (),
    ) -> None:
        """Prepare a training of `network` in place; without `validate` all epochs are run and the last one counts.

        `rungs` has what the metric must have reached after some epochs for the training to go on.
        """
        settings = replace(settings, precision=backend.choose_precision(settings.precision.lower()))
        self.network, self.settings, self.position = network, settings, Position()
        self.best: Network | None = None
        self.pruned = False
        self._rungs = dict(rungs)
        self._examples, self._validate, self._minimize = examples, validate, minimize
        self._batches, self._updates = batches_of(examples.count, settings.batch), updates_of(examples.count, settings)
        self._backend = backend
        self._engine = self._new_engine(epoch=1)
        self._average = Average(network.copy(), settings.ema) if settings.ema else None
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
        while position.epoch <= settings.epochs and not self._is_stalled():
            self._started = time.perf_counter()
            if position.epoch == self._thaw_epoch > 1 and not position.batch:
                self._unfreeze()
            with np.errstate(all="ignore"):  # infinities and NaN end as DivergedError
                self._run_epoch(keeper, on_batch)
            self._end_epoch(report)
        network = self.best or self._current()
        epochs = position.epoch - 1
        return Fit(network, epochs, position.best_epoch or epochs, self.settings.precision, self.pruned)

    def _is_stalled(self) -> bool:
        """Whether the metric has not become better for `stop_after` epochs, or not good enough for a rung."""
        position, settings = self.position, self.settings
        patience = math.ceil(settings.stop_after_examples / self._examples.count) or settings.stop_after
        since = max(position.best_epoch, self._thaw_epoch - 1)  # layers that learn from then on have their time, too
        return self.pruned or bool(self._validate and patience and position.epoch - 1 - since >= patience)

    @property
    def _thaw_epoch(self) -> int:
        """The epoch from which frozen layers learn; 0: there are none, or never."""
        tuning = self.network.spec.tuning
        return tuning.unfreeze_at if tuning.freeze else 0

    def _new_engine(self, epoch: int) -> Engine:
        """Return an engine that trains the layers which learn in an epoch, from the network's parameters."""
        return self._backend.engine(freeze(self.network, epoch), self._examples, self.settings)

    def _unfreeze(self) -> None:
        """Go on with an engine that trains all layers; what the optimizer knows of those that learned stays."""
        self._engine.pull()
        self._go_on(self._engine.states())

    def _go_on(self, states: Mapping[str, NDArray[Any]]) -> None:
        """Train from the network's parameters and these states, after the step of `position`, as its epoch does."""
        position, settings = self.position, self.settings
        if self._thaw_epoch > 1 and position.epoch >= self._thaw_epoch:
            del self._engine  # a GPU may not have room for two
            self._engine = self._new_engine(position.epoch)
        self._engine.resume(position.step, states)
        if position.drops:
            self._engine.slow_down(settings.decay_rate**position.drops)

    def _run_epoch(self, keeper: Keeper | None, on_batch: OnBatch | None) -> None:
        position, engine = self.position, self._engine
        order = epoch_order(self.settings.seed, position.epoch, self._examples.count, self.network.spec.shuffle)
        places = self._batches[position.batch :]
        engine.begin_epoch(position.total)
        with closing(engine.batches(order[low:high] for low, high in places)) as batches:
            for (_, high), batch in zip(places, batches, strict=True):
                engine.run(batch)
                position.step, position.batch = engine.step, position.batch + 1
                self._check()
                if on_batch is not None:
                    on_batch(position.epoch, high, self._examples.count)
                if keeper is not None and part_of(self._examples.count, self.settings, position.batch).last:
                    keeper.after_batch(self)
        self._check(wait=True)
        position.total = engine.total()

    def _check(self, wait: bool = False) -> None:
        """Raise DivergedError for the first step in which something is not finite, as far as that is known."""
        failure, position = self._engine.failed(wait), self.position
        if failure is not None:
            position.batch -= position.step - failure.step
            position.step = failure.step
            raise DivergedError(f"{self._place()}: {failure}; {ADVICE}")

    def _first_loss(self) -> float:
        """Return the mean error of the untrained network on examples from all over the data; 0 for no bound."""
        some = np.linspace(0, self._examples.count - 1, min(FIRST_EXAMPLES, self._examples.count)).astype(np.int64)
        try:
            return self._engine.evaluator().mean_loss(self._examples.take(np.unique(some)))
        except DivergedError:  # the first batch will say it better
            return 0.0

    def _end_epoch(self, report: Callable[[Epoch], None]) -> None:
        position, engine = self.position, self._engine
        engine.settle()
        broken, loss = engine.broken(), position.total / self._examples.count
        if broken:
            raise DivergedError(f"{self._place()}: the last update failed{broken}; {ADVICE}")
        if loss > LOSS_BOUND * position.first > 0:
            raise DivergedError(f"{self._place()}: loss {loss:.6g}, the first was {position.first:.6g}; {ADVICE}")
        if self._average is not None:
            updates = self._updates
            self._average.add(engine.pull(), (position.epoch - 1) * updates + 1, position.epoch * updates)
        value = self._validate(self._evaluator()) if self._validate else None
        seconds = position.seconds + time.perf_counter() - self._started
        report(Epoch(position.epoch, loss, value, seconds, self._examples.count))
        score = loss if value is None else value if self._minimize else -value  # the less, the better
        if value is not None:
            if score < position.best_value:
                position.best_value, position.best_epoch = score, position.epoch
                self._keep_best()
            rung = self._rungs.get(position.epoch)
            self.pruned = rung is not None and position.best_value > (rung if self._minimize else -rung)
        if self.settings.schedule.lower() == "plateau":
            self._look_for_plateau(score)
        position.epoch, position.batch, position.total, position.seconds = position.epoch + 1, 0, 0.0, 0.0

    def _look_for_plateau(self, value: float) -> None:
        """Lower the learning rate when `decay_epochs` epochs have not brought less than the least value."""
        position, settings = self.position, self.settings
        if value < position.least:
            position.least, position.least_epoch = value, position.epoch
        elif position.epoch - position.least_epoch >= settings.decay_epochs:
            position.least_epoch, position.drops = position.epoch, position.drops + 1
            self._engine.slow_down(settings.decay_rate**position.drops)

    def _current(self) -> Network:
        """Return what is validated and kept: the network of this step, or the mean of the last ones."""
        if self._average is not None:
            return self._average.network
        self._engine.pull()
        return self.network

    def _keep_best(self) -> None:
        if self.best is None:
            self.best = self._current().copy()
        else:
            self.best.take(self._current())

    def _evaluator(self) -> Evaluator:
        return self._engine.evaluator() if self._average is None else self._backend.evaluator(self._average.network)

    def _place(self) -> str:
        return f"epoch {self.position.epoch}, batch {self.position.batch}, step {self.position.step}"

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Return everything that a resumed training needs, as arrays and numbers."""
        engine = self._engine
        self._check(wait=True)
        if self.position.batch:
            self.position.total = engine.total()
        engine.settle()
        arrays = dict(engine.pull().arrays()) | dict(engine.states())
        if self._average is not None:
            arrays |= {f"ema_{name}": array for name, array in self._average.network.arrays()}
        if self.best is not None:
            arrays |= {f"best_{name}": array for name, array in self.best.arrays()}
        seconds = self.position.seconds + time.perf_counter() - self._started
        return arrays, asdict(replace(self.position, seconds=seconds)) | {BITS: FACTOR_BITS[self.settings.precision]}

    def resume(self, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, float]) -> None:
        """Go on from what `state` gave, in its precision; DataError when it is of another network."""
        self._keep_to(numbers.get(BITS, FACTOR_BITS[self.settings.precision]))
        own, states = dict(self.network.arrays()), dict(self._engine.states())
        if int(numbers["best_epoch"]):
            self.best = self.network.copy()
            own |= {f"best_{name}": array for name, array in self.best.arrays()}
        if self._average is not None:
            own |= {f"ema_{name}": array for name, array in self._average.network.arrays()}
        for name, array in (own | states).items():
            if name not in arrays or arrays[name].size != array.size or arrays[name].dtype != array.dtype:
                raise DataError(f"{name} does not fit the network")
        for name, array in own.items():
            array[...] = arrays[name].reshape(array.shape)
        kinds = {name: type(value) for name, value in asdict(Position()).items()}
        self.position = Position(**{name: kinds[name](numbers[name]) for name in kinds})
        states = {name: arrays[name].reshape(array.shape) for name, array in states.items()}
        self._go_on(states)

    def _keep_to(self, bits: float) -> None:
        """Go on in the precision that was begun with, where this machine would have chosen another one."""
        precision = next((name for name, its in FACTOR_BITS.items() if its == bits), self.settings.precision)
        if precision != self.settings.precision:
            self.settings = replace(self.settings, precision=precision)
            self._engine = self._new_engine(epoch=1)


def fit(
    network: Network,
    examples: Examples,
    settings: TrainSettings,
    backend: Backend,
    report: Callable[[Epoch], None],
    validate: Validate | None = None,
    minimize: bool = False,
    keeper: Keeper | None = None,
    on_batch: OnBatch | None = None,
    rungs: Rungs = (),
) -> Fit:
    """Train `network` in place and return its best parameters; see `Training`."""
    return Training(network, examples, settings, backend, validate, minimize, rungs).run(report, keeper, on_batch)
