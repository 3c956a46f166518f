"""The virtual machine that boots an image, and what it is told. No boot."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from regiondag.bake import contents
from regiondag.bake.artifact import DiskImage
from regiondag.bake.boot import boot_test, machine, payload, questions, scenario, serial_console, slot_check
from regiondag.bake.boot.machine import Acceleration, AccelerationError, Firmware, Machine, qemu_argv
from regiondag.errors import BakeError
from regiondag.pool.pool import Pool


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


def test_by_uefi_its_root_is_not_the_first_disk() -> None:
    """Nitro promises no names: an instance store may be nvme0n1."""
    text = argv("uefi", "tcg")
    assert text.index("nvme,drive=store") < text.index("nvme,drive=root")
    assert "bootindex=0" in text[text.index("nvme,drive=root") :]
    assert "store" not in argv("bios", "tcg")


def test_what_it_is_asked_is_more_of_its_user_data_and_answered_on_its_console() -> None:
    for asked, key in ((questions.ASK_ROOT, "bootcmd"), (questions.ASK_HARDENING, "runcmd")):
        settings = yaml.safe_load(scenario.render_user_data({"manager": "m"}) + asked)
        assert settings["write_files"] and settings[key][0][:2] == ["sh", "-c"]
    assert questions.HARDENING in contents.NEEDED
    assert questions.find_root("bake test: root is on \r\n") == questions.count_kept("regiondag-hardening: ERROR") == ""
    said = "\x1b[0mregiondag-hardening: ERROR: Root is open: x\r\nregiondag-hardening: 21 of 22 rules are kept\r\n"
    assert questions.count_kept(said) == "21/22"
    assert serial_console.find_errors(said) == ["regiondag-hardening: Root is open: x"]


def test_without_dev_kvm_processors_are_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    assert machine.best_acceleration() == "tcg"
    assert "-accel tcg" in argv("bios", "tcg") and "-cpu max,-cx16" in argv("bios", "tcg")
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
    settings = scenario.worker_settings("t0ken", 20, {"token": {"text": "wrong"}})
    assert settings["token"] == {"text": "wrong"}
    assert settings["settings"]["STARTD_NOCLAIM_SHUTDOWN"] == "20"
    assert "-simulate" in settings["settings"]["GPU_DISCOVERY_EXTRA"]


def test_how_a_job_went_is_read_from_its_log(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(payload, "pool_folder", lambda name: tmp_path / name)
    job = payload.PayloadJob(Pool("bake", "embedded", (25, 0, 0)), "first")
    assert job.said() == "" and not job.has_event(payload.ENDED)
    job.folder.mkdir(parents=True)
    log, result = job.folder / "job.log", job.folder / "result.json"
    log.write_text("001 (1.0) began\n...\n004 (1.0) evicted\n")
    assert job.has_event(payload.EVICTED) and not job.has_event(payload.ENDED)
    log.write_text("001 (1.0) began\n...\n012 (1.0) was held\n\tno such file\n")
    with pytest.raises(BakeError, match="put the first job on hold"):
        job.has_event(payload.ENDED)
    log.write_text("005 (1.0) ended\n\t(return value 0)\n")
    with pytest.raises(BakeError, match="ended with None"):
        job.check_result()
    result.write_text('{"status": "ok"}')
    job.check_result()


def test_slots_are_read_from_condor_status() -> None:
    assert slot_check.parse_slots("") == []
    line = 'true\ttrue\t"bake-test"\t"no GPU"\t5300000\tundefined\n'
    assert slot_check.parse_slots(line) == [
        {
            "HAS_GPU": True,
            "PartitionableSlot": True,
            "RegiondagFleet": "bake-test",
            "SelfTest": "no GPU",
            "Disk": 5300000,
            "MachineMaxVacateTime": None,
        }
    ]


GOOD = {**slot_check.WANTED, "Disk": 5_000_000, "MachineMaxVacateTime": 75}


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
    assert slot_check.check_slot(GOOD, disk_bytes=4096) == ""
    assert slot_check.check_slot({**GOOD, **change}, disk_bytes=4096).startswith(message)


def test_an_ordinary_user_gets_a_user_namespace_of_its_own() -> None:
    assert "--user" in boot_test.unshare_argv(1000)
    assert "--user" not in boot_test.unshare_argv(0)
    assert "--kill-child=KILL" in boot_test.unshare_argv(0)


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
        slots = slot_check.parse_slots(text)
    except ValueError:
        return
    assert all(set(slot) == set(slot_check.QUERIED) for slot in slots)


@pytest.mark.parametrize(
    ("acceleration", "complaint", "console", "seconds", "given_up"),
    [
        ("kvm", "KVM internal error. Suberror: 1\nemulation failure", "", 5, True),
        ("kvm", "KVM internal error. Suberror: 1", "[  OK  ] Reached", 100, True),
        ("kvm", "", "", 59, False),
        ("kvm", "", "", 61, True),
        ("kvm", "", "[  OK  ] Reached", 61, False),
        ("tcg", "", "", 61, False),  # slow, and known to be
    ],
)
def test_kvm_that_runs_no_kernel_is_seen(
    tmp_path: Path, acceleration: Acceleration, complaint: str, console: str, seconds: float, given_up: bool
) -> None:
    under_test = Machine(tmp_path / "disk.raw", tmp_path, "bios", acceleration)
    under_test.complaints.write_text(complaint)
    under_test.serial.write_text(console)
    seen = pytest.raises(AccelerationError) if given_up else contextlib.nullcontext()
    with seen:
        machine.check_acceleration(under_test, seconds)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[Acceleration]:
    """Play a test of an image in which KVM is of no use; returns what was tried."""
    tried: list[Acceleration] = []

    def boots(_image: object, plan: scenario.BootPlan) -> list[dict[str, object]]:
        tried.append(plan.acceleration)
        if plan.acceleration == "kvm":
            raise AccelerationError("with KVM no kernel has started")
        return [{"firmware": "bios"}]

    for name in ("install_tools", "detect_mode", "check_series", "ensure_image", "write_tested"):
        monkeypatch.setattr(boot_test, name, lambda *_: None)
    monkeypatch.setattr(boot_test, "find_missing", lambda _: [])
    monkeypatch.setattr(boot_test, "best_acceleration", lambda: "kvm")
    monkeypatch.setattr(boot_test, "_boots", boots)
    return tried


def image_in(folder: Path) -> DiskImage:
    disk = folder / "disk.raw"
    disk.write_bytes(b"0")
    return cast(
        DiskImage, SimpleNamespace(disk=disk, folder=folder, manifest=SimpleNamespace(suite="trixie", hash="0"))
    )


def test_where_kvm_runs_no_kernel_processors_are_emulated(tmp_path: Path, attempts: list[Acceleration]) -> None:
    told: list[str] = []
    boot_test.boot_test(image_in(tmp_path), told.append)
    assert attempts == ["kvm", "tcg"]
    assert told == ["with KVM no kernel has started; its processors are emulated now"]


def test_who_asks_for_kvm_gets_kvm_or_an_error(tmp_path: Path, attempts: list[Acceleration]) -> None:
    with pytest.raises(BakeError, match="without --acceleration") as caught:
        boot_test.boot_test(image_in(tmp_path), print, "kvm")
    assert attempts == ["kvm"] and caught.value.exit_code == 7


def test_a_boot_test_that_is_interrupted_leaves_no_process(tmp_path, monkeypatch):
    """unshare itself heeds no SIGTERM while it waits for what it started, and Popen's own end hardly waits."""

    class Impatient(subprocess.Popen):
        def __exit__(self, *error: object) -> None:
            assert self.returncode is not None
            super().__exit__(*error)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    script = f"trap '' TERM; echo $$ >{tmp_path}/pid; echo '[1 s] booting' >&2; exec sleep 60"
    monkeypatch.setattr(boot_test, "unshare_argv", lambda _: ["sh", "-c", script])
    monkeypatch.setattr(boot_test, "KILLED_SECONDS", 0.1)
    monkeypatch.setattr(subprocess, "Popen", Impatient)
    monkeypatch.setattr(boot_test, "print", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        boot_test._run(tmp_path)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
