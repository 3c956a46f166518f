"""YAHPO Gym's surrogates: networks that predict how good a learner with certain hyperparameters is on a data set.

F. Pfisterer, L. Schneider, J. Moosbauer, M. Binder, B. Bischl, "YAHPO Gym: an efficient multi-objective multi-fidelity
benchmark for hyperparameter optimization", AutoML 2022. The data are those of the repository slds-lmu/yahpo_data, 1.0;
the environment variable REGIONDAG_YAHPO says where. A folder of theirs has the space (config_space.json), the numbers
of the categories (encoding.json) and the network (model.onnx), which takes categories and numbers in the order below.

What is minimised is 1 - accuracy (of iaml: 1 - AUC), on all rows (trainsize 1), the mean of all repetitions (repl 10)
or after the last epoch. Tasks are spread evenly over the list, sorted by number, of those for which the network says of
no model that it is almost perfect (by global_statistics): else it says of strange corners that nothing there is wrong,
as of one random point in ten of rbv2_xgboost's task 41165.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.tuner.problem import Parameter, Point, Problem, When

VARIABLE = "REGIONDAG_YAHPO"
ABSENT = "#na#"  # the category of a parameter that a point does not have; numbers are then 0
ALMOST_PERFECT = 0.98


@dataclass(frozen=True)
class Scenario:
    """What a learner's network takes and gives."""

    task: str  # which parameter names the data set
    categories: tuple[str, ...]  # its first input
    numbers: tuple[str, ...]  # its second
    metric: str
    output: int  # which of the network's that is
    most: float  # that can be
    fixed: Mapping[str, float]  # fidelities
    tasks: int  # how many are taken


RBV2 = {"trainsize": 1.0, "repl": 10.0}
TREES = ("nrounds", "eta", "gamma", "lambda", "alpha", "subsample", "max_depth", "min_child_weight")
SAMPLES = ("colsample_bytree", "colsample_bylevel", "rate_drop", "skip_drop")
LAYERS = ("epoch", "batch_size", "learning_rate", "momentum", "weight_decay", "num_layers", "max_units", "max_dropout")
IMPUTE = "num.impute.selected.cpo"
SCENARIOS = {
    "rbv2_xgboost": Scenario(
        "task_id", ("task_id", "booster", IMPUTE), (*TREES, *SAMPLES, *RBV2), "acc", 0, 1, RBV2, 9
    ),
    "rbv2_rpart": Scenario(
        "task_id", ("task_id", IMPUTE), ("cp", "maxdepth", "minbucket", "minsplit", *RBV2), "acc", 0, 1, RBV2, 5
    ),
    "iaml_glmnet": Scenario("task_id", ("task_id",), ("alpha", "s", "trainsize"), "auc", 2, 1, {"trainsize": 1.0}, 2),
    "lcbench": Scenario("OpenML_task_id", ("OpenML_task_id",), LAYERS, "val_accuracy", 1, 100, {"epoch": 52.0}, 4),
}


@cache
def names() -> tuple[str, ...]:
    """Return the names of the problems, if data and onnxruntime are there."""
    place = os.environ.get(VARIABLE)
    if not place or not importlib.util.find_spec("onnxruntime"):
        return ()
    return tuple(
        f"{name}-{task}"
        for name, scenario in SCENARIOS.items()
        for task in spread(list_tasks(Path(place), name, scenario), scenario.tasks)
    )


def list_tasks(place: Path, name: str, scenario: Scenario) -> list[str]:
    """Return the tasks of a scenario whose network never says that a model is almost perfect."""
    raw = _read(place / name / "config_space.json")
    tasks = next(list(entry["choices"]) for entry in raw["hyperparameters"] if entry["name"] == scenario.task)
    most = _most(place / "global_statistics" / "instance_target_statistics.csv")
    return [task for task in tasks if most[name, task, scenario.metric] <= ALMOST_PERFECT * scenario.most]


@cache
def _most(file: Path) -> dict[tuple[str, str, str], float]:
    """Return the largest values by scenario, task and metric."""
    with file.open(encoding="utf-8", newline="") as rows:
        return {
            (row["scenario"], row["instance"], row["metric"]): float(row["value"])
            for row in csv.DictReader(rows)
            if row["statistic"] == "max"
        }


