"""A study on a pool of its own, with all that is needed to disturb it: processes, small disks, a clock, slow files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import orchestration_inputs as inputs
from faults_checks import Left
from harness import REPOSITORY, NotMeasuredError

from nnlib.contract import sha256_of
from workflows.names import RunFolder, dagman_file
from workflows.pool import Pool, pool_folder, read_state, require_pool

PYTHON = (sys.executable, "-m", "workflows")
SLOTS = 4
REGIONS = 2
MB = 1 << 20

# Daemons that were killed come back at once; a worker's disk is measured often, for it fills up.
POOL_CONFIG = f"""
NUM_CPUS = {SLOTS}
MEMORY = 4096
MASTER_BACKOFF_CONSTANT = 1
MASTER_BACKOFF_FACTOR = 1.1
MASTER_BACKOFF_CEILING = 2
MASTER_RECOVER_FACTOR = 5
DEFAULT_USERLOG_FORMAT_OPTIONS = ISO_DATE, SUB_SECOND, UTC
"""

# Python's own start-up hook for PRE, POST and trainings: an epoch takes a while, and while the file `slow` exists a
# journal is written in small pieces, so that a script can be killed between two of them.
SLOW_FILES = """\
import io, os, time

_open, _here = io.open, os.path.dirname(os.path.abspath(__file__))

class _Slow:
    def __init__(self, file, write):
        self._file, self.write = file, lambda data: write(file, data)
    def __getattr__(self, name):
        return getattr(self._file, name)
    def __iter__(self):
        return iter(self._file)
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self._file.close()

def _epoch(file, data):
    time.sleep({epoch})
    return file.write(data)

def _pieces(file, data):
    for first in range(0, len(data), 16):
        file.write(data[first : first + 16])
        file.flush()
        time.sleep(0.03)
    return len(data)

def _opened(file, mode="r", *words, **options):
    opened = _open(file, mode, *words, **options)
    name = os.path.basename(file) if isinstance(file, (str, os.PathLike)) else ""
    if name == "log.jsonl" and "+" in mode:
        return _Slow(opened, _epoch)
    if name == "trials.jsonl" and "a" in mode and os.path.exists(os.path.join(_here, "slow")):
        return _Slow(opened, _pieces)
    return opened

