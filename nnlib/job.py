"""One training job from its files to its result: read, train, measure, save."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import scipy

from nnlib import metrics, netcdf, train
from nnlib import network as net
from nnlib.architecture import NetworkSpec
from nnlib.carryover import Units, carried
from nnlib.contract import LOG_FILE, MODEL_FILE, Result, Role, Status, TrainSettings, Trial
from nnlib.data import Csr
from nnlib.datafile import read_all
from nnlib.errors import DataError, DivergedError, NnlibError
from nnlib.modelfile import Model, read_model, write_model
from nnlib.network import Network
from nnlib.progress import reporter
from nnlib.spec import canonical_metric, parse_metric, parse_network, placeholders, read_json, substitute
from nnlib.threads import Each, workers

BACKEND = "numpy"
LIBRARIES = {"numpy": np.__version__, "scipy": scipy.__version__, "netCDF4": netcdf.VERSION}


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """What a network learns or is measured on: examples of inputs and of targets, with the units' names."""

    file: str
    inputs: Csr
    targets: Csr
    input_names: tuple[str, ...]
    target_names: tuple[str, ...]
    region: str

    @property
    def same_units(self) -> bool:
        """Whether inputs and targets number the same items: as far as is known, by width and by names."""
        named = self.input_names and self.target_names
        return self.inputs.width == self.targets.width and (not named or self.input_names == self.target_names)


@dataclass(frozen=True, slots=True)
class Goal:
    """The trial's metric: its key in a result's metrics, its k, and which way is better."""

    key: str
    k: int | None
    minimize: bool


@dataclass(frozen=True, slots=True, eq=False)
class Ruler:
    """Measures networks on the part that was held out."""

    goal: Goal
    pairs: Pairs
    each: Each

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of all ranking metrics in a result."""
        return metrics.USUAL_KS if self.goal.k is None else (*metrics.USUAL_KS, self.goal.k)

    def value(self, network: Network) -> float:
        """Return the trial's metric alone, for every epoch."""
        if self.goal.k is None:
            return self._loss(network)
        return self._ranking(metrics.of_network(network), (self.goal.k,))[self.goal.key]

    def everything(self, network: Network) -> dict[str, float]:
        """Return all metrics of a result."""
        return self.ranking(network) | {"loss": self._loss(network)}

    def ranking(self, network: Network) -> dict[str, float]:
        """Return the ranking metrics of a result, those that need no probability of every target."""
        return self._ranking(metrics.of_network(network), self.ks)

    def popularity(self, learned: Csr) -> dict[str, float]:
        """Return the ranking metrics of the order by frequency in `learned`."""
        return self._ranking(metrics.of_popularity(learned), self.ks)

    def _ranking(self, score: metrics.Scorer, ks: tuple[int, ...]) -> dict[str, float]:
        pairs = self.pairs
        return metrics.measure(score, pairs.inputs, pairs.targets, ks, self.each, pairs.same_units)

    def _loss(self, network: Network) -> float:
        return metrics.mean_loss(network, self.pairs.inputs, self.pairs.targets, self.each)


def run(trial: Trial, folder: Path, threads: int = 1) -> Result:
    """Train as `trial` says on the files in `folder`, write the log and the model there, return the result.

    Raises NnlibError (wrong input), DivergedError, OSError and MemoryError.
    """
    goal = _goal(trial)
    train.check_settings(trial.train)
    spec = _network_spec(trial, folder)
    learned = _pairs(spec, folder, trial.train_files)
    held_out = _pairs(spec, folder, _held_out_files(trial))
    _check_fit(learned, held_out)
    spec = train.resolve(spec, learned.inputs.width, learned.targets.width, trial.network)
    with workers(threads) as each:
        ruler = Ruler(goal, held_out, each)
        fit = _fit(trial, folder, spec, learned, ruler)
        result = Result(
            node=trial.node,
            status=Status.OK,
            metrics=ruler.everything(fit.network),
            best_epoch=fit.best_epoch,
            epochs=fit.epochs,
            examples=learned.inputs.examples,
            backend=BACKEND,
            versions=LIBRARIES,
        )
        result = replace(result, value=result.metrics[goal.key])
        if trial.role is Role.TUNE:
            return result
        write_model(folder / MODEL_FILE, _model(fit.network, learned))
        champion, reason = _champion(trial, folder, ruler)
        return replace(result, baseline=ruler.popularity(learned.targets), champion=champion, reason=reason)


