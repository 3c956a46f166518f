"""What a machine lacks, as scripts/preflight finds it, and as the commands say it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.errors import PoolError
from regiondag.pool import machine
from regiondag.util.resources import resource_dir

USED = (
    "cat date df dirname grep head id mktemp mount nproc rm sed sh sort timeout tr uname locale ls cp sha256sum python3"
)
WORKS = "exit 0"
REFUSES = "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder of the search path: an ordinary user's, with what every Debian has and user namespaces."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in USED.split():
        for place in ("/usr/bin", "/bin", "/usr/local/bin"):
            if Path(place, name).exists() and not (folder / name).exists():
                (folder / name).symlink_to(Path(place, name))
    put(folder, "apt-get", WORKS)
    put(folder, "unshare", WORKS)
    put(folder, "nsenter", WORKS)
    put(folder, "id", 'case $1 in -u) echo 4321 ;; *) echo "an na; rm x" ;; esac', replace=True)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return folder


def put(folder: Path, name: str, script: str, replace: bool = False) -> None:
    if replace:
        (folder / name).unlink(missing_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def bad(found: machine.Readiness) -> set[str]:
    return {finding.subject for finding in found.findings if finding.state == "BAD"}


def test_all_that_is_missing_is_said_at_once_with_one_line(programs):
    put(programs, "sudo", WORKS)
    found = machine.check_machine(["pool", "build"])
    assert {"bubblewrap", "mmdebstrap", "uidmap"} <= bad(found) and not found.good
    assert found.line.startswith("sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends bubblewrap ")
    assert found.line.endswith("'") and found.line.count("'") == 2
    assert "run this once" in found.advice() and found.line in found.advice()


def test_a_users_name_is_nothing_that_a_shell_of_root_runs(programs):
    found = machine.check_machine(["build"])
    assert "user numbers" in bad(found)
    assert ";" not in found.line and found.line.endswith(" annarmx'")


def test_without_sudo_the_line_is_for_su(programs):
    assert machine.check_machine(["pool"]).line.startswith("su - -c 'apt-get update && ")


def test_without_namespaces_no_package_helps_and_the_ways_out_are_told(programs):
    put(programs, "unshare", REFUSES)
    found = machine.check_machine(["pool", "build"])
    assert bad(found) == {"user namespaces"} and found.line == ""
    for way in ("--privileged", "a chroot is enough", "a machine that has HTCondor already"):
        assert way in found.options
    with pytest.raises(PoolError, match=r"(?s)lacks what a pool needs:\n  user namespaces: .*not permitted\n.*--privi"):
        machine.require_machine(["sandbox"])


@pytest.mark.parametrize(("queue", "used"), [(WORKS, True), ("exit 1", False)])
def test_an_installed_htcondor_stands_in_where_it_answers(programs, queue, used):
    put(programs, "unshare", REFUSES)
    put(programs, "condor_q", queue)
    for name in ("condor_submit_dag", "condor_master"):
        put(programs, name, WORKS)
    put(programs, "condor_version", "echo '$CondorVersion: 23.9.6 2026-07-12 $'")
    put(programs, "condor_config_val", "echo MASTER SCHEDD")
    found = machine.check_machine(["pool", "build"])
    assert (found.uses_installed, found.good) == (used, used)
    texts = {finding.subject: finding.text for finding in found.findings}
    assert texts["HTCondor"] == (
        "23.9.6 is installed and answers"
        if used
        else "is installed, but its queue does not answer; as root: systemctl start condor"
    )


def test_jobs_on_this_machine_need_a_python_with_numpy(programs):
    for name in ("condor_q", "condor_submit_dag", "condor_master", "condor_version"):
        put(programs, name, WORKS)
    put(programs, "condor_config_val", "echo MASTER STARTD")
    put(programs, "python3", "exit 1", replace=True)
    put(programs, "bwrap", WORKS)
    found = machine.check_machine(["pool"])
    assert "jobs here" in bad(found)
    assert " python3-numpy python3-scipy python3-netcdf4" in found.line


def test_a_proxy_goes_into_the_line_and_its_password_nowhere(programs, monkeypatch):
    put(programs, "sudo", WORKS)
    monkeypatch.setenv("http_proxy", "http://anna:secret@proxy:3128")
    monkeypatch.setenv("https_proxy", "secret@proxy:3128")
    found = machine.check_machine(["pool"])
    assert found.line.startswith("sudo --preserve-env=http_proxy sh -c ")
    assert "proxy" in bad(found) and "secret" not in repr(found)


def test_a_clock_that_lags_behind_is_seen(programs):
    put(programs, "date", "case $1 in +%s) echo 86400 ;; *) echo 1970-01-02 ;; esac", replace=True)
    assert "clock" in bad(machine.check_machine(["pool"]))


def test_what_is_found_is_the_same_for_programs_and_people(programs, capsys, monkeypatch):
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda _: None)
    assert main(["doctor"]) == 6
    said = capsys.readouterr()
    assert "BAD  bubblewrap: " in said.out and "note pool: no pool called" in said.out
    assert "su - -c 'apt-get update" in said.err
    assert main(["doctor", "--json"]) == 6
    told = json.loads(capsys.readouterr().out)
    assert told["good"] is False and told["line"] in said.err
    assert {"subject", "state", "text"} == set(told["findings"][0])


def test_the_list_is_there_before_python_is(programs):
    (programs / "python3").unlink()
    argv = ["/bin/sh", str(resource_dir("scripts") / "preflight")]
    environment = {**os.environ, "PYENV_ROOT": "/nonexistent"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 6 and done.stdout == ""
    assert "BAD  Python: there is none; 3.11 or later is needed" in done.stderr
    assert " python3 python3-venv bubblewrap mmdebstrap " in done.stderr
