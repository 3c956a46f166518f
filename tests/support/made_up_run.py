"""A run as the report finds it: journals, champions and tries of jobs, all drawn, the same ones every time."""

from __future__ import annotations

import base64
import json
import math
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nnlib.confusion import Confusion, Example
from nnlib.contract import Metric, Recipe, Status, TrainSettings
from regiondag.condor.events.attempts import Attempt, Hold, Leg, Span
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import JOB_LOG, NodeName, RunFolder
from regiondag.run.region_spec import RegionSpec, spec_to_json
from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real, random_point
from tests.support.made_up_study import HOST

SPACE = (
    Integer("hidden", 32, 512, log=True),
    Real("learning_rate", 1e-4, 1e-1, log=True),
    Real("dropout", 0.0, 0.8),
    Real("denoising", 0.0, 0.8),
    Choice("optimizer", ("adam", "rmsprop", "sgd")),
    Real("momentum", 0.0, 0.9, when=(("optimizer", ("rmsprop", "sgd")),)),
)
METRICS = tuple(f"{name}@{k}" for name in ("p", "recall", "ndcg") for k in (5, 10, 20))
CAUTION = "40 <customers> were asked in all regions together, so differences below the interval's width mean nothing"
START = 1_790_000_000.0  # Unix time of the run's first job
PARALLEL = 8


@dataclass(frozen=True)
class Shape:
    """Size of a run."""

    regions: int = 41
    trials: int = 200
    epochs: int = 30
    slots: int = 64
    served: bool = False  # whether the search of the first region is for the last one, too
    ends: str = "some fail"  # or "all fail", or "never": it is still going
    classes: tuple[str, ...] = ()  # those of its pictures, if it is of such
    nights: int = 1  # from the second one on there is a recipe in office

    def __str__(self) -> str:
        return f"{self.regions} regions x {self.trials} trials x {self.epochs} epochs"


def write_run(folder: Path, shape: Shape, names: Sequence[str] = ()) -> RunFolder:
    """Write what `regiondag report` reads of a run; `names` are those of the first regions."""
    run = RunFolder(folder)
    every = [*names, *(f"region {number}" for number in range(len(names), shape.regions))][: shape.regions]
    regions = {f"region-{number}": name for number, name in enumerate(every)}
    run.path.mkdir(parents=True)
    manifest = {"study": "made up", "run": str(run.path), "metric": "ndcg@20", "regions": regions, "sha256": {}}
    run.manifest.write_text(json.dumps(manifest), encoding="utf-8")
    for number, (slug, name) in enumerate(regions.items()):
        by = "region-0" if shape.served and number == shape.regions - 1 else ""
        _write_region(run, number, slug, name, replace(shape, trials=0) if by else shape, by)
    run.region("region-0").decisions.write_text(json.dumps({"cautions": [CAUTION]}), encoding="utf-8")
    return run


