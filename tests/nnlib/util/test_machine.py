"""What results say of the machine that made them, on machines of many kinds."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

from nnlib.util.machine import LONGEST, driver_version, machine_facts
from regiondag.generate.bundle import pack_worker

CPUINFO = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7763\n\nmodel name\t: other\n"


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_machine_of_the_recipe_in_a_slot(tmp_path):
    write(tmp_path, "proc/cpuinfo", CPUINFO)
    write(tmp_path, "etc/regiondag-image", "HTCONDOR=23.9.6\nPYTHON=3.13.5\n\nSUITE=trixie\n")
    ad = tmp_path / "machine.ad"
    ad.write_text('Machine = "w1"\nName = "slot1_2@w1"\n')
    facts = machine_facts(tmp_path, {"_CONDOR_SLOT": "slot1_2", "_CONDOR_MACHINE_AD": str(ad)})
    assert facts["cpu"] == "AMD EPYC 7763"
    assert facts["image"] == "HTCONDOR=23.9.6 PYTHON=3.13.5 SUITE=trixie"
    assert facts["slot"] == "slot1_2@w1"
    assert int(facts["cores"]) >= 1 and facts["kernel"] and facts["architecture"]


def test_a_machine_that_says_nothing(tmp_path):
    facts = machine_facts(tmp_path, {"_CONDOR_MACHINE_AD": str(tmp_path / "none")})
    assert "image" not in facts and "slot" not in facts
    assert machine_facts(tmp_path, {"_CONDOR_SLOT": "slot3"})["slot"] == "slot3"
    assert driver_version(tmp_path) == ""


def test_facts_that_are_absurd_are_cut(tmp_path):
    write(tmp_path, "proc/cpuinfo", "model name : " + "x" * 10_000)
    (tmp_path / "ad").write_bytes(b'\xff\x00Name = "\n' * 1000)
    facts = machine_facts(tmp_path, {"_CONDOR_MACHINE_AD": str(tmp_path / "ad"), "_CONDOR_SLOT": "s"})
    assert len(facts["cpu"]) == LONGEST and facts["slot"] == "s"


def test_the_driver_that_is_loaded(tmp_path):
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 2024\nGCC version: 12.2.0\n"
    write(tmp_path, "proc/driver/nvidia/version", text)
    assert driver_version(tmp_path) == "550.54.14"
    write(tmp_path, "sys/module/nvidia/version", "580.95.05\n")
    assert driver_version(tmp_path) == "580.95.05"


def test_code_in_an_archive_names_its_digest(tmp_path):
    archive = pack_worker()
    (tmp_path / archive.name).write_bytes(archive.content)
    (tmp_path / "trial.json").write_text("{}")
    argv = [sys.executable, archive.name, "train", "--trial", "trial.json", "--device", "cpu"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert done.returncode == 4  # a job that cannot even read its trial says where it ran
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["code"] == hashlib.sha256(archive.content).hexdigest() and result["machine"]["kernel"]
