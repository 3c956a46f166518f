"""What the manager and the worker agree on: file names, exit codes, `trial.json` and `result.json`.

Standard library only, because the manager imports this without NumPy and every job starts with it.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import numbers
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from nnlib.confusion import Confusion, confusion_of
from nnlib.plain_file import read_plain

CONTRACT_VERSION = 1

TRIAL_FILE = "trial.json"
RESULT_FILE = "result.json"
LOG_FILE = "log.jsonl"
MODEL_FILE = "model.nc"
INIT_FILE = "init.nc"
CHECKPOINT_FILE = "checkpoint.nc"
SCORES_FILE = "scores.npy"
FLOOR_FILE = "floor.nc"
CONTAINER_FILE = "container.sif"  # the image in which a program runs, where it goes with the job
PROGRAM_FILE = "program.zip"  # a program that trains in nnlib's place: its command and its files
ENVIRONMENT_FILE = "environment.packed"  # what such a program needs to run: a tar or a zip, as its first bytes say
PROGRAM_CHECKPOINT_FILE = "checkpoint.zip"
PROGRAM_MODEL_FILE = "model.zip"

SLUG_LENGTH = 40  # characters of a region's name that its slug keeps
MOST_MEMBERS = 16  # of a blend
MOST_SETTINGS = 64  # hyperparameters of a recipe
MOST_CASES = 100_000  # values that a program's metric is the mean of
MOST_TEXT = 256  # characters of a name or a value in a recipe
# Of a result, which comes from machines that nobody vouches for.
LONGEST_RESULT = 16 << 20  # bytes
LONGEST_REASON = 4000  # characters; more is cut off
LONGEST_SAID = 10_000  # characters of any other text
MOST_EPOCHS = 100_000
MOST_NAMES = 256  # of metrics, of models beside it, of what is said of a machine
LARGEST = 1e100  # of a figure: its square is a number yet
LONGEST_TRAINING = 10 * 366 * 86400  # seconds
CORRUPT = "corrupt transfer"  # how the reason ends where an input has other bytes than it was sent with
DAYS = range(-719_162, 2_932_897)  # since 1970-01-01: the years 1 to 9999


class Exit(enum.IntEnum):
    """Exit codes of a training job; the manager's POST script decides by them."""

    OK = 0
    BUG = 1  # a bug of nnlib; as every code that is not listed here, retried and in the end a failed trial
    DIVERGED = 3  # NaN, inf or a loss out of bounds: the hyperparameters' fault, no retry
    BAD_INPUT = 4  # data, network or trial are wrong: nobody's retry helps
    MACHINE = 75  # corrupt transfer, full disk or memory, missing library: retry elsewhere
    CHECKPOINTED = 85  # checkpoint written, restart me
    EVICTED = 143  # stopped by SIGTERM, checkpoint written if training had begun


class Role(enum.StrEnum):
    """What a job is for."""

    TUNE = "tune"  # train on the training part, measure on the validation part
    FINAL = "final"  # train the winner on training and validation data, test it once


class Status(enum.StrEnum):
    """How a training ended, or that it has not: as `result.json`, journals and tables say it."""

    OK = "ok"
    DIVERGED = "diverged"
    BAD_INPUT = "bad_input"
    MACHINE = "machine"
    EVICTED = "evicted"
    PRUNED = "pruned"  # trained, and ended early because others were better at that epoch
    # Said by the manager alone.
    REMOVED = "removed"  # its job was taken out of the queue
    RUNNING = "running"  # proposed, not settled: its job waits or runs, or its DAG was stopped


ENDED_WELL = frozenset({Status.OK, Status.PRUNED})
SAID_BY_WORKERS = frozenset(Status) - {Status.REMOVED, Status.RUNNING}


OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw")
SCHEDULES = ("constant", "cosine", "onecycle", "step", "plateau")
SCALES = ("none", "linear", "sqrt")
COMPAT = ("", "dsstne")
PRECISIONS = ("float32", "tf32", "bf16", "auto")
PARALLELS = ("auto", "items", "examples", "none")


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How one network is trained; every field can be a hyperparameter of the same name."""

    epochs: int = 30
    batch: int = 256
    accumulate: int = 1  # batches whose mean gradient makes one update
    stop_after: int = 5  # epochs without a better validation metric before training stops; 0: never
    stop_after_examples: int = 0  # the same in examples, in place of `stop_after`; 0: `stop_after` says it
    optimizer: str = "adam"  # one of OPTIMIZERS
    learning_rate: float = 0.001
    momentum: float = 0.9  # mu of DSSTNE: momentum, nesterov, rmsprop, adadelta, and the first of adam
    beta2: float = 0.999  # mu1 of DSSTNE: the second of adam
    l2: float = 0.0
    l1: float = 0.0
    schedule: str = "constant"  # one of SCHEDULES
    warmup: float = 0.0  # epochs in which the learning rate rises to its value
    decay_rate: float = 0.5  # by which `step` and `plateau` multiply the learning rate
    decay_epochs: int = 3  # ... after so many epochs: all of them, or those without a better validation metric
    scale_rate: str = "none"  # one of SCALES: how the learning rate grows with the batch
    base_batch: int = 256  # examples of the update for which `learning_rate` is given, with `scale_rate`
    ema: float = 0.0  # decay per update of a mean of the weights, which is validated and kept; 0: the weights are
    clip: float = 0.0  # largest norm of a batch's gradient; 0: any
    compat: str = ""  # "dsstne" reproduces its oddities
    precision: str = "float32"  # one of PRECISIONS: what the factors of dense products may be rounded to
    parallel: str = "auto"  # one of PARALLELS: how a network is cut into shards, which several ranks may share
    seed: int = 1

    @property
    def as_dsstne(self) -> bool:
        """Whether the oddities of DSSTNE are wanted; texts of settings are legal in any case."""
        return self.compat.lower() == "dsstne"

    def __post_init__(self) -> None:
        """Keep numbers of any kind, such as NumPy's, as Python's own: they are written to files and compared."""
        for name in self.__dataclass_fields__:
            value: Any = getattr(self, name)
            if type(value) in (bool, int, float):
                continue
            if isinstance(value, numbers.Integral):
                object.__setattr__(self, name, int(value))
            elif isinstance(value, numbers.Real):
                object.__setattr__(self, name, float(value))


@dataclass(frozen=True, slots=True)
class Metric:
    """What a trial is judged by: `ndcg@20` upwards, or `loss` downwards."""

    name: str = "ndcg@20"
    minimize: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """Where a program's metric is read, which of its values counts, and how long the program may train."""

    kind: str = ""  # of the files that have it: csv, mlflow, tensorboard; empty: the program reports it
    path: str = ""  # where these lie in its folder
    best: bool = False  # the best of a trial's values counts, not the last
    seconds: int = 0  # 0: as many as it takes


