"""A study ready to be disturbed: its own pool, small disks, a clock that can jump, files that are written slowly."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from regiondag.pool.pool import pool_folder
from regiondag.run.layout import RunFolder
from regiondag.study.job_rules import LEASE
from scripts.bench.common.processes import REPOSITORY, NotMeasuredError
from tests.campaign import cgroups
from tests.campaign.running import SLOTS, Running, regiondag
from tests.support import made_up_study

REGIONS = 2
ROUNDS = 3

# Daemons that were killed come back at once.
POOL_CONFIG = f"""
NUM_CPUS = {SLOTS}
MEMORY = 4096
MASTER_BACKOFF_CONSTANT = 1
MASTER_BACKOFF_FACTOR = 1.1
MASTER_BACKOFF_CEILING = 2
MASTER_RECOVER_FACTOR = 5
DEFAULT_USERLOG_FORMAT_OPTIONS = ISO_DATE, SUB_SECOND, UTC
"""

# Python's own start-up hook for PRE, POST and trainings: an epoch takes a while, and faults can hit from inside.
HOOK = Path(__file__).with_name("start_hook.py")

# What is not as in the studies of the orchestration benchmark. Retries are for machines that are as bad as these.
CHANGES = {
    "epochs: 2,": "epochs: 30, stop_after: 0,",
    "disk: 100MB": "disk: 20MB, retries: 30",
    # What other regions have settled by then is another thing in a study that was disturbed.
    "method: bayes": "method: bayes\n  share: off",
}
HTCONDOR = {"trixie": "23.9.6", "forky": "25.14.1"}
WITHOUT_SITE = 'exec "$python" -S '  # PRE and POST
FINDS_PYTHON = "python=/usr/local/libexec/regiondag/python # what provisioned workers have"
# One start finds no interpreter, neither by that name nor on PATH.
NO_PYTHON = "mv {hook}/no-python {hook}/taken 2>/dev/null && echo train >>{hook}/no-python.hit && PATH=/nowhere\n"
SHORT_LEASE = 40  # seconds until a machine that has vanished is given up

BY_CGROUP = " killed by its cgroup"  # how kinds end that need the kernel's control groups
CLOCK_JUMPED = "clock jumped"  # the kind of fault that needs this:
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")  # Debian's package libfaketime


@contextmanager
def prepared(name: str, area: Path, kinds: Sequence[str], suite: str) -> Iterator[Running]:
    """Give a study that is ready to be submitted, on a pool that was started for it; remove both at the end."""
    environment = {n: v for n, v in os.environ.items() if n != "CONDOR_CONFIG"} | {
        "REGIONDAG_POOL": name,
        "PYTHONPATH": str(REPOSITORY),
    }
    with ExitStack() as stack:
        area.mkdir(parents=True)
        stack.callback(shutil.rmtree, area, ignore_errors=True)
        regiondag("pool", "down", "--purge", environment=environment)  # of a campaign that was killed
        stack.callback(regiondag, "pool", "down", "--purge", environment=environment)  # when its disk is gone
        execute = pool_folder(name) / "var/lib/condor/execute"
        if "worker's disk full" in kinds:
            stack.enter_context(small_disk(execute, 256))
        manager = area / "manager"
        if "manager's disk full" in kinds:
            stack.enter_context(small_disk(manager, 64))
        run = generate(area, manager, environment, suite)
        faked = CLOCK_JUMPED in kinds
        _slow_down(run, area, faked)
        running = Running(name, area, run, environment, suite)
        config = area / "pool.conf"
        config.write_text(POOL_CONFIG + (_clock_config(area) if faked else ""), encoding="utf-8")
        stack.callback(running.regiondag, "pool", "down")
        running.pool_up()
        yield running


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Mount a file system of its own on a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "faults", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def generate(area: Path, runs: Path, environment: dict[str, str], suite: str) -> RunFolder:
    """Make the study's run directory."""
    study = made_up_study.write_study(area, "faults", REGIONS, ROUNDS, 2)
    text = study.read_text(encoding="utf-8")
    for before, now in CHANGES.items():
        text = text.replace(before, now)
    study.write_text(text, encoding="utf-8")
    words: list[str | Path] = ["--htcondor", HTCONDOR[suite], "--champions", "none", "--out", runs, "--quiet"]
    done = regiondag("generate", study, *words, environment=environment)
    if done.returncode:
        raise NotMeasuredError(f"generate: {done.stderr.strip()[-300:]}")
    return RunFolder(Path(done.stdout.strip()))


def _slow_down(run: RunFolder, area: Path, faked: bool) -> None:
    hook = area / "hook"
    hook.mkdir()
    shutil.copyfile(HOOK, hook / "sitecustomize.py")
    extra = f"export PYTHONPATH={hook}\n"
    if faked:
        clock = _clock(area)
        extra += "".join(f"export {name}={value}\n" for name, value in clock.items())
        with run.study_dag.open("a", encoding="utf-8") as dag:
            dag.write(f"ENV SET {';'.join(f'{name}={value}' for name, value in clock.items())}\n")
    for submit in run.path.glob("regions/*/*.sub"):
        submit.write_text(shorten_lease(submit.read_text(encoding="utf-8")), encoding="utf-8")
    for name in ("pre.sh", "post.sh", "train.sh"):
        script = run.path / name
        text = script.read_text(encoding="utf-8")
        text = text.replace("#!/bin/sh\n", f"#!/bin/sh\n{extra}", 1)
        text = text.replace(WITHOUT_SITE, f'{WITHOUT_SITE}"{hook}/sitecustomize.py" ')
        text = text.replace(FINDS_PYTHON, f"{NO_PYTHON.format(hook=hook)}{FINDS_PYTHON}", 1)
        script.write_text(text, encoding="utf-8")


def shorten_lease(submit: str) -> str:
    """Let a submit file's jobs be given up sooner when their machine has vanished: these studies are short."""
    return submit.replace(f"job_lease_duration = {LEASE}", f"job_lease_duration = {SHORT_LEASE}")


def missing_for(kinds: Iterable[str]) -> str:
    """Return what must be there before any of these faults is injected; nothing where all is."""
    if CLOCK_JUMPED in kinds and not FAKETIME.exists():
        return f"no {FAKETIME}, for clocks that jump: apt-get install libfaketime"
    if any(kind.endswith(BY_CGROUP) for kind in kinds) and not cgroups.usable():
        return f"no control group with a limit of memory can be made here: leave the kinds away that are{BY_CGROUP}"
    return ""


def _clock(area: Path) -> dict[str, str]:
    """Return the environment in which the clock is the one of the file `clock`: libfaketime reads it every second."""
    library = area / FAKETIME.name
    if not library.exists():
        shutil.copyfile(FAKETIME, library)
        (area / "clock").write_text("+0\n", encoding="utf-8")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(area / "clock"),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def _clock_config(area: Path) -> str:
    words = " ".join(f"{name}={value}" for name, value in _clock(area).items())
    daemons = ("COLLECTOR", "NEGOTIATOR", "SCHEDD", "STARTD")
    return "".join(f'{daemon}_ENVIRONMENT = "{words}"\n' for daemon in daemons)
