"""What each kind of fault does to a running study: a function for each, which returns what it hit, None for nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from faults_pool import Running, Seen, wait_until
from faults_schedule import Fault

from nnlib.contract import CHECKPOINT_FILE, MODEL_FILE, RESULT_FILE

PATIENCE = 10.0  # seconds to wait for something to hit
OFTEN = 0.01  # seconds between two looks for what is there for a moment only
JUMPS = (-1800, -300, -20, 20, 300, 1800)

Inject = Callable[[Running, Fault], str | None]


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
    """Kill a script when a part of its line is in the journal; see `faults_pool.SLOW_FILES`."""

    def torn_by(study: Running) -> tuple[str, Seen] | None:
        scripts = study.scripts(kind)
        for slug, journal in study.journals().items():
            if scripts and journal.exists() and not _whole(journal):
                writer = next((seen for seen in scripts if seen.words[4].startswith(slug)), None)
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
        return f"{writer.words[4]}, {'torn' if not _whole(study.journals()[slug]) else 'whole when it died'}"

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
    released = wait_until(lambda: study.condor("condor_release", job).returncode == 0, PATIENCE, 0.5)
    return f"job {job}{'' if released else ', not released'}"


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Leave no byte on the disk on which `folder` lies, which must be one of ours."""
    ballast = folder / ".ballast"
    if not os.path.ismount(folder):
        raise ValueError(f"{folder} is no disk of its own")
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * (1 << 16))
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0")
    try:
        yield
    finally:
        ballast.unlink(missing_ok=True)  # a worker that starts clears its folder


def _full_disk(folder: Callable[[Running], Path]) -> Inject:
    def inject(study: Running, fault: Fault) -> str | None:
        seconds = 1 + 5 * fault.amount
        with filled(folder(study)):
            time.sleep(seconds)
        return f"for {seconds:.1f} s"

    return inject


def _truncated(name: str) -> Inject:
    """Cut a file when it has come back as a whole, unless POST was quicker."""

    def cut(study: Running, fault: Fault) -> str | None:
        for path in study.run.path.glob(f"regions/*/trials/*/{name}"):
            result = path.with_name(RESULT_FILE)
            if _came_back(path) and _came_back(result) and not _settled(path):
                size = path.stat().st_size
                os.truncate(path, int(size * fault.amount))
                if not _settled(path):
                    return f"{path.parent.parent.parent.name}/{path.parent.name}: {int(size * fault.amount)} of {size}"
        return None

    def inject(study: Running, fault: Fault) -> str | None:
        patience = 5 * PATIENCE if name == MODEL_FILE else 2 * PATIENCE
        found = wait_until(lambda: cut(study, fault) or study.is_complete(), patience, OFTEN)
        return found if isinstance(found, str) else None

    return inject


def _came_back(path: Path) -> bool:
    """Return whether the file is there and no program of the pool still writes it."""
    try:
        if path.name == RESULT_FILE:
            return json.loads(path.read_text(encoding="utf-8")).get("status") == "ok"
        return path.stat().st_size > 0
    except (OSError, ValueError):
        return False


def _settled(path: Path) -> bool:
    """Return whether the journal has the outcome of the trial whose folder the file lies in."""
    folder = path.parent
    journal = folder.parents[1] / "trials.jsonl"
    trial = int(folder.name) if folder.name.isdigit() else None
    needle = f'"trial": {json.dumps(trial)}, "status": "ok"'
    return any('"settled"' in line and needle in line for line in journal.read_text(encoding="utf-8").splitlines())


def _truncated_checkpoint(study: Running, fault: Fault) -> str | None:
    """Evict a job that has trained for a while, and cut what it saved before it goes on."""
    found = wait_until(lambda: trained(study.execute), PATIENCE)
    if not isinstance(found, list) or not found:
        return None
    job = found[int(fault.target * len(found))]
    if study.condor("condor_vacate_job", job).returncode:
        return None

    def cut() -> str | None:
        for path in study.spool.glob(f"*/*/cluster{job.split('.')[0]}.*/**/{CHECKPOINT_FILE}"):
            with contextlib.suppress(OSError):
                if size := path.stat().st_size:
                    os.truncate(path, int(size * fault.amount))
                    return f"job {job}: {int(size * fault.amount)} of {size}"
        return None

    return wait_until(cut, PATIENCE / 2, OFTEN) or None  # type: ignore[return-value]


def trained(execute: Path) -> list[str]:
    """Return the jobs that have at least an epoch behind them."""
    jobs = []
    for log in sorted(execute.glob("dir_*/log.jsonl")):
        with contextlib.suppress(OSError):
            ad = (log.parent / ".job.ad").read_text(encoding="utf-8")
            if log.stat().st_size and (cluster := re.search(r"^ClusterId = (\d+)$", ad, re.MULTILINE)):
                jobs.append(f"{cluster[1]}.0")
    return jobs


def _clock(study: Running, fault: Fault) -> str | None:
    seconds = JUMPS[int(fault.amount * len(JUMPS))]
    study.set_clock(seconds)
    return f"{seconds:+d} s"


def _pool_restarted(study: Running, fault: Fault) -> str | None:
    down = study.regiondag("pool", "down")
    time.sleep(2 * fault.amount)
    up = study.regiondag(
        "pool", "up", "--suite", "trixie", "--simulate-gpus", "4", "--config", study.area / "pool.conf"
    )
    if down.returncode or up.returncode:
        raise RuntimeError(f"pool down: {down.stderr[-300:]}, up: {up.stderr[-600:]}")
    return "down and up"


def _dag_removed(study: Running, fault: Fault) -> str | None:
    if study.dag_state() != "queued" or study.condor("condor_rm", study.cluster()).returncode:
        return None
    time.sleep(4 * fault.amount)
    again = study.regiondag("submit", study.run.path)
    if again.returncode:
        raise RuntimeError(f"submit: {(again.stderr + again.stdout).strip()[-300:]}")
    return "removed and submitted"


def _corrupted(study: Running, fault: Fault) -> str | None:
    """Let a data file have other bytes of the same length, until a while after a transfer could take them."""
    files = sorted(study.run.path.glob("regions/*/data.*.nc"))
    path = files[int(fault.target * len(files))]
    whole = path.read_bytes()
    middle = len(whole) // 2
    other = whole[:middle] + bytes(255 - byte for byte in whole[middle : middle + 64]) + whole[middle + 64 :]
    _replace(path, other)
    time.sleep(1 + 5 * fault.amount)
    _replace(path, whole)
    return f"{path.parent.name}/{path.name} for {1 + 5 * fault.amount:.1f} s"


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.fault")
    part.write_bytes(content)
    part.replace(path)


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
    "worker's disk full": _full_disk(lambda study: study.execute),
    "manager's disk full": _full_disk(lambda study: study.area / "manager"),
    "result truncated": _truncated(RESULT_FILE),
    "model truncated": _truncated(MODEL_FILE),
    "checkpoint truncated": _truncated_checkpoint,
    "clock jumped": _clock,
    "pool stopped": _pool_restarted,
    "job held": _held,
    "DAG removed": _dag_removed,
    "input corrupted": _corrupted,
}
