"""What the manager's benchmarks measure on: studies with tiny data, long journals, long event logs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nnlib.contract import Status
from nnlib.data.file import write_data
from nnlib.data.rows import from_rows
from nnlib.data.sets import Data, DataSet
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import JOB_LOG, NodeName, RunFolder

WIDTH = 12
METRICS = ("loss", *(f"{name}@{k}" for name in ("p", "recall", "ndcg") for k in (5, 10, 20)))

NETWORK = {
    "Version": 0.8,
    "Name": "tiny",
    "Kind": "FeedForward",
    "Layers": [
        {"Name": "Input", "Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Name": "Hidden", "Kind": "Hidden", "N": "$hidden", "Activation": "Tanh"},
        {"Name": "Output", "Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "SoftMax"},
    ],
    "ErrorFunction": "CrossEntropy",
}

STUDY = """\
study: {name}
regions:
{regions}
network: network.json
metric: ndcg@5
train: {{epochs: 2, batch: 4, seed: 7}}
search:
  method: bayes
  rounds: {rounds}
  parallel: {parallel}
  space:
    hidden: {{int: [2, 64], log: true}}
    learning_rate: {{real: [1e-4, 1e-1], log: true}}
job: {{cpus: 1, memory: 256MB, disk: 100MB}}
limits: {{jobs: 64}}
"""

EVENT = """\
{code} ({cluster}.000.000) {stamp} {text}
...
"""
HOST = "<127.0.0.1:9618?addrs=127.0.0.1-9618&alias=worker.local>"
SUBMITTED = "Job submitted from host: " + HOST + "\n    DAG Node: {node}"
EXECUTING = "Job executing on host: " + HOST + "\n\tSlotName: slot1_1@worker.local\n\tCpus = 1\n\tMemory = 256"
TERMINATED = """Job terminated.
\t(1) Normal termination (return value 0)
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage
\t961  -  Run Bytes Sent By Job
\t156612  -  Run Bytes Received By Job
\t961  -  Total Bytes Sent By Job
\t156612  -  Total Bytes Received By Job"""
STARTED = "Started transferring input files\n\tTransferring to host: " + HOST
EXECUTING_ON_GPU = (
    f"Job executing on host: {HOST}"
    + """
\tSlotName: slot1_{slot}@worker.local
\tAvailableGPUs = {{ GPUs_GPU_a0223334 }}
\tCondorScratchDir = "/var/lib/condor/execute/dir_949"
\tCpus = 1
\tDisk = 103424
\tEC2InstanceType = "g5.12xlarge"
\tEC2InstanceLifeCycle = "spot"
\tGPUs = 1
\tGPUs_DeviceName = "NVIDIA A10G"
\tGPUs_GPU_a0223334 = [ Id = "GPU-a0223334"; Capability = 8.6; DeviceName = "NVIDIA A10G"; ECCEnabled = true ]
\tMemory = 256"""
)
MEASURED = """Image size of job updated: 5268
\t4  -  MemoryUsage of job (MB)
\t3188  -  ResidentSetSize of job (KB)"""
RESOURCES = """
\tPartitionable Resources :    Usage  Request Allocated Assigned
\t   Cpus                 :        0        1         1
\t   Disk (KB)            :      845   102400    103424
\t   GPUs                 :                 1         1 "GPU-a0223334"
\t   Memory (MB)          :       11      256       256
\t   TimeExecute (s)      :        6
\t   TimeSlotBusy (s)     :        8"""
EVICTED = """Job was evicted.
\t(0) CPU times
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\t0  -  Run Bytes Sent By Job
\t846239  -  Run Bytes Received By Job"""


def write_study(folder: Path, name: str, regions: int, rounds: int, parallel: int) -> Path:
    """Write NAME.yaml over regions that all point at the same four tiny data files; return its path."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    _write_data(folder / "data" / "all")
    (folder / "network.json").write_text(json.dumps(NETWORK), encoding="utf-8")
    lines = "\n".join(f"  - {{name: region {number}, data: data/all.nc}}" for number in range(regions))
    path = folder / f"{name}.yaml"
    path.write_text(STUDY.format(name=name, regions=lines, rounds=rounds, parallel=parallel), encoding="utf-8")
    return path