@dataclass(frozen=True, slots=True)
class Recipe:
    """What makes a model of data, whatever the data: a family and its hyperparameters, or a blend of such."""

    family: str
    hyperparameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    seed: int = 1
    members: tuple[Recipe, ...] = ()  # of a blend
    weights: tuple[float, ...] = ()  # of a blend, one a member; none: they are found on the validation part


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files that a job brings back besides result.json and log.jsonl."""

    checkpoint: str
    model: str  # of the final training
    scores: tuple[str, ...] = ()  # of each customer
    floor: tuple[str, ...] = ()  # recent popularity, of the final training

    @property
    def going_on(self) -> tuple[str, ...]:
        """All that a training needs to go on elsewhere."""
        return (RESULT_FILE, LOG_FILE, self.checkpoint)

    @property
    def of_trial(self) -> tuple[str, ...]:
        """All that a trial brings."""
        return (*self.going_on, *self.scores)

    @property
    def of_final(self) -> tuple[str, ...]:
        """All that the final training brings."""
        return (*self.of_trial, self.model, *self.floor)


MODEL_OUTPUTS = Outputs(CHECKPOINT_FILE, MODEL_FILE, (SCORES_FILE,), (FLOOR_FILE,))
PROGRAM_OUTPUTS = Outputs(PROGRAM_CHECKPOINT_FILE, PROGRAM_MODEL_FILE)


@dataclass(frozen=True, slots=True)
class Trial:
    """One training job. File names are relative to the folder that `trial.json` lies in."""

    node: str
    region: str
    number: int
    role: Role
    network: str
    hyperparameters: Mapping[str, bool | int | float | str]
    train: TrainSettings
    metric: Metric
    train_files: tuple[str, ...]  # one, or several whose examples are put one after the other
    valid_file: str | None = None
    test_file: str | None = None
    init: str | None = None  # the model from whose weights the training starts, instead of random ones
    rungs: tuple[tuple[int, float], ...] = ()  # (epoch, value that the metric must have reached after it to go on)
    recipe: Recipe | None = None  # what is fitted in place of a network
    program: str = ""  # the archive of a program that trains in nnlib's place; empty: nnlib trains
    compare: Mapping[str, Recipe] = field(default_factory=dict)  # what is tested beside it; tune: its `floor` alone
    all_files: tuple[str, ...] = ()  # final: all days, on which the model is made that serves; none: `train_files`
    several: bool = False  # its job may have several GPUs: what `parallel: auto` comes to; else there is no key
    sha256: Mapping[str, str] = field(default_factory=dict)  # input file -> digest it must have
    version: int = CONTRACT_VERSION

    @property
    def outputs(self) -> Outputs:
        """What its job brings back."""
        return PROGRAM_OUTPUTS if self.program else MODEL_OUTPUTS


@dataclass(frozen=True, slots=True)
class Result:
    """What a training job reports. `metrics` are validation (tune) or test (final) metrics."""

    node: str
    status: Status
    reason: str = ""  # one sentence when status is not ok, or where something is to be known all the same
    value: float | None = None  # the trial's metric, at its best epoch
    metrics: Mapping[str, float] = field(default_factory=dict)
    stderr: float | None = None  # standard error of `value`, by its customers
    customers: int = 0  # how many `value` is the mean of
    baseline: Mapping[str, float] = field(default_factory=dict)  # the same metrics of plain popularity
    compared: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # of `compare`; networks' trials: floor
    recipe: Recipe | None = None  # what was fitted, with the weights that were found
    fitted_until: int | None = None  # the day (since 1970-01-01) before which all that `value` learned from lies
    scores: str = ""  # SHA-256 of scores.npy, the metrics of each customer
    confusion: Confusion | None = None  # final, of pictures in classes: what was taken for what; else there is no key
    init: str = ""  # what was taken over from the trial's `init`, in words
    cases: tuple[float, ...] = ()  # of a program: what `value` is the mean of; else there is no key
    folds: bool = False  # `cases` are the folds of a cross-validation
    curve: tuple[float, ...] = ()  # the trial's metric after each epoch
    best_epoch: int = 0
    epochs: int = 0
    examples: int = 0
    seconds: float = 0.0
    backend: str = ""
    precision: str = ""  # of a network's products: what `auto` chose
    plan: str = ""  # how a training was cut: items, examples or none
    ranks: int = 0  # processes that trained it together; 0: of no network, or not said
    host: str = ""
    machine: Mapping[str, str] = field(default_factory=dict)  # cpu, cores, kernel, image, slot, ...
    gpu: Mapping[str, str] = field(default_factory=dict)  # name, uuid, compute_capability, driver, cuda
    seed: int | None = None
    code: str = ""  # SHA-256 of the archive that trained it
    model: str = ""  # SHA-256 of the final training's model.nc
    floor: str = ""  # and of its floor.nc
    versions: Mapping[str, str] = field(default_factory=dict)
    version: int = CONTRACT_VERSION


_RESULT_KEYS = frozenset(field.name for field in fields(Result))
_RESULT_KINDS: tuple[tuple[tuple[str, ...], type, str], ...] = (
    (
        ("node", "reason", "init", "backend", "precision", "plan", "host", "code", "model", "floor", "scores"),
        str,
        "a text",
    ),
    (("best_epoch", "epochs", "examples", "customers", "ranks"), int, "a whole number from 0"),
    (("machine", "gpu", "versions", "metrics", "baseline", "compared"), dict, "an object"),
)


_RECIPE_KEYS = tuple(field.name for field in fields(Recipe))


class ContractError(ValueError):
    """A `trial.json`, a `result.json` or a recipe that is not what this version writes."""


def trial_to_json(trial: Trial) -> str:
    """Return `trial` as JSON text, keys sorted, so that the same trial gives the same bytes."""
    raw = asdict(trial)
    if not trial.several:
        del raw["several"]
    return _to_json(raw)


def trial_from_json(text: str) -> Trial:
    """Read what `trial_to_json` wrote; ContractError when it is torn or of another version."""
    raw = _object(text, TRIAL_FILE)
    try:
        return Trial(
            **{
                **raw,
                "role": Role(raw["role"]),
                "train": TrainSettings(**raw["train"]),
                "metric": Metric(**raw["metric"]),
                "train_files": tuple(raw["train_files"]),
                "rungs": tuple((int(epoch), float(value)) for epoch, value in raw.get("rungs", ())),
                "recipe": None if raw.get("recipe") is None else recipe_of(raw["recipe"]),
                "compare": {name: recipe_of(one) for name, one in raw.get("compare", {}).items()},
                "all_files": tuple(raw.get("all_files", ())),
            }
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ContractError(f"{TRIAL_FILE}: not a trial of version {CONTRACT_VERSION}: {error}") from error


def result_to_json(result: Result) -> str:
    """Return `result` as JSON text."""
    raw = asdict(result)
    if result.confusion is None:
        del raw["confusion"]
    if not result.cases:
        del raw["cases"], raw["folds"]
    return _to_json(raw)


def result_from_json(text: str) -> Result:
    """Read what `result_to_json` wrote; ContractError when it is empty, torn or of another version.

    Keys that are not known are passed over: an nnlib that says more of a result is of the same version.
    """
    raw = _object(text, RESULT_FILE)
    try:
        check_figures(raw)
        _check_kinds(raw)
        known = {key: value for key, value in raw.items() if key in _RESULT_KEYS}
        status = Status(raw["status"])
        if status not in SAID_BY_WORKERS:
            raise ValueError(f"status: seen {status.value!r}, which only the manager says of a trial")
        recipe = None if raw.get("recipe") is None else recipe_of(raw["recipe"])
        confusion = None if raw.get("confusion") is None else confusion_of(raw["confusion"])
        read = {"status": status, "curve": tuple(raw.get("curve", ())), "recipe": recipe, "confusion": confusion}
        read |= {"cases": tuple(raw.get("cases", ())), "reason": raw.get("reason", "")[:LONGEST_REASON]}
        return Result(**{**known, **read})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ContractError(f"{RESULT_FILE}: not a result of version {CONTRACT_VERSION}: {error}") from error


def read_result(path: Path) -> Result | None:
    """Return the result that a file holds; None where there is none, or none that is whole."""
    try:
        return load_result(path)
    except (OSError, ContractError):
        return None


def load_result(path: Path) -> Result:
    """Return the result that a file holds; OSError where it cannot be read, ContractError where it holds none."""
    try:
        return result_from_json(read_plain(path, LONGEST_RESULT).decode())
    except UnicodeDecodeError as error:
        raise ContractError(f"{RESULT_FILE}: not a text: {error}") from error


def recipe_to_json(recipe: Recipe) -> str:
    """Return `recipe` as JSON text on one line, keys sorted, so that the same recipe gives the same bytes."""
    return json.dumps(asdict(recipe), sort_keys=True, ensure_ascii=False, allow_nan=False)


def recipe_from_json(text: str) -> Recipe:
    """Read what `recipe_to_json` wrote; ContractError when it is anything else."""
    try:
        return recipe_of(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not a recipe: {error}") from error


def recipe_of(raw: object, nested: bool = False) -> Recipe:
    """Return the recipe that was read from JSON, as a file or a part of one; ValueError for what is no recipe.

    `nested` recipes are those of a blend's members.
    """
    if not isinstance(raw, dict) or set(raw) - set(_RECIPE_KEYS) or not set(_RECIPE_KEYS[:3]) <= set(raw):
        seen = ", ".join(sorted(map(str, raw)))[:MOST_TEXT] if isinstance(raw, dict) else type(raw).__name__
        raise ValueError(
            f"seen {seen or 'nothing'}, legal: the keys {', '.join(_RECIPE_KEYS)}, the first three at least"
        )
    family, settings, seed = raw["family"], raw["hyperparameters"], raw["seed"]
    members, weights = raw.get("members", []), raw.get("weights", [])
    if not isinstance(family, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", family):
        raise ValueError(f"family: seen {family!r:.60}, legal: a name such as ease")
    if not isinstance(settings, dict) or len(settings) > MOST_SETTINGS:
        raise ValueError(f"hyperparameters: seen {settings!r:.60}, legal: an object of {MOST_SETTINGS} values at most")
    for name, value in settings.items():
        _check_setting(name, value)
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise ValueError(f"seed: seen {seed!r:.60}, legal: a whole number from 0 to 2^63 - 1")
    if not isinstance(members, list) or len(members) > (0 if nested else MOST_MEMBERS):
        raise ValueError(f"members: legal: {MOST_MEMBERS} recipes at most, and none in a member")
    if not isinstance(weights, list) or len(weights) not in (0, len(members)):
        raise ValueError(f"weights: seen {weights!r:.60}, legal: {len(members)} numbers, one a member, or none")
    for weight in weights:
        if type(weight) not in (int, float) or not abs(weight) <= sys.float_info.max:
            raise ValueError(f"weights: seen {weight!r:.60}, legal: finite numbers")
    inner = tuple(recipe_of(member, nested=True) for member in members)
    return Recipe(family, dict(settings), seed, inner, tuple(map(float, weights)))


def _check_setting(name: str, value: object) -> None:
    """Raise ValueError unless a hyperparameter has a name and a value that a file can hold."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or len(name) > MOST_TEXT:
        raise ValueError(f"hyperparameters: seen the name {name!r:.60}, legal: letters, digits and _")
    if isinstance(value, str):
        value.encode()  # UnicodeEncodeError, a ValueError, for half of a character
        fits = len(value) <= MOST_TEXT and "\0" not in value
    elif isinstance(value, int):
        fits = abs(value) < 2**63
    else:
        fits = isinstance(value, float) and abs(value) <= sys.float_info.max
    if not fits:
        raise ValueError(
            f"hyperparameters: {name}: seen {value!r:.60}, legal: true, false, a finite number or a text of "
            f"{MOST_TEXT} characters at most"
        )


