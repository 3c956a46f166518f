"""A study of stand-ins on a real pool: the jobs sleep as long as prescribed, everything else is as in any study."""

from __future__ import annotations

import hashlib
import math
import random
import shlex
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orchestration_inputs as inputs
import orchestration_pool as pools
from harness import NotMeasuredError, measure
from lanes_simulation import Delays, Shape, Span, plans
from orchestration import add_journals

from nnlib.contract import Result, Status, result_to_json
from regiondag.pool.pool import Pool
from regiondag.run.layout import NodeName, RunFolder

PATIENCE = 3  # times as long as the trials take without any gap
WORKER = """\
#!/bin/sh
# Stands in for a training: sleeps as long as its trial is to take, and says that it went well.
case $(sed -n 's/^ *"node": "\\(.*\\)".*/\\1/p' trial.json) in
{cases}
*) exit 4 ;;
esac
sleep "$seconds"
echo model >model.nc
: >log.jsonl
echo "$result" >result.json
"""


def slots_config(slots: int) -> str:
    """Return the pool's settings for as many slots of one core and one simulated GPU; sleeping jobs need no cores."""
    return f"{pools.POOL_CONFIG}NUM_CPUS = {slots}\n"


@dataclass(frozen=True)
class Ran:
    """What a study on the pool gave: when its nodes ran, and what lay between two trials of a lane."""

    spans: dict[NodeName, Span]
    delays: Delays
    parts: pools.Barrier | None  # means over all trials but the first of each lane; None in rounds


def run_study(pool: Pool, area: Path, shape: Shape, schedule: str, seconds: Mapping[NodeName, float]) -> Ran:
    """Run a study of this shape to its end and read its logs."""
    run = _generate(pool, area, shape, schedule)
    (run.path / "train.sh").write_text(worker(seconds), encoding="utf-8")
    log = run.path / "study.dag.dagman.out"
    pools.submit(pool, run.study_dag)
    patience = PATIENCE * (sum(seconds.values()) / shape.slots + 20 * shape.steps)
    deadline = time.monotonic() + patience
    while not log.exists() or "EXITING WITH STATUS" not in log.read_text(encoding="utf-8"):
        if time.monotonic() > deadline:
            raise NotMeasuredError(f"{shape} in {schedule}: not within {patience:.0f} s")
        time.sleep(2)  # seldom: it takes time from the pool
    times = pools.read_events(run.study_dag.with_name("study.dag.nodes.log"))
    times.pop("report", None)
    add_journals(run, times)
    names = [node for region in plans(shape, schedule) for node in region.nodes()]
    nodes = {node: times[str(node)] for node in names if str(node) in times and not math.isnan(times[str(node)].ended)}
    if len(nodes) < shape.trials + shape.regions:  # the nodes that lanes have besides do nothing
        said = (run.path / "manager.log").read_text(encoding="utf-8")[-600:]
        raise NotMeasuredError(f"{shape} in {schedule}: only {len(nodes)} jobs ended: {said}")
    return Ran(
        {node: Span(found.executing, found.ended) for node, found in nodes.items()},
        delays(shape, schedule, nodes),
        parts(shape, nodes) if schedule == "lanes" else None,
    )


def _generate(pool: Pool, area: Path, shape: Shape, schedule: str) -> RunFolder:
    study = inputs.write_study(area, schedule, shape.regions, shape.steps, shape.lanes)
    text = study.read_text(encoding="utf-8").replace("method: bayes", f"method: bayes\n  schedule: {schedule}")
    study.write_text(text, encoding="utf-8")
    words = ["--htcondor", ".".join(map(str, pool.version)), "--champions", "none", "--out", area / "runs"]
    return RunFolder(Path(measure([*pools.REGIONDAG, "generate", study, *words]).output.strip()))


def worker(seconds: Mapping[NodeName, float]) -> str:
    """Return the script that every job runs instead of a training; values are drawn, so that a model can be fitted."""
    return WORKER.format(cases="\n".join(_case(node, length) for node, length in seconds.items()))


def _case(node: NodeName, seconds: float) -> str:
    value = round(random.Random(str(node)).random(), 6)  # noqa: S311
    metrics = {"ndcg@5": value, "p@10": value / 2, "ndcg@20": value}
    result = Result(
        str(node), Status.OK, value=value, metrics=metrics, baseline=metrics, curve=(value,), best_epoch=1, epochs=1,
        examples=8, seconds=round(seconds, 3), model=hashlib.sha256(b"model\n").hexdigest(),
    )  # fmt: skip
    one_line = result_to_json(result).replace("\n", " ")
    return f"{node}) seconds={seconds:.3f} result={shlex.quote(one_line)} ;;"


def delays(shape: Shape, schedule: str, nodes: Mapping[NodeName, pools.Times]) -> Delays:
    """Return the mean delays; a slot that a job could have had is the one that has been free for the longest."""
    parents: dict[NodeName, list[NodeName]] = {}
    for before, after in (edge for region in plans(shape, schedule) for edge in region.edges()):
        for node in after:
            parents.setdefault(node, []).extend(before)
    manager = [
        nodes[node].submitted - max(nodes[parent].ended for parent in before)
        for node, before in parents.items()
        if node in nodes and nodes.keys() >= set(before)
    ]
    free = [-math.inf] * shape.slots
    start = []
    for found in sorted(nodes.values(), key=lambda found: found.executing):
        slot = min(range(shape.slots), key=free.__getitem__)
        start.append(found.executing - max(found.submitted, free[slot]))
        free[slot] = found.ended
    return Delays(statistics.fmean(manager), statistics.fmean(start))


def parts(shape: Shape, nodes: Mapping[NodeName, pools.Times]) -> pools.Barrier:
    """Return the mean of each part of what lies between two trials of a lane."""
    found: Sequence[pools.Barrier] = [
        pools.barrier([nodes[before[0]]], [nodes[after[0]]])
        for region in plans(shape, "lanes")
        for before, after in region.edges()
        if after[0].number is not None and after[0] in nodes
    ]
    return pools.Barrier(
        *(statistics.fmean(getattr(one, name) for one in found) for name in pools.Barrier.__dataclass_fields__)
    )
