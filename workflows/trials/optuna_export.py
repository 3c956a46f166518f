"""Write the trials of a run into an Optuna storage.

Every region becomes an Optuna study `<study>/<region>`; the next run of the same study adds its trials to it. A trial
is known by its user attribute `trial`, so that exporting again adds only what is new. Optuna cannot change a trial
that has ended: one that a fault of the machine ended, and that was run again, is there twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nnlib.contract import Status
from regiondag.errors import RegiondagError
from regiondag.study.space import Choice, Parameter, Value
from regiondag.trials.optuna_space import distribution_of, import_optuna, option_of
from regiondag.trials.rows import RegionTrials, RunTrials, TrialRow

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, TrialState

SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
SQLITE_MAGIC = b"SQLite format 3\0"
LEGAL = "legal: a URL such as sqlite:///trials.db, a file that ends in .db (SQLite), or any other file (a journal)"

Progress = Callable[[int, int], None]  # regions done, regions in all


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export did: trials that are new in the storage, that ended since the last export, and all others."""

    added: int
    ended: int
    known: int

    def __add__(self, other: Exported) -> Exported:
        """Count two exports as one."""
        return Exported(self.added + other.added, self.ended + other.ended, self.known + other.known)


def export(trials: RunTrials, target: str, progress: Progress) -> Exported:
    """Write all regions into the storage `target`: a database's URL, or a file."""
    storage = _open(target)
    optuna = _optuna()

    total = Exported(0, 0, 0)
    try:
        for done, region in enumerate(trials.regions):
            progress(done, len(trials.regions))
            total += _export_region(storage, trials, region)
    except optuna.exceptions.OptunaError as error:  # a database that another program locks, a full disk
        raise RegiondagError(
            f"--optuna {storage_name(target)}: {error or type(error).__name__}; what is written stays, and exporting "
            "again goes on from there"
        ) from error
    progress(len(trials.regions), len(trials.regions))
    return total


def _export_region(storage: BaseStorage, trials: RunTrials, region: RegionTrials) -> Exported:
    study = _study(storage, f"{trials.study}/{region.spec.name}", region)
    there = {trial.user_attrs.get("trial"): trial for trial in study.get_trials(deepcopy=False)}  # the last of each
    _check_space(study, region, there.values())
    added = ended = known = 0
    for row in region.rows:
        before = there.get(_key(trials, row))
        if before is None or (before.state.is_finished() and before.user_attrs.get("status") != row.status):
            study.add_trial(_freeze(trials, region, row))
            added += 1
        elif not before.state.is_finished() and row.status != Status.RUNNING:
            _end(storage, study, before, row, _attributes(trials, row))
            ended += 1
        else:
            known += 1
    return Exported(added, ended, known)


def _optuna() -> Any:
    return import_optuna("the export to Optuna", " (`--csv FILE` needs nothing)")


# --- the storage -------------------------------------------------------------------------------------------


def storage_name(target: str) -> str:
    """Return `target` as it can be shown: a URL without its password.

    >>> storage_name("mysql://me:secret@host/db")
    'mysql://me:***@host/db'
    """
    password = urlsplit(target).password if "://" in target else None
    return target.replace(f":{password}@", ":***@") if password else target


def _open(target: str) -> BaseStorage:
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = Path(target)
    if "://" not in target:
        _check_file(path)
    try:
        if "://" in target:
            return optuna.storages.RDBStorage(target)
        if _is_sqlite(path):
            return optuna.storages.RDBStorage(f"sqlite:///{path}")
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(target))
    except Exception as error:  # of Optuna, of SQLAlchemy, of a database's driver: each has its own
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise RegiondagError(f"--optuna {storage_name(target)}: cannot be opened ({reason}); {LEGAL}") from error


def _check_file(path: Path) -> None:
    """Refuse what is no storage before anything is appended to it."""
    if path.is_dir() or not path.parent.is_dir():
        seen = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise RegiondagError(f"--optuna {path}: {seen}; {LEGAL}")
    if path.exists() and path.stat().st_size and not _is_sqlite(path):
        with path.open("rb") as file:
            start = file.readline(1 << 16)
        if b'"op_code"' not in start:
            raise RegiondagError(f"--optuna {path}: exists and is no Optuna storage; name a new file. {LEGAL}")


def _is_sqlite(path: Path) -> bool:
    """Go by what an existing file holds, else by its name."""
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE_MAGIC))
    except FileNotFoundError:
        start = b""
    return start == SQLITE_MAGIC or (not start and path.suffix.lower() in SQLITE_SUFFIXES)


def _study(storage: BaseStorage, name: str, region: RegionTrials) -> Study:
    optuna, directions = _optuna(), _optuna().study.StudyDirection
    wanted = directions.MINIMIZE if region.spec.metric.minimize else directions.MAXIMIZE
    study: Study = optuna.create_study(
        storage=storage, study_name=name, direction=wanted.name.lower(), load_if_exists=True, sampler=_no_sampler()
    )
    metric = study.user_attrs.get("metric", region.spec.metric.name)
    if study.directions != [wanted] or metric != region.spec.metric.name:
        seen = " and ".join(direction.name.lower() for direction in study.directions)
        raise RegiondagError(
            f"the Optuna study {name!r} is there already, to {seen} {metric}, and this run is to "
            f"{wanted.name.lower()} {region.spec.metric.name}; export it to another storage"
        )
    if "metric" not in study.user_attrs:
        for key, value in (("region", region.spec.name), ("slug", region.spec.slug), ("metric", metric)):
            study.set_user_attr(key, value)
    return study


