"""The virtual machine that boots an image, and what it is told. No boot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.bake import advertised, boottest, inside, machine, payload
from workflows.bake.machine import Acceleration, Firmware, Machine, qemu_argv


def argv(firmware: Firmware, acceleration: Acceleration, folder: Path = Path("/f")) -> str:
    return " ".join(qemu_argv(Machine(Path("/image/disk.raw"), folder, firmware, acceleration)))


def test_it_looks_like_an_instance_of_ec2_and_writes_to_an_overlay_only() -> None:
    for firmware in ("bios", "uefi"):
        text = argv(firmware, "tcg")
        assert "manufacturer=Amazon EC2" in text
        assert "uuid=ec2" in text
        assert "/image/disk.raw" not in text
        assert f"file=/f/disk-{firmware}.qcow2" in text
        assert "-no-reboot" in text
    assert "OVMF_CODE" in argv("uefi", "tcg")
    assert "OVMF_CODE" not in argv("bios", "tcg")


def test_without_dev_kvm_processors_are_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    assert machine.best_acceleration() == "tcg"
    assert "-accel tcg" in argv("bios", "tcg")
    assert "-accel kvm" in argv("bios", "kvm")


@pytest.mark.parametrize(
    ("said", "choice"),
    [("SeaBIOS\nNo bootable device.", "kvm"), ("KVM internal error. Suberror: 1", "tcg"), ("", "tcg")],
)
def test_kvm_is_used_only_where_a_machine_gets_through_its_bios(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, choice: str
) -> None:
    fake = tmp_path / "qemu-system-x86_64"
    fake.write_text(f"#!/bin/sh\nprintf '%s' '{said}'\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(machine.os, "access", lambda *_: True)
    monkeypatch.setattr(machine, "PROBE_SECONDS", 1)
    assert machine.best_acceleration() == choice


def test_a_worker_under_test_has_a_simulated_gpu_and_can_be_told_otherwise() -> None:
    settings = inside.worker_settings("t0ken", 20, {"token": {"text": "wrong"}})
    assert settings["token"] == {"text": "wrong"}
    assert settings["settings"]["STARTD_NOCLAIM_SHUTDOWN"] == "20"
    assert "-simulate" in settings["settings"]["GPU_DISCOVERY_EXTRA"]


def test_slots_are_read_from_condor_status() -> None:
    assert advertised.parse_slots("") == []
    line = 'true\ttrue\t"bake-test"\t"no GPU"\t5300000\tundefined\n'
    assert advertised.parse_slots(line) == [
        {
            "HAS_GPU": True,
            "PartitionableSlot": True,
            "RegiondagFleet": "bake-test",
            "SelfTest": "no GPU",
            "Disk": 5300000,
            "MachineMaxVacateTime": None,
        }
    ]


GOOD = {**advertised.WANTED, "Disk": 5_000_000, "MachineMaxVacateTime": 75}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"HAS_GPU": False}, "advertises HAS_GPU = False, wanted True"),
        ({"SelfTest": None}, "advertises SelfTest = None, wanted 'no GPU'"),
        ({"Disk": 1}, "its root file system did not grow: the slot offers 0 MB"),
        ({"MachineMaxVacateTime": 600}, "gives jobs 600 s to save themselves; a spot notice leaves 120 s"),
        ({"MachineMaxVacateTime": None}, "gives jobs None s"),
    ],
)
def test_a_slot_that_is_not_a_workers_is_refused(change: dict[str, object], message: str) -> None:
    assert advertised.check_slot(GOOD, disk_bytes=4096) == ""
    assert advertised.check_slot({**GOOD, **change}, disk_bytes=4096).startswith(message)


def test_an_ordinary_user_gets_a_user_namespace_of_its_own() -> None:
    assert "--user" in boottest.unshare_argv(1000)
    assert "--user" not in boottest.unshare_argv(0)
    assert "--kill-child=KILL" in boottest.unshare_argv(0)


def test_the_payload_is_a_training_that_works_here(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    argv = payload.write_job(folder, epochs=2)
    assert argv[:3] == ["condor_submit", "-terse", "job.sub"]
    [code] = folder.glob("nnlib-*.pyz")
    environment = {"NNLIB_SIMULATED_GPUS": "1", "NNLIB_BACKEND": "numpy"}
    trained = subprocess.run(
        [sys.executable, code, "train", "--trial", "trial.json", "--device", "gpu"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert trained.returncode == 0, trained.stderr
    assert json.loads((folder / "result.json").read_text())["status"] == "ok"
    listed = (folder / "job.sub").read_text()
    for name in ("train.sh", "trial.json", "network.json", "train.nc", "valid.nc"):
        assert name in listed
        assert (folder / name).is_file()


@given(st.text(alphabet='abc\t\n"{}:,0', max_size=40))
def test_no_answer_of_condor_status_is_taken_for_a_slot_by_chance(text: str) -> None:
    try:
        slots = advertised.parse_slots(text)
    except ValueError:
        return
    assert all(set(slot) == set(advertised.QUERIED) for slot in slots)