def check_figures(raw: Mapping[str, Any]) -> None:
    """Raise ValueError unless all figures of a result, or of a journal's record of one, are finite numbers."""
    figures = [*raw.get("curve", ()), raw.get("seconds", 0.0), raw.get("best_epoch", 0), raw.get("customers", 0)]
    figures += raw.get("cases", ())
    figures += [raw[name] for name in ("value", "stderr", "fitted_until") if raw.get(name) is not None]
    for name in ("metrics", "baseline"):
        figures += raw.get(name, {}).values()
    for metrics in raw.get("compared", {}).values():
        figures += metrics.values()
    for ends in raw.get("intervals", {}).values():
        figures += ends
    with suppress(OverflowError):  # of a whole number that is too large
        if set(map(type, figures)) <= {float, int} and all(map(math.isfinite, figures)):
            return
    for figure in figures:
        if type(figure) not in (float, int) or not abs(figure) <= sys.float_info.max:  # a bool is neither
            raise ValueError(f"seen {figure!r:.40}, legal: a finite number")


def _check_kinds(raw: Mapping[str, Any]) -> None:
    """Raise ValueError unless the rest of a result is of the kinds that it must be."""
    json.dumps(raw, ensure_ascii=False).encode()  # UnicodeEncodeError, a ValueError, for half of a character
    if len(raw.get("cases", ())) > MOST_CASES or type(raw.get("folds", False)) is not bool:
        raise ValueError(f"cases, folds: legal: {MOST_CASES:,} numbers at most, and whether they are folds")
    if not 0 <= raw.get("seconds", 0.0) <= LONGEST_TRAINING:
        raise ValueError(f"seconds: seen {raw['seconds']!r:.40}, legal: 0 to {LONGEST_TRAINING:,}")
    for names, kind, legal in _RESULT_KINDS:
        for name in names:
            value = raw.get(name, kind())
            if type(value) is not kind or (isinstance(value, int) and value < 0):
                raise ValueError(f"{name}: seen {value!r:.40}, legal: {legal}")
            if isinstance(value, str) and len(value) > LONGEST_SAID and name != "reason":
                raise ValueError(f"{name}: seen {len(value):,} characters, legal: {LONGEST_SAID:,} at most")
    _check_bounds(raw)


