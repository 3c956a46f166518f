"""Faults of what surrounds HTCondor's processes: power, disks, memory, transfers, machines, and what people do."""

from __future__ import annotations

import errno
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from scripts.bench.common.processes import REPOSITORY
from tests.campaign.files import OFTEN, PATIENCE, Inject, damaged_checkpoint, flip
from tests.campaign.running import PYTHON, Running, Seen, wait_until
from tests.campaign.schedule import Fault

FLUSHES = 8  # PRE and POST flush so many files and folders; where they do fewer, the next script is hit
LATER = "9.9.9"  # the version that a manager is upgraded to


def _hook(study: Running, name: str, text: str = "") -> Path:
    path = study.area / "hook" / name
    part = path.with_name(f".{name}.new")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return path


def _told(study: Running, name: str) -> list[str]:
    path = study.area / "hook" / f"{name}.hit"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _waiting(study: Running, flag: str, hit: str, text: str = "", patience: float = 2 * PATIENCE) -> str | None:
    """Leave a fault for the next process to take (`start_hook.py`); return what it says, None when none did."""
    before = len(_told(study, hit))
    path = _hook(study, flag, text)
    wait_until(lambda: len(_told(study, hit)) > before or study.is_complete(), patience, OFTEN)
    path.unlink(missing_ok=True)
    told = _told(study, hit)[before:]
    return told[0] if told else None


def at_a_flush(script: str) -> Inject:
    """Kill a script at one of its flushes; of what it was to flush, half is in the file."""

    def inject(study: Running, fault: Fault) -> str | None:
        return _waiting(study, f"flush-{script}", "flush", f"half {1 + int(fault.amount * FLUSHES)}")

    return inject


def power_cut_in(script: str) -> Inject:
    """Take back what a script has not flushed, and kill all of the pool at once; then start it again."""

    def inject(study: Running, fault: Fault) -> str | None:
        told = _waiting(study, f"flush-{script}", "flush", f"power {1 + int(fault.amount * FLUSHES)}")
        if told is None:
            return None
        return f"{told}; {_reboot(study)}"

    return inject


def _reboot(study: Running) -> str:
    count = sum(seen.kill() for seen in study.processes())
    down = study.regiondag("pool", "down")
    if down.returncode:
        raise RuntimeError(f"pool down: {down.stderr[-300:]}")
    study.pool_up()
    return f"{count} processes"


def rebooted(study: Running, fault: Fault) -> str | None:
    if not wait_until(study.trainings, PATIENCE):
        return None
    time.sleep(2 * fault.amount)
    return _reboot(study)


def refused(code: int, step: str, ending: str = "") -> Inject:
    """Let the system refuse PRE and POST something for 1 to 5 s, from the first time that they ask for it."""

    def inject(study: Running, fault: Fault) -> str | None:
        before = len(_told(study, "refuse"))
        path = _hook(study, "refuse", f"{code}|{step}|{ending}")
        try:
            wait_until(lambda: len(_told(study, "refuse")) > before or study.is_complete(), 2 * PATIENCE, OFTEN)
            if len(_told(study, "refuse")) == before:
                return None
            time.sleep(1 + 4 * fault.amount)
        finally:
            path.unlink(missing_ok=True)
        told = _told(study, "refuse")[before:]
        return f"{len(told)} times in {1 + 4 * fault.amount:.1f} s, first {told[0]}"

    return inject


def slow_disk(study: Running, fault: Fault) -> str | None:
    """Let each flush of PRE, POST and trainings take another 1.5 s for a while."""
    before = len(_told(study, "slow-disk"))
    path = _hook(study, "slow-disk")
    time.sleep(5 + 10 * fault.amount)
    path.unlink()
    count = len(_told(study, "slow-disk")) - before
    return f"{count} flushes" if count else None