def make(name: str) -> Problem:
    """Return a problem."""
    scenario, _, task = name.rpartition("-")
    return read_problem(name, Path(os.environ[VARIABLE]) / scenario, SCENARIOS[scenario], task)


def read_problem(name: str, folder: Path, scenario: Scenario, task: str) -> Problem:
    """Return the problem that one task of a scenario's folder is."""
    given = {scenario.task: task, **scenario.fixed}
    space = read_space(_read(folder / "config_space.json"), given)
    codes = _read(folder / "encoding.json")
    predict = _network(folder / "model.onnx")

    def true(point: Point) -> float:
        values: dict[str, Any] = {**point, **given}
        categories = [codes[key][values.get(key, ABSENT)] for key in scenario.categories]
        numbers = [float(values.get(key, 0)) for key in scenario.numbers]
        return 1 - float(predict([categories], [numbers])[0, scenario.output]) / scenario.most

    return Problem(name, "yahpo", space, true)


def read_curve(task: str, epochs: int) -> tuple[tuple[Parameter, ...], Callable[[Point], list[float]]]:
    """Return the space of a task of lcbench, and what gives a point's loss after each epoch."""
    if not names():
        raise NotMeasuredError(f"{VARIABLE} is not set, or onnxruntime is missing: pip install '.[bench]'")
    scenario, folder = SCENARIOS["lcbench"], Path(os.environ[VARIABLE]) / "lcbench"
    space = read_space(_read(folder / "config_space.json"), {scenario.task: task, **scenario.fixed})
    code = _read(folder / "encoding.json")[scenario.task][task]
    predict = _network(folder / "model.onnx")

    def curve(point: Point) -> list[float]:
        others = [float(point[key]) for key in scenario.numbers[1:]]  # the first is the epoch
        found = predict([[code]] * epochs, [[epoch, *others] for epoch in range(1, epochs + 1)])
        return [1 - float(value) / scenario.most for value in found[:, scenario.output]]

    return space, curve


def read_space(raw: Mapping[str, Any], given: Mapping[str, object]) -> tuple[Parameter, ...]:
    """Return the parameters of config_space.json without those that are given."""
    when: dict[str, When] = {}
    for condition in raw["conditions"]:
        if condition["type"] not in ("EQ", "IN"):
            raise ValueError(f"config_space.json: a condition {condition['type']}; only EQ and IN can be read")
        values = condition["values"] if condition["type"] == "IN" else [condition["value"]]
        when[condition["child"]] = (*when.get(condition["child"], ()), (condition["parent"], tuple(values)))
    return tuple(
        _parameter(entry, when.get(entry["name"], ())) for entry in raw["hyperparameters"] if entry["name"] not in given
    )


def _parameter(entry: Mapping[str, Any], when: When) -> Parameter:
    if entry["type"] == "categorical":
        return Parameter(entry["name"], options=tuple(entry["choices"]), when=when)
    if entry["type"] not in ("uniform_float", "uniform_int"):
        raise ValueError(f"config_space.json: {entry['name']} is {entry['type']}, which cannot be read")
    whole = entry["type"] == "uniform_int"
    return Parameter(entry["name"], entry["lower"], entry["upper"], log=entry["log"], whole=whole, when=when)


def spread(tasks: Sequence[str], count: int) -> list[str]:
    """Return so many of the tasks, the middles of equal parts of the list that is sorted by number."""
    ordered = sorted(tasks, key=int)
    return [ordered[int((part + 0.5) * len(ordered) / count)] for part in range(count)]


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{VARIABLE}: {file} cannot be read ({error.strerror}); it must name a copy of the repository "
            "slds-lmu/yahpo_data, or be unset"
        ) from None
    return found


@cache
def _network(file: Path) -> Callable[[Sequence[Sequence[int]], Sequence[Sequence[float]]], np.ndarray]:
    """Return what predicts all outputs, a row for each point, from the numbers of categories and from numbers."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = InferenceSession(file, options, providers=["CPUExecutionProvider"])
    first, second = (entry.name for entry in session.get_inputs())

    def predict(categories: Sequence[Sequence[int]], numbers: Sequence[Sequence[float]]) -> np.ndarray:
        inputs = {first: np.array(categories, np.int32), second: np.array(numbers, np.float32)}
        return np.asarray(session.run(None, inputs)[0])

    return predict
