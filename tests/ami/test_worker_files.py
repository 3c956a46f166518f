"""The worker's units, its scripts and its HTCondor settings, as they lie in the overlay."""

from __future__ import annotations

import configparser
import getpass
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ami.conftest import FILES, PROGRAMS, load

UNITS = FILES / "etc/systemd/system"
JOIN = UNITS / "regiondag-join.service"
WATCH = UNITS / "regiondag-watch.service"
LEASE = UNITS / "regiondag-lease.service"
CONDOR = UNITS / "condor.service.d/regiondag.conf"


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str
    parser.read_string(path.read_text())
    return parser


@pytest.mark.parametrize("path", [JOIN, WATCH, LEASE], ids=lambda path: path.stem)
def test_units_start_what_is_there_and_speak_on_the_console(path):
    service = unit(path)["Service"]
    interpreter, program = service["ExecStart"].split()
    assert interpreter == "/usr/local/libexec/regiondag/python"
    assert (FILES / program.lstrip("/")).is_file()
    assert service["StandardOutput"] == service["StandardError"] == "journal+console"
    # On Debian that one is ordered after multi-user.target: a cycle, and systemd drops the unit.
    assert "cloud-final" not in unit(path)["Unit"]["After"]
    assert unit(path)["Install"]["WantedBy"] == "multi-user.target"


def test_htcondor_does_not_start_before_or_without_a_pool():
    section = unit(CONDOR)["Unit"]
    assert section["Requires"] == "regiondag-join.service"
    assert section["After"].split()[0] == "regiondag-join.service"
    assert "condor.service" in unit(JOIN)["Unit"]["Before"].split()
    assert unit(JOIN)["Service"]["Type"] == "oneshot"
    assert unit(JOIN)["Service"]["TimeoutStartSec"] == "infinity"


def test_shutdown_script_passes_shellcheck():
    tool = shutil.which("shellcheck")
    if tool is None:
        pytest.skip("no shellcheck")
    subprocess.run([tool, str(PROGRAMS / "shutdown.sh")], check=True)


@pytest.mark.parametrize(
    ("state", "powers_off"), [("active", True), ("deactivating", False), ("inactive", False), ("", False)]
)
def test_only_an_htcondor_that_ended_by_itself_powers_off(tmp_path, state, powers_off):
    """`systemctl stop condor` and an update of the package end the master in the same orderly way as idleness."""
    systemctl = f'echo "$*" >>{tmp_path}/calls\n[ "$1" != show ] || echo {state}\n[ -n "{state}" ]'
    for name, script in (("systemctl", systemctl), ("logger", f'echo "$*" >>{tmp_path}/said')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    # Without a terminal /dev/console may be missing; that must not matter.
    done = subprocess.run([PROGRAMS / "shutdown.sh"], env=environment, capture_output=True, timeout=20, check=False)
    assert done.returncode == 0
    assert ("poweroff" in (tmp_path / "calls").read_text().split()) is powers_off
    assert ("powers off" if powers_off else "stays on") in (tmp_path / "said").read_text()


def test_every_slot_gets_an_account_and_a_folder_that_no_other_enters(tmp_path):
    """More of them than processors: a job may ask for none."""
    for name, script in (("id", "exit 1"), ("nproc", "echo 2"), ("useradd", ""), ("install", "")):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/calls\n{script}\n')
        (tmp_path / name).chmod(0o755)
    script = (PROGRAMS / "slot-accounts.sh").read_text().replace("/etc/condor", str(tmp_path))
    (tmp_path / "config.d").mkdir()
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], env=environment, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    accounts = [call.split()[-1] for call in calls if call.startswith("useradd ")]
    assert accounts == [f"regiondag-slot{number}" for number in range(1, 19)]
    folders = [call for call in calls if "/var/cache/regiondag/" in call]
    assert len(folders) == len(accounts)
    assert all("-m 700" in call for call in folders)
    (config,) = (tmp_path / "config.d").iterdir()
    assert config.name > "50-regiondag-worker.config"
    assert config.read_text().splitlines()[1:] == [f"SLOT1_{n}_USER = regiondag-slot{n}" for n in range(1, 19)]
    assert unit(JOIN)["Service"]["ExecStartPre"] == "/usr/local/libexec/regiondag/slot-accounts.sh"


