"""A training that a person asks for, by the command or from Python: no trial, no result file, only a network."""

from __future__ import annotations

import hashlib
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType

import numpy as np

from nnlib.contract import Metric, TrainSettings
from nnlib.data.blockwise import run_in_order
from nnlib.data.rows import Csr
from nnlib.data.sets import DataSet
from nnlib.devices import AUTO, backend_of, choose_device
from nnlib.epoch_log import Epoch
from nnlib.errors import DataError, EvictedError, NnlibError
from nnlib.model.batches import WEIGHTS, generator_for
from nnlib.model.examples import Examples, resolve
from nnlib.model.file import Model, model_of
from nnlib.model.network import Network, create
from nnlib.model.remap_units import match_inputs
from nnlib.model.warm_start import WarmStart, apply_initial_weights
from nnlib.parallel.opening import check_ranks, open_ranks
from nnlib.spec.json_section import show
from nnlib.spec.network import Value, network_of, read_json
from nnlib.spec.types import NO_AUGMENTATION, FineTuning, NetworkSpec
from nnlib.training import loop
from nnlib.training.alone import alone_in
from nnlib.training.checkpoint import Checkpoints, ForeignError, owner_of
from nnlib.training.settings import check_settings
from nnlib.training.stop import Stop
from nnlib.training.validation import DataPart, Objective, Validator, check_fit, check_some, objective_of
from nnlib.util.arrays import Longs
from nnlib.util.process import catch_signals, write_at_once

SAVE_EVERY = 300.0  # seconds
METRIC = Metric().name


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A network with its first parameters, the data and how to train: all of it checked."""

    network: Network
    learned: DataPart
    held_out: DataPart | None
    settings: TrainSettings
    goal: Objective
    device: str  # cpu or gpu
    start: str = ""  # what was taken over from another model, in words
    ranks: int = 1  # processes that share the network

    @property
    def spec(self) -> NetworkSpec:
        """The network's layers, each with its units."""
        return self.network.spec

    @property
    def examples(self) -> Examples:
        """What to learn from."""
        return self.learned.examples(self.spec)

    @property
    def identity(self) -> str:
        """What tells this training from every other one: network, data, settings, backend."""
        digest = hashlib.sha256(
            f"{self.spec!r}\n{self.settings!r}\n{self.goal!r}\n{backend_of(self.device)}\n".encode()
        )
        for _, array in self.network.arrays():
            digest.update(np.ascontiguousarray(array).data)
        for part in (self.learned, self.held_out):
            for name in sorted({layer.data_set for layer in self.spec.layers} - {""}):
                if part is not None:
                    _digest(part.sets[name], digest.update)
            if part is not None and part.repeats:
                digest.update(b"repeats")  # other epochs may be the best
        return digest.hexdigest()


class FolderCheckpoints(Checkpoints):
    """Checkpoints of a training that goes on after each, in a folder that a person chose."""

    def when_due(self, training: loop.Training) -> None:
        """Save; when that fails the training goes on, since the checkpoint before is still there."""
        try:
            self.save(training)
        except OSError as error:
            print(
                f"nnlib: no checkpoint written, the training goes on: {error.filename or self.path}: "
                f"{error.strerror or error}",
                file=sys.stderr,
            )

    def pass_over(self, error: DataError) -> None:
        """Tell why a file is not used; NnlibError when it is another training's, which must not be lost."""
        if isinstance(error, ForeignError):
            raise NnlibError(
                f"{self.path.parent}: {error}; it would be lost, legal: another folder for the checkpoints, or remove "
                "this file if it is not needed"
            ) from error
        super().pass_over(error)


def read_network_with(path: Path, hyperparameters: Mapping[str, Value], settings: TrainSettings) -> NetworkSpec:
    """Return the network of a file, with hyperparameters and settings for its placeholders; SpecError."""

    def legal(name: str) -> str:
        field = name in TrainSettings.__dataclass_fields__
        return f"the option --{name.replace('_', '-')}" if field else f'"${name}" in place of a value'

    return network_of(read_json(path), path.name, hyperparameters, asdict(settings), settings.as_dsstne, legal)


