"""The sections of study.yaml, each read into its dataclass; mistakes go to the section's problem list."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from nnlib.contract import COMPAT, OPTIMIZERS, PRECISIONS, Metric, TrainSettings
from nnlib.contract import SCHEDULES as RATE_SCHEDULES
from nnlib.spec import metric_names
from regiondag.config.space_section import grid_trials, read_constraints, read_space, small_size
from regiondag.study.model import GIVE_UP_AFTER, MAX_TRIALS, TRAIN_SETTINGS, JobRequest, Limits, Search
from regiondag.study.space import Space, extreme_values, grid_values
from regiondag.tuning.pruning import KINDS as PRUNING
from regiondag.util import schema
from regiondag.util.schema import Layer, Section

METHODS = ("grid", "random", "sobol", "skopt", "bayes")
WITHOUT_HISTORY = ("random", "sobol")  # methods by which no trial depends on another one's outcome
ACQUISITIONS = ("improvement", "improvement_per_second")
SCHEDULES = ("rounds", "lanes")
SHARING = ("off", "warm", "model")
WINNERS = ("observed", "model")
BELOW_ONE = 1 - 1e-9  # for numbers in [0, 1)
SMALLEST = 1 << 20  # of memory and disk; HTCondor counts memory in MB


def read_limits(section: Section) -> Limits:
    """Read `limits`."""
    limits = Limits(
        jobs=section.whole("jobs", 0, 0, 1_000_000),
        jobs_per_region=section.whole("jobs_per_region", 0, 0, 1_000_000),
        deadline=_interval(section, "deadline", 0),
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
        name = section.read(
            key, "loss", _loss, "loss; p@K, recall@K, ndcg@K, map@K and mrr@K are better when large: metric: ndcg@20"
        )
    else:
        legal = "p@K, recall@K, ndcg@K, map@K or mrr@K; the loss is better when small: minimize: loss"
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


def read_job(section: Section) -> JobRequest:
    """Read `job`."""
    default = JobRequest()
    job = JobRequest(
        gpus=section.whole("gpus", default.gpus, 0, 64),
        cpus=section.whole("cpus", default.cpus, 1, 1024),
        memory=section.size("memory", default.memory, SMALLEST),
        memory_max=section.size("memory_max", 0, SMALLEST) or None,
        disk=section.size("disk", default.disk, SMALLEST),
        deadline=section.duration("deadline", default.deadline),
        checkpoint=_interval(section, "checkpoint", default.checkpoint),
        hold_limit=section.duration("hold_limit", default.hold_limit),
        idle_limit=section.duration("idle_limit", default.idle_limit),
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


def _interval(section: Section, key: str, default: int) -> int:
    """Read a duration, or 0 for never."""
    legal = "a duration such as 90s, 30m, 2h or 1d, or 0"
    return section.read(
        key, default, lambda value: 0 if value == 0 and value is not False else schema.duration(value), legal
    )


def read_search(section: Section) -> Search:
    """Read `search`, its space included."""
    method = section.choice("method", "bayes", METHODS)
    schedule = section.choice("schedule", "rounds", SCHEDULES)
    budget = section.duration("budget", 0)
    prune = section.choice("prune", "none", PRUNING)
    rounds = section.whole("rounds", 6, 1, MAX_TRIALS)
    parallel = section.whole("parallel", 4, 1, MAX_TRIALS)
    space = _read_space(section)
    share = _share(section, method)
    search = Search(
        method,
        space,
        (parallel,) * rounds,
        constraints=read_constraints(section, space),
        acquisition=_acquisition(section, method),
        give_up_after=section.whole("give_up_after", GIVE_UP_AFTER, 0, MAX_TRIALS),
        schedule=schedule,
        budget=budget,
        prune=prune,
        share=share,
        winner=section.choice("winner", "model" if share == "model" else "observed", WINNERS),
    )
    section.finish()
    if method == "grid":
        return _grid_search(section, search)
    if rounds * parallel > MAX_TRIALS:
        section.problems.add(
            section.where("rounds"),
            f"{rounds} rounds of {parallel} trials are more than {MAX_TRIALS} trials, the most a region can have",
        )
    trials = min([rounds * parallel, *small_size(search)])
    # Nothing to wait for between rounds, unless what ended decides whether, or how long, others run.
    if method in WITHOUT_HISTORY and schedule == "rounds" and not budget and prune == "none":
        return replace(search, sizes=(trials,))
    full, rest = divmod(trials, parallel)
    return replace(search, sizes=(parallel,) * full + (rest,) * (rest > 0))


def _share(section: Section, method: str) -> str:
    share = section.choice("share", "off", SHARING)
    legal = {"bayes": SHARING, "skopt": ("off", "warm")}.get(method, ("off",))
    if share not in legal and section.contradicts("share", "method"):
        section.problems.add(section.where("share"), f"{share} is not legal with method {method}: {', '.join(legal)}")
    return share if share in legal else "off"


def _acquisition(section: Section, method: str) -> str:
    acquisition = section.choice("acquisition", ACQUISITIONS[0], ACQUISITIONS)
    if acquisition == ACQUISITIONS[0] or method == "bayes":
        return acquisition
    if section.contradicts("acquisition", "method"):
        section.problems.add(
            section.where("acquisition"), f"{acquisition} is not legal with method {method}: only bayes"
        )
    return ACQUISITIONS[0]


def read_update(section: Section) -> Search | None:
    """Read `search` as `update` overrides it; None where there is no `update`. `section` holds both."""
    if not section.has("update"):
        return None
    layers = []
    for layer in section.section("update").layers:
        if "space" in layer.value:
            section.problems.add(
                (*layer.path, "space"), "the space of an update is that of the study; change search.space instead"
            )
        layers.append(Layer({key: value for key, value in layer.value.items() if key != "space"}, layer.path))
    return read_search(Section(section.problems, [*layers, *section.section("search").layers]))


def _grid_search(section: Section, search: Search) -> Search:
    size = "a grid has as many trials as the space has points; remove this key "
    size += "(limits.jobs_per_region says how many run at a time)"
    once = "a grid's trials are all proposed before any of them has ended; remove this key, or choose another method"
    contradicting = dict.fromkeys(("rounds", "parallel", "schedule"), size) | {"budget": once}
    if search.prune != "none":
        contradicting["prune"] = once
    for key, text in contradicting.items():
        # A region may ask for a grid below a study that searches in rounds: the study's keys do not contradict it.
        if section.contradicts(key, "method"):
            section.problems.add(section.where(key), text)
    search = replace(search, schedule="rounds", budget=0, prune="none")
    trials = _grid_trials(section, search)
    if trials > MAX_TRIALS:
        section.problems.add(section.where("space"), f"{trials:,} points, legal: at most {MAX_TRIALS:,}")
    return replace(search, sizes=(max(min(trials, MAX_TRIALS), 1),))


def _grid_trials(section: Section, search: Search) -> int:
    """Return how many points the grid has; 1 after noting why it cannot be said."""
    countable = True
    for parameter in search.space:
        try:
            grid_values(parameter)
        except ValueError as error:
            section.problems.add(section.section("space").where(parameter.name), str(error))
            countable = False
    try:
        return grid_trials(search) if countable else 1
    except ValueError as error:
        section.problems.add(section.where("space"), str(error))
        return 1


def _read_space(section: Section) -> Space:
    below = section.section("space")
    space = read_space(below, TRAIN_SETTINGS)
    for parameter in space:  # what stands for a training setting may only take that setting's legal values
        if parameter.name in TRAIN_SETTINGS:
            for value in extreme_values(parameter):
                layer = Layer({parameter.name: value}, below.where(parameter.name)[:-1])
                read_train(Section(section.problems, [layer]))
    return space


# --- values ------------------------------------------------------------------------------------------------


def _ranking_metric(value: Any) -> str:
    """Return the metric as results spell it: `P@10` and `precision@10` are `p@10`."""
    try:
        name = metric_names.canonical_metric(schema.text(value))
    except ValueError:
        raise ValueError from None  # what is legal here is said once, by the caller
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
