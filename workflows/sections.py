"""The sections of study.yaml, each read into its dataclass; mistakes go to the section's problem list."""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from typing import Any

from nnlib import spec
from nnlib.contract import COMPAT, OPTIMIZERS, PRECISIONS, Metric, TrainSettings
from nnlib.contract import SCHEDULES as RATE_SCHEDULES
from workflows import schema
from workflows.names import MAX_TRIALS
from workflows.schema import Layer, Problems, Section
from workflows.space import Choice, Integer, Parameter, Real, Space, Value, ends, grid_size
from workflows.study import Job, Limits, Search
from workflows.yamlfile import KeyPath

METHODS = ("grid", "random", "bayes")
SCHEDULES = ("rounds",)
BELOW_ONE = 1 - 1e-9  # for numbers in [0, 1)
SMALLEST = 1 << 20  # of memory and disk; HTCondor counts memory in MB
TRAIN_SETTINGS = frozenset(field.name for field in fields(TrainSettings))


def read_limits(section: Section) -> Limits:
    """Read `limits`."""
    limits = Limits(
        jobs=section.whole("jobs", 0, 0, 1_000_000),
        jobs_per_region=section.whole("jobs_per_region", 0, 0, 1_000_000),
    )
    section.finish()
    return limits


def read_metric(section: Section) -> Metric:
    """Read `metric: ndcg@20` or `minimize: loss`, whichever the innermost layer gives."""
    given = [layer for layer in section.layers if "metric" in layer.value or "minimize" in layer.value]
    section = Section(section.problems, given[:1] or section.layers[-1:])
    if section.has("metric") and section.has("minimize"):
        section.problems.add(section.where("minimize"), "stands beside `metric`; give one of the two")
    key = "minimize" if section.has("minimize") else "metric"
    if key == "minimize":
        name = section.read(key, "loss", _loss, "loss; p@K, recall@K and ndcg@K are better when large: metric: ndcg@20")
    else:
        legal = "p@K, recall@K or ndcg@K; the loss is better when small: minimize: loss"
        name = section.read(key, Metric().name, _ranking_metric, legal)
    return Metric(name, minimize=key == "minimize")


def read_train(section: Section) -> TrainSettings:
    """Read `train`."""
    default = TrainSettings()
    train = TrainSettings(
        epochs=section.whole("epochs", default.epochs, 1, 100_000),
        batch=section.whole("batch", default.batch, 1, 1_000_000),
        stop_after=section.whole("stop_after", default.stop_after, 0, 100_000),
        optimizer=section.choice("optimizer", default.optimizer, OPTIMIZERS),
        learning_rate=section.real("learning_rate", default.learning_rate, 1e-12, 1e6),
        momentum=section.real("momentum", default.momentum, 0, BELOW_ONE),
        beta2=section.real("beta2", default.beta2, 0, BELOW_ONE),
        l2=section.real("l2", default.l2, 0, 1e6),
        l1=section.real("l1", default.l1, 0, 1e6),
        schedule=section.choice("schedule", default.schedule, RATE_SCHEDULES),
        warmup=section.real("warmup", default.warmup, 0, 100_000),
        clip=section.real("clip", default.clip, 0, 1e6),
        compat=section.choice("compat", default.compat, filter(None, COMPAT)),
        precision=section.choice("precision", default.precision, PRECISIONS),
        seed=section.whole("seed", default.seed, 0, 2**32 - 1),
    )
    section.finish()
    return train


def read_job(section: Section) -> Job:
    """Read `job`."""
    default = Job()
    job = Job(
        gpus=section.whole("gpus", default.gpus, 0, 64),
        cpus=section.whole("cpus", default.cpus, 1, 1024),
        memory=section.size("memory", default.memory, SMALLEST),
        memory_max=section.size("memory_max", 0, SMALLEST) or None,
        disk=section.size("disk", default.disk, SMALLEST),
        deadline=section.duration("deadline", default.deadline),
        hold_limit=section.duration("hold_limit", default.hold_limit),
        retries=section.whole("retries", default.retries, 0, 100),
        requirements=section.read(
            "requirements",
            default.requirements,
            _requirements,
            "a ClassAd expression on one line, such as TARGET.HAS_GPU =?= True",
        ),
    )
    section.finish()
    if job.memory_max is not None and job.memory_max <= job.memory:
        section.problems.add(section.where("memory_max"), "is not larger than `memory`")
        job = replace(job, memory_max=None)
    return job


def read_search(section: Section) -> Search:
    """Read `search`, its space included."""
    method = section.choice("method", "bayes", METHODS)
    section.choice("schedule", "rounds", SCHEDULES)
    rounds = section.whole("rounds", 6, 1, MAX_TRIALS)
    parallel = section.whole("parallel", 4, 1, MAX_TRIALS)
    space = _read_space(section)
    section.finish()
    if method == "grid":
        return _grid_search(section, space)
    if rounds * parallel > MAX_TRIALS:
        section.problems.add(
            section.where("rounds"),
            f"{rounds} rounds of {parallel} trials are more than {MAX_TRIALS} trials, the most a region can have",
        )
    if method == "random":  # no trial depends on another one's outcome: nothing to wait for between rounds
        return Search(method, space, (rounds * parallel,))
    return Search(method, space, (parallel,) * rounds)