def task_of(
    start: NetworkSpec | Model,
    learned: DataPart,
    held_out: DataPart | None,
    settings: TrainSettings,
    metric: str = METRIC,
    where: str = "",
    device: str = AUTO,
    init: Model | None = None,
    ranks: int = 1,
) -> Task:
    """Return a training of a new network, or of one that has parameters already, which stay as they are.

    A new network takes over what it can of the weights of `init`. `where` stands before the name of a setting in
    messages. Raises NnlibError and SpecError for whatever does not fit.
    """
    check_settings(settings, where)
    if not isinstance(metric, str):
        raise NnlibError(f"{where}metric: {metric!r} is not legal, legal: a name such as {METRIC}")
    goal = objective_of(Metric(metric, minimize=metric.lower() == "loss"), f"{where}metric")
    if isinstance(start, Model):
        _check_names(start, learned)
        names = {layer.data_set for layer in start.network.spec.layers} & set(learned.sets)
        network = match_inputs(start.network, {name: learned.sets[name] for name in names}, learned.file).copy()
        spec = replace(network.spec, tuning=FineTuning(), augmentation=NO_AUGMENTATION)
        network = replace(network, spec=spec)  # as if it came from a file
        begun = WarmStart(network, "")
    else:
        if init is None:
            _check_start(start)
        network = create(resolve(start, learned.sets, learned.file), generator_for(settings.seed, WEIGHTS))
        fresh = model_of(network, learned.sets, learned.region)
        begun = WarmStart(network, "") if init is None else apply_initial_weights(fresh, init)
    check_some(learned, network.spec)
    if held_out is not None:
        check_fit(network.spec, goal, learned, held_out, f"{where}metric")
    on = choose_device(device, f"{where}device")
    check_ranks(ranks, network.spec, settings, on, f"{where}ranks")
    return Task(begun.network, learned, held_out, settings, goal, on, begun.summary, ranks)


def run(
    task: Task,
    threads: int,
    report: Callable[[Epoch], None],
    keeper: FolderCheckpoints | None = None,
    on_batch: loop.OnBatch | None = None,
) -> loop.Fit:
    """Train and return the best parameters; with a `keeper` save now and then, and go on from what it has.

    Raises DivergedError, EvictedError after saving when a stop was requested, and NnlibError when the keeper's folder
    has the checkpoint of another training, or another process trains there.
    """
    alone = alone_in(keeper.path.parent) if keeper is not None else nullcontext()
    with alone, open_ranks(task.device, threads, task.ranks) as (backend, each):
        validate = Validator(task.goal, task.spec, task.held_out, each).value if task.held_out else None
        minimize, settings = task.goal.minimize, task.settings
        return loop.fit(task.network, task.examples, settings, backend, report, validate, minimize, keeper, on_batch)


def keeper_of(task: Task, folder: Path | None, stop: Stop, every: float = SAVE_EVERY) -> FolderCheckpoints | None:
    """Return what saves a training in a folder every so many seconds; call it before the training has begun."""
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    return FolderCheckpoints(folder, task.identity, stop, every)


def forget_checkpoints(keeper: FolderCheckpoints | None) -> None:
    """Forget the checkpoints of a training whose network is safe, unless another one has the folder now."""
    if keeper is None or not keeper.path.exists():
        return
    with suppress(NnlibError), alone_in(keeper.path.parent):
        if owner_of(keeper.path) in (None, keeper.training):
            keeper.discard()


def can_resume(folder: Path) -> bool:
    """Whether a training can go on from what is in its folder."""
    keeper = Checkpoints(folder, "")
    return any(path.exists() and path.stat().st_size for path in (keeper.path, keeper.previous))


@contextmanager
def stop_at(stop: Stop, signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Let the first of some signals end a training after its batch, and the second at once."""
    below = "\n" if sys.stderr is not None and sys.stderr.isatty() else ""  # a bar stands there, without a line's end
    note = f"{below}nnlib: saving after this batch; once more to leave at once\n"

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.deferred and not stop.requested:
            stop.requested = True
            write_at_once(note)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise EvictedError

    with catch_signals(signals, handle):
        yield


def _check_start(spec: NetworkSpec) -> None:
    """Raise NnlibError when layers of a network that starts from nothing are to stay as they are, or to be replaced."""
    for key, names in (("Freeze", spec.tuning.freeze), ("Replace", spec.tuning.replace)):
        if names:
            raise NnlibError(
                f"FineTuning.{key}: {show(names[0])}: the training starts from random weights; legal: a model to start "
                "from (--init MODEL.nc, init= in Python), or a network without this key"
            )


def _check_names(model: Model, learned: DataPart) -> None:
    """Raise DataError when the data name other units than the model, which would go on with the wrong ones."""
    for n, layer in enumerate(model.network.spec.layers):
        data_set = learned.sets.get(layer.data_set)
        names = model.features.get(n, ())
        if data_set is not None and names and data_set.features and names != data_set.features:
            raise DataError(
                f"{learned.file}: data set {show(layer.data_set)} has other units than layer {show(layer.name)} was "
                "trained on; legal: the same names in the same order, or a new network"
            )


def _digest(data_set: DataSet, update: Callable[[bytes], None]) -> None:
    """Feed everything that a data set holds to a digest."""
    update(repr((data_set.examples, data_set.width, data_set.features, data_set.ignore_zero)).encode())

    def block(rows: Longs) -> list[bytes]:
        some = data_set.take(rows)
        arrays = [some.rows.indptr, some.rows.indices] if isinstance(some.rows, Csr) else []
        arrays += [array for array in (some.rows.values, some.weights) if array is not None]  # type: ignore[union-attr]
        return [np.ascontiguousarray(array).tobytes() for array in arrays]

    for found in run_in_order(block, data_set.examples, 1 if data_set.sparse else data_set.width):
        for piece in found:
            update(piece)