def _check_bounds(raw: Mapping[str, Any]) -> None:
    """Raise ValueError for more than any training says, and for names that would steer a terminal."""
    compared = raw.get("compared", {})
    for name in ("metrics", "baseline", "compared", "machine", "gpu", "versions"):
        _check_names(name, raw.get(name, {}))
    for metrics in compared.values():
        _check_names("compared", metrics)
    for name in ("machine", "gpu", "versions"):
        for value in raw.get(name, {}).values():
            if type(value) is not str or len(value) > LONGEST_SAID:
                raise ValueError(f"{name}: seen {value!r:.40}, legal: texts of {LONGEST_SAID:,} characters at most")
    if len(raw.get("curve", ())) > MOST_EPOCHS:
        raise ValueError(f"curve: seen {len(raw['curve']):,} numbers, legal: {MOST_EPOCHS:,} at most")
    for name, most in (("best_epoch", MOST_EPOCHS), ("epochs", MOST_EPOCHS), ("examples", 2**53), ("customers", 2**53)):
        if raw.get(name, 0) > most:
            raise ValueError(f"{name}: seen {raw[name]!r:.40}, legal: {most:,} at most")
    day, seed = raw.get("fitted_until"), raw.get("seed")
    if day is not None and (type(day) is not int or day not in DAYS):
        raise ValueError(f"fitted_until: seen {day!r:.40}, legal: a day of the years 1 to 9999")
    if seed is not None and type(seed) is not int:
        raise ValueError(f"seed: seen {seed!r:.40}, legal: a whole number")
    figures = [raw.get("value"), raw.get("stderr"), *raw.get("curve", ()), *raw.get("cases", ())]
    for metrics in (raw.get("metrics", {}), raw.get("baseline", {}), *compared.values()):
        figures += metrics.values()
    for figure in figures:
        if figure is not None and not abs(figure) <= LARGEST:
            raise ValueError(f"seen {figure!r:.40}, legal: {LARGEST:g} at most")


