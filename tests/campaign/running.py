"""A study on a pool of its own as it runs: its processes, its jobs, where DAGMan is, what it left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regiondag.pool.pool import Pool, pool_folder, read_state, require_pool
from regiondag.run.layout import RunFolder, dagman_file
from scripts.bench.common.processes import REPOSITORY
from tests.campaign.checks import Left, left_in

SLOTS = 4
PYTHON = (sys.executable, "-m", "regiondag")


@dataclass(frozen=True)
class Seen:
    """A running process of the pool: its number outside, and its words."""

    pid: int
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """The program's name without its folder."""
        return Path(self.words[0]).name if self.words else ""

    def node(self, kind: str, run: str) -> str:
        """Return the node of which it is the PRE or POST; nothing where it is none."""
        for first, second, third in zip(self.words, self.words[1:], self.words[2:], strict=False):
            if (first, second) == (kind, run):
                return third
        return ""

    def kill(self, number: signal.Signals = signal.SIGKILL) -> bool:
        """Send it a signal; return whether it was still there."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


class Running:
    """One study on one pool."""

    def __init__(self, name: str, area: Path, run: RunFolder, environment: dict[str, str], suite: str = "") -> None:
        self.name, self.area, self.run = name, area, run
        self.environment = environment
        self.suite = suite

    def pool_up(self) -> None:
        """Start the pool; RuntimeError when it does not come."""
        words = ("--suite", self.suite, "--simulate-gpus", str(SLOTS), "--config", self.area / "pool.conf")
        up = self.regiondag("pool", "up", *words, timeout=600)
        if up.returncode:
            raise RuntimeError(f"no pool: {up.stderr.strip()[-600:]}")

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
        space = process_space(state.processes[0].pid)
        return [seen for seen in all_processes() if space and process_space(seen.pid) == space]

    def programs(self, name: str) -> list[Seen]:
        """Return the pool's processes of one program."""
        return [seen for seen in self.processes() if seen.program == name]

    def dagmans(self) -> list[Seen]:
        """Return DAGMan, which the schedd starts under a name of the job's."""
        return [seen for seen in self.processes() if str(self.run.study_dag) in seen.words and "-Dag" in seen.words]

    def scripts(self, kind: str) -> list[Seen]:
        """Return the running PRE (`pre`) or POST (`post`) scripts, once they are Python."""
        return [seen for seen in self.processes() if seen.node(kind, str(self.run.path))]

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
        return {slug: left_in(path) for slug, path in self.journals().items()}

    def move_clock(self, seconds: int) -> None:
        """Let the pool's clock jump by so much from where it is; see `setup._clock`."""
        clock, part = self.area / "clock", self.area / "clock.new"
        part.write_text(f"{int(clock.read_text(encoding='utf-8')) + seconds:+d}\n", encoding="utf-8")
        part.replace(clock)


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


def process_space(pid: int) -> str:
    """Return which process namespace a process is in; empty when it is gone."""
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


def wait_until(condition: Callable[[], object], seconds: float, pause: float = 0.05) -> object:
    """Look again and again until it holds; return what it gave, or the last thing it gave when time is up."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
    return found
