"""Every key of study.yaml: its default, what it may be, and what it does.

The reader reads by these tables, and `describe_study` makes the JSON Schema of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnlib.contract import COMPAT, OPTIMIZERS, PARALLELS, PRECISIONS, SCALES, Metric, TrainSettings
from nnlib.contract import SCHEDULES as RATE_SCHEDULES
from nnlib.spec.checks import BOOLEAN, Check, Schema, instance, real, whole
from regiondag.config import values
from regiondag.config.database_section import DATABASE_SCHEMA
from regiondag.config.notify_section import NOTIFY, TRACK
from regiondag.config.program_section import PROGRAM
from regiondag.config.submit_section import LEGAL, SUBMIT
from regiondag.study.families import FAMILIES
from regiondag.study.gpus import GpuWish
from regiondag.study.model import GIVE_UP_AFTER, MAX_TRIALS, MIN_CUSTOMERS, POOLED, PYTHONS, JobRequest, Limits
from regiondag.study.program import TRAINER
from regiondag.tuning.methods import AUTO, METHODS
from regiondag.tuning.noise import KINDS as STOPS
from regiondag.tuning.pruning import KINDS as PRUNING
from regiondag.tuning.sharing import SHARING
from regiondag.util.schema import (
    DURATION,
    OR_NEVER,
    TEXT,
    Key,
    Keys,
    choice,
    object_of,
    or_none,
    section_of,
    size,
    word_or,
)

ACQUISITIONS = ("improvement", "improvement_per_second")
SCHEDULES = ("rounds", "lanes")
WINNERS = ("observed", "model", "auto")
MODES = ("max", "min")
SCOPES = ("auto", "all", "region")
WORDS = ("time", "leave-one-out", "random")
SPLITS = (*WORDS, "column")
COLUMNS = {"region": "region", "customer": "customer", "item": "item", "time": "date"}
BELOW_ONE = 1 - 1e-9  # for numbers in [0, 1)
SMALLEST = 1 << 20  # of memory and disk; HTCondor counts memory in MB
MOST_JOBS = 1_000_000

_limits, _train, _job = Limits(), TrainSettings(), JobRequest()

LIMITS: Keys = {
    "jobs": Key(_limits.jobs, whole(0, MOST_JOBS), "Jobs in the queue at a time, over all regions; 0: no limit."),
    "jobs_per_region": Key(_limits.jobs_per_region, whole(0, MOST_JOBS), "The same, of one region; 0: no limit."),
    "trials": Key(
        _limits.trials,
        whole(0, MOST_JOBS),
        "Trials of all searches together but for blends; they go where the expected gain times the customers is "
        "largest; 0: no limit.",
    ),
    "deadline": Key(_limits.deadline, OR_NEVER, "Time from the run's first trial on for all trials; 0: no limit."),
    "disk": Key(
        _limits.disk,
        or_none(size(SMALLEST)),
        "What all files of the run may take on the access point: past it nothing more is proposed; 0: no limit.",
    ),
}

TRAIN: Keys = {
    "epochs": Key(_train.epochs, whole(1, 100_000), "Epochs of a training, at most."),
    "batch": Key(_train.batch, whole(1, 1_000_000), "Examples in a batch."),
    "accumulate": Key(
        _train.accumulate,
        whole(1, 100_000),
        "Batches whose examples make one update, where memory is too small for them at once.",
    ),
    "stop_after": Key(
        _train.stop_after,
        whole(0, 100_000),
        "A training stops after so many epochs without a better validation metric; 0: never.",
    ),
    "stop_after_examples": Key(
        _train.stop_after_examples,
        whole(0, 10**12),
        "The same in examples, so that it means as much in regions and batches of any size; above 0 it is in the place "
        "of `stop_after`.",
    ),
    "optimizer": Key(_train.optimizer, choice(OPTIMIZERS), "The rule by which weights are updated."),
    "learning_rate": Key(_train.learning_rate, real(1e-12, 1e6), "The learning rate, before `schedule` and `warmup`."),
    "momentum": Key(
        _train.momentum,
        real(0, BELOW_ONE),
        "Momentum of `momentum` and `nesterov`, decay of `rmsprop` and `adadelta`, first one of the `adam`s; below 1.",
    ),
    "beta2": Key(_train.beta2, real(0, BELOW_ONE), "Second decay of `adam` and `adamw`; below 1."),
    "l2": Key(_train.l2, real(0, 1e6), "Weight of the L2 penalty on weights; with `adamw` their decay."),
    "l1": Key(_train.l1, real(0, 1e6), "Weight of the L1 penalty on weights."),
    "schedule": Key(
        _train.schedule,
        choice(RATE_SCHEDULES),
        "How the learning rate goes: it stays; falls to zero as a cosine by the end of the last epoch; rises from a "
        "25th to its value and falls to nearly nothing, both as a cosine (`onecycle`); is multiplied by `decay_rate` "
        "every `decay_epochs` (`step`), or after so many epochs without a better metric (`plateau`; where nothing "
        "validates, as in the last training of a winner, without a better loss).",
    ),
    "warmup": Key(
        _train.warmup,
        real(0, 100_000),
        "Epochs in which the learning rate rises to its value; with `onecycle` 0 means 30 % of `epochs`.",
    ),
    "decay_rate": Key(
        _train.decay_rate, real(0, 1), "By what the schedules `step` and `plateau` multiply the learning rate."
    ),
    "decay_epochs": Key(
        _train.decay_epochs,
        whole(1, 100_000),
        "After how many epochs they do, `plateau` after such without a better metric: fewer than `stop_after`.",
    ),
    "scale_rate": Key(
        _train.scale_rate,
        choice(SCALES),
        "Whether the learning rate is multiplied by `batch` x `accumulate` / `base_batch` (`linear`) or by the root of "
        "that (`sqrt`).",
    ),
    "base_batch": Key(
        _train.base_batch,
        whole(1, 1_000_000),
        "Examples of the update for which `learning_rate` is given, with `scale_rate`.",
    ),
    "ema": Key(
        _train.ema,
        real(0, BELOW_ONE),
        "Decay per update of a moving mean of the weights, such as 0.99, which is validated and kept in the place of "
        "the last weights; 0: none, else below 1.",
    ),
    "clip": Key(_train.clip, real(0, 1e6), "Largest norm of a batch's gradient; 0: any."),
    "compat": Key(_train.compat, choice(filter(None, COMPAT)), "Reproduces the oddities of DSSTNE."),
    "precision": Key(
        _train.precision,
        choice(PRECISIONS),
        "What the factors of dense products are rounded to, sums being float32: `tf32` 10 bits, on a GPU; `bf16` 7 "
        "bits; `auto` is `tf32` on GPUs from Ampere on, `bf16` where a processor multiplies that faster (AMX with "
        "oneMKL, AMD's AVX-512 with Numba), else `float32`.",
    ),
    "parallel": Key(
        _train.parallel,
        choice(PARALLELS),
        "How a network is cut into shards, which several GPUs may share: `items` cuts sparse inputs and output layers "
        "of 4,096 units or more, `auto` those of 8,192 or more where that is possible; `examples` cuts batches of "
        "dense data, of images as well, as `auto` does in jobs whose `gpus` is above 1, where that is predicted to be "
        "worth it; a model's last bits depend on this, and not on the number of GPUs that a job gets.",
    ),
    "seed": Key(_train.seed, whole(0, 2**32 - 1), "Seed of all random numbers of a training."),
}

JOB: Keys = {
    "gpus": Key(
        GpuWish(_job.gpus, _job.gpus),
        values.GPUS,
        "GPUs of a training, all of one kind on one machine, 0: none; with `min` and `max` as many as a machine has "
        "free, and at most half as many after each fault of a machine; `capability`, `memory` and `runtime` say what "
        "each must be.",
    ),
    "require_gpus": Key(
        _job.require_gpus,
        values.REQUIRE_GPUS,
        "What each GPU must be, by what HTCondor knows of it: `DeviceName`, `Capability`, `GlobalMemoryMb`.",
    ),
    "cpus": Key(_job.cpus, whole(1, 1024), "CPU cores of a training; by default one a GPU at least."),
    "memory": Key(_job.memory, size(SMALLEST), "Memory of a training."),
    "memory_max": Key(
        _job.memory_max, size(SMALLEST), "After running out of memory a job asks for more, up to this; above `memory`."
    ),
    "disk": Key(_job.disk, size(SMALLEST), "Disk space of a training."),
    "max_output": Key(
        _job.max_output,
        size(SMALLEST),
        "The most that a job may bring back, else it is removed and its trial has failed; by default twice what models "
        "and checkpoints can be with the largest hyperparameters, and 144 MB for logs, but no more than `disk`; of "
        "programs, and of networks whose shape is searched by more than units or is that of a model to start from, as "
        "`disk`.",
    ),
    "deadline": Key(
        _job.deadline,
        DURATION,
        "Time on machines, transfers included, after which a job is removed and its trial has failed.",
    ),
    "checkpoint": Key(
        _job.checkpoint, OR_NEVER, "A training is saved and taken to the manager so often; 0: only when evicted."
    ),
    "hold_limit": Key(_job.hold_limit, DURATION, "A job held for longer is removed and counts as a failed trial."),
    "idle_limit": Key(
        _job.idle_limit, DURATION, "A job that waits for a machine for longer is removed; its trial stays open."
    ),
    "retries": Key(_job.retries, whole(0, 100), "How often a job is run again after a fault of the machine."),
    "requirements": Key(
        _job.requirements,
        values.REQUIREMENTS,
        "What a machine must be, beside having the resources above; with `gpus: 0` by default anything.",
    ),
    "python": Key(
        _job.python,
        choice(PYTHONS),
        "What runs a training: the machine's own Python (`worker`), or that which runs regiondag here, with what nnlib "
        "needs, sent along (`bundle`).",
    ),
    "submit": Key(
        None,
        instance(Mapping, LEGAL, SUBMIT),
        "Submit commands that HTCondor gets beside those of the graph, such as a project's name for accounting.",
    ),
}

_CONDITION: Keys = {
    "when": Key(
        None,
        section_of({"type": "object", "additionalProperties": values.SOME_SCALARS}),
        "The hyperparameter exists only where these others, choices or `int`s, have one of these values.",
    ),
    "default": Key(
        None, values.SCALAR, "What the network gets where `when` does not hold; not for settings of `train`."
    ),
}


def _range(kind: str, what: str) -> Keys:
    return {
        kind: Key((), values.bounds(kind), f"The least and the largest value, {what}."),
        "log": Key(False, BOOLEAN, "Whether values are proposed evenly on a log scale; all are above 0 then."),
        "points": Key(None, whole(1, MAX_TRIALS), "Number of values in a grid."),
        "step": Key(None, values.step(kind, ()), "Distance of the values; it leads from one end to the other."),
        **_CONDITION,
    }


REAL, INT = _range("real", "real numbers"), _range("int", "whole numbers")
CHOICE: Keys = {
    "choice": Key((), values.OPTIONS, "The values, as they are."),
    "ordered": Key(False, BOOLEAN, "Whether they stand in an order, so that those next to each other are alike."),
    **_CONDITION,
}
SPACE: Schema = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "additionalProperties": {
        "anyOf": [values.SCALARS, object_of(REAL, ["real"]), object_of(INT, ["int"]), object_of(CHOICE, ["choice"])]
    },
}

SEARCH: Keys = {
    "method": Key(
        AUTO, choice((AUTO, *METHODS)), "How hyperparameters are proposed; `auto`: as was measured to be best, `bayes`."
    ),
    "schedule": Key(
        "rounds",
        choice(SCHEDULES),
        "Whether all trials of a round end before the next one is proposed, or each lane goes on by itself.",
    ),
    "budget": Key(0, DURATION, "Time of all trainings of a region together after which nothing more is proposed."),
    "prune": Key("none", choice(PRUNING), "Which trials end early because others were better at that epoch."),
    "stop": Key(
        "noise",
        choice(STOPS),
        "Whether `bayes` proposes nothing more once the gain that it expects is lost in the noise of the metric.",
    ),
    "rounds": Key(6, whole(1, MAX_TRIALS), "Rounds of trials, each of which waits for the one before; not of a grid."),
    "parallel": Key(4, whole(1, MAX_TRIALS), "Trials of a region at the same time; not of a grid."),
    "space": Key(
        None,
        section_of(SPACE),
        "The hyperparameters: settings of `train` and `$placeholders` of the network, one at least where all trials "
        "are networks; and those of families (`ease_l2`) that are to have other ranges than their own.",
    ),
    "share": Key(
        "auto",
        choice(("auto", *SHARING)),
        "What a region takes from others and from earlier runs; `warm` for `bayes` and `skopt`, `model` for `bayes`; "
        "auto: `model` with `bayes` where several regions have searches of their own, else `off`.",
    ),
    "constraints": Key(
        (), values.CONSTRAINTS, "Comparisons of hyperparameters; points that break one are not proposed."
    ),
    "acquisition": Key(
        ACQUISITIONS[0],
        choice(ACQUISITIONS),
        "What `bayes` looks for: the most improvement, or the most for the time of a trial.",
    ),
    "give_up_after": Key(
        GIVE_UP_AFTER, whole(0, MAX_TRIALS), "So many failed trials at its start stop a region; 0: never."
    ),
    "scope": Key(
        "auto",
        choice(SCOPES),
        "Whether a candidate is fitted once on the data of all regions and judged in each (all), or each region has a "
        "search of its own on its own data (region); auto: all where there are families, else region.",
    ),
    "winner": Key(
        WINNERS[2],
        choice(WINNERS),
        "Whether the trial with the best value wins (observed), or the one that a model takes for the best (model); "
        "auto: by the model where it has learned that values are noisy; by default `model` where `share: model` is "
        "written, and `observed` with `share: warm` and other methods than `bayes`.",
    ),
}

# What `regiondag.Search` takes.
ALONE: Keys = {
    "space": Key(None, section_of(SPACE), "The hyperparameters."),
    **{name: SEARCH[name] for name in ("method", "constraints", "acquisition")},
    "metric": Key("value", TEXT, "Name of what trials are judged by."),
    "mode": Key(MODES[0], choice(MODES), "Whether more of it is better, or less."),
    "trials": Key(32, whole(1, MAX_TRIALS), "About how many there will be."),
    "seed": TRAIN["seed"],
    "first": Key((), instance(list, "a list of points", {"type": "array"}), "Points that are tried first."),
}

SECTIONS: Keys = {
    "metric": Key(Metric().name, values.RANKING_METRIC, "The metric on the validation part that judges trials."),
    "minimize": Key(None, values.LOSS, "Judges trials by the loss instead; stands in the place of `metric`."),
    "train": Key(None, section_of(object_of(TRAIN)), "How a network is trained; each setting may be a hyperparameter."),
    "search": Key(None, section_of(object_of(SEARCH)), "How hyperparameters are searched."),
    TRAINER: Key(
        None, section_of(object_of(PROGRAM, ["command", "metric"])), "A program of yours that trains in nnlib's place."
    ),
    "update": Key(
        None,
        section_of({"$ref": "#/properties/search", "not": {"required": ["space"]}}),
        "Overrides keys of `search`, all but `space`, in daily runs of regions that have a champion.",
    ),
    "job": Key(None, section_of(object_of(JOB)), "What a training asks of HTCondor."),
    "final": Key(
        None,
        section_of({"$ref": "#/properties/job"}),
        "Overrides keys of `job` for the last training, that of the winner.",
    ),
}
START: Keys = {
    "init": Key(
        "random",
        values.START,
        "What trainings start from: random weights, or those of a model, of a run or, with {model: FILE}, of a file.",
    ),
    "neighbour": Key(
        "", TEXT, "The region that `init: neighbour` starts from; by default that with the most training examples."
    ),
}
NETWORK: Keys = {"network": Key("", TEXT, "Path of the network file (DSSTNE's JSON), from study.yaml's folder.")}
_EITHER: Schema = {"not": {"required": ["metric", "minimize"]}}


def _again(keys: Keys) -> Keys:
    """Return keys that stand at the top level, as they are described below it."""
    return {
        name: Key(None, Check(key.check.of, key.check.legal, {"$ref": f"#/properties/{name}"}), key.about)
        for name, key in keys.items()
    }


POOLED_REGION: Keys = _again(SECTIONS)
REGION: Keys = {
    "name": Key("", values.REGION_NAME, "Name of the region."),
    "data": Key(
        "", TEXT, "Path of its data without the part: data/germany.nc stands for data/germany.train.nc and so on."
    ),
    **_again({**NETWORK, **START, **SECTIONS}),
}
SPLIT: Keys = {
    "by": Key("time", choice(SPLITS), "What is held back: the last days, each customer's last items, and so on."),
    "column": Key("", TEXT, "The column that says train, valid or test; then `by` is column."),
    "test": Key(
        0,
        values.DAYS,
        "The last days, whose purchases are tested on; by default as many as `validate`, or 28 (fewer where there are "
        "not 112), doubled until 200 customers are asked in both windows or hardly more would be.",
    ),
    "validate": Key(0, values.DAYS, "The days before these, which decide; by default as many as `test`."),
    "min_history": Key(5, whole(1, 1000), "Items that a customer must have before a window to be asked about it."),
    "repeats": Key(
        False,
        BOOLEAN,
        "Whether what a customer had before counts as wanted when he buys it again; it is then recommended, too.",
    ),
}
DATA_COLUMNS: Keys = {
    **{name: Key(usual, TEXT, f"The column of the {name}.") for name, usual in COLUMNS.items()},
    "description": Key("", TEXT, "The column of the item's description, which recommendations show."),
    "quantity": Key("", TEXT, "The column of how many; rows where that is 0 or below came back, and are left out."),
}
FORMAT: Keys = {
    "separator": Key("", TEXT, "Between the fields of a text file; by default a comma, a tab in .tsv and .txt."),
    "encoding": Key("utf-8", TEXT, "Of a text file: utf-8, latin-1, cp1252 and so on."),
    "dates": Key(
        "", TEXT, "How times are written, as in strptime: '%d/%m/%Y'; by default ISO 8601, or seconds since 1970."
    ),
    "decimal": Key(".", choice((".", ",")), "What stands before the decimals of a number."),
}
DATA: Keys = {
    "purchases": Key(
        "",
        TEXT,
        "Path of the table, a purchase a line: .csv, .tsv or .txt with a header, also .gz or .zst, or .parquet; or a "
        "folder of such files.",
    ),
    "database": Key(None, section_of(DATABASE_SCHEMA), "The table in a database, in the place of `purchases`."),
    "folder": Key("data", TEXT, "Where the regions' data sets go that are made of it."),
    "split": Key(None, word_or(WORDS, object_of(SPLIT)), "What is held back to judge by: a word, or these keys."),
    "columns": Key(None, section_of(object_of(DATA_COLUMNS)), "The table's names for its columns."),
    "region": Key("", values.REGION_NAME, "Name of the one region, where the table has no column that says it."),
    "format": Key(None, section_of(object_of(FORMAT)), "How the table's texts are to be read."),
    "min_customers": Key(
        MIN_CUSTOMERS,
        whole(1, 1_000_000),
        "A region with fewer customers in validation is not judged by itself: the choice of all serves it.",
    ),
}
_DATA: Schema = {**object_of(DATA), "oneOf": [{"required": ["purchases"]}, {"required": ["database"]}]}
FILES: Keys = {"from": Key("", TEXT, "Pattern of data files, such as data/*.nc: one region per data set.")}
REGIONS: Schema = {
    "anyOf": [
        {"type": "array", "minItems": 1, "items": {**object_of(REGION, ["name"]), **_EITHER}},
        object_of(FILES, ["from"]),
    ]
}
STUDY: Keys = {
    "study": Key(None, values.STUDY_NAME, "Name of the study; by default that of its file."),
    "regions": Key(
        (),
        instance((dict, list), "a list of {name, data}, or {from: data/*.nc}", REGIONS),
        "The regions; each may override keys of the study.",
    ),
    "data": Key(None, section_of(_DATA), "The table that all data come from."),
    "families": Key(
        (),
        values.FAMILY_NAMES,
        f"Kinds of model that a trial may be of: {', '.join(FAMILIES)}; by default all of them, `network` where there "
        "is one, `days` unless the split is one for tables without dates, `again` where `data.split.repeats` is true, "
        "and none that may take more memory than a job has; where there is no `data` only `network`.",
    ),
    **NETWORK,
    **SECTIONS,
    **START,
    POOLED: Key(
        None,
        section_of({**object_of(POOLED_REGION), **_EITHER}),
        "What is different for the model of all regions together.",
    ),
    "limits": Key(None, section_of(object_of(LIMITS)), "Bounds of the whole study."),
    "notify": Key(None, section_of(object_of(NOTIFY)), "Whom to tell how runs end."),
    "track": Key(None, section_of(object_of(TRACK, ["mlflow"])), "Where trials and champions are tracked."),
}


def describe_study() -> Schema:
    """Return study.yaml as JSON Schema (draft 2020-12), made of what it is read by.

    It knows nothing of what several keys mean to each other, but for `metric` and `minimize`, and `data` of the study
    or of each region, nor of files.
    """
    with_data: Schema = {"anyOf": [{"type": "object"}, {"items": {"required": ["data"]}}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "study.yaml",
        **object_of(STUDY),
        "anyOf": [{"required": ["data"]}, {"required": ["regions"], "properties": {"regions": with_data}}],
        **_EITHER,
    }
