"""End this machine when the pool's manager has not taken it for `lease_minutes`. Runs as root as long as it does.

Every minute the collector is asked as regiondag-join asked it (manager.py), with this machine's token: a manager that
is gone, cut off, hangs, or refuses the token renews nothing. The lease begins when the machine boots, so one that never
joins ends by it, too; a manager that boots within the hour changes nothing. Time is counted since the machine's boot,
which no setting of the clock moves; the last renewal stands in a file of /run, for a program that is started anew.

worker.json gives the minutes: an hour for a machine of a fleet, which somebody pays for; without a fleet, no lease.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import manager
import workerfile

WORKER_FILE = "etc/regiondag/worker.json"
RENEWED_FILE = "run/regiondag/lease"
EVERY = 60.0


@dataclass(frozen=True)
class Machine:
    """What a lease touches, so that tests can give it something else."""

    root: Path
    run: Callable[..., subprocess.CompletedProcess[str]]
    sleep: Callable[[float], None]
    clock: Callable[[], float]  # seconds since the boot
    power_off: Callable[[], int]  # its exit code


def watch(machine: Machine, every: float = EVERY) -> int:
    """Ask until the lease is over, then power off; return the exit code of that, which systemd acts upon."""
    renewed, told = read_renewal(machine.root, machine.clock()), ""
    while True:
        seconds = 60 * read_lease(machine.root)
        answer = manager.ask(machine.run) if seconds else manager.Answer("welcome")
        now = machine.clock()
        if answer.kind == "welcome":
            renewed = now
            write_renewal(machine.root, now)
            told = tell("the manager answers again; the lease is renewed") if told else ""
        elif now - renewed >= seconds:
            tell(f"the manager has not taken this machine for {seconds / 60:g} minutes ({answer.text})")
            tell("this machine powers off")
            return machine.power_off()
        elif not told:
            left = (renewed + seconds - now) / 60
            told = tell(f"the lease is not renewed: {answer.text}; this machine powers off in {left:.0f} minutes")
        # Not beyond the end of the lease.
        machine.sleep(min(every, max(1.0, renewed + seconds - now)) if seconds else every)


def read_lease(root: Path) -> float:
    """Return the minutes of the lease; 0 without one, and where worker.json is missing or wrong."""
    try:
        return workerfile.parse((root / WORKER_FILE).read_text(encoding="utf-8")).lease_minutes
    except (OSError, UnicodeDecodeError, workerfile.WorkerFileError):
        return 0  # regiondag-join says so, and ends an instance of a fleet


def read_renewal(root: Path, now: float) -> float:
    """Return when the lease was last renewed, the boot if never; nothing that lies in the future."""
    try:
        return min(max(float((root / RENEWED_FILE).read_text(encoding="utf-8")), 0.0), now)
    except (OSError, ValueError):
        return 0.0


def write_renewal(root: Path, now: float) -> None:
    """Note that the lease was renewed; what cannot be written down holds as long as this program runs."""
    path = root / RENEWED_FILE
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(f"{now:.3f}\n", encoding="utf-8")
        new.rename(path)
    except OSError:
        pass


def tell(text: str) -> str:
    """Print a line for journal and console, without anything that a terminal would obey; return it."""
    print("regiondag-lease: " + "".join(c if c.isprintable() else "?" for c in text), flush=True)
    return text


def power_off() -> int:
    """Power the machine off, and not by asking nicely where systemd does not answer."""
    for words in (["systemctl", "poweroff"], ["systemctl", "poweroff", "--force", "--force"]):
        try:
            code = subprocess.run(words, check=False, timeout=60).returncode
        except (OSError, subprocess.TimeoutExpired):
            code = 1
        if code == 0:
            return 0
    return 1


def main() -> int:
    """Keep the lease of this machine."""
    return watch(Machine(Path("/"), subprocess.run, time.sleep, since_boot, power_off))


def since_boot() -> float:
    """Return the seconds since the boot, those that the machine slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


if __name__ == "__main__":
    sys.exit(main())
