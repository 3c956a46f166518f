"""One training job from its files to its result: read, train, measure, save."""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import scipy

from nnlib.contract import LOG_FILE, MODEL_FILE, Result, Role, Status, TrainSettings, Trial, sha256_of, trial_to_json
from nnlib.data.stream import open_data
from nnlib.data.units import Units
from nnlib.devices import open_device
from nnlib.engines import Backend
from nnlib.epoch_log import Epoch, open_epoch_log, read_epochs
from nnlib.errors import DataError, DivergedError, NnlibError
from nnlib.model.batches import WEIGHTS, generator_for
from nnlib.model.examples import resolve
from nnlib.model.file import model_of, read_model, write_model
from nnlib.model.network import Network, create
from nnlib.model.remap_units import remap_units
from nnlib.model.warm_start import WarmStart, apply_initial_weights, read_init
from nnlib.spec.network import network_of, read_json
from nnlib.spec.types import LayerKind, NetworkSpec
from nnlib.training import loop
from nnlib.training.checkpoint import Checkpoints
from nnlib.training.settings import check_settings
from nnlib.training.stop import Stop
from nnlib.training.validation import DataPart, Validator, check_fit, check_some, objective_of
from nnlib.util import netcdf
from nnlib.util.terminal import show_training

LIBRARIES = {"numpy": np.__version__, "scipy": scipy.__version__, "netCDF4": netcdf.VERSION}


def run(
    trial: Trial,
    folder: Path,
    threads: int = 1,
    stop: Stop | None = None,
    every: float = math.inf,
    device: str = "cpu",
) -> Result:
    """Train as `trial` says on the files in `folder`, write the log and the model there, return the result.

    A training that finds its checkpoint in `folder` goes on from there; `stop` and `every` say when to write one and
    leave (see `checkpoint.Checkpoints`). Raises NnlibError (wrong input), DivergedError, OSError, MemoryError,
    EvictedError and CheckpointedError.
    """
    goal = objective_of(trial.metric)
    check_settings(trial.train)
    spec = _network_spec(trial, folder)
    learned, held_out = _part(folder, trial.train_files), _part(folder, _held_out_files(trial))
    spec = resolve(spec, learned.sets, trial.network)
    check_some(learned, spec)
    check_fit(spec, goal, learned, held_out)
    with open_device(device, threads) as (backend, each):
        ruler = Validator(goal, spec, held_out, each)
        epochs = len(read_epochs(folder / LOG_FILE))
        keeper = Checkpoints(folder, _identity(trial, spec, backend), stop, every, epochs)
        start = _start(trial, folder, spec, learned)
        fit = _fit(trial, folder, start.network, learned, ruler, keeper, backend)
        result = Result(
            node=trial.node,
            status=Status.PRUNED if fit.pruned else Status.OK,
            reason=f"ended after epoch {fit.epochs}: others were better by then" if fit.pruned else "",
            metrics=ruler.everything(backend.evaluator(fit.network)),
            curve=tuple(epoch.value for epoch in read_epochs(folder / LOG_FILE) if epoch.value is not None),
            best_epoch=fit.best_epoch,
            epochs=fit.epochs,
            examples=learned.examples(spec).count,
            init=start.summary,
            backend=backend.name,
            versions={**LIBRARIES, **backend.versions},
            gpu=backend.device,
        )
        result = replace(result, value=result.metrics[goal.key])
        if trial.role is Role.FINAL:
            write_model(folder / MODEL_FILE, model_of(fit.network, learned.sets, learned.region))
            result = replace(result, baseline=ruler.popularity(learned), model=sha256_of(folder / MODEL_FILE))
        champion, reason = _champion(trial, folder, ruler, backend)
        result = replace(result, champion=champion, reason="; ".join(filter(None, (result.reason, reason))))
    keeper.discard()
    return result


