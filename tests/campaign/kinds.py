"""What each kind of fault does to a running study: a function for each, which returns what it hit, None for nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nnlib.contract import MODEL_FILE, RESULT_FILE
from tests.campaign.cgroups import killed_by_cgroup
from tests.campaign.files import (
    OFTEN,
    PATIENCE,
    Inject,
    corrupted,
    cut,
    damaged_checkpoint,
    damaged_node_log,
    deleted,
    full_disk,
    truncated,
)
from tests.campaign.running import Running, Seen, wait_until
from tests.campaign.schedule import Fault
from tests.campaign.setup import SHORT_LEASE
from tests.campaign.surroundings import SURROUNDINGS

IDLE, HELD = "1", "5"  # what JobStatus says
STILL_THERE = "has not left the queue"
JUMPS = (1800, 300, -60)  # a clock set back stalls HTCondor's timers until it is where it was


def pick(found: Sequence[Seen], fault: Fault) -> Seen:
    """Choose one of those that could be hit."""
    return sorted(found, key=lambda seen: seen.pid)[int(fault.target * len(found))]


def _kill(find: Callable[[Running], list[Seen]], delay: float = 1.0) -> Inject:
    """Kill one of what `find` gives, up to `delay` seconds after there is one."""

    def inject(study: Running, fault: Fault) -> str | None:
        if not wait_until(lambda: find(study), PATIENCE):
            return None
        time.sleep(fault.amount * delay)
        found = wait_until(lambda: find(study), PATIENCE)
        if not isinstance(found, list) or not found:
            return None
        seen = pick(found, fault)
        return f"pid {seen.pid} {' '.join(seen.words[2:6])}".strip() if seen.kill() else None

    return inject


def _daemon(name: str) -> Inject:
    return _kill(lambda study: study.programs(name))


def _worker(study: Running, fault: Fault) -> str | None:
    """Kill the worker's daemon and all below it; those that would start it again are not of the worker."""
    if not wait_until(study.trainings, PATIENCE):
        return None
    time.sleep(fault.amount)
    hit = _worker_processes(study)
    return f"{sum(seen.kill() for seen in hit)} processes" if hit else None


def _worker_processes(study: Running) -> list[Seen]:
    return study.programs("condor_startd") + study.programs("condor_starter") + study.trainings()


def _manager_processes(study: Running) -> list[Seen]:
    return study.programs("condor_schedd") + study.programs("condor_shadow") + study.dagmans()


def _frozen(find: Callable[[Running], list[Seen]]) -> Inject:
    """Let processes do nothing for a while: they keep their connections and answer nobody."""

    def inject(study: Running, fault: Fault) -> str | None:
        if not wait_until(study.trainings, PATIENCE):
            return None
        stopped = [seen for seen in find(study) if seen.kill(signal.SIGSTOP)]
        try:
            time.sleep(1 + 9 * fault.amount)
        finally:
            for seen in stopped:
                seen.kill(signal.SIGCONT)
        return f"{len(stopped)} processes for {1 + 9 * fault.amount:.1f} s"

    return inject


SOCKET = re.compile(r"^\S+\s+\d+\s+\d+\s+(127\.0\.0\.1:\d+)\s+(127\.0\.0\.1:\d+)\s+users:(.*)$", re.MULTILINE)


def connections(listing: str, pids: set[int]) -> list[tuple[str, str]]:
    """Return both ends of the connections that some processes have, from what `ss -tnpH` prints."""
    return [
        (here, there)
        for here, there, users in SOCKET.findall(listing)
        if pids & {int(pid) for pid in re.findall(r"pid=(\d+)", users)}
    ]


def _cut(study: Running, fault: Fault) -> str | None:
    """Let the kernel end all connections of the worker, as a firewall that forgot them does."""
    if not wait_until(study.trainings, PATIENCE):
        return None
    time.sleep(fault.amount)
    listing = subprocess.run(["ss", "-tnpH"], capture_output=True, text=True, check=True).stdout
    found = connections(listing, {seen.pid for seen in _worker_processes(study)})
    for here, there in found:
        subprocess.run(["ss", "-K", "-tn", "src", here, "dst", there], capture_output=True, check=True)
    return f"{len(found)} connections" if found else None


def _script_in_mid_write(kind: str) -> Inject:
    """Kill a script when a part of its line is in the journal; see `setup.SLOW_FILES`."""

    def torn_by(study: Running) -> tuple[str, Seen] | None:
        scripts = study.scripts(kind)
        for slug, journal in study.journals().items():
            if scripts and journal.exists() and not _whole(journal):
                writer = next((s for s in scripts if s.node(kind, str(study.run.path)).startswith(slug)), None)
                if writer and writer.kill():
                    return slug, writer
        return None

    def inject(study: Running, _fault: Fault) -> str | None:
        slow = study.area / "hook/slow"
        slow.touch()
        try:
            found = wait_until(lambda: torn_by(study), 2 * PATIENCE, OFTEN)
        finally:
            slow.unlink()
        if not isinstance(found, tuple):
            return None
        slug, writer = found
        wait_until(lambda: writer.pid not in {seen.pid for seen in study.processes()}, 5)
        state = "whole when it died" if _whole(study.journals()[slug]) else "torn"
        return f"{writer.node(kind, str(study.run.path))}, {state}"

    return inject