def _grid_search(section: Section, space: Space) -> Search:
    for key in ("rounds", "parallel"):
        # A region may ask for a grid below a study that searches in rounds: only its own keys contradict it.
        if section.has(key) and section.where(key)[:-1] == section.where("method")[:-1]:
            section.problems.add(
                section.where(key),
                "a grid has as many trials as the space has points; remove this key "
                "(limits.jobs_per_region says how many run at a time)",
            )
    try:
        trials = grid_size(space)
    except ValueError as error:
        section.problems.add(section.where("space"), str(error))
        return Search("grid", space, (1,))
    if trials > MAX_TRIALS:
        section.problems.add(section.where("space"), f"{trials:,} points, legal: at most {MAX_TRIALS:,}")
    return Search("grid", space, (min(trials, MAX_TRIALS),))


def _read_space(section: Section) -> Space:
    space = section.section("space")
    names = list(dict.fromkeys(name for layer in reversed(space.layers) for name in layer.value))
    if not names:
        section.problems.add(
            section.where("space"),
            "empty: name at least one hyperparameter, such as learning_rate: {real: [1e-4, 1e-1], log: true}",
        )
    found = [_read_parameter(space, name) for name in names]
    return tuple(parameter for parameter in found if parameter is not None)


def _read_parameter(space: Section, name: str) -> Parameter | None:
    raw, path = space.raw(name), space.where(name)
    legal = "{real: [low, high]}, {int: [low, high]}, {choice: [a, b]} or one fixed value"
    if not name.isidentifier() or not name.isascii():
        space.problems.add(path, "a hyperparameter's name holds letters, digits and '_' only")
        return None
    if isinstance(raw, bool | int | float | str):
        fixed = Choice(name, (raw,))
        if name in TRAIN_SETTINGS:
            _check_train_values(space.problems, fixed, path)
        return fixed
    kinds = [kind for kind in ("real", "int", "choice") if isinstance(raw, dict) and kind in raw]
    if len(kinds) != 1:
        space.problems.add(path, f"seen {raw!r}, legal: {legal}")
        return None
    section = Section(space.problems, [Layer(raw, path)])
    parameter = _read_choice(section, name) if kinds == ["choice"] else _read_range(section, name, kinds[0])
    section.finish()
    if parameter is not None and name in TRAIN_SETTINGS:
        _check_train_values(space.problems, parameter, path)
    return parameter


def _check_train_values(problems: Problems, parameter: Parameter, path: KeyPath) -> None:
    """A hyperparameter that stands for a training setting may only take that setting's legal values."""
    for value in ends(parameter):
        read_train(Section(problems, [Layer({parameter.name: value}, path[:-1])]))


def _read_choice(section: Section, name: str) -> Choice | None:
    empty: tuple[Value, ...] = ()
    options = section.read("choice", empty, _options, "a list of different texts, numbers or true/false")
    return Choice(name, options) if options else None


def _read_range(section: Section, name: str, kind: str) -> Real | Integer | None:
    log = section.read("log", False, _flag, "true or false")
    points = section.whole("points", 0, 1, MAX_TRIALS) or None
    nothing: tuple[float, ...] = ()
    legal = f"[low, high] with low < high, both finite {'whole ' if kind == 'int' else ''}numbers"
    numbers = section.read(kind, nothing, lambda value: _bounds(value, kind), legal)
    if not numbers:
        return None
    low, high = numbers
    if log and low <= 0:
        section.problems.add(section.where(kind), f"seen {[low, high]}, but a log scale starts above 0")
        return None
    if kind == "int":
        return Integer(name, int(low), int(high), log, points)
    return Real(name, low, high, log, points)


# --- values ------------------------------------------------------------------------------------------------


def _ranking_metric(value: Any) -> str:
    """Return the metric as results spell it: `P@10` and `precision@10` are `p@10`."""
    name = spec.canonical_metric(schema.text(value))
    if name == "loss":
        raise ValueError
    return name


def _loss(value: Any) -> str:
    if value != "loss":
        raise ValueError
    return "loss"


def _requirements(value: Any) -> str:
    expression = schema.text(value)
    resource = re.search(r"\b(GPUs|Cpus|Memory|Disk)\b", expression, re.IGNORECASE)
    if resource:  # HTCondor drops its own clause `TARGET.GPUs >= RequestGPUs` when it sees one of ours
        raise ValueError(f"it mentions {resource[0]}; say how much a job needs with gpus, cpus, memory and disk")
    return expression


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _bounds(value: Any, kind: str) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError
    low: float
    high: float
    if kind == "int":
        low, high = (schema.whole(number, -(2**53), 2**53) for number in value)
    else:
        low, high = (schema.real(number, -1e300, 1e300) for number in value)
    if low >= high:
        raise ValueError("low must be smaller than high")
    return low, high


def _options(value: Any) -> tuple[Value, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    if not all(isinstance(v, bool | int | str) or (isinstance(v, float) and math.isfinite(v)) for v in value):
        raise ValueError
    if len({(type(v), v) for v in value}) < len(value):
        raise ValueError("one stands twice")
    return tuple(value)