def _check_space(study: Study, region: RegionTrials, there: Iterable[FrozenTrial]) -> None:
    """Refuse what Optuna's own tools cannot show together: hyperparameters of another kind, or with other options."""
    check_compatibility = _optuna().distributions.check_distribution_compatibility
    known = {name: distribution for trial in there for name, distribution in trial.distributions.items()}
    for parameter in region.spec.search.space:
        try:
            if parameter.name in known:
                check_compatibility(known[parameter.name], distribution_of(parameter))
        except ValueError as error:
            raise RegiondagError(
                f"the Optuna study {study.study_name!r} holds trials with other options, or another kind, of the "
                f"hyperparameter {parameter.name} ({error}); export this run to another storage"
            ) from error


def _no_sampler() -> Any:
    """Nothing is sampled here, and making the default sampler for every region takes time."""
    return _optuna().samplers.RandomSampler(seed=0)


# --- trials ------------------------------------------------------------------------------------------------


def _key(trials: RunTrials, row: TrialRow) -> str:
    """Return what a trial is known by over all runs: the folder of its files, from the run directory on."""
    return f"{trials.run}/regions/{row.slug}/trials/{row.trial:04d}"


def _state(row: TrialRow) -> TrialState:
    states = _optuna().trial.TrialState
    named = {Status.RUNNING: states.RUNNING, Status.PRUNED: states.PRUNED}
    found: TrialState = states.COMPLETE if row.ok else named.get(row.status, states.FAIL)
    return found


def _attributes(trials: RunTrials, row: TrialRow) -> dict[str, Any]:
    """Return the user attributes; absent ones are left out, as a database takes a millisecond for each."""
    attributes: dict[str, Any] = {
        "trial": _key(trials, row),
        "status": row.status,
        "reason": row.reason,
        "seconds": row.seconds,
        "best_epoch": row.best_epoch,
        "metrics": dict(row.metrics),
    }
    return {name: value for name, value in attributes.items() if value not in (None, "", {})}


def _freeze(trials: RunTrials, region: RegionTrials, row: TrialRow) -> FrozenTrial:
    parameters = {parameter.name: parameter for parameter in region.spec.search.space}
    values: dict[str, Value] = {}
    distributions: dict[str, BaseDistribution] = {}
    others: dict[str, Value] = {}
    for name, value in row.hyperparameters.items():
        parameter = parameters.get(name)
        distribution = distribution_of(parameter) if parameter is not None else None
        legal = _legal(parameter, distribution, value) if parameter is not None and distribution else None
        if distribution is None or legal is None:
            others[name] = value  # a space that was edited: the trial is worth keeping, but Optuna would refuse it
        else:
            values[name], distributions[name] = legal, distribution
    attributes = _attributes(trials, row)
    if others:
        attributes["outside the space"] = others
    trial: FrozenTrial = _optuna().trial.create_trial(
        state=_state(row),
        values=_values(row),
        params=values,
        distributions=distributions,
        user_attrs=attributes,
        intermediate_values=dict(enumerate(row.curve, start=1)),
    )
    if row.settled is not None:
        trial.datetime_complete = datetime.fromtimestamp(row.settled)  # Optuna's times are local ones without a zone
        trial.datetime_start = trial.datetime_complete - timedelta(seconds=row.seconds or 0.0)
    return trial


def _legal(parameter: Parameter, distribution: BaseDistribution, value: Value) -> Any:
    """Return `value` as its distribution accepts it, or None: rounding may take it past an end by one last digit."""
    if isinstance(parameter, Choice):
        known = any(type(option) is type(value) and option == value for option in parameter.options)
        return option_of(parameter, value) if known else None
    if isinstance(value, str) or not math.isfinite(value):
        return None
    low, high = distribution.low, distribution.high
    near = min(max(value, low), high)
    step = distribution.step or 0
    on_grid = not step or abs((near - low) / step - round((near - low) / step)) < 1e-8
    return near if on_grid and math.isclose(near, value, rel_tol=1e-9, abs_tol=1e-12) else None


def _end(storage: BaseStorage, study: Study, before: FrozenTrial, row: TrialRow, attributes: Mapping[str, Any]) -> None:
    """Say how a trial ended that was running when it was exported. (Optuna takes this moment for its end.)"""
    number = storage.get_study_id_from_name(study.study_name)
    identity = storage.get_trial_id_from_study_id_trial_number(number, before.number)
    for name, value in attributes.items():
        storage.set_trial_user_attr(identity, name, value)
    for epoch, value in enumerate(row.curve, start=1):
        storage.set_trial_intermediate_value(identity, epoch, value)
    storage.set_trial_state_values(identity, _state(row), _values(row))


def _values(row: TrialRow) -> list[float] | None:
    """Return what Optuna keeps as the trial's value: failed trials have none."""
    return [row.value] if row.value is not None and (row.ok or row.status == Status.PRUNED) else None