def test_a_job_keeps_compiled_code_where_no_other_account_writes(tmp_path):
    done = subprocess.run(
        [PROGRAMS / "job.sh", "sh", "-c", 'echo "$1 $XDG_CACHE_HOME $CUPY_CACHE_DIR"; exit 3', "sh", "two words"],
        capture_output=True,
        text=True,
        check=False,
    )
    own = f"/var/cache/regiondag/{getpass.getuser()}"
    assert (done.stdout, done.returncode) == (f"two words {own} {own}/cupy\n", 3)
    settings = (FILES / "etc/condor/config.d/50-regiondag-worker.config").read_text()
    assert "\nUSER_JOB_WRAPPER = /usr/local/libexec/regiondag/job.sh\n" in settings


def test_the_shutdown_script_is_where_the_settings_say():
    join = load("join")
    path = FILES / join.SHUTDOWN.lstrip("/")
    assert path == PROGRAMS / "shutdown.sh"
    assert os.access(path, os.X_OK)


CONFIG_FILES = ("50-regiondag-worker.config", "90-regiondag-pool.config", "99-regiondag-guards.config")


@pytest.fixture
def settings(pool, run_area):
    """Return what HTCondor makes of the worker's settings, with those of a worker.json between them."""
    worker = load("workerfile").parse(
        '{"manager": "10.0.0.5", "domain": "pool.example", "fleet": "f", "token": {"ssm": "/p"},'
        ' "settings": {"START": "TARGET.Fine =?= True", "ALLOW_CONFIG": ""}}'
    )
    for name in CONFIG_FILES:
        source = FILES / "etc/condor/config.d" / name
        text = source.read_text() if source.exists() else load("workerfile").pool_config(worker, {}, "/off.sh")
        (run_area / name).write_text(text)
    (run_area / "all.config").write_text("".join(f"include : {run_area / name}\n" for name in CONFIG_FILES))

    def value(name: str) -> str:
        argv = ["env", f"CONDOR_CONFIG={run_area / 'all.config'}", "condor_config_val", name]
        done = pool.run(argv, cwd=run_area, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return value


@pytest.mark.condor
@pytest.mark.slow
def test_htcondor_reads_the_settings(settings):
    assert settings("DAEMON_LIST") == "MASTER STARTD"
    assert settings("COLLECTOR_HOST") == "10.0.0.5:9618"
    assert settings("STARTD_NOCLAIM_SHUTDOWN") == "900"
    assert settings("SLOT_TYPE_1_PARTITIONABLE").lower() == "true"
    assert settings("SLOT_TYPE_1") == "100%"
    assert settings("STARTD_ATTRS").split() == ["HAS_GPU", "RegiondagFleet"]
    assert settings("HAS_GPU").startswith("(TotalSlotGPUs ?: 0) > 0 &&")
    assert "condor_gpu_discovery" in settings("MACHINE_RESOURCE_INVENTORY_GPUs")
    # The user's START holds, and so does the guard around it.
    assert settings("START").startswith("(TARGET.Fine =?= True) && ")
    # 120 s after a notice the machine is gone; and with retirement a graceful shutdown would wait for the job.
    assert int(settings("MachineMaxVacateTime")) <= 75
    assert settings("MaxJobRetirementTime") == "0"
    assert "IDTOKENS" in settings("SEC_DEFAULT_AUTHENTICATION_METHODS")
    assert settings("SEC_DEFAULT_AUTHENTICATION").upper() == "REQUIRED"
    assert settings("SEC_ENABLE_REMOTE_ADMINISTRATION") == "False"


@pytest.mark.condor
@pytest.mark.slow
def test_a_real_collector_is_asked(pool, run_area):
    """The questions of regiondag-join, put to a real manager: it takes us, it refuses us, it is away."""
    manager = load("manager")

    def ask(*environment: str):
        def run(argv, **options):
            del options["check"], options["text"]
            return pool.run(["env", *environment, *argv], cwd=run_area, **options)

        return manager.ask(run)

    answer = ask()
    assert (answer.kind, answer.theirs, answer.ours) == ("welcome", answer.ours, ".".join(map(str, pool.version)))
    refused = ask("_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS=IDTOKENS")
    assert refused.kind == "refused", refused.text
    away = ask("_CONDOR_COLLECTOR_HOST=127.0.0.1:1")
    assert (away.kind, away.text) == ("unreachable", "failed to make connection to <127.0.0.1:1>")