def _write_region(run: RunFolder, number: int, slug: str, name: str, shape: Shape, served_by: str) -> None:
    folder = run.region(slug)
    folder.path.mkdir(parents=True)
    sizes = (PARALLEL,) * (shape.trials // PARALLEL) + (shape.trials % PARALLEL,) * bool(shape.trials % PARALLEL)
    search = Search("bayes", SPACE, sizes)
    metric = Metric("ndcg@20")
    before = Recipe("popularity", {"half_life": 10.0}) if shape.nights > 1 else None
    spec = RegionSpec(
        "made up",
        name,
        slug,
        metric,
        TrainSettings(),
        search,
        ("final",),
        {},
        number,
        served_by=served_by,
        incumbent=before,
    )
    folder.spec.write_text(spec_to_json(spec), encoding="utf-8")
    rng = random.Random(slug)
    with Journal(folder.journal).locked():
        Journal(folder.journal).append_all(_journal(rng, shape, number))
    if shape.ends == "never":
        return
    test = {metric: round(rng.uniform(0.03, 0.12), 6) for metric in METRICS}
    folder.champion_metrics.parent.mkdir()
    point = random_point(SPACE, number)
    folder.champion_metrics.write_text(json.dumps({"hyperparameters": point, "test": test}), encoding="utf-8")
    if shape.classes:
        folder.champion_confusion.write_text(json.dumps(asdict(make_confusion(rng, shape.classes))), encoding="utf-8")


def make_confusion(rng: random.Random, classes: Sequence[str]) -> Confusion:
    """What pictures of some classes were taken for: the first one often for the second, the others for the first."""
    pairs = [(0, 1, 9), *((number, 0, 1) for number in range(1, len(classes)))]
    sides = ((48, 48, 3), (3, 2, 1))
    examples = [
        Example(0, at, 0.5 + at / 4, *size, base64.b64encode(rng.randbytes(math.prod(size))).decode())
        for at, size in zip((1, 0), sides, strict=True)
    ]
    return Confusion(len(classes), tuple(classes), (10,) * len(classes), tuple(pairs), tuple(examples))


def _journal(rng: random.Random, shape: Shape, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for trial in range(shape.trials):
        point = random_point(SPACE, 1000 * number + trial)
        yield "proposed", {"trial": trial, "point": point}
        yield "settled", asdict(_outcome(rng, shape.epochs, trial, point))
    if shape.ends == "never":
        return
    test = {metric: rng.uniform(0.03, 0.12) for metric in METRICS}
    ok = number % 9 != 4 and shape.ends != "all fail"
    customers = max(int(10 ** rng.uniform(0.5, 4.2)), 1)
    compared = {
        name: {metric: rng.uniform(low, 1.05) * value for metric, value in test.items()}
        for name, low in (("floor", 0.6), ("simple", 0.8), *([("incumbent", 0.9)] if shape.nights > 1 else []))
    }
    final = TrialOutcome(
        None,
        Status.OK if ok else Status.BAD_INPUT,
        "better than recent popularity with P = .973 (1,119 customers)" if ok else "data.test.nc: SHA-256 differs",
        metrics=test if ok else {},
        baseline={metric: 0.6 * value for metric, value in test.items()},
        customers=customers if ok else 0,
        intervals={metric: (value - 0.01, value + 0.01) for metric, value in test.items()} if ok else {},
        gains={name: _gain(test["ndcg@20"] - of["ndcg@20"], customers) for name, of in compared.items()} if ok else {},
        compared=compared if ok else {},
        seconds=300.0,
        promoted=number % 3 > 0,
    )
    yield "settled", asdict(final)


def _gain(difference: float, customers: int) -> tuple[float | None, ...]:
    half = 0.3 / math.sqrt(customers)
    return (difference, difference - half, difference + half) if customers > 1 else (difference, None, None)


def _outcome(rng: random.Random, epochs: int, trial: int, point: dict[str, Any]) -> TrialOutcome:
    luck = rng.random()
    if luck < 0.04:
        return TrialOutcome(trial, Status.DIVERGED, f"the loss is nan in epoch {rng.randint(1, epochs)}", seconds=20.0)
    good = 0.09 - 0.01 * abs(math.log10(point["learning_rate"]) + 2.5) - 0.02 * point["dropout"]
    ran = rng.randint(3, epochs - 1) if luck < 0.2 and epochs > 4 else epochs
    curve = tuple((good + rng.gauss(0, 0.002)) * (1 - math.exp(-(epoch + 1) / 6)) for epoch in range(ran))
    best = max(range(ran), key=curve.__getitem__)
    pruned = (Status.PRUNED, f"worse than the median after epoch {ran}")
    status, reason = (Status.OK, "") if ran == epochs else pruned
    metrics = {metric: rng.random() for metric in METRICS} | {"ndcg@20": curve[best]}
    judged: dict[str, Any] = {"stderr": rng.uniform(0.002, 0.003), "customers": 1119}
    judged["compared"] = {"floor": {"ndcg@20": 0.05}}
    return TrialOutcome(
        trial, status, reason, curve[best], metrics, curve=curve, best_epoch=best + 1, seconds=9.0 * ran, **judged
    )


def make_attempts(shape: Shape) -> list[Attempt]:
    """Return the tries of all jobs: slots in turn, some of them evicted, held, or tried again after a fault."""
    rng = random.Random(7)
    slots = [f"slot1_{number % 8 + 1}@gpu-{number // 8}.example.org" for number in range(shape.slots)]
    free = [START + rng.uniform(0, 60) for _ in slots]
    attempts = []
    slugs = [f"region-{number}" for number in range(shape.regions)]
    nodes = [NodeName(slug, trial) for trial in range(shape.trials) for slug in slugs]
    for number, node in enumerate([*nodes, *(NodeName(slug, None) for slug in slugs)]):
        slot = min(range(len(slots)), key=free.__getitem__)
        if number % 700 == 350:  # a fault of the machine: the node's job is tried again
            attempts.append(_attempt(rng, node, 9 * number, slots, slot, free, 75))
        attempts.append(_attempt(rng, node, 9 * number + 1, slots, slot, free, 0))
    return attempts


def _attempt(
    rng: random.Random, node: NodeName, job: int, slots: list[str], slot: int, free: list[float], code: int
) -> Attempt:
    legs = []
    submitted = free[slot] - rng.uniform(5, 50)
    if rng.random() < 0.03:
        legs.append(_leg(rng, slots[slot], free[slot], rng.uniform(20, 200), "evicted", "spot notice: terminate"))
        free[slot] = legs[-1].running.end + 30  # type: ignore[operator]
    start = free[slot] + rng.uniform(1, 25)
    legs.append(_leg(rng, slots[slot], start, rng.uniform(30, 300), "done", ""))
    end = free[slot] = legs[-1].running.end or start
    held = (
        (Hold(Span(submitted, submitted + 4), 13, 2, "Transfer input files failure"),) if rng.random() < 0.004 else ()
    )
    used = {"memory_mb": rng.uniform(300, 3000)}
    return Attempt(node, f"{job}.0", Span(submitted, end), tuple(legs), held, code, used=used)


def _leg(rng: random.Random, slot: str, start: float, seconds: float, ending: str, reason: str) -> Leg:
    into = Span(start, start + rng.uniform(1, 8))
    end = start + 8 + seconds
    out = Span(end - rng.uniform(0.5, 4), end) if ending == "done" else None
    kept = ending == "done" or rng.random() < 0.3
    facts = {"GPU": "NVIDIA L4"}
    return Leg(slot.partition("@")[2], slot, Span(start + 8, end), into, out, ending, reason, kept, facts)


# --- the same as HTCondor writes it ------------------------------------------------------------------------


def write_logs(run: RunFolder, attempts: Iterable[Attempt]) -> None:
    """Write each node's event log."""
    texts: dict[NodeName, list[str]] = {}
    for attempt in attempts:
        texts.setdefault(attempt.node, []).extend(_events(attempt))
    for node, events in texts.items():
        folder = run.region(node.slug).trial(node)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / JOB_LOG).write_text("".join(events), encoding="utf-8")


def _events(attempt: Attempt) -> Iterator[str]:
    def event(code: int, when: float | None, text: str) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
        return f"{code:03d} ({int(attempt.job.split('.')[0]):03d}.000.000) {stamp} {text}\n...\n"

    yield event(0, attempt.queued.start, f"Job submitted from host: {HOST}\n    DAG Node: {attempt.node}")
    for hold in attempt.holds:
        yield event(12, hold.held.start, f"Job was held.\n\t{hold.reason}\n\tCode {hold.code} Subcode {hold.subcode}")
        yield event(13, hold.held.end, "Job was released.\n\tvia condor_release (by user condor)")
    for leg in attempt.legs:
        into, out = leg.transfer_in, leg.transfer_out
        yield event(40, into.start if into else None, "Started transferring input files")
        yield event(40, into.end if into else None, "Finished transferring input files")
        facts = '\tCpus = 1\n\tEC2InstanceType = "g5.xlarge"\n\tGPUs = 1\n\tGPUs_DeviceName = "NVIDIA A10G"'
        yield event(1, leg.running.start, f"Job executing on host: {HOST}\n\tSlotName: {leg.slot}\n{facts}")
        if leg.ending == "evicted":
            yield event(4, leg.running.end, f"Job was evicted.\n\t(0) CPU times\n\tReason: {leg.reason}")
            continue
        yield event(40, out.start if out else None, "Started transferring output files")
        yield event(40, out.end if out else None, "Finished transferring output files")
        yield event(5, leg.running.end, f"Job terminated.\n\t(1) Normal termination (return value {attempt.exit_code})")
