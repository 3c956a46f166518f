"""Machines that fail jobs of a run: noted by POST, kept from the next tries by PRE.

`machines.json` holds each machine's failures since its last success. The journals know all of it; this is what PRE can
read in a moment whatever the number of regions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nnlib.util.files import locked, write_atomically
from regiondag.run.history import Fault
from regiondag.run.layout import RunFolder
from regiondag.run.manager_log import say
from regiondag.study.job_rules import OUT_OF_MEMORY

SICK_AFTER = 3  # jobs that fail in a row
SICK_FOR = 3600.0  # seconds in which a sick machine gets no job of the run
AVOIDED_FOR = 300.0  # seconds in which a node does not go back to a machine that failed it
PATIENCE = 5  # seconds for the collector to answer


@dataclass(frozen=True, slots=True)
class JobFailure:
    """One job that a machine failed."""

    job: str
    when: float  # Unix time
    reason: str


Failures = Mapping[str, tuple[JobFailure, ...]]  # machine -> its last failures, without a success in between


def read_failures(run: RunFolder) -> Failures:
    """Return what is noted of the run's machines; nothing where that cannot be read."""
    try:
        raw: dict[str, Any] = json.loads(run.machines.read_text(encoding="utf-8"))
        return {host: tuple(JobFailure(**failure) for failure in failures) for host, failures in raw.items()}
    except (OSError, AttributeError, TypeError, ValueError):
        return {}


def note_end(run: RunFolder, host: str, job: str, failure: str, now: float) -> None:
    """Note that a job ended on a machine: by its `failure`, or well where that is empty. Twice is once."""
    if not host or (not failure and host not in read_failures(run)):
        return
    with locked(run.machines.with_suffix(".lock")):
        known = dict(read_failures(run))
        if not failure:
            known.pop(host, None)
        elif job not in {earlier.job for earlier in known.get(host, ())}:
            known[host] = (*known.get(host, ()), JobFailure(job, now, failure))[-SICK_AFTER:]
            if len(known[host]) == SICK_AFTER:
                say(f"{host}: failed {SICK_AFTER} jobs in a row, gets none of this run for an hour; {failure}")
        raw = {name: [asdict(each) for each in failures] for name, failures in known.items()}
        write_atomically(run.machines, json.dumps(raw, indent=1, ensure_ascii=False) + "\n")


def select_sick(failures: Failures) -> dict[str, JobFailure]:
    """Return the machines that failed too many jobs in a row, each with the last of them."""
    return {host: each[-1] for host, each in failures.items() if len(each) >= SICK_AFTER}


def choose_avoided(failures: Failures, faults: Iterable[Fault], now: float) -> dict[str, float]:
    """Return the machines that a node is not to run on, each with the Unix time up to which it is not.

    `faults` are those of the node itself.
    """
    until = {host: last.when + SICK_FOR for host, last in select_sick(failures).items()}
    for fault in faults:
        if fault.host and not fault.reason.startswith(OUT_OF_MEMORY):
            until[fault.host] = max(until.get(fault.host, 0.0), fault.when + AVOIDED_FOR)
    return {host: when for host, when in sorted(until.items()) if when > now}


def leave_some(avoided: Mapping[str, float], machines: Iterable[str]) -> Mapping[str, float]:
    """Return what is avoided, but nothing where that would leave none of the `machines` that the pool is known for."""
    return avoided if set(machines) - set(avoided) else {}


def query_machines(gpus: bool) -> list[str]:
    """Ask the collector which machines there are, those with GPUs alone if need be; nothing when it does not say."""
    import subprocess  # scripts start faster without, and few of them ask

    constraint = 'SlotType =!= "Dynamic"' + (" && (TotalSlotGPUs ?: 0) > 0" if gpus else "")
    command = ["condor_status", "-constraint", constraint, "-autoformat", "Machine"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return sorted(set(done.stdout.split())) if done.returncode == 0 else []
