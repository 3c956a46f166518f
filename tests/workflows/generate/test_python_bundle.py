"""`job.python: bundle` in run directories: once for all regions, to the jobs that say so, and only where it can run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nnlib.contract import sha256_of
from regiondag.cli import main
from regiondag.condor.classads import parse_ad
from regiondag.condor.matching import match
from regiondag.generate.render import submit_texts
from regiondag.run.layout import RunFolder
from regiondag.study.job_rules import GLIBC, requires_glibc
from regiondag.trainers import python_bundle
from regiondag.trainers.python_bundle import Bundle
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_render import load_config

JOB = "job: {cpus: 1, memory: 256MB, disk: 100MB}"
BUNDLED = STUDY.replace(JOB, "job: {gpus: 0, cpus: 1, memory: 256MB, disk: 5MB, python: bundle}")


@pytest.fixture(autouse=True)
def made(tmp_path, monkeypatch) -> list[bool]:
    """Have a file in the place of a Python; return for which jobs it was asked."""
    (tmp_path / "made").write_bytes(bytes(1 << 20))
    asked = list[bool]()

    def build(_tell, *, gpus: bool = False) -> Bundle:
        asked.append(gpus)
        return Bundle(tmp_path / "made", (2, 36), 2 << 20)

    monkeypatch.setattr(python_bundle, "build_python", build)
    return asked


def generate(folder: Path, capsys, text: str) -> RunFolder:
    assert main(["generate", str(write_study(folder, text))]) == 0
    return RunFolder(Path(capsys.readouterr().out.strip()))


def test_regions_share_it_and_each_job_gets_it(tmp_path, capsys, made):
    run = generate(tmp_path, capsys, BUNDLED)
    uk, germany = (run.region(slug) for slug in ("united-kingdom", "germany"))
    assert made == [False] and uk.python_bundle.samefile(germany.python_bundle)
    digests = json.loads(run.manifest.read_text())["sha256"]
    assert digests["regions/germany/python.bundle"] == sha256_of(tmp_path / "made")
    for submit in (*uk.submit_files, *germany.submit_files):
        text = submit.read_text()
        assert f"{submit.parent}/python.bundle" in text
        assert f"requirements = (true) && ({requires_glibc((2, 36))})" in text


def test_each_job_says_for_itself(tmp_path, capsys, made):
    run = generate(tmp_path, capsys, f"{BUNDLED}final: {{python: worker, disk: 1MB}}\n")
    train, final = (path.read_text() for path in run.region("germany").submit_files)
    assert "python.bundle" in train and "python.bundle" not in final and "stringListMember" not in final
    assert generate(tmp_path, capsys, STUDY) and made == [False], "nothing is made where no job wants it"
    generate(tmp_path, capsys, BUNDLED.replace("gpus: 0", "gpus: 1"))
    assert made == [False, True]


def test_a_job_that_cannot_hold_it_is_refused_before_anything_is_written(tmp_path, capsys):
    assert main(["generate", str(write_study(tmp_path, BUNDLED.replace("5MB", "2MB")))]) == 1
    said = capsys.readouterr().err
    assert "region 'United Kingdom': job.python: bundle takes 3.0 MiB of a job's disk, 1.0 MiB as it is sent" in said
    assert "job.disk is 2.0 MiB" in said and not list((tmp_path / "runs").glob("*"))


def test_what_a_pool_is_asked_says_it_too(tmp_path):
    texts = submit_texts(load_config(write_study(tmp_path, BUNDLED)), (23, 9, 6))
    assert all("python.bundle" in text and "stringListMember" in text for text in texts.values())


@pytest.mark.parametrize(
    ("system", "runs"),
    [
        ('"AlmaLinux9"', False), ('"Debian11"', False), ('"Debian12"', True), ('"Ubuntu22"', False),
        ('"Ubuntu24"', True), ('"Gentoo2"', True), ("undefined", True),
    ],
)  # fmt: skip
def test_systems_with_an_older_glibc_are_left_out_and_unknown_ones_tried(system, runs):
    job = parse_ad(f"Requirements = {requires_glibc((2, 36))}\n")
    slot = parse_ad(f'Name = "slot1"\nMachine = "w"\nOpSysAndVer = {system}\nRequirements = true\n')
    assert bool(match(job, [slot]).matching) is runs


def test_this_systems_glibc_is_the_tables():
    facts = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    name = facts["ID"].strip('"').capitalize() + facts.get("VERSION_ID", "").strip('"').partition(".")[0]
    major, minor = map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))
    assert GLIBC.get(name, minor) == minor and major == 2
