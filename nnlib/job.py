"""One training job from its files to its result: read, train, measure, save."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy

from nnlib import metrics, netcdf, train
from nnlib.architecture import LayerKind, NetworkSpec
from nnlib.batches import WEIGHTS, Examples, examples_of, resolve, stream
from nnlib.blockwise import in_order
from nnlib.carryover import Units, carried
from nnlib.checkpoint import Checkpoints
from nnlib.compute import Compute, Evaluator
from nnlib.contract import (
    LOG_FILE,
    MODEL_FILE,
    Metric,
    Result,
    Role,
    Status,
    TrainSettings,
    Trial,
    sha256_of,
    trial_to_json,
)
from nnlib.data import Csr, DataSet
from nnlib.devices import opened
from nnlib.epochlog import Epoch, epoch_log, read_epochs
from nnlib.errors import DataError, DivergedError, NnlibError
from nnlib.modelfile import Model, read_model, write_model
from nnlib.network import Network, create
from nnlib.owned import left_out
from nnlib.progress import reporter
from nnlib.settings import check_settings
from nnlib.spec import canonical_metric, network_of, parse_metric, read_json
from nnlib.stop import Stop
from nnlib.stream import open_data
from nnlib.threads import Each
from nnlib.warmstart import Started, read_init, started

METRIC = "trial.json: metric.name"
LIBRARIES = {"numpy": np.__version__, "scipy": scipy.__version__, "netCDF4": netcdf.VERSION}


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a region's data, read from one file or several: the data sets by name."""

    file: str
    sets: Mapping[str, DataSet]
    region: str

    def examples(self, spec: NetworkSpec) -> Examples:
        """Return the data sets of a network's layers."""
        return examples_of(spec, self.sets, self.file)


@dataclass(frozen=True, slots=True)
class Goal:
    """The trial's metric: its key in a result's metrics, its k, and which way is better."""

    key: str
    k: int | None
    minimize: bool