def _whole(journal: Path) -> bool:
    with journal.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _vacate(*options: str) -> Inject:
    def inject(study: Running, fault: Fault) -> str | None:
        job = _running_job(study, fault)
        if job is None or study.condor("condor_vacate_job", *options, job).returncode:
            return None
        return f"job {job}"

    return inject


def _running_job(study: Running, fault: Fault) -> str | None:
    if not wait_until(study.trainings, PATIENCE):
        return None
    time.sleep(fault.amount)
    found = study.jobs(2)
    return found[int(fault.target * len(found))] if found else None


def _held(study: Running, fault: Fault) -> str | None:
    job = _running_job(study, fault)
    if job is None or study.condor("condor_hold", job).returncode:
        return None
    time.sleep(0.5 + 3 * fault.amount)
    return f"job {job}{_released(study, job)}"


def _released(study: Running, job: str) -> str:
    """Release a job, and again where HTCondor 25 puts the hold back: when a shadow ends that sought its machine."""
    releases = 0

    def goes_on() -> bool:
        nonlocal releases
        status = study.condor("condor_q", job, "-af", "JobStatus")
        if status.stdout.strip() == HELD and study.condor("condor_release", job).returncode == 0:
            releases += 1
        return status.returncode == 0 and status.stdout.strip() not in (IDLE, HELD)

    went_on = wait_until(goes_on, SHORT_LEASE + PATIENCE, 0.5)
    again = f", released {releases} times" if releases > 1 else ""
    return again if went_on else f"{again}, waits"


def _clock(study: Running, fault: Fault) -> str | None:
    seconds = JUMPS[int(fault.amount * len(JUMPS))]
    study.move_clock(seconds)
    return f"{seconds:+d} s"


def _pool_restarted(study: Running, fault: Fault) -> str | None:
    down = study.regiondag("pool", "down")
    time.sleep(2 * fault.amount)
    if down.returncode:
        raise RuntimeError(f"pool down: {down.stderr[-300:]}")
    study.pool_up()
    return "down and up"


def _dag_removed(study: Running, fault: Fault) -> str | None:
    if study.dag_state() != "queued" or study.condor("condor_rm", study.cluster()).returncode:
        return None
    time.sleep(4 * fault.amount)
    refusals = 0
    # While HTCondor's timers stand still after a clock that was set back, the job stays, and submit says so after 60 s.
    while (again := study.regiondag("submit", study.run.path)).returncode:
        refusals += 1
        if refusals > 1 or STILL_THERE not in again.stderr:
            raise RuntimeError(f"submit: {(again.stderr + again.stdout).strip()[-300:]}")
    return f"removed and submitted{', refused once' * refusals}"


INJECT: dict[str, Inject] = {
    "trainer killed": _kill(Running.trainings, 2.0),
    "starter killed": _daemon("condor_starter"),
    "shadow killed": _daemon("condor_shadow"),
    "startd killed": _daemon("condor_startd"),
    "worker killed": _worker,
    "worker frozen": _frozen(_worker_processes),
    "manager frozen": _frozen(_manager_processes),
    "worker's connections cut": _cut,
    "schedd killed": _daemon("condor_schedd"),
    "dagman killed": _kill(Running.dagmans),
    "negotiator killed": _daemon("condor_negotiator"),
    "collector killed": _daemon("condor_collector"),
    "PRE killed": _kill(lambda study: study.scripts("pre"), 0.6),
    "POST killed": _kill(lambda study: study.scripts("post"), 0.4),
    "PRE killed in mid-write": _script_in_mid_write("pre"),
    "POST killed in mid-write": _script_in_mid_write("post"),
    "evicted": _vacate(),
    "evicted fast": _vacate("-fast"),
    "worker's disk full": full_disk(lambda study: study.execute),
    "manager's disk full": full_disk(lambda study: study.area / "manager"),
    "result truncated": truncated(RESULT_FILE),
    "model truncated": truncated(MODEL_FILE),
    "checkpoint truncated": damaged_checkpoint(cut),
    "clock jumped": _clock,
    "pool stopped": _pool_restarted,
    "job held": _held,
    "DAG removed": _dag_removed,
    "input corrupted": corrupted,
    "training killed by its cgroup": killed_by_cgroup(Running.trainings),
    "script killed by its cgroup": killed_by_cgroup(lambda study: study.scripts("pre") + study.scripts("post")),
    "node log deleted": damaged_node_log(deleted),
    "node log cut": damaged_node_log(cut),
} | SURROUNDINGS