def _start(trial: Trial, folder: Path, spec: NetworkSpec, learned: DataPart) -> WarmStart:
    """Return the network before its training: random, or with the weights of the model that the trial names."""
    network = create(spec, generator_for(trial.train.seed, WEIGHTS))
    if trial.init is None:
        return WarmStart(network, "")
    start = apply_initial_weights(model_of(network, learned.sets, learned.region), read_init(folder / trial.init))
    print(f"nnlib: starts from {trial.init}: {start.summary}", file=sys.stderr)
    return start


def _fit(
    trial: Trial,
    folder: Path,
    network: Network,
    learned: DataPart,
    ruler: Validator,
    keeper: Checkpoints,
    backend: Backend,
) -> loop.Fit:
    with (
        show_training(trial.train.epochs, trial.metric.name) as screen,
        open_epoch_log(folder / LOG_FILE) as add_to_log,
    ):

        def report(epoch: Epoch) -> None:
            add_to_log(epoch)
            screen.epoch(epoch)

        return loop.fit(
            network,
            learned.examples(network.spec),
            trial.train,
            backend,
            report,
            ruler.value if trial.role is Role.TUNE else None,
            ruler.goal.minimize,
            keeper,
            screen.batch,
            trial.rungs,
        )


def _identity(trial: Trial, spec: NetworkSpec, backend: Backend) -> str:
    """Return what distinguishes this training from every other one whose checkpoint could lie here."""
    trial = replace(trial, rungs=())  # made anew when the node is tried again
    text = f"{trial_to_json(trial)}\n{spec!r}\n{backend.name}"
    return hashlib.sha256(text.encode()).hexdigest()


def _network_spec(trial: Trial, folder: Path) -> NetworkSpec:
    """Read the network and fill in the hyperparameters; those of TrainSettings are in `trial.train` already."""

    def legal(name: str) -> str:
        fields = TrainSettings.__dataclass_fields__
        return "" if name in fields else f'"${name}" in place of a value, or a training setting: {", ".join(fields)}'

    raw, train = read_json(folder / trial.network), trial.train
    return network_of(raw, trial.network, trial.hyperparameters, asdict(train), train.as_dsstne, legal)


def _held_out_files(trial: Trial) -> tuple[str, ...]:
    key = "valid_file" if trial.role is Role.TUNE else "test_file"
    name = trial.valid_file if trial.role is Role.TUNE else trial.test_file
    if name is None:
        raise NnlibError(f"trial.json: {key}: null is not legal for role {trial.role}, legal: a data file")
    return (name,)


def _part(folder: Path, files: tuple[str, ...]) -> DataPart:
    if not files:
        raise NnlibError("trial.json: train_files: [] is not legal, legal: one data file or more")
    data = open_data([folder / name for name in files])
    return DataPart(", ".join(files), {data_set.name: data_set for data_set in data.sets}, data.region)


def _champion(trial: Trial, folder: Path, ruler: Validator, backend: Backend) -> tuple[dict[str, float], str]:
    """Return the standing champion's metrics, or none and why; a broken champion must not stop its successor."""
    if trial.champion is None:
        return {}, ""
    try:
        sets = {name: Units(found.width, found.features) for name, found in ruler.part.sets.items()}
        model = remap_units(read_model(folder / trial.champion), sets)
        ruler = replace(ruler, spec=model.network.spec)
        examples = ruler.part.examples(model.network.spec)
        unknown = sum(
            len(model.find_unscored(n, examples.sets[n].rows))
            for n, layer in enumerate(model.network.spec.layers)
            if layer.kind is LayerKind.OUTPUT
        )
        evaluator = backend.evaluator(model.network)
        if not unknown:
            return ruler.everything(evaluator), ""
        reason = f"champion not {_measured(trial)} for loss: {unknown} of the targets' units are unknown to it"
        return ruler.ranking(evaluator), reason if ruler.goal.k is None else ""
    except (DataError, DivergedError, FileNotFoundError, MemoryError) as error:
        return {}, f"champion not {_measured(trial)}: {error}"


def _measured(trial: Trial) -> str:
    return "tested" if trial.role is Role.FINAL else "validated"