def _fit(trial: Trial, folder: Path, spec: NetworkSpec, learned: Pairs, ruler: Ruler) -> train.Fit:
    network = net.create(spec, train.stream(trial.train.seed, train.WEIGHTS))
    with _log(folder / LOG_FILE, trial) as report:
        return train.fit(
            network,
            learned.inputs,
            learned.targets,
            trial.train,
            report,
            ruler.value if trial.role is Role.TUNE else None,
            ruler.goal.minimize,
            ruler.each,
        )


def _model(network: Network, learned: Pairs) -> Model:
    return Model(network, learned.input_names, learned.target_names, learned.region)


def _goal(trial: Trial) -> Goal:
    try:
        _, k = parse_metric(trial.metric.name)
        key = canonical_metric(trial.metric.name)
    except ValueError as error:
        raise NnlibError(f"trial.json: metric.name: {error}") from error
    return Goal(key, k, trial.metric.minimize)


def _network_spec(trial: Trial, folder: Path) -> NetworkSpec:
    """Read the network and fill in the hyperparameters; those of TrainSettings are in `trial.train` already."""
    raw = read_json(folder / trial.network)
    used = set(placeholders(raw)) | set(TrainSettings.__dataclass_fields__)
    unused = sorted(set(trial.hyperparameters) - used)
    if unused:
        raise NnlibError(
            f'{trial.network}: hyperparameter {unused[0]!r} is used nowhere; put "${unused[0]}" in place of a value, '
            f"or name a training setting: {', '.join(TrainSettings.__dataclass_fields__)}"
        )
    values = asdict(trial.train) | dict(trial.hyperparameters)
    return parse_network(substitute(raw, values, trial.network), trial.network)


def _held_out_files(trial: Trial) -> tuple[str, ...]:
    key = "valid_file" if trial.role is Role.TUNE else "test_file"
    name = trial.valid_file if trial.role is Role.TUNE else trial.test_file
    if name is None:
        raise NnlibError(f"trial.json: {key}: null is not legal for role {trial.role}, legal: a data file")
    return (name,)


def _pairs(spec: NetworkSpec, folder: Path, files: tuple[str, ...]) -> Pairs:
    if not files:
        raise NnlibError("trial.json: train_files: [] is not legal, legal: one data file or more")
    data = read_all([folder / name for name in files])
    inputs = data.named(spec.layers[0].data_set, files[0])
    targets = data.named(spec.layers[-1].data_set, files[0])
    return Pairs(", ".join(files), inputs.rows, targets.rows.sets(), inputs.features, targets.features, data.region)


def _check_fit(learned: Pairs, held_out: Pairs) -> None:
    """Raise DataError when the two parts do not mean the same units."""
    for key in ("inputs", "targets"):
        width, other = getattr(learned, key).width, getattr(held_out, key).width
        if width != other:
            raise DataError(f"{held_out.file}: {key} of width {other}, {learned.file} has {width}; import both at once")
    for key in ("input_names", "target_names"):
        if getattr(learned, key) != getattr(held_out, key):
            raise DataError(f"{held_out.file}: other names of units than {learned.file}; import both at once")
    if not held_out.targets.nonzeros:
        raise DataError(f"{held_out.file}: no example has a target, so nothing can be measured")


def _champion(trial: Trial, folder: Path, ruler: Ruler) -> tuple[dict[str, float], str]:
    """Return the standing champion's metrics, or none and why; a broken champion must not stop its successor."""
    if trial.champion is None:
        return {}, ""
    held_out = ruler.pairs
    try:
        model = carried(
            read_model(folder / trial.champion),
            Units(held_out.inputs.width, held_out.input_names),
            Units(held_out.targets.width, held_out.target_names),
        )
        unscored = model.unscored(held_out.targets)
        if not len(unscored):
            return ruler.everything(model.network), ""
        reason = f"champion not tested for loss: {len(unscored)} of the targets' units are unknown to it"
        return ruler.ranking(model.network), reason if ruler.goal.k is None else ""
    except (DataError, DivergedError, FileNotFoundError) as error:
        return {}, f"champion not tested: {error}"


@contextmanager
def _log(path: Path, trial: Trial) -> Iterator[Callable[[train.Epoch], None]]:
    """Give a function that takes each epoch into the log, a line at once, and onto the terminal."""
    with (
        path.open("a", encoding="utf-8") as file,
        reporter(trial.train.epochs, trial.metric.name) as show,
    ):

        def report(epoch: train.Epoch) -> None:
            file.write(json.dumps(asdict(epoch)) + "\n")
            file.flush()
            show(epoch)

        yield report