io.open = _opened
"""

# What is not as in the studies of the orchestration benchmark. Retries are for machines that are as bad as these.
CHANGES = {
    "epochs: 2,": "epochs: 20, stop_after: 0,",
    "disk: 100MB": "disk: 20MB, retries: 30",
}
EPOCH_SECONDS = 0.1

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")  # Debian's package libfaketime


@dataclass(frozen=True)
class Seen:
    """A running process of the pool: its number outside, and its words."""

    pid: int
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """The program's name without its folder."""
        return Path(self.words[0]).name if self.words else ""

    def kill(self, number: signal.Signals = signal.SIGKILL) -> bool:
        """Send it a signal; return whether it was still there."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


class Running:
    """One study on one pool."""

    def __init__(self, name: str, area: Path, run: RunFolder, environment: dict[str, str]) -> None:
        self.name, self.area, self.run = name, area, run
        self.environment = environment

    @property
    def pool(self) -> Pool:
        """The pool as it is now: it may have been started again."""
        return require_pool(self.name)

    def regiondag(self, *words: str | Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run our command as a user would."""
        return regiondag(*words, environment=self.environment, timeout=timeout)

    def condor(self, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run one of HTCondor's commands inside the pool."""
        try:
            return self.pool.run(words, cwd=Path("/"), capture_output=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 1, "", "no answer")

    def processes(self) -> list[Seen]:
        """Return all processes of the pool: those in the process namespace of its first one."""
        state = read_state(self.name)
        if state is None or not state.processes:
            return []
        space = _namespace(state.processes[0].pid)
        return [seen for seen in all_processes() if space and _namespace(seen.pid) == space]

    def programs(self, name: str) -> list[Seen]:
        """Return the pool's processes of one program."""
        return [seen for seen in self.processes() if seen.program == name]

    def scripts(self, kind: str) -> list[Seen]:
        """Return the running PRE (`pre`) or POST (`post`) scripts, once they are Python."""
        return [seen for seen in self.processes() if seen.words[2:4] == (kind, str(self.run.path))]

    def trainings(self) -> list[Seen]:
        """Return the running trainings."""
        return [seen for seen in self.processes() if "train" in seen.words and "--trial" in seen.words]

    def journals(self) -> dict[str, Path]:
        """Return each region's journal."""
        return {path.name: path / "trials.jsonl" for path in sorted(self.run.path.glob("regions/*"))}

    @property
    def execute(self) -> Path:
        """Where the pool's jobs run, seen from outside."""
        return pool_folder(self.name) / "var/lib/condor/execute"

    @property
    def spool(self) -> Path:
        """Where the pool's schedd keeps what jobs saved."""
        return pool_folder(self.name) / "var/spool/condor"

    def dag_text(self) -> str:
        """Return the event log of DAGMan's own job."""
        path = dagman_file(self.run.study_dag, "dagman.log")
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def dag_state(self) -> str:
        """Return what the log says of DAGMan's job: none, queued, held or over."""
        return state_of(self.dag_text())

    def cluster(self) -> str:
        """Return the number of DAGMan's latest job."""
        return clusters(self.dag_text())[-1]

    def jobs(self, status: int) -> list[str]:
        """Return the study's jobs of a status in the queue (2: running)."""
        done = self.condor(
            "condor_q", "-constraint", f"JobUniverse == 5 && JobStatus == {status}", "-af:j", "DAGNodeName"
        )
        return done.stdout.split()[::2] if done.returncode == 0 else []

    def is_complete(self) -> bool:
        """Return whether every region has its champion by its journal, and the report says finished."""
        try:
            summary = json.loads((self.run.report / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(summary["finished"])

    def left(self) -> dict[str, Left]:
        """Return what each region has now."""
        return {slug: _left(path) for slug, path in self.journals().items()}

    def set_clock(self, seconds: int) -> None:
        """Let the pool's clock be so far from the machine's; see `clock`."""
        part = self.area / "clock.new"
        part.write_text(f"{seconds:+d}\n", encoding="utf-8")
        part.replace(self.area / "clock")


def _left(journal: Path) -> Left:
    champion = journal.parent / "champion"
    facts = champion / "metrics.json"
    return Left(
        journal.read_bytes() if journal.exists() else b"",
        sha256_of(champion / "model.nc") if (champion / "model.nc").exists() else "",
        json.loads(facts.read_text(encoding="utf-8")) if facts.exists() else {},
    )


EVENT = re.compile(r"^(\d{3}) \((\d+)\.", re.MULTILINE)
STATES = {
    "000": "queued",
    "001": "queued",
    "004": "queued",
    "005": "over",
    "009": "over",
    "012": "held",
    "013": "queued",
}


def state_of(log: str) -> str:
    """Fold the event log of DAGMan's job."""
    state = "none"
    for number, _ in EVENT.findall(log):
        state = STATES.get(number, state)
    return state


def clusters(log: str) -> list[str]:
    """Return the numbers of the jobs that an event log tells of, in turn."""
    return list(dict.fromkeys(str(int(cluster)) for _, cluster in EVENT.findall(log)))


def all_processes() -> Iterator[Seen]:
    """Give all processes of this machine that have words."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        if words != [b""]:
            yield Seen(int(path.name), tuple(word.decode(errors="replace") for word in words))


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def regiondag(
    *words: str | Path, environment: dict[str, str], timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run `regiondag` in a process of its own."""
    argv = [*PYTHON, *map(str, words)]
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, env=environment, timeout=timeout, cwd=REPOSITORY
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 1, "", f"not within {timeout:.0f} s")


@contextmanager
def prepared(name: str, area: Path, kinds: Sequence[str]) -> Iterator[Running]:
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
        run = generate(area, manager, environment)
        faked = "clock jumped" in kinds
        _slow_down(run, area, faked)
        running = Running(name, area, run, environment)
        config = area / "pool.conf"
        config.write_text(POOL_CONFIG + (_clock_config(area) if faked else ""), encoding="utf-8")
        stack.callback(running.regiondag, "pool", "down")
        up = running.regiondag("pool", "up", "--suite", "trixie", "--simulate-gpus", str(SLOTS), "--config", config,
                               timeout=600)  # fmt: skip
        if up.returncode:
            raise NotMeasuredError(f"no pool: {up.stderr.strip()[-600:]}")
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


def generate(area: Path, runs: Path, environment: dict[str, str]) -> RunFolder:
    """Make the study's run directory."""
    study = inputs.write_study(area, "faults", REGIONS, 2, 2)
    text = study.read_text(encoding="utf-8")
    for before, now in CHANGES.items():
        text = text.replace(before, now)
    study.write_text(text, encoding="utf-8")
    words = ["--htcondor", "23.9.6", "--champions", "none", "--out", runs, "--quiet"]
    done = regiondag("generate", study, *words, environment=environment)
    if done.returncode:
        raise NotMeasuredError(f"generate: {done.stderr.strip()[-300:]}")
    return RunFolder(Path(done.stdout.strip()))


def _slow_down(run: RunFolder, area: Path, faked: bool) -> None:
    hook = area / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(SLOW_FILES.format(epoch=EPOCH_SECONDS), encoding="utf-8")
    extra = f"export PYTHONPATH={hook}\n"
    if faked:
        clock = _clock(area)
        extra += "".join(f"export {name}={value}\n" for name, value in clock.items())
        with run.study_dag.open("a", encoding="utf-8") as dag:
            dag.write(f"ENV SET {';'.join(f'{name}={value}' for name, value in clock.items())}\n")
    for name in ("pre.sh", "post.sh", "train.sh"):
        script = run.path / name
        text = script.read_text(encoding="utf-8")
        script.write_text(text.replace("#!/bin/sh\n", f"#!/bin/sh\n{extra}", 1), encoding="utf-8")


def _clock(area: Path) -> dict[str, str]:
    """Return the environment in which the clock is the one of the file `clock`: libfaketime reads it every second."""
    library = area / FAKETIME.name
    if not library.exists():
        if not FAKETIME.exists():
            raise NotMeasuredError(f"no {FAKETIME}: apt-get install libfaketime")
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


def wait_until(condition: Callable[[], object], seconds: float, pause: float = 0.05) -> object:
    """Look again and again until it holds; return what it gave, or the last thing it gave when time is up."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return found
