"""A trial, or a champion's training, as a run of MLflow. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import Status
from regiondag.run.history import History, TrialOutcome
from regiondag.run.layout import NodeName
from regiondag.util.text import shorten

# Bounds of MLflow: 250 bytes of a name, 500 characters of a parameter in the oldest versions, 5,000 bytes of a tag; of
# a request 100 parameters and 1,000 metrics.
LONGEST_NAME, LONGEST_VALUE, LONGEST_TAG = 250, 500, 1000
MOST_PARAMETERS, MOST_POINTS = 100, 900
ENDS = {Status.OK: "FINISHED", Status.PRUNED: "FINISHED", Status.REMOVED: "KILLED"}  # all else has FAILED
KEY = "regiondag"  # the tag by which a run is found again


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric."""

    name: str
    value: float
    step: int  # epoch
    time: int  # Unix time in milliseconds


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What MLflow is told of one training."""

    key: str  # of this end of this training: one that is run again and ends anew is a run of its own
    name: str
    status: str  # as MLflow says it
    start: int  # Unix time in milliseconds
    end: int
    parameters: Mapping[str, str]
    points: tuple[Point, ...]
    tags: Mapping[str, str]
    model: Path | None = None  # of a champion, where it is


def batches_of(run: TrackedRun) -> Iterator[tuple[dict[str, str], tuple[Point, ...]]]:
    """Yield parameters and points, as many as a request may hold; nothing where there are none."""
    names = list(run.parameters)
    for number in range(max(-(-len(names) // MOST_PARAMETERS), -(-len(run.points) // MOST_POINTS))):
        some = names[number * MOST_PARAMETERS : (number + 1) * MOST_PARAMETERS]
        points = run.points[number * MOST_POINTS : (number + 1) * MOST_POINTS]
        yield {name: run.parameters[name] for name in some}, points


def list_ended(history: History, slug: str, run: str) -> list[tuple[str, NodeName, TrialOutcome, float]]:
    """Return each end that a region's journal knows, with its key, node and Unix time, in the order of their times."""
    ends = [(history.settled_at.get(number, 0.0), outcome) for number, outcome in history.settled.items()]
    if history.final:
        ends.append((history.final_at, history.final))
    found = []
    for when, outcome in sorted(ends, key=lambda end: end[0]):
        node = NodeName(slug, outcome.trial)
        key = re.sub(r"[^ !#-&(-\[\]-~]", "_", f"{run}/{node}/{when:.3f}")  # it stands in quotes when it is looked for
        found.append((key, node, outcome, when))
    return found


def describe_training(
    key: str,
    node: NodeName,
    outcome: TrialOutcome,
    when: float,
    metric: str,
    settings: Mapping[str, object],
    tags: Mapping[str, str],
) -> TrackedRun:
    """Return a training as MLflow is told of it; `when`: Unix time of its end, `settings`: its hyperparameters.

    The metric is one value, at the best epoch; its curve has a name of its own, as MLflow shows the last value of each.
    """
    end = round(when * 1000)
    start = end - round(outcome.seconds * 1000)
    name, count = name_metric(metric), len(outcome.curve)
    points = [] if outcome.value is None else [Point(name, outcome.value, outcome.best_epoch, end)]
    if outcome.trial is None:
        points += (Point(f"test/{name_metric(of)}", value, 0, end) for of, value in outcome.metrics.items())
        points += (Point(f"popularity/{name_metric(of)}", value, 0, end) for of, value in outcome.baseline.items())
    for epoch, value in enumerate(outcome.curve, start=1):
        points.append(Point(f"curve/{name}", value, epoch, start + (end - start) * epoch // count))
    about = {KEY: key, "node": str(node), "status": str(outcome.status), "reason": outcome.reason, **tags}
    about |= {"job": outcome.job, "host": outcome.host, "mlflow.source.name": "regiondag", "mlflow.source.type": "JOB"}
    return TrackedRun(
        key,
        str(node),
        ENDS.get(outcome.status, "FAILED"),
        start,
        end,
        {_name(of): shorten(_text(value), LONGEST_VALUE) for of, value in settings.items()},
        tuple(point for point in points if math.isfinite(point.value)),
        {name: shorten(text, LONGEST_TAG) for name, text in about.items() if text},
    )


def name_metric(name: str) -> str:
    """Return a metric's name as MLflow takes it.

    >>> name_metric("ndcg@20")
    'ndcg_at_20'
    """
    return _name(name.replace("@", "_at_"))


def name_model(study: str, slug: str) -> str:
    """Return what a region's champions are called in MLflow's registry of models.

    >>> name_model("online/retail", "united-kingdom")
    'online_retail.united-kingdom'
    """
    return _name(f"{study}.{slug}")


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_. -]", "_", text).strip(". ")[:LONGEST_NAME] or "_"


def _text(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_text, value))
    return str(value)