def _check_names(what: str, named: Mapping[str, Any]) -> None:
    if len(named) > MOST_NAMES:
        raise ValueError(f"{what}: seen {len(named):,} names, legal: {MOST_NAMES} at most")
    for name in named:
        if not 0 < len(name) <= MOST_TEXT or not name.isprintable():
            raise ValueError(f"{what}: seen the name {name!r:.60}, legal: {MOST_TEXT} characters that can be printed")


def scored_metrics(metric: Metric) -> tuple[str, ...]:
    """Return the metrics of which scores.npy holds every customer's: the trial's own, and those that reports show."""
    return tuple(dict.fromkeys((metric.name, "p@10", "ndcg@20")))


def slug_of(name: str) -> str:
    """Return the file-safe name of a region: only a-z, 0-9 and `-`, never empty, at most 49 characters.

    Plain words ("United Kingdom") give a plain slug ("united-kingdom"); any other name ("Côte d'Ivoire")
    gets eight hex digits of its SHA-256, so that different odd names give different slugs.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    short = plain[:SLUG_LENGTH].rstrip("-")
    if short == plain and re.fullmatch(r"[A-Za-z0-9]+([ -][A-Za-z0-9]+)*", name):
        return short
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{short}-{digest}" if short else f"region-{digest}"


def sha256_of(path: Path) -> str:
    """Return the hex SHA-256 of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _to_json(raw: Mapping[str, Any]) -> str:
    return json.dumps(raw, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{name}: not JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("version") != CONTRACT_VERSION:
        seen = raw.get("version") if isinstance(raw, dict) else type(raw).__name__
        raise ContractError(f"{name}: version {seen!r}, this nnlib reads version {CONTRACT_VERSION}")
    return raw
