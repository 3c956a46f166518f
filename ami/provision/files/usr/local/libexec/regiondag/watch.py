"""Drain this worker when EC2 or its fleet takes it away, then power it off. Runs as root as long as the machine does.

spot/instance-action says terminate, stop or hibernate    gracefully: jobs get SIGTERM, their checkpoints go back
events/recommendations/rebalance exists                   peacefully: no new jobs, those running end by themselves;
                                                          after ten minutes gracefully
the instance's tag regiondag-drain is `peaceful`          peacefully
                               or `graceful`               gracefully: its fleet may not spend more

Peaceful is START = False by a file that HTCondor's settings include, not `condor_off -peaceful`: after that the startd
(23.9.6) obeys no graceful shutdown, not even -force-graceful or condor_vacate, so a terminate notice that comes later
could not save the checkpoints.

`decide` and `advance` are pure; `watch` asks, acts and sleeps. Trouble with the metadata service never ends it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from metadata import Metadata, MetadataError

EVERY = 5.0
RARELY = 60.0  # on a machine that never had a metadata service
PATIENCE = 3  # questions without an answer until that is settled
COMMAND_SECONDS = 30
REBALANCE_SECONDS = 600.0  # after EC2 saw a risk: what ends by itself has ended, what trains on is better saved
NOTICE_SECONDS = 120.0  # what EC2 leaves, should a notice not say until when

ACTION = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
TAG = "meta-data/tags/instance/regiondag-drain"

DRAIN_FILE = Path("/run/regiondag/drain.config")
DRAIN_CONFIG = """# Written by regiondag-watch: this machine takes no more jobs.
START = False
RegiondagDrain = "{why}"
STARTD_ATTRS = $(STARTD_ATTRS) RegiondagDrain
"""

NONE, PEACEFUL, GRACEFUL = range(3)


@dataclass(frozen=True)
class Notice:
    """Why and how to drain. `why` is ours, never text from outside."""

    strength: int
    why: str
    until: float | None = None  # seconds since 1970; None: as long as the jobs take


@dataclass(frozen=True)
class State:
    """How far the drain is."""

    strength: int = NONE  # of the drain that HTCondor was told
    until: float | None = None
    quiet: int = 0  # looks in a row that found nothing running
    off: bool = False


@dataclass(frozen=True)
class Worker:
    """What draining touches, so that tests can give it something else."""

    get: Callable[[str], str | None]  # metadata; raises MetadataError
    running: Callable[[], frozenset[str]]  # names of running programs
    drain: Callable[[Notice], str]  # tells HTCondor; returns what went wrong, or nothing
    power_off: Callable[[], int]  # its exit code
    sleep: Callable[[float], None]
    now: Callable[[], float]


def decide(action: str | None, rebalance: str | None, tag: str | None, now: float) -> tuple[Notice | None, str]:
    """Return the strongest notice, if any, and what of the three could not be understood."""
    puzzle = ""
    if action is not None:
        values = _object(action)
        if values.get("action") in ("terminate", "stop", "hibernate"):
            until = _seconds(values.get("time")) or now + NOTICE_SECONDS
            return Notice(GRACEFUL, f"EC2 takes the machine back ({values['action']})", until), ""
        puzzle = f"{ACTION} says {action[:80]!r}, which is no notice"
    if tag is not None and tag.strip() == "graceful":
        return Notice(GRACEFUL, "the tag regiondag-drain asks to stop the jobs", now + NOTICE_SECONDS), puzzle
    if rebalance is not None:
        if values := _object(rebalance):
            if now - (_seconds(values.get("noticeTime")) or now) >= REBALANCE_SECONDS:
                return Notice(GRACEFUL, "EC2 recommended ten minutes ago to move elsewhere"), puzzle
            return Notice(PEACEFUL, "EC2 recommends to move elsewhere"), puzzle
        puzzle = puzzle or f"{REBALANCE} says {rebalance[:80]!r}, which is no recommendation"
    if tag is not None and tag.strip():
        if tag.strip() == "peaceful":
            return Notice(PEACEFUL, "the tag regiondag-drain asks for it"), puzzle
        puzzle = puzzle or f"the tag regiondag-drain is {tag[:80]!r}; it can be 'peaceful' or 'graceful'"
    return None, puzzle


def advance(state: State, running: frozenset[str], now: float) -> tuple[State, str]:
    """Return the state after one more look at a draining machine, and what to say; `off` means power off now."""
    if state.strength == NONE:
        return state, ""
    # A starter is a running job; with a graceful shutdown the startd waits for those itself.
    waiting_for = "condor_startd" if state.strength == GRACEFUL else "condor_starter"
    if waiting_for not in running:
        # Twice, for a job may have been on its way when START became False.
        done = state.strength == GRACEFUL or state.quiet > 0
        return replace(state, quiet=state.quiet + 1, off=done), "drained" if done else ""
    if state.until is not None and now >= state.until:
        late = "ERROR: HTCondor has not ended by the time that the notice gave; running jobs lose what they did since"
        return replace(state, off=True), f"{late} their last checkpoint"
    return replace(state, quiet=0), ""


def watch(worker: Worker) -> int:
    """Look until the machine is drained, then power it off; return the exit code of that, which systemd acts upon."""
    state, told, failures, met = State(), "", 0, False

    def tell(text: str) -> None:
        nonlocal told
        if text and text != told:
            say(text)
        told = text or told

    while True:
        try:
            answers = [worker.get(path) for path in (ACTION, REBALANCE, TAG)]
            if failures and met:
                tell("the instance's metadata can be read again")
            failures, met = 0, True
            notice, puzzle = decide(answers[0], answers[1], answers[2], worker.now())
            tell(puzzle)
        except MetadataError as error:
            notice, failures = None, failures + 1
            if failures == 1:
                tell(f"{error}; asking again without a word")
        if notice and notice.strength > state.strength:
            problem = worker.drain(notice)
            tell(f"draining: {notice.why}" if not problem else f"ERROR: cannot drain, trying again: {problem}")
            # A master that cannot be told, of a startd that is not there, has nothing to drain.
            if not problem or "condor_startd" not in worker.running():
                state = State(notice.strength, notice.until)
        state, text = advance(state, worker.running(), worker.now())
        tell(text)
        if state.off:
            say("this machine powers off")
            return worker.power_off()
        worker.sleep(RARELY if failures >= PATIENCE and not met and state.strength == NONE else EVERY)


def drain(notice: Notice) -> str:
    """Tell HTCondor to drain; return what went wrong."""
    DRAIN_FILE.parent.mkdir(parents=True, exist_ok=True)
    new = DRAIN_FILE.with_suffix(".new")
    new.write_text(DRAIN_CONFIG.format(why=notice.why), encoding="utf-8")
    new.rename(DRAIN_FILE)
    if notice.strength == PEACEFUL:
        return _run(["condor_reconfig"])
    return _run(["condor_off", "-startd", "-graceful"])


def running(proc: Path = Path("/proc")) -> frozenset[str]:
    """Return the names of all running programs."""
    names = set()
    for path in proc.glob("[0-9]*/comm"):
        try:
            names.add(path.read_text(errors="replace").strip())
        except OSError:  # it ended
            continue
    return frozenset(names)


def say(text: str) -> None:
    """Print a line for journal and console, without anything that a terminal would obey."""
    print("regiondag-watch: " + "".join(c if c.isprintable() else "?" for c in text), flush=True)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {COMMAND_SECONDS} s"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    if done.returncode == 0 and "ERROR" not in done.stderr:  # a refused condor_off may still exit with 0
        return ""
    return f"{' '.join(command)}: {' '.join((done.stderr or done.stdout).split())[:300]}"


def _power_off() -> int:
    return subprocess.run(["systemctl", "poweroff"], check=False).returncode


def _object(text: str) -> dict[str, object]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _seconds(text: object) -> float | None:
    """Return the time in an answer such as 2026-11-22T08:22:00Z."""
    try:
        return datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def main() -> int:
    """Watch this machine."""
    os.umask(0o022)
    return watch(Worker(Metadata().get, running, drain, _power_off, time.sleep, time.time))


if __name__ == "__main__":
    sys.exit(main())
