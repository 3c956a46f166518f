"""Give this worker its pool: token, settings, and a manager that takes it. Run once at boot, as root, before HTCondor.

reads   /etc/regiondag/worker.json (workerfile.py says what it holds), instance metadata, the token's place
writes  /etc/condor/tokens.d/regiondag and /etc/condor/config.d/90-regiondag-pool.config
exits   0 the manager takes this machine; 1 it never will, and HTCondor must not start

A manager that is away, and a token that it refuses, are tried again (with the token fetched anew, it may have been
replaced) until join_minutes are over; then the machine powers off, for it costs money and does nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import manager
import tokens
import workerfile
from metadata import Metadata, MetadataError

WORKER_FILE = "etc/regiondag/worker.json"
TOKENS_FOLDER = "etc/condor/tokens.d"
TOKEN_FILE = f"{TOKENS_FOLDER}/regiondag"
CONFIG_FILE = "etc/condor/config.d/90-regiondag-pool.config"
SHUTDOWN = "/usr/local/libexec/regiondag/shutdown.sh"

# What slots advertise, and where EC2 says it.
ATTRIBUTES = {
    "EC2InstanceID": "meta-data/instance-id",
    "EC2InstanceType": "meta-data/instance-type",
    "EC2InstanceLifeCycle": "meta-data/instance-life-cycle",
}
FLEET_TAG = "meta-data/tags/instance/regiondag:fleet"

FIRST_PAUSE = 5.0
LONGEST_PAUSE = 60.0
METADATA_TRIES = 4
GROWTH = 1.5
TELL_EVERY = 60.0

NO_FILE = (
    "/{path} is missing: this machine got no user data, so it does not know its pool. On EC2 start it with the user "
    "data that `regiondag fleet` makes. Elsewhere write the file yourself, mode 0600, for instance "
    '{{"manager": "10.0.0.5", "token": {{"file": "/etc/condor/tokens.d/pool"}}, "idle_minutes": 0}}, then: '
    "systemctl restart regiondag-join && systemctl start condor"
)


class HopelessError(Exception):
    """This machine cannot join, however long it waits."""


@dataclass(frozen=True)
class Machine:
    """What joining touches, so that tests can give it something else."""

    root: Path
    metadata: Metadata
    run: Callable[..., subprocess.CompletedProcess[str]]
    sleep: Callable[[float], None]
    clock: Callable[[], float]
    power_off: Callable[[], None]

    def tell(self, text: str) -> None:
        """Say something on the console, each line of it with our name."""
        for line in text.splitlines():
            # What a stranger answered may stand in it: nothing that a terminal would obey.
            print("regiondag-join: " + "".join(c if c.isprintable() else "?" for c in line), flush=True)


def join(machine: Machine) -> int:
    """Join the pool; return the exit code."""
    started = machine.clock()
    worker = None
    try:
        worker = read_worker_file(machine.root)
        attributes = _ask_metadata(machine, worker)
        config = workerfile.pool_config(worker, attributes, SHUTDOWN)
        write(machine.root / CONFIG_FILE, config, 0o644)
        _join_until(machine, worker, started)
    except HopelessError as error:
        for line in str(error).splitlines():
            machine.tell(f"ERROR: {line}")
        minutes = _minutes_of_fleet(machine) if worker is None else worker.join_minutes
        if minutes:
            _give_up(machine, started + 60 * minutes)
        return 1
    idle = f"powers off after {worker.idle_minutes:g} idle minutes" if worker.idle_minutes else "never powers off"
    machine.tell(f"the manager {worker.manager} takes this machine; it {idle}")
    return 0


def read_worker_file(root: Path) -> workerfile.WorkerFile:
    """Return what worker.json says."""
    path = root / WORKER_FILE
    try:
        return workerfile.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HopelessError(NO_FILE.format(path=WORKER_FILE)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise HopelessError(f"/{WORKER_FILE} cannot be read: {error}") from None
    except workerfile.WorkerFileError as error:
        lines = "\n".join(f"/{WORKER_FILE}: {line}" for line in str(error).splitlines())
        raise HopelessError(f"{lines}\ncorrect it, then: systemctl restart regiondag-join") from None


def write(path: Path, text: str, mode: int) -> None:
    """Write a file at once, never readable for more people than `mode` allows."""
    if not path.parent.is_dir():  # Debian's condor brings config.d, but no tokens.d
        path.parent.mkdir(mode=0o700 if mode == 0o600 else 0o755, parents=True)
    # Not in config.d or tokens.d under another name, for HTCondor reads every file there but hidden ones.
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.rename(path)


def _ask_metadata(machine: Machine, worker: workerfile.WorkerFile) -> dict[str, str]:
    """Return what slots advertise about the instance; nothing on a machine that is none.

    A worker of a fleet is an instance, and one whose slots do not say which would count as lost: it asks again.
    """
    for left in range(METADATA_TRIES - 1 if worker.fleet else 0, -1, -1):
        try:
            found = {name: machine.metadata.get(path) for name, path in ATTRIBUTES.items()}
            found["RegiondagFleet"] = machine.metadata.get(FLEET_TAG)
            return {name: value.strip() for name, value in found.items() if value}
        except MetadataError as error:
            if left:
                machine.sleep(FIRST_PAUSE)
            elif worker.fleet:
                machine.tell(f"{error}; the slots of this machine do not say which instance it is")
    return {}


def _minutes_of_fleet(machine: Machine) -> float:
    """Return how long a machine without a usable worker.json stays on: for ever, unless a fleet pays for it."""
    try:
        return workerfile.JOIN_MINUTES if machine.metadata.get(FLEET_TAG) else 0
    except MetadataError:
        return 0


def _join_until(machine: Machine, worker: workerfile.WorkerFile, started: float) -> None:
    """Return once the manager takes this machine; raise HopelessError when time is over, or waiting is in vain."""
    deadline = started + 60 * worker.join_minutes if worker.join_minutes else float("inf")
    pause, told, told_at = FIRST_PAUSE, "", 0.0
    while True:
        text, is_error = _try(machine, worker)
        if not text:
            return
        now = machine.clock()
        if now + pause > deadline:
            raise HopelessError(f"not joined within {worker.join_minutes:g} minutes: {text}")
        if text != told or now - told_at >= TELL_EVERY:
            machine.tell(f"ERROR: {text}; trying again" if is_error else f"{text}; trying again")
            told, told_at = text, now
        machine.sleep(pause)
        pause = min(GROWTH * pause, LONGEST_PAUSE)


def _try(machine: Machine, worker: workerfile.WorkerFile) -> tuple[str, bool]:
    """Fetch the token and ask the manager; return what is in the way, and whether somebody must do something."""
    try:
        token = tokens.fetch(worker, machine.metadata, machine.root)
    except tokens.TokenError as error:
        return str(error), not error.passing
    # A file that HTCondor reads anyway is not copied: an old copy would outlive a new token.
    if worker.token.kind != "file" or Path(worker.token.value).parent != Path("/", TOKENS_FOLDER):
        write(machine.root / TOKEN_FILE, token, 0o600)
    answer = manager.ask(machine.run)
    if answer.kind == "unreachable":
        return f"the manager {worker.manager} cannot be reached: {answer.text}", False
    if answer.kind == "refused":
        about = tokens.described(token)
        return f"the manager {worker.manager} refuses the token ({worker.token}; {about}): {answer.text}", True
    if manager.series(answer.theirs) != manager.series(answer.ours):
        raise HopelessError(manager.wrong_series(worker.manager, answer))
    return "", False


def _give_up(machine: Machine, deadline: float) -> None:
    """Power off at `deadline`; until then somebody can look at the machine."""
    seconds = deadline - machine.clock()
    if seconds > FIRST_PAUSE:
        machine.tell(
            f"this machine powers off in {seconds / 60:.0f} minutes; to keep it: systemctl stop regiondag-join"
        )
        machine.sleep(seconds)
    machine.tell("this machine powers off")
    machine.power_off()


def check(root: Path) -> int:
    """Print the settings that worker.json makes, or its mistakes; change nothing, ask nobody."""
    try:
        worker = read_worker_file(root)
    except HopelessError as error:
        print(error, file=sys.stderr)
        return 1
    print(workerfile.pool_config(worker, {}, SHUTDOWN), end="")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Join, as the options say."""
    parser = argparse.ArgumentParser(description="Give this worker its pool: token, settings, manager.")
    parser.add_argument("--root", type=Path, default=Path("/"), help="folder that stands for / (default: /)")
    parser.add_argument("--check", action="store_true", help="only say what worker.json would make")
    options = parser.parse_args(arguments)
    if options.check:
        return check(options.root)

    def power_off() -> None:
        subprocess.run(["systemctl", "poweroff"], check=False)

    return join(Machine(options.root, Metadata(), subprocess.run, time.sleep, time.monotonic, power_off))


if __name__ == "__main__":
    sys.exit(main())
