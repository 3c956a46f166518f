"""One training job from its files to its result: read, train, measure, save."""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import (
    FLOOR_FILE,
    LOG_FILE,
    MODEL_FILE,
    SCORES_FILE,
    Recipe,
    Result,
    Role,
    Status,
    Trial,
    result_from_json,
    result_to_json,
    sha256_of,
    trial_to_json,
)
from nnlib.data.file import read_first_day
from nnlib.data.stream import open_data
from nnlib.devices import choose_device, precision_note
from nnlib.engines import Backend
from nnlib.epoch_log import Epoch, open_epoch_log, read_epochs
from nnlib.errors import DivergedError, NnlibError
from nnlib.families.fit import reads_inputs
from nnlib.model.batches import WEIGHTS, generator_for
from nnlib.model.examples import resolve
from nnlib.model.file import Model, model_of, write_model
from nnlib.model.network import Network, create
from nnlib.model.warm_start import WarmStart, apply_initial_weights, read_init
from nnlib.parallel.opening import choose_ranks, open_ranks
from nnlib.shards.plan import plan_of
from nnlib.spec.network import network_of_trial
from nnlib.spec.types import NetworkSpec
from nnlib.training import loop
from nnlib.training.checkpoint import Checkpoints
from nnlib.training.settings import check_settings
from nnlib.training.stop import Stop
from nnlib.training.validation import DataPart, Validator, check_fit, check_some, objective_of
from nnlib.util.files import write_atomically
from nnlib.util.terminal import show_training
from nnlib.worker.confusion import find_confusion
from nnlib.worker.on_data import LIBRARIES, held_out_file
from nnlib.worker.rivals import read_rivals, write_recipe
from nnlib.worker.scores import BASELINE, FLOOR, OfCustomers, count_customers, means_of, stderr_of, write_scores
from nnlib.worker.teller import Teller

ALL_DAYS = ", on all days"  # ends the identity of the second training of a final job
RESULT, SCORES = "result", "scores"  # what its checkpoints keep of the first