def _write_data(stem: Path) -> None:
    owned = [[(user + i) % WIDTH for i in range(6)] for user in range(8)]
    parts = {
        "train": ([row[:3] for row in owned], [row[:3] for row in owned]),
        "valid": ([row[:3] for row in owned], [row[3:4] for row in owned]),
        "final": ([row[:4] for row in owned], [row[:4] for row in owned]),
        "test": ([row[:4] for row in owned], [row[4:] for row in owned]),
    }
    for part, (inputs, outputs) in parts.items():
        sets = (DataSet("input", from_rows(inputs, WIDTH)), DataSet("output", from_rows(outputs, WIDTH)))
        write_data(stem.with_name(f"{stem.name}.{part}.nc"), Data(sets))


def fill_journals(run: RunFolder, slugs: Sequence[str], trials: int, settled: int) -> None:
    """Write the journals of a run in which `settled` of each region's `trials` have ended."""
    for slug in slugs:
        journal = Journal(run.region(slug).journal)
        with journal.locked():
            journal.append_all(_journal(random.Random(slug), trials, settled))


def _journal(rng: random.Random, trials: int, settled: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for number in range(trials):
        point = {"hidden": rng.randint(2, 64), "learning_rate": rng.uniform(1e-4, 1e-1)}
        yield "proposed", {"trial": number, "point": point}
        if number < settled:
            metrics = {name: rng.random() for name in METRICS}
            yield (
                "settled",
                asdict(TrialOutcome(number, Status.OK, "", metrics["ndcg@5"], metrics, best_epoch=2, seconds=0.4)),
            )


def write_dagman_log(run: RunFolder, cluster: int) -> None:
    """Write the event log of a DAGMan job that runs, so that `status` asks the queue for its jobs."""
    log = run.study_dag.with_name(f"{run.study_dag.name}.dagman.log")
    events = (("000", SUBMITTED.format(node="")), ("001", EXECUTING))
    log.write_text("".join(event(code, cluster, 0, text) for code, text in events), encoding="utf-8")


def write_event_log(path: Path, jobs: int) -> None:
    """Write what HTCondor logs of `jobs` jobs that were submitted, ran and ended."""
    with path.open("w", encoding="utf-8") as file:
        for cluster in range(1, jobs + 1):
            node = NodeName(f"region-{cluster // 1000}", cluster % 1000)
            file.write(event("000", cluster, cluster, SUBMITTED.format(node=node)))
            file.write(event("001", cluster, cluster + 1, EXECUTING))
            file.write(event("005", cluster, cluster + 2, TERMINATED))


def write_job_logs(run: RunFolder, slugs: list[str], settled: int, evicted_share: float) -> None:
    """Write what HTCondor logs of each trial that has ended: nine events, and four more where it was evicted once."""
    rng = random.Random(7)
    cluster = 0
    for slug in slugs:
        for number in range(settled):
            cluster += 1
            node = NodeName(slug, number)
            place = run.region(slug).trial(node)
            place.mkdir(exist_ok=True)
            texts = _texts(node, cluster % 64, evicted=rng.random() < evicted_share)
            log = "".join(event(code, cluster, cluster + at, text) for at, (code, text) in enumerate(texts))
            (place / JOB_LOG).write_text(log, encoding="utf-8")


def _texts(node: NodeName, slot: int, *, evicted: bool) -> Iterator[tuple[str, str]]:
    yield "000", SUBMITTED.format(node=node)
    for cut_short in (True, False) if evicted else (False,):
        yield "040", STARTED
        yield "040", "Finished transferring input files"
        yield "001", EXECUTING_ON_GPU.format(slot=slot)
        yield "006", MEASURED
        if cut_short:
            yield "004", EVICTED + RESOURCES
    yield "040", "Started transferring output files"
    yield "040", "Finished transferring output files"
    yield "005", TERMINATED + RESOURCES


def event(code: str, cluster: int, second: int, text: str) -> str:
    """Return one event of a job as HTCondor writes it."""
    minutes, seconds = divmod(second % 86400, 60)
    hours, minutes = divmod(minutes, 60)
    stamp = f"2026-01-{1 + second // 86400:02d} {hours:02d}:{minutes:02d}:{seconds:02d}"
    return EVENT.format(code=code, cluster=f"{cluster:03d}", stamp=stamp, text=text)