def limited(find: Callable[[Running], list[Seen]], what: int) -> Inject:
    """Allow a process no more memory, or open files, than it has now."""

    def inject(study: Running, fault: Fault) -> str | None:
        time.sleep(fault.amount)
        found = wait_until(lambda: find(study), PATIENCE, OFTEN)
        if not isinstance(found, list) or not found:
            return None
        seen = sorted(found, key=lambda one: one.pid)[int(fault.target * len(found))]
        try:
            has = (
                _memory(seen.pid)
                if what == resource.RLIMIT_AS
                else sum(1 for _ in Path(f"/proc/{seen.pid}/fd").iterdir())
            )
            resource.prlimit(seen.pid, what, (has, has))
        except (OSError, ValueError):
            return None
        return f"pid {seen.pid} {' '.join(seen.words[2:3])}: no more than {has}"

    return inject


def _memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"^VmSize:\s+(\d+) kB", status, re.MULTILINE)
    if found is None:
        raise ValueError("it has ended")
    return int(found[1]) * 1024


def _scripts(study: Running) -> list[Seen]:
    return study.scripts("pre") + study.scripts("post")


def frozen(find: Callable[[Running], list[Seen]]) -> Inject:
    """Stop one process for 1 to 10 s."""

    def inject(study: Running, fault: Fault) -> str | None:
        found = wait_until(lambda: find(study), PATIENCE, OFTEN)
        if not isinstance(found, list) or not found:
            return None
        seen = sorted(found, key=lambda one: one.pid)[int(fault.target * len(found))]
        if not seen.kill(signal.SIGSTOP):
            return None
        time.sleep(1 + 9 * fault.amount)
        seen.kill(signal.SIGCONT)
        return f"pid {seen.pid} for {1 + 9 * fault.amount:.1f} s"

    return inject


def asked_to_stop(study: Running, fault: Fault) -> str | None:
    """Send SIGTERM to a training, which HTCondor knows nothing of."""
    if not wait_until(study.trainings, PATIENCE):
        return None
    time.sleep(2 * fault.amount)
    found = sorted(study.trainings(), key=lambda seen: seen.pid)
    return f"pid {seen.pid}" if found and (seen := found[int(fault.target * len(found))]).kill(signal.SIGTERM) else None


def killed(name: str) -> Inject:
    """Kill the pool's daemon of that name."""

    def inject(study: Running, fault: Fault) -> str | None:
        time.sleep(fault.amount)
        hit = [seen.pid for seen in study.programs(name) if seen.kill()]
        return f"pid {hit[0]}" if hit else None

    return inject


def commanded(*words: str) -> Inject:
    """Run one of HTCondor's commands while a job runs."""

    def inject(study: Running, fault: Fault) -> str | None:
        if not wait_until(study.trainings, PATIENCE):
            return None
        time.sleep(fault.amount)
        return " ".join(words) if study.condor(*words).returncode == 0 else None

    return inject


def dag_held(study: Running, fault: Fault) -> str | None:
    if study.dag_state() != "queued":
        return None
    cluster = study.cluster()
    if study.condor("condor_hold", cluster).returncode:
        return None
    time.sleep(0.5 + 5 * fault.amount)
    released = wait_until(lambda: study.condor("condor_release", cluster).returncode == 0, 3 * PATIENCE, 0.5)
    return f"for {0.5 + 5 * fault.amount:.1f} s{'' if released else ', not released'}"


def submitted_twice(study: Running, fault: Fault) -> str | None:
    """Submit while the DAG runs: no second DAGMan may run beside the first."""
    if study.dag_state() != "queued" or not study.dagmans():
        return None
    done = study.regiondag("submit", study.run.path)
    time.sleep(3)
    if len(running := study.dagmans()) > 1:
        raise RuntimeError(f"{len(running)} DAGMans run; submit said {done.returncode}")
    return f"submit left with {done.returncode}"


