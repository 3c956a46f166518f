"""Programs in images, with an Apptainer that is played; tests/workflows/on_pool/test_containers.py has the real one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from nnlib.contract import CONTAINER_FILE, Status
from nnlib.errors import MachineError, NnlibError
from nnlib.worker.container import Container, environment_inside, find_apptainer, why_not_started, wrap
from nnlib.worker.program import list_session
from tests.nnlib.worker.test_program_job import result_of, run, start, wait_for_epochs, write_job
from tests.support.played_apptainer import write_apptainer

WITHIN = """
import os, signal, sys, time
from pathlib import Path
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
for epoch in range(1, 100):
    print(f"epoch={epoch} auc=0.5", flush=True)
    Path("checkpoint/epoch").write_text(str(epoch))
    time.sleep(0.1)
    if told:
        time.sleep(0.2)  # in which a second signal would come
        Path(os.environ["SEEN"]).write_text(str(len(told)))
        sys.exit(0)
"""


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Path:
    """Return the folder of a job on a machine that has an Apptainer."""
    folder = write_apptainer(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return tmp_path / "job"


def test_a_program_runs_in_its_image_and_sees_its_folder_alone(machine):
    (machine).mkdir()
    command = ("sh", "-c", "echo $TMPDIR $PWD $REGIONDAG_TRIAL; echo auc=0.5")
    process = start(write_job(machine, "", command=command, container=Container(CONTAINER_FILE)))
    asked, told, *_ = process.communicate(timeout=60)[0].splitlines()
    place = f"{machine}/program"
    assert process.returncode == 0 and result_of(machine).value == 0.5
    assert f"--bind {place} --pwd {place}" in asked and asked.endswith(f" {machine}/{CONTAINER_FILE}")
    assert "--contain" in asked and f"--home {machine}/container/home" in asked
    assert told == f"/tmp {place} {place}/trial.json"
    assert not (machine / "container").exists()


def test_python_is_the_images(machine, monkeypatch):
    python = machine.parent / "bin" / "python"
    python.write_text("#!/bin/sh\necho auc=0.25\n")
    python.chmod(0o755)
    assert run(machine, "", container=Container("docker://python:3.13")).value == 0.25


def test_a_program_is_told_once_to_leave_and_nothing_of_the_image_stays(machine, monkeypatch):
    seen = machine.parent / "seen"
    monkeypatch.setenv("SEEN", str(seen))
    process = start(write_job(machine, WITHIN, container=Container("/images/a")))
    wait_for_epochs(machine, 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert (result_of(machine).status, seen.read_text()) == (Status.EVICTED, "1")
    assert (machine / "checkpoint.zip").stat().st_size


def test_a_program_that_is_killed_leaves_nothing_of_the_image(machine):
    command = ("sh", "-c", "ps -o sid= -p $$ >sid; cp sid ../sid; kill -9 $$")
    found = run(machine, "", command=command, container=Container("/images/a"))
    assert (found.status, "signal 9" in found.reason) == (Status.MACHINE, True)
    assert list_session(int((machine / "sid").read_text())) == []


def test_who_is_to_blame_when_nothing_starts(machine):
    found = run(machine, "", container=Container("/images/broken"))
    said = "the container cannot be started on this machine: container creation failed: no such namespace"
    assert (found.status, found.reason) == (Status.MACHINE, said)
    found = run(machine, "", command=("julia", "x.jl"), container=Container("/images/a"))
    assert found.status is Status.BAD_INPUT
    assert 'cannot be run in the image: "julia": executable file not found' in found.reason


@pytest.mark.parametrize(
    ("code", "last", "kind"),
    [
        (255, ["FATAL:   stat /no/such: no such file or directory"], NnlibError),
        (255, ["FATAL:   permission denied"], NnlibError),
        (255, ["FATAL:   While checking: could not open image /a: lstat /a: no such file or directory"], MachineError),
        (255, ["the program's own words"], None),
        (1, ["FATAL: the program's own words"], None),
    ],
)
def test_what_apptainer_says(code, last, kind):
    found = why_not_started(code, last)
    assert (None if found is None else type(found)) == kind


def test_a_machine_without_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("nnlib.worker.container.USUAL", ())
    assert find_apptainer() is None
    with pytest.raises(MachineError, match="neither apptainer nor singularity is on PATH"):
        wrap(["a"], Container("x"), tmp_path, tmp_path / "program")


def test_where_images_are_made_can_be_said(tmp_path):
    seen = environment_inside(
        {"APPTAINER_CACHEDIR": "/cache", "TMPDIR": "/scratch", "CUDA_VISIBLE_DEVICES": "1"}, tmp_path
    )
    assert (seen["APPTAINER_CACHEDIR"], seen["TMPDIR"], seen["CUDA_VISIBLE_DEVICES"]) == ("/cache", "/tmp", "1")
    assert seen["APPTAINER_TMPDIR"] == str(tmp_path / "container" / "build")
