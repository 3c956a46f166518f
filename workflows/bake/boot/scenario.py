"""Boot an image beside a manager of its own and put it through a worker's life. Runs in a network of its own.

usage: python -m regiondag.bake.boot.scenario PLAN     (a JSON file of `BootPlan`; started by bake.boot.boot_test)

Prints progress on stderr and writes result.json beside the plan; exit code 7 and a message where the image failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nnlib.util.files import write_atomically
from regiondag.bake.boot import questions, serial_console
from regiondag.bake.boot.imds_server import MetadataServer, make_instance_tree
from regiondag.bake.boot.machine import (
    Acceleration,
    AccelerationError,
    Firmware,
    Machine,
    check_acceleration,
    run_machine,
)
from regiondag.bake.boot.payload import ENDED, EVICTED, FOR_EVER, PayloadJob
from regiondag.bake.boot.slot_check import FLEET, NOTICE_SECONDS, QUERIED, check_slot, parse_slots
from regiondag.bake.boot.time_server import ADDRESS as TIME
from regiondag.bake.boot.time_server import TimeServer
from regiondag.errors import BakeError, PoolError, RegiondagError
from regiondag.fleet.user_data import render_user_data
from regiondag.pool import lifecycle
from regiondag.pool.pool import ROOT, Pool, pool_folder
from regiondag.util.resources import resource_dir

MANAGER = "10.88.0.1"
METADATA = "169.254.169.254"
DOMAIN = "bake.test"
POOL = "bake"
INSTANCES: Mapping[Firmware, str] = {"bios": "i-0000000000000b105", "uefi": "i-00000000000000ef1"}

# What a worker's token is good for, as ami/aws.md has people make it.
AUTHORIZATIONS = ("READ", "ADVERTISE_STARTD", "ADVERTISE_MASTER")

JOIN_SECONDS = 300  # from power-on
IDLE_SECONDS = 20


@dataclass(frozen=True)
class BootPlan:
    """What to boot, and as what."""

    disk: str
    suite: str  # of the manager
    acceleration: Acceleration
    firmwares: tuple[Firmware, ...] = ("bios", "uefi")
    worker: Mapping[str, object] = field(default_factory=dict)  # settings of worker.json that are to differ

    @property
    def patience(self) -> int:
        """How many times as long as usual things may take: who emulates processors shares them with others."""
        return 1 if self.acceleration == "kvm" else 4


@dataclass(frozen=True)
class Bench:
    """The manager that machines are booted beside."""

    plan: BootPlan
    folder: Path
    pool: Pool
    token: str
    started: float

    def tell(self, text: str) -> None:
        """Print a line of progress."""
        print(f"[{time.monotonic() - self.started:4.0f} s] {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Boot:
    """A machine that runs, and the metadata service that it asks."""

    machine: Machine
    process: subprocess.Popen[bytes]
    metadata: MetadataServer
    clock: TimeServer
    began: float = field(default_factory=time.monotonic)


def main(argv: list[str]) -> int:
    """Run the plan; return the exit code."""
    path = Path(argv[0])
    raw = json.loads(path.read_text(encoding="utf-8"))
    plan = BootPlan(**{**raw, "firmwares": tuple(raw["firmwares"])})
    try:
        with _bench(plan, path.parent) as bench:
            boots = [LIVES[firmware](bench) for firmware in plan.firmwares]
    except AccelerationError as error:
        print(error, file=sys.stderr)
        return error.inner_code
    except RegiondagError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    write_atomically(path.with_name("result.json"), json.dumps(boots, indent=1) + "\n")
    return 0


def _silent(_text: str) -> None:
    """Leave out what is said of a pool that nobody asked for."""


@contextmanager
def _bench(plan: BootPlan, folder: Path) -> Iterator[Bench]:
    started = time.monotonic()
    for argv in (
        ["link", "set", "lo", "up"],
        *(["addr", "add", f"{a}/32", "dev", "lo"] for a in (MANAGER, METADATA, TIME)),
    ):
        subprocess.run(["ip", *argv], check=True)
    os.environ["REGIONDAG_HOME"] = str(folder / "home")  # the manager's queue and logs go with the test
    settings = (resource_dir("templates") / "bake" / "pool.conf").read_text(encoding="utf-8")
    wishes = lifecycle.PoolWishes(plan.suite, 0, (("bake test", settings),))
    pool = lifecycle.up(POOL, wishes, _silent)
    try:
        yield Bench(plan, folder, pool, _make_token(pool), started)
    finally:
        lifecycle.down(POOL, _silent)


def _make_token(pool: Pool) -> str:
    """Return a token that lets one worker in, for an hour."""
    argv = ["condor_token_create", "-identity", f"condor@{DOMAIN}", "-lifetime", "3600"]
    argv += [word for level in AUTHORIZATIONS for word in ("-authz", level)]
    done = pool.run(argv, cwd=ROOT, capture_output=True)
    if done.returncode != 0:
        raise PoolError(f"the test's manager makes no token: {done.stderr.strip()}")
    return done.stdout.strip()


def _live_and_be_drained(bench: Bench) -> dict[str, object]:
    """BIOS: join, run a training, be told of a spot interruption during the next one, save it, power off."""
    with _boot(bench, "bios", 600, questions.ASK_HARDENING) as boot:
        seconds = _wait_until_joined(bench, boot)
        hardening = _check_hardening(bench, boot)
        _wait(bench, boot, "it has asked Amazon's time service", 60, lambda: boot.clock.asked > 0)
        first, second = PayloadJob(bench.pool, "first"), PayloadJob(bench.pool, "second")
        first.submit(epochs=3)
        _wait(bench, boot, "a job that asks for a GPU has ended", 180, lambda: first.has_event(ENDED))
        first.check_result()
        second.submit(FOR_EVER)
        _wait(bench, boot, "a long training is under way", 120, lambda: "epoch 2/" in second.said())
        told = time.monotonic()
        notice = {"action": "terminate", "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))}
        boot.metadata.set("meta-data/spot/instance-action", json.dumps(notice))
        bench.tell("spot notice: the machine will be taken away in 120 seconds")
        _wait(bench, boot, "the training was stopped and sent back", 120, lambda: second.has_event(EVICTED))
        saved = time.monotonic() - told
        _check_checkpoint()
        # It would go on on the next machine, which is to have nothing to do.
        bench.pool.run(["condor_rm", "-all"], cwd=ROOT, capture_output=True, check=True)
        _wait_until_off(bench, boot, NOTICE_SECONDS)
        off = time.monotonic() - told
    _check_console(boot)
    times = {"has_joined": seconds, "checkpoint_safe": round(saved, 1), "off": round(off, 1)}
    return {"firmware": "bios", "hardening": hardening, **times}


def _live_and_be_idle(bench: Bench) -> dict[str, object]:
    """UEFI: join, get nothing to do, power off."""
    with _boot(bench, "uefi", IDLE_SECONDS * bench.plan.patience, questions.ASK_ROOT) as boot:
        seconds = _wait_until_joined(bench, boot)
        joined = time.monotonic()
        _wait_until_off(bench, boot, IDLE_SECONDS + 180)
        off = time.monotonic() - joined
    _check_console(boot)
    root = questions.find_root(_console(boot.machine))
    return {"firmware": "uefi", "root": root, "has_joined": seconds, "idle_until_off": round(off, 1)}


Life = Callable[[Bench], dict[str, object]]
LIVES: Mapping[Firmware, Life] = {"bios": _live_and_be_drained, "uefi": _live_and_be_idle}


@contextmanager
def _boot(bench: Bench, firmware: Firmware, idle_seconds: int, asked: str) -> Iterator[Boot]:
    user_data = render_user_data(worker_settings(bench.token, idle_seconds, bench.plan.worker)) + asked
    machine = Machine(Path(bench.plan.disk), bench.folder, firmware, bench.plan.acceleration)
    bench.tell(f"booting by {firmware.upper()} ({machine.acceleration})")
    with (
        MetadataServer(make_instance_tree(INSTANCES[firmware]), user_data.encode(), METADATA, 80) as metadata,
        TimeServer(TIME) as clock,
        run_machine(machine) as process,
    ):
        yield Boot(machine, process, metadata, clock)


def worker_settings(token: str, idle_seconds: int, changes: Mapping[str, object]) -> dict[str, object]:
    """Return the worker.json of a machine under test: it joins the manager here, and its GPU is simulated."""
    return {
        "manager": MANAGER,
        "domain": DOMAIN,
        "token": {"text": token},
        "fleet": FLEET,
        "idle_minutes": 15,
        "join_minutes": 0,  # whoever watches gives up first, with the console in view
        "settings": {
            "GPU_DISCOVERY_EXTRA": "$(GPU_DISCOVERY_EXTRA) -simulate:2,1",
            "STARTD_NOCLAIM_SHUTDOWN": str(idle_seconds),
            "NO_DNS": "True",  # nobody answers here, and every name would take its time-out
            "DEFAULT_DOMAIN_NAME": DOMAIN,
            "UPDATE_INTERVAL": "10",  # it is then that HTCondor looks whether a machine was idle for long enough
        },
        **changes,
    }


def _wait_until_joined(bench: Bench, boot: Boot) -> float:
    """Return the seconds from power-on to a slot that offers a GPU."""
    machine = boot.machine
    began = time.monotonic()
    slots: list[dict[str, object]] = []

    def has_joined() -> bool:
        if found := serial_console.find_errors(_console(machine)):
            raise _failure(machine, "refused to join: " + "; ".join(found))
        constraint = f'EC2InstanceID == "{INSTANCES[machine.firmware]}"'
        argv = ["condor_status", "-constraint", constraint, "-af:Vt", *QUERIED]
        slots[:] = parse_slots(bench.pool.run(argv, cwd=ROOT, capture_output=True).stdout)
        return bool(slots)

    _wait(bench, boot, "has_joined", JOIN_SECONDS, has_joined)
    seconds = round(time.monotonic() - began, 1)
    if problem := check_slot(slots[0], machine.disk.stat().st_size):
        raise _failure(machine, problem)
    return seconds


def _check_hardening(bench: Bench, boot: Boot) -> str:
    """Return how many rules it keeps: all of them."""
    _wait(
        bench, boot, "it was looked at for open doors", 120, lambda: bool(questions.count_kept(_console(boot.machine)))
    )
    if open_doors := serial_console.find_errors(_console(boot.machine)):
        raise _failure(boot.machine, "is not closed as ami/hardening.md says: " + "; ".join(open_doors))
    return questions.count_kept(_console(boot.machine))


def _check_checkpoint() -> None:
    spool = pool_folder(POOL) / "var/spool/condor"
    if not any(path.stat().st_size for path in spool.rglob("checkpoint.nc")):
        raise BakeError("the training was stopped by the spot notice, and its checkpoint did not come back")


def _wait_until_off(bench: Bench, boot: Boot, seconds: float) -> None:
    seconds *= bench.plan.patience
    until = time.monotonic() + seconds
    while boot.process.poll() is None:
        check_acceleration(boot.machine, time.monotonic() - boot.began)
        if time.monotonic() > until:
            raise _failure(boot.machine, f"did not power off within {seconds:.0f} s")
        time.sleep(0.5)
    bench.tell("powered off by itself")


def _wait(bench: Bench, boot: Boot, what: str, seconds: float, happened: Callable[[], bool]) -> None:
    """Wait until something has happened; raise with what the console says where it does not, or the machine ends."""
    seconds *= bench.plan.patience
    until = time.monotonic() + seconds
    while not happened():
        check_acceleration(boot.machine, time.monotonic() - boot.began)
        if boot.process.poll() is not None:
            raise _failure(boot.machine, f"ended (qemu: {boot.process.returncode}) before: {what}")
        if serial_console.has_panicked(_console(boot.machine)):
            raise _failure(boot.machine, f"panicked before: {what}")
        if time.monotonic() > until:
            raise _failure(boot.machine, f"not within {seconds:.0f} s: {what}")
        time.sleep(1)
    bench.tell(what)


def _check_console(boot: Boot) -> None:
    text = _console(boot.machine)
    if found := [*serial_console.find_faults(text), *serial_console.find_errors(text)]:
        raise _failure(boot.machine, "complained while it booted: " + "; ".join(found))
    if boot.metadata.asked_without_token:
        raise _failure(boot.machine, "asked the metadata service without a session token (IMDSv1)")


def _console(machine: Machine) -> str:
    return machine.serial.read_text(errors="replace") if machine.serial.exists() else ""


def _failure(machine: Machine, why: str) -> BakeError:
    text = _console(machine)
    also = "".join(f"\n  {line}" for line in serial_console.find_faults(text))
    faults = f"\nits console complains:{also}" if also else ""
    return BakeError(
        f"the machine under test, booted by {machine.firmware.upper()}, {why}{faults}\n"
        f"the end of its console ({machine.serial}):\n{serial_console.last_lines(text)}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