def upgraded(study: Running, fault: Fault) -> str | None:
    """Let all of our commands be those of another version from now on; the run's own code stays."""
    place = study.area / "upgraded"
    if not place.exists():
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        for name in ("nnlib", "kernels", "scripts", "ami", "templates"):
            shutil.copytree(REPOSITORY / name, place / name, ignore=ignored, symlinks=True)
        shutil.copytree(REPOSITORY / "workflows", place / "regiondag", ignore=ignored, symlinks=True)
        text = (place / "regiondag/__init__.py").read_text(encoding="utf-8")
        new = re.sub(r'^__version__ = ".*"$', f'__version__ = "{LATER}"', text, flags=re.MULTILINE)
        (place / "regiondag/__init__.py").write_text(new, encoding="utf-8")
        study.environment.update(PYTHONPATH=str(place), PYTHONSAFEPATH="1")
    for words in (("--version",), ("status", str(study.run.path)), ("explain", str(study.run.path))):
        done = subprocess.run([*PYTHON, *words], capture_output=True, text=True, check=False, timeout=120,
                              env=study.environment, cwd=REPOSITORY)  # fmt: skip
        if done.returncode or (words[0] == "--version" and LATER not in done.stdout):
            raise RuntimeError(f"{' '.join(words)}: {(done.stderr + done.stdout).strip()[-300:]}")
    return f"status and explain of {LATER}"


def restored(study: Running, fault: Fault) -> str | None:
    """Put a copy in the place of a region's folder while no script of it runs, as a backup does."""
    folders = sorted(path.parent for path in study.journals().values() if path.exists())
    if not folders:
        return None
    folder = folders[int(fault.target * len(folders))]
    copy, old = (folder.parent / f".{folder.name}.{word}" for word in ("copy", "old"))
    if not wait_until(lambda: not _scripts(study), PATIENCE, OFTEN):
        return None
    stopped = [seen for seen in study.dagmans() if seen.kill(signal.SIGSTOP)]
    try:
        if not wait_until(lambda: not _scripts(study), PATIENCE, OFTEN):
            return None
        shutil.copytree(folder, copy, symlinks=True)
        folder.rename(old)
        copy.rename(folder)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
        for seen in stopped:
            seen.kill(signal.SIGCONT)
    shutil.rmtree(old)
    return folder.name


def taken(flag: str) -> Inject:
    """Leave a fault for the next training."""

    def inject(study: Running, fault: Fault) -> str | None:
        return _waiting(study, flag, flag, str(fault.amount))

    return inject


SURROUNDINGS: dict[str, Inject] = {
    "PRE killed at a flush": at_a_flush("pre"),
    "POST killed at a flush": at_a_flush("post"),
    "power cut in PRE": power_cut_in("pre"),
    "power cut in POST": power_cut_in("post"),
    "machine rebooted": rebooted,
    "shared port killed": killed("condor_shared_port"),
    "procd killed": killed("condor_procd"),
    "quota reached": refused(errno.EDQUOT, "write"),
    "run directory read-only": refused(errno.EROFS, "write"),
    "result unreadable": refused(errno.EACCES, "read", "result.json"),
    "disk with errors": refused(errno.EIO, "fsync"),
    "slow disk": slow_disk,
    "script without memory": limited(_scripts, resource.RLIMIT_AS),
    "training without memory": limited(Running.trainings, resource.RLIMIT_AS),
    "script without open files": limited(_scripts, resource.RLIMIT_NOFILE),
    "input corrupted in transit": taken("flip"),
    "checkpoint corrupted": damaged_checkpoint(flip),
    "GPU lost": taken("gpu"),
    "Python missing": taken("no-python"),
    "training asked to stop": asked_to_stop,
    "training frozen": frozen(Running.trainings),
    "script frozen": frozen(_scripts),
    "DAGMan frozen": frozen(Running.dagmans),
    "DAG held": dag_held,
    "worker vacated": commanded("condor_vacate", "-all"),
    "schedd restarted": commanded("condor_restart", "-schedd"),
    "worker restarted": commanded("condor_restart", "-startd", "-fast"),
    "pool reconfigured": commanded("condor_reconfig", "-all"),
    "submitted twice": submitted_twice,
    "manager upgraded": upgraded,
    "folder restored": restored,
}