def run(
    trial: Trial,
    folder: Path,
    threads: int = 1,
    stop: Stop | None = None,
    every: float = math.inf,
    device: str = "cpu",
    teller: Teller | None = None,
) -> Result:
    """Train as `trial` says on the files in `folder`, write the log and the model there, return the result.

    The final training is done twice: on the days before the test window, to be tested beside `trial.compare`, and on
    all days, to serve. A training that finds its checkpoint in `folder` goes on from there; `stop` and `every` say when
    to write one and leave (see `checkpoint.Checkpoints`). Raises NnlibError (wrong input), DivergedError, OSError,
    MemoryError, EvictedError and CheckpointedError.
    """
    goal = objective_of(trial.metric)
    check_settings(trial.train)
    spec = network_of_trial(trial, folder)
    learned, held_out = _part(folder, trial.train_files), _part(folder, (held_out_file(trial),))
    spec = resolve(spec, learned.sets, trial.network)
    check_some(learned, spec)
    check_fit(spec, goal, learned, held_out)
    whole = _part(folder, trial.all_files) if trial.role is Role.FINAL and trial.all_files else None
    if whole is not None:
        check_fit(spec, goal, learned, whole)
    on = choose_device(device)
    if trial.several:
        from nnlib.inspection.gpus_plan import choose_for_several  # which few jobs need

        trial = replace(trial, train=choose_for_several(spec, trial.train))
    ranks = choose_ranks(spec, trial.train, os.environ)
    if note := precision_note(on, trial.train.precision):
        print(f"nnlib: {note}", file=sys.stderr)
    with open_ranks(on, threads, ranks) as (backend, each):
        logged = len(read_epochs(folder / LOG_FILE))
        keeper = Checkpoints(folder, _identity(trial, spec, backend), stop, every, logged)
        job = _Job(trial, folder, Validator(goal, spec, held_out, each), keeper, backend, teller or Teller())
        network, result = job.train_and_test(learned) if whole is None else job.train_twice(learned, whole)
        plan = plan_of(spec, trial.train.batch, trial.train.parallel)
        result = replace(result, ranks=ranks, plan=plan.kind)
        if trial.role is Role.FINAL:
            model = model_of(network, learned.sets, learned.region, learned.repeats)
            result = _write_models(trial, folder, model, result)
    keeper.discard()
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """What all trainings of a job have in common."""

    trial: Trial
    folder: Path
    ruler: Validator
    keeper: Checkpoints
    backend: Backend
    teller: Teller

    def train_and_test(self, learned: DataPart) -> tuple[Network, Result]:
        """Return a network and how good it is, for each customer in scores.npy."""
        again = self.trial.role is Role.FINAL and bool(self.trial.all_files)
        fit, start = self.fit(learned, epochs_after=self.trial.train.epochs * again)
        self.teller.do("testing" if self.trial.role is Role.FINAL else "validating")
        result = _measure(self.trial, self.folder, fit, learned, self.ruler, self.backend)
        return fit.network, replace(result, init=start)

    def train_twice(self, learned: DataPart, whole: DataPart) -> tuple[Network, Result]:
        """Return a network of all days, and how good the one was that did not know those it was asked about."""
        again = self.keeper.training + ALL_DAYS
        found = self.keeper.take_up(again)
        if found is None:
            _, result = self.train_and_test(learned)
            self.keeper.go_over_to(again, _remember(result, self.folder))
        else:
            result = _recall(found, self.folder)
        return self.fit(whole, "on all days")[0].network, result

    def fit(self, learned: DataPart, which: str = "", epochs_after: int = 0) -> tuple[loop.Fit, str]:
        """Train on some data; return also what was taken over from another model, in words."""
        trial, ruler, teller = self.trial, self.ruler, self.teller
        teller.begin(trial.train.epochs, read_epochs(self.folder / LOG_FILE), which, epochs_after)
        start = _start(trial, self.folder, ruler.spec, learned)
        with (
            show_training(trial.train.epochs, trial.metric.name) as screen,
            open_epoch_log(self.folder / LOG_FILE) as add_to_log,
        ):

            def report(epoch: Epoch) -> None:
                add_to_log(epoch)
                screen.epoch(epoch)
                teller.epoch(epoch)

            def on_batch(epoch: int, done: int, examples: int) -> None:
                screen.batch(epoch, done, examples)
                teller.batch(epoch, done, examples)

            fit = loop.fit(
                start.network,
                learned.examples(ruler.spec),
                trial.train,
                self.backend,
                report,
                ruler.value if trial.role is Role.TUNE else None,
                ruler.goal.minimize,
                self.keeper,
                on_batch,
                trial.rungs,
            )
        return fit, start.summary


def _measure(
    trial: Trial, folder: Path, fit: loop.Fit, learned: DataPart, ruler: Validator, backend: Backend
) -> Result:
    """Return how good a network is, and write what each customer gets by it and by what it is compared with."""
    evaluator, goal = backend.evaluator(fit.network), ruler.goal
    found = ruler.ranking(evaluator)
    result = Result(
        node=trial.node,
        status=Status.PRUNED if fit.pruned else Status.OK,
        reason=f"ended after epoch {fit.epochs}: others were better by then" if fit.pruned else "",
        metrics=means_of(found) | {"loss": ruler.loss(evaluator)},
        curve=tuple(epoch.value for epoch in read_epochs(folder / LOG_FILE) if epoch.value is not None),
        best_epoch=fit.best_epoch,
        epochs=fit.epochs,
        examples=learned.examples(ruler.spec).count,
        fitted_until=_fitted_until(trial, folder),
        backend=backend.name,
        precision=fit.precision,
        versions={**LIBRARIES, **backend.versions},
        gpu=backend.device,
    )
    result = replace(result, value=result.metrics[goal.key])
    others = _measure_others(trial, folder, ruler, tuple(found))
    compared = {name: means_of(values) for name, values in others.items()}
    if trial.role is Role.FINAL:
        result = replace(result, compared=compared, baseline=compared.get(BASELINE) or ruler.popularity(learned))
        result = replace(result, confusion=find_confusion(ruler, evaluator))
    else:  # a journal has thousands of them: what counts is enough
        result = replace(result, compared={name: {goal.key: means[goal.key]} for name, means in compared.items()})
    if goal.k is None:
        return result
    write_scores(folder / SCORES_FILE, [found, *others.values()], trial.metric)
    known = found[goal.key]
    return replace(
        result, stderr=stderr_of(known), customers=count_customers(known), scores=sha256_of(folder / SCORES_FILE)
    )


