"""A real HTCondor in a root folder: started, used, killed, revived, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.errors import PoolError
from regiondag.pool import lifecycle
from regiondag.pool.lifecycle import PoolWishes
from regiondag.pool.pool import Pool, find_pool, pool_folder, read_state, require_pool

pytestmark = [pytest.mark.condor, pytest.mark.slow]

SUITE = os.environ.get("REGIONDAG_TEST_SUITE", "trixie")
SERIES = {"trixie": (23, 9), "forky": (25, 14)}

PYTHON = "/usr/local/libexec/regiondag/python"

JOB = """
executable = /bin/sh
arguments = "-c 'echo $CUDA_VISIBLE_DEVICES'"
transfer_executable = False
should_transfer_files = YES
request_cpus = 1
request_memory = 64MB
request_disk = 1MB
output = $(JOB).out
error = $(JOB).err
log = jobs.log
"""

GPU = "request_gpus = 1\nrequirements = TARGET.HAS_GPU =?= True\n"

OUTSIDE = """
import htcondor2
slots = htcondor2.Collector().query(htcondor2.AdType.Startd, projection=["Name"])
assert {ad["Name"].split("@")[0].split("_")[0] for ad in slots} == {"slot1", "slot2"}, slots
schedd = htcondor2.Schedd()
assert schedd.query(constraint="ClusterId < 0") == []
try:
    schedd.submit(htcondor2.Submit("executable = /bin/true"))
except Exception as error:
    assert "AUTHENTICATE" in str(error), error
else:
    raise AssertionError("a program outside could submit a job")
"""


def shell(pool: Pool, text: str, cwd: Path | None = None) -> str:
    """Run a line of shell in the pool and return what it printed."""
    done = pool.run(["sh", "-c", text], cwd, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def submit(pool: Pool, folder: Path, name: str, extra: str = "") -> None:
    """Submit JOB with `extra` commands as `name`."""
    (folder / f"{name}.sub").write_text(f"JOB = {name}\n{JOB}{extra}queue\n")
    shell(pool, f"condor_submit {name}.sub", folder)


def wait(pool: Pool, folder: Path, log: str = "jobs.log", seconds: int = 60) -> None:
    """Wait until all jobs of the log have ended."""
    done = pool.run(["condor_wait", "-wait", str(seconds), log], folder, capture_output=True)
    assert done.returncode == 0, (folder / log).read_text()


@pytest.fixture
def other() -> Iterator[str]:
    """Return the name of one more pool; it is removed after the test."""
    name = f"pytest-other-{os.getpid()}"
    yield name
    if read_state(name):
        lifecycle.down(name, print, purge=True)


def mentions(text: str) -> list[str]:
    """Return the processes and mounts of this machine that speak of `text`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # processes come and go
            if int(path.parent.name) != os.getpid():
                found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    found += Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in found if text in line]


def test_up_twice_is_harmless(pool):
    told: list[str] = []
    before = read_state(pool.name)
    assert lifecycle.up(pool.name, PoolWishes(), told.append) == pool
    assert told == [f"the pool {pool.name!r} is already up"]
    lifecycle.up(pool.name, PoolWishes(simulated_gpus=5), told.append)
    assert told[-1].startswith("it keeps the settings")
    assert read_state(pool.name) == before


def test_find_pool(pool):
    assert pool.version[:2] == SERIES[SUITE]
    assert find_pool(pool.name) == pool
    assert find_pool() == pool  # by REGIONDAG_POOL
    assert pool.simulated_gpus == 2


def test_exec_passes_everything_through(pool):
    program = "import os, sys; print(os.getcwd(), sys.stdin.read()); sys.exit(7)"
    argv = [sys.executable, "-m", "regiondag", "pool", "exec", "--", "python3", "-c", program]
    done = subprocess.run(argv, input="hello", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, f"{Path.cwd()} hello\n")
    assert pool.run(["no-such-program"], capture_output=True).returncode == 127


def test_the_image_has_both_pythons(pool):
    program = "import numpy, scipy, netCDF4, sklearn, skopt, yaml, jinja2; print(skopt.__version__)"
    assert pool.run([PYTHON, "-c", program], capture_output=True).stdout == "0.10.2\n"


