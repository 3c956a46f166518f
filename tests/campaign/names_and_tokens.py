"""Faults of what machines need before they speak with each other: names that resolve, and tokens that hold."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.campaign.running import all_processes, process_space, wait_until
from tests.support.several_machines import MANAGER_NAME, Lab, LabError, Machine

BACK = 90.0  # seconds for a worker to offer its slot again
TOKEN = "etc/condor/tokens.d/regiondag"  # noqa: S105 - a path
KEY = "etc/condor/passwords.d/POOL"
MAKE_TOKEN = "regiondag-worker-token"  # noqa: S105 - a program
SILENT = "10.77.0.250"  # nobody has this address

KINDS = {
    "manager's name unknown": "a worker's startd starts again while the manager's name does not resolve, 5 to 20 s",
    "worker's resolver silent": "the same while each look-up of a name waits for a server that does not answer",
    "manager's resolver silent": "the manager's look-ups wait for a server that does not answer, 10 to 30 s",
    "token expired": "a worker's startd starts again with a token that is over, and gets a new one 5 to 20 s later",
    "key replaced": "the pool signs with another key; a worker's startd starts again, and the new tokens come later",
}


def start_again(machine: Machine) -> float:
    """Kill the worker's startd, which its condor_master starts again, so that it must find the manager; return when."""
    space, begun = process_space(machine.pid), time.time()
    for seen in all_processes():
        if seen.program == "condor_startd" and process_space(seen.pid) == space:
            seen.kill()
    return begun


@contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """Let a file have another text for a while. Written in place: it may be mounted, and keeps its owner and mode."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(text, encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")


def without_name(hosts: str) -> str:
    """Return a hosts file without the manager."""
    return "".join(line for line in hosts.splitlines(keepends=True) if MANAGER_NAME not in line)


def name_unknown(lab: Lab, worker: Machine, seconds: float) -> str:
    hosts = worker.root / "etc/hosts"
    with changed(hosts, without_name(hosts.read_text(encoding="utf-8"))):
        begun = start_again(worker)
        time.sleep(seconds)
    return f"{worker.name} for {seconds:.1f} s{_when_back(lab, worker, begun)}"


def resolver_silent(lab: Lab, worker: Machine, seconds: float) -> str:
    with changed(worker.root / "etc/resolv.conf", f"nameserver {SILENT}\n"):
        return name_unknown(lab, worker, seconds)


def manager_resolver_silent(lab: Lab, _worker: Machine, seconds: float) -> str:
    seconds = 10 + 4 / 3 * (seconds - 5)
    with changed(lab.manager.root / "etc/resolv.conf", f"nameserver {SILENT}\n"):
        time.sleep(seconds)
    return f"for {seconds:.1f} s"


def token_expired(lab: Lab, worker: Machine, seconds: float) -> str:
    over = lab.run(lab.manager, [MAKE_TOKEN, "-lifetime", "1"], check=True).stdout
    time.sleep(2)
    (worker.root / TOKEN).write_text(over, encoding="utf-8")
    begun = start_again(worker)
    time.sleep(seconds)
    _renew(lab, worker)
    return f"{worker.name} for {seconds:.1f} s{_when_back(lab, worker, begun)}"


def key_replaced(lab: Lab, worker: Machine, seconds: float) -> str:
    (lab.manager.root / KEY).write_text(secrets.token_hex(64), encoding="utf-8")
    begun = start_again(worker)
    time.sleep(seconds)
    for machine in lab.workers:
        _renew(lab, machine)
    return f"{worker.name} for {seconds:.1f} s{_when_back(lab, worker, begun)}"


def _renew(lab: Lab, worker: Machine) -> None:
    (worker.root / TOKEN).write_text(lab.run(lab.manager, [MAKE_TOKEN], check=True).stdout, encoding="utf-8")


def _when_back(lab: Lab, worker: Machine, begun: float) -> str:
    """Wait for the slot of a startd that has begun since then; LabError when it does not come."""
    waited = time.monotonic()
    its = f'regexp("@{worker.name}[.]", Name) && DaemonStartTime >= {int(begun)}'
    if not wait_until(lambda: lab.run(lab.manager, ["condor_status", "-const", its, "-af", "Name"]).stdout, BACK, 1):
        raise LabError(f"{worker.name} has not come back within {BACK:.0f} s")
    return f", back {time.monotonic() - waited:.0f} s later"


INJECT: Mapping[str, Callable[[Lab, Machine, float], str]] = {
    "manager's name unknown": name_unknown,
    "worker's resolver silent": resolver_silent,
    "manager's resolver silent": manager_resolver_silent,
    "token expired": token_expired,
    "key replaced": key_replaced,
}