@dataclass(frozen=True, eq=False)
class Ruler:
    """Measures networks on the part that was held out, once for every epoch."""

    goal: Goal
    spec: NetworkSpec
    part: Part
    each: Each

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of all ranking metrics in a result."""
        return metrics.USUAL_KS if self.goal.k is None else (*metrics.USUAL_KS, self.goal.k)

    @cached_property
    def ranked(self) -> metrics.Part | None:
        """What is ranked: the first output, if its targets are sparse, without what is owned (see `owned`)."""
        examples = self.part.examples(self.spec)
        output = self.spec.places[self.spec.layers_of(LayerKind.OUTPUT)[0].name]
        targets = examples.sets[output]
        if not targets.sparse:
            return None
        return metrics.Part(examples, output, left_out(self.spec, examples, output))

    def value(self, evaluator: Evaluator) -> float:
        """Return the trial's metric alone, for every epoch."""
        if self.goal.k is None:
            return self._loss(evaluator)
        return self.ranking(evaluator, (self.goal.k,))[self.goal.key]

    def everything(self, evaluator: Evaluator) -> dict[str, float]:
        """Return all metrics of a result."""
        return self.ranking(evaluator) | {"loss": self._loss(evaluator)}

    def ranking(self, evaluator: Evaluator, ks: tuple[int, ...] | None = None) -> dict[str, float]:
        """Return the ranking metrics of a result, those that need no probability of every target."""
        ranked = self.ranked
        if ranked is None:
            return {}
        output = ranked.output
        return self._ranking(lambda examples, k, owned: evaluator.top(examples, output, k, owned)[0], ks or self.ks)

    def popularity(self, learned: Part) -> dict[str, float]:
        """Return the ranking metrics of the order by frequency in the targets of `learned`."""
        ranked = self.ranked
        if ranked is None:
            return {}
        targets = learned.examples(self.spec).sets[ranked.output]
        rows = targets.take(np.arange(targets.examples)).rows
        assert isinstance(rows, Csr), "the two parts are of one kind, which was checked"
        return self._ranking(metrics.by_scores(metrics.of_popularity(rows.sets())), self.ks)

    def _ranking(self, rank: metrics.Ranker, ks: tuple[int, ...]) -> dict[str, float]:
        ranked = self.ranked
        return metrics.measure(rank, ranked, ks, self.each) if ranked is not None else {}

    def _loss(self, evaluator: Evaluator) -> float:
        return evaluator.mean_loss(self.part.examples(self.spec))


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
    goal = goal_of(trial.metric)
    check_settings(trial.train)
    spec = _network_spec(trial, folder)
    learned, held_out = _part(folder, trial.train_files), _part(folder, _held_out_files(trial))
    spec = resolve(spec, learned.sets, trial.network)
    check_some(learned, spec)
    check_fit(spec, goal, learned, held_out)
    with opened(device, threads) as (compute, each):
        ruler = Ruler(goal, spec, held_out, each)
        epochs = len(read_epochs(folder / LOG_FILE))
        keeper = Checkpoints(folder, _identity(trial, spec, compute), stop, every, epochs)
        start = _start(trial, folder, spec, learned)
        fit = _fit(trial, folder, start.network, learned, ruler, keeper, compute)
        result = Result(
            node=trial.node,
            status=Status.PRUNED if fit.pruned else Status.OK,
            reason=f"ended after epoch {fit.epochs}: others were better by then" if fit.pruned else "",
            metrics=ruler.everything(compute.evaluator(fit.network)),
            curve=tuple(epoch.value for epoch in read_epochs(folder / LOG_FILE) if epoch.value is not None),
            best_epoch=fit.best_epoch,
            epochs=fit.epochs,
            examples=learned.examples(spec).count,
            init=start.summary,
            backend=compute.name,
            versions={**LIBRARIES, **compute.versions},
            gpu=compute.device,
        )
        result = replace(result, value=result.metrics[goal.key])
        if trial.role is Role.FINAL:
            write_model(folder / MODEL_FILE, model_of(fit.network, learned.sets, learned.region))
            result = replace(result, baseline=ruler.popularity(learned), model=sha256_of(folder / MODEL_FILE))
        champion, reason = _champion(trial, folder, ruler, compute)
        result = replace(result, champion=champion, reason="; ".join(filter(None, (result.reason, reason))))
    keeper.discard()
    return result


def _start(trial: Trial, folder: Path, spec: NetworkSpec, learned: Part) -> Started:
    """Return the network before its training: random, or with the weights of the model that the trial names."""
    network = create(spec, stream(trial.train.seed, WEIGHTS))
    if trial.init is None:
        return Started(network, "")
    start = started(model_of(network, learned.sets, learned.region), read_init(folder / trial.init))
    print(f"nnlib: starts from {trial.init}: {start.summary}", file=sys.stderr)
    return start


def _fit(
    trial: Trial,
    folder: Path,
    network: Network,
    learned: Part,
    ruler: Ruler,
    keeper: Checkpoints,
    compute: Compute,
) -> train.Fit:
    with reporter(trial.train.epochs, trial.metric.name) as screen, epoch_log(folder / LOG_FILE) as add_to_log:

        def report(epoch: Epoch) -> None:
            add_to_log(epoch)
            screen.epoch(epoch)

        return train.fit(
            network,
            learned.examples(network.spec),
            trial.train,
            report,
            ruler.value if trial.role is Role.TUNE else None,
            ruler.goal.minimize,
            compute,
            keeper,
            screen.batch,
            trial.rungs,
        )


def _identity(trial: Trial, spec: NetworkSpec, compute: Compute) -> str:
    """Return what distinguishes this training from every other one whose checkpoint could lie here."""
    trial = replace(trial, rungs=())  # made anew when the node is tried again
    text = f"{trial_to_json(trial)}\n{spec!r}\n{compute.name}"
    return hashlib.sha256(text.encode()).hexdigest()


def model_of(network: Network, sets: Mapping[str, DataSet], region: str) -> Model:
    """Return a model with the names of the units that its data have."""
    names = {
        n: sets[layer.data_set].features
        for n, layer in enumerate(network.spec.layers)
        if layer.data_set in sets and sets[layer.data_set].features
    }
    return Model(network, names, region)


