"""The lease of a worker: renewed by a manager that takes it, by the time since the boot, and by nothing else."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ami.conftest import load
from tests.support import several_machines
from tests.support.several_machines import PYTHON, Lab, until

lease = load("lease")

WELCOME = """\
Remote Version:              $CondorVersion: 23.9.6 2024-08-08 $
Local  Version:              $CondorVersion: 23.9.6 2024-08-08 $
Authorized:                  TRUE
"""
GONE = "ERROR: failed to make connection to <10.0.0.5:9618>"
REFUSED = "AUTHENTICATE:1004:Failed to authenticate using IDTOKENS"
FLEET = {"manager": "10.0.0.5", "token": {"ssm": "/t"}, "fleet": "demo"}


class Machine:
    """A worker whose manager answers as `answers` says, by the minute since the boot; asking takes no time."""

    def __init__(self, root: Path, answers: Callable[[float], str], since: float = 0, **worker: object) -> None:
        self.now, self.answers, self.asked, self.offs, self.root = 60 * since, answers, 0, 0, root
        (root / "etc/regiondag").mkdir(parents=True, exist_ok=True)
        (root / "etc/regiondag/worker.json").write_text(json.dumps({**FLEET, **worker}))

    def ask(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.asked += 1
        return subprocess.CompletedProcess(command, 1, self.answers(self.now / 60), "")

    def sleep(self, seconds: float) -> None:
        assert seconds >= 1
        self.now += seconds
        if self.now > 100_000:
            raise InterruptedError

    def run(self, code: int = 0) -> int:
        """Run the program to its end; the minute of it, or -1 if the machine stays on."""

        def off() -> int:
            self.offs += 1
            return code

        machine = lease.Machine(self.root, self.ask, self.sleep, lambda: self.now, off)
        try:
            assert lease.watch(machine) == code
        except InterruptedError:
            return -1
        return round(self.now / 60)


def test_a_manager_that_is_gone_for_an_hour_ends_the_machine(tmp_path, capsys):
    machine = Machine(tmp_path, lambda minute: WELCOME if minute <= 90 else GONE)
    assert machine.run() == 150
    assert machine.offs == 1
    assert capsys.readouterr().out.splitlines() == [
        "regiondag-lease: the lease is not renewed: failed to make connection to <10.0.0.5:9618>; "
        "this machine powers off in 59 minutes",
        "regiondag-lease: the manager has not taken this machine for 60 minutes "
        "(failed to make connection to <10.0.0.5:9618>)",
        "regiondag-lease: this machine powers off",
    ]


def test_a_manager_that_boots_within_the_hour_changes_nothing(tmp_path, capsys):
    assert Machine(tmp_path, lambda minute: WELCOME if minute % 90 < 32 else GONE).run() == -1
    assert capsys.readouterr().out.count("the manager answers again; the lease is renewed") > 5


def test_a_machine_that_never_joins_ends_an_hour_after_its_boot(tmp_path):
    assert Machine(tmp_path, lambda minute: GONE).run() == 60


def test_a_manager_that_refuses_the_token_renews_nothing(tmp_path):
    assert Machine(tmp_path, lambda minute: WELCOME if minute < 10 else REFUSED).run() in (69, 70)


def test_a_program_that_is_started_anew_goes_on_with_the_same_lease(tmp_path):
    assert Machine(tmp_path, lambda minute: WELCOME if minute <= 5 else GONE).run(code=1) == 65
    assert Machine(tmp_path, lambda minute: GONE, since=30).run() == 65
    assert Machine(tmp_path, lambda minute: GONE, since=66).run() == 66


@given(text=st.text(max_size=20) | st.floats().map(str), now=st.floats(0, 1e9))
def test_whatever_the_file_says_no_lease_begins_in_the_future(text, now, tmp_path_factory):
    root = tmp_path_factory.getbasetemp()
    (root / "run/regiondag").mkdir(parents=True, exist_ok=True)
    (root / "run/regiondag/lease").write_text(text)
    assert 0 <= lease.read_renewal(root, now) <= now


@pytest.mark.parametrize("minutes", [5, 90.5])
def test_the_minutes_are_those_of_the_file(tmp_path, minutes):
    assert Machine(tmp_path, lambda minute: GONE, lease_minutes=minutes).run() == pytest.approx(minutes, abs=1)


def test_a_machine_without_a_fleet_has_no_lease(tmp_path):
    machine = Machine(tmp_path, lambda minute: GONE, fleet=None)
    assert machine.run() == -1
    assert machine.asked == 0
    machine = Machine(tmp_path, lambda minute: GONE, fleet=None, lease_minutes=30)
    assert machine.run() == 30


def test_without_a_worker_json_it_waits_for_one(tmp_path):
    machine = Machine(tmp_path, lambda minute: GONE)
    machine.root = tmp_path / "other"
    assert machine.run() == -1


def test_a_power_off_that_systemd_refuses_is_forced(monkeypatch):
    calls = []

    def refuse(words, **_):
        calls.append(words)
        return subprocess.CompletedProcess(words, 0 if "--force" in words else 1)

    monkeypatch.setattr(lease.subprocess, "run", refuse)
    assert lease.power_off() == 0
    assert calls == [["systemctl", "poweroff"], ["systemctl", "poweroff", "--force", "--force"]]


# --- a real collector --------------------------------------------------------------------------------------

PROGRAM = """
import subprocess, sys, time
from pathlib import Path
sys.path.insert(0, "/usr/local/libexec/regiondag")
import lease
off = lambda: print("OFF", flush=True) or 0
lease.watch(lease.Machine(Path("/"), subprocess.run, time.sleep, lease.since_boot, off), every=1)
"""
SECONDS = 15


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if why := several_machines.unusable():
        pytest.skip(why)
    with Lab(workers=1) as lab:
        lab.wait_for_slots()
        yield lab


@pytest.mark.condor
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("machines")
def test_a_worker_ends_when_its_manager_is_killed_and_not_when_it_boots(lab, tmp_path):
    worker, manager = lab.workers[0], lab.manager
    path = worker.root / "etc/regiondag/worker.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "lease_minutes": SECONDS / 60}))
    with (tmp_path / "out").open("w+") as out:
        argv = worker.argv([PYTHON, "-c", PROGRAM], "root", "/", {})
        program = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)

        def said() -> str:
            return (tmp_path / "out").read_text()

        try:
            until("the lease to be renewed", lambda: (worker.root / "run/regiondag/lease").exists(), 20)
            lab.run(manager, shlex.split("condor_off -master -fast"), check=True)
            until("the loss to be seen", lambda: "the lease is not renewed" in said(), 20)
            lab.run(manager, ["condor_master"], check=True)  # it boots
            until("the lease to be renewed again", lambda: "the manager answers again" in said(), 30)
            assert program.poll() is None
            lab.crash(manager)
            until("the worker to power off", lambda: "OFF" in said(), 90)
            assert program.wait(10) == 0
        finally:
            program.kill()
            program.wait()
    assert said().count("OFF") == 1