def _measure_others(trial: Trial, folder: Path, ruler: Validator, names: tuple[str, ...]) -> dict[str, OfCustomers]:
    """Return the metrics of each customer by what a network is compared with; in a trial that is the floor."""
    recipes = trial.compare if trial.role is Role.FINAL else {FLOOR: trial.compare.get(FLOOR, Recipe("popularity"))}
    rivals = None
    if recipes and ruler.goal.k is not None:
        train, inputs = [folder / name for name in trial.train_files], any(map(reads_inputs, recipes.values()))
        rivals = read_rivals(train, folder / held_out_file(trial), ruler.ranked, inputs)
    if rivals is None:
        return {}
    try:
        return {name: rivals.measure(recipe, names, ruler.each) for name, recipe in sorted(recipes.items())}
    except DivergedError as error:  # which says nothing of the network
        print(f"nnlib: the network is compared with nothing: {error}", file=sys.stderr)
        return {}


def _write_models(trial: Trial, folder: Path, model: Model, result: Result) -> Result:
    """Write what serves, and the floor where it was measured, too, which is fitted on the same days."""
    write_model(folder / MODEL_FILE, model)
    result = replace(result, model=sha256_of(folder / MODEL_FILE))
    if FLOOR not in result.compared:
        return result
    [days] = trial.all_files or trial.train_files
    write_recipe(trial.compare[FLOOR], folder / days, folder / FLOOR_FILE)
    return replace(result, floor=sha256_of(folder / FLOOR_FILE))


def _remember(result: Result, folder: Path) -> dict[str, NDArray[Any]]:
    """Return what a checkpoint keeps of a network that was tested: the result, and scores.npy."""
    texts = {
        RESULT: result_to_json(result).encode(),
        SCORES: (folder / SCORES_FILE).read_bytes() if result.scores else b"",
    }
    return {name: np.frombuffer(text, np.uint8) for name, text in texts.items() if text}


def _recall(found: Mapping[str, NDArray[Any]], folder: Path) -> Result:
    """Return the result of a network that an earlier start of the job has tested, and write its scores.npy again."""
    if SCORES in found:
        write_atomically(folder / SCORES_FILE, found[SCORES].tobytes())
    return result_from_json(found[RESULT].tobytes().decode())


def _fitted_until(trial: Trial, folder: Path) -> int | None:
    """Return the first day that a network has not seen; None where the data do not say."""
    return read_first_day(folder / trial.train_files[0]) if len(trial.train_files) == 1 else None


def _start(trial: Trial, folder: Path, spec: NetworkSpec, learned: DataPart) -> WarmStart:
    """Return the network before its training: random, or with the weights of the model that the trial names."""
    network = create(spec, generator_for(trial.train.seed, WEIGHTS))
    if trial.init is None:
        return WarmStart(network, "")
    start = apply_initial_weights(model_of(network, learned.sets, learned.region), read_init(folder / trial.init))
    print(f"nnlib: starts from {trial.init}: {start.summary}", file=sys.stderr)
    return start


def _identity(trial: Trial, spec: NetworkSpec, backend: Backend) -> str:
    """Return what distinguishes this training from every other one whose checkpoint could lie here."""
    trial = replace(trial, rungs=())  # made anew when the node is tried again
    text = f"{trial_to_json(trial)}\n{spec!r}\n{backend.name}"
    return hashlib.sha256(text.encode()).hexdigest()


def _part(folder: Path, files: tuple[str, ...]) -> DataPart:
    if not files:
        raise NnlibError("trial.json: train_files: [] is not legal, legal: one data file or more")
    data = open_data([folder / name for name in files])
    sets = {data_set.name: data_set for data_set in data.sets}
    return DataPart(", ".join(files), sets, data.region, data.repeats)