def test_gpu_slots_are_simulated_and_say_so(pool, capsys):
    # An earlier test's job may have left its claim, a dynamic slot, for a moment.
    machines = "condor_status -constraint PartitionableSlot"
    lines = shell(pool, f"{machines} -af Name TotalSlotGPUs HAS_GPU SimulatedGPUs").splitlines()
    assert sorted(lines) == ["slot1@localhost.local 2 true true", "slot2@localhost.local 0 false true"]
    assert main(["pool", "status"]) == 0
    text = capsys.readouterr().out
    assert "2 simulated GPUs" in text
    assert "no GPU" in text
    assert main(["pool", "status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert [(slot["gpus"], slot["has_gpu"]) for slot in status["slots"]] == [(2, True), (0, False)]


def test_a_dag_of_three_nodes_runs(pool, run_area):
    (run_area / "job.sub").write_text(f"{JOB}queue\n")
    (run_area / "study.dag").write_text(
        "JOB a job.sub\nJOB b job.sub\nJOB c job.sub\nPARENT a CHILD b\nPARENT b CHILD c\n"
    )
    shell(pool, "condor_submit_dag study.dag", run_area)
    wait(pool, run_area, "study.dag.dagman.log")
    assert [(run_area / f"{name}.out").exists() for name in "abc"] == [True] * 3
    assert json.loads((run_area / "study.dag.metrics").read_text())["exitcode"] == 0


def test_gpu_jobs_land_on_the_gpu_slot_only(pool, run_area):
    for number in range(3):
        submit(pool, run_area, f"gpu{number}", GPU)
    submit(pool, run_area, "cpu", "requirements = TARGET.HAS_GPU =!= True\n")
    submit(pool, run_area, "never", GPU.replace("1", "3"))
    ours = f"-constraint 'Iwd == \"{run_area}\"'"
    deadline = time.monotonic() + 120
    while shell(pool, f"condor_q {ours} -af JobStatus").split() != ["1"] and time.monotonic() < deadline:
        time.sleep(0.5)  # a job is in the history when it has left the queue, some time after its output is there
    hosts = shell(pool, f"condor_history {ours} -af LastRemoteHost RequestGPUs").splitlines()
    assert {line.split("_")[0] for line in hosts if line.endswith(" 1")} == {"slot1"}
    assert {line.split("_")[0] for line in hosts if line.endswith(" undefined")} == {"slot2"}
    assert (run_area / "gpu0.out").read_text().startswith("GPU-")
    assert shell(pool, f"condor_q {ours} -af JobStatus").split() == ["1"]  # three GPUs are not there
    shell(pool, f"condor_rm {ours}")


def test_programs_outside_can_look_but_not_touch(pool):
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDE],
        env={**os.environ, "CONDOR_CONFIG": str(pool.client_config)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_nothing_listens_on_the_network(pool):
    addresses = set(shell(pool, "condor_status -any -af MyAddress").split()) - {"undefined"}
    assert addresses
    assert all(address.startswith("<127.0.0.1:") for address in addresses)
    ours = set(shell(pool, "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -o 'socket:.[0-9]*' | tr -dc '0-9\\n'").split())
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in ours}
    assert listening == {"0100007F"}


@pytest.mark.usefixtures("pool")
def test_logs(capsys):
    assert main(["pool", "logs", "schedd", "-n", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["pool", "logs", "nobody"]) == 2
    assert "SchedLog" in capsys.readouterr().err


def test_a_second_pool_dies_is_noticed_and_revived(pool, other, run_area):
    second = lifecycle.up(other, PoolWishes(SUITE), print)
    assert shell(second, "condor_status -af Name HAS_GPU") == "slot1@localhost.local false\n"
    assert "slot2@" in shell(pool, "condor_status -af Name")
    submit(second, run_area, "waits", GPU)
    first_process = read_state(other).processes[0]
    os.kill(first_process.pid, signal.SIGKILL)
    assert first_process.wait_gone(5)
    with pytest.raises(PoolError, match="has died"):
        require_pool(other)
    assert main(["pool", "exec", "--name", other, "--", "true"]) == 5
    told: list[str] = []
    revived = lifecycle.up(other, PoolWishes(simulated_gpus=1), told.append)
    assert told == [f"the pool {other!r} had died; starting it again with its queue"]
    wait(revived, run_area)
    assert (run_area / "waits.out").read_text().startswith("GPU-")


def test_down_kills_jobs_and_leaves_nothing(pool, other, run_area):
    second = lifecycle.up(other, PoolWishes(SUITE), print)
    submit(second, run_area, "long", "arguments = \"-c 'trap : TERM; while :; do sleep 0.987654; done'\"\n")
    deadline = time.monotonic() + 30
    while not mentions("sleep 0.987654") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert mentions("sleep 0.987654")
    assert mentions(f"/{other}/")
    lifecycle.down(other, print)
    assert not mentions("sleep 0.987654")
    assert not mentions(f"/{other}/")
    with pytest.raises(PoolError, match="no pool called"):
        require_pool(other)
    lifecycle.down(other, print, purge=True)
    assert not pool_folder(other).exists()
    assert find_pool() == pool


def test_a_job_that_ran_when_its_pool_was_stopped_runs_again_at_once(pool, other, run_area):
    assert pool.kind == "embedded"
    second = lifecycle.up(other, PoolWishes(SUITE), print)
    begun = run_area / "begun"
    line = f"echo $$ >>{begun}; test $(wc -l <{begun}) -gt 1 || sleep 600"
    submit(second, run_area, "twice", f"arguments = \"-c '{line}'\"\n")
    deadline = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    lifecycle.down(other, print)
    wait(lifecycle.up(other, PoolWishes(SUITE), print), run_area)  # a lease is ten minutes
    assert len(begun.read_text().split()) == 2


def test_a_broken_config_is_told_with_the_logs_and_leaves_nothing(pool, other, monkeypatch):
    assert pool.kind == "embedded"
    monkeypatch.setattr(lifecycle, "START_SECONDS", 6)
    wishes = PoolWishes(SUITE, 0, (("bad.conf", "DAEMON_LIST = MASTER COLLECTOR\n"),))
    with pytest.raises(PoolError, match=r"(?s)was not ready within 6 seconds.*MasterLog"):
        lifecycle.up(other, wishes, print)
    assert not mentions(f"/{other}/")


@pytest.mark.skipif(os.geteuid() != 0, reason="a chroot without a user namespace needs root")
def test_chroot_instead_of_user_namespaces(pool, other, run_area, monkeypatch):
    if not all(folder.stat().st_mode & stat.S_IXOTH for folder in run_area.parents):
        pytest.skip(f"{run_area.parent} can be entered by root alone: DAGMan takes no path with a space, as here")
    assert pool.kind == "embedded"
    monkeypatch.setenv("REGIONDAG_SANDBOX", "chroot")
    second = lifecycle.up(other, PoolWishes(SUITE, 1), print)
    assert shell(second, "id -u; hostname") == "8010\nlocalhost\n"
    shutil.chown(run_area, 8010, 8010)
    submit(second, run_area, "job", GPU)
    wait(second, run_area)
    assert (run_area / "job.out").read_text().startswith("GPU-")
    lifecycle.down(other, print)
    assert not mentions(f"/{other}/")