def goal_of(metric: Metric, where: str = METRIC) -> Goal:
    """Return what a metric asks for; NnlibError, with `where` before it, when there is no such metric."""
    try:
        _, k = parse_metric(metric.name)
        key = canonical_metric(metric.name)
    except ValueError as error:
        raise NnlibError(f"{where}: {error}") from error
    return Goal(key, k, metric.minimize)


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


def _part(folder: Path, files: tuple[str, ...]) -> Part:
    if not files:
        raise NnlibError("trial.json: train_files: [] is not legal, legal: one data file or more")
    data = open_data([folder / name for name in files])
    return Part(", ".join(files), {data_set.name: data_set for data_set in data.sets}, data.region)


def check_some(part: Part, spec: NetworkSpec) -> None:
    """Raise DataError when a part has no example, or data sets of different numbers of them."""
    if not part.examples(spec).count:
        raise DataError(f"{part.file}: 0 examples are not legal, legal: 1 or more")


def check_fit(spec: NetworkSpec, goal: Goal, learned: Part, held_out: Part, where: str = METRIC) -> None:
    """Raise DataError when the two parts do not mean the same units, or the metric (of `where`) cannot be measured."""
    for layer in (*spec.layers_of(LayerKind.INPUT), *spec.layers_of(LayerKind.OUTPUT)):
        name = layer.data_set
        if name not in held_out.sets:
            raise DataError(f"{held_out.file}: no data set {name!r}, {learned.file} has one; legal: {[*held_out.sets]}")
        one, other = learned.sets[name], held_out.sets[name]
        if one.width != other.width:
            raise DataError(
                f"{held_out.file}: {name} of width {other.width}, {learned.file} has {one.width}; import both at once"
            )
        if one.features != other.features:
            raise DataError(f"{held_out.file}: other names of units than {learned.file}; import both at once")
        if one.sparse != other.sparse:
            raise DataError(f"{held_out.file}: {name} is not of the kind that {learned.file} has; import both at once")
    check_some(held_out, spec)
    targets = held_out.sets[spec.layers_of(LayerKind.OUTPUT)[0].data_set]
    if goal.k is not None and not targets.sparse:
        raise NnlibError(f"{where}: {goal.key} needs sparse targets, {targets.name!r} is dense; legal: loss")
    if targets.sparse and not _any_target(targets):
        raise DataError(f"{held_out.file}: no example has a target, so nothing can be measured")


def _any_target(targets: DataSet) -> bool:
    return any(in_order(lambda rows: bool(targets.take(rows).rows.nonzeros), targets.examples, 1))  # type: ignore[union-attr]


def _champion(trial: Trial, folder: Path, ruler: Ruler, compute: Compute) -> tuple[dict[str, float], str]:
    """Return the standing champion's metrics, or none and why; a broken champion must not stop its successor."""
    if trial.champion is None:
        return {}, ""
    try:
        sets = {name: Units(found.width, found.features) for name, found in ruler.part.sets.items()}
        model = carried(read_model(folder / trial.champion), sets)
        ruler = replace(ruler, spec=model.network.spec)
        examples = ruler.part.examples(model.network.spec)
        unknown = sum(
            len(model.unscored(n, examples.sets[n].rows))
            for n, layer in enumerate(model.network.spec.layers)
            if layer.kind is LayerKind.OUTPUT
        )
        evaluator = compute.evaluator(model.network)
        if not unknown:
            return ruler.everything(evaluator), ""
        reason = f"champion not {_measured(trial)} for loss: {unknown} of the targets' units are unknown to it"
        return ruler.ranking(evaluator), reason if ruler.goal.k is None else ""
    except (DataError, DivergedError, FileNotFoundError, MemoryError) as error:
        return {}, f"champion not {_measured(trial)}: {error}"


def _measured(trial: Trial) -> str:
    return "tested" if trial.role is Role.FINAL else "validated"
