"""Environments in run directories: once for all regions, with their digest, and only where jobs can hold them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnlib.contract import ENVIRONMENT_FILE, sha256_of
from nnlib.util.packed import pack
from regiondag.cli import main
from regiondag.run.layout import RunFolder
from regiondag.run.region_spec import read_spec
from tests.workflows.conftest import write_study

STUDY = """\
regions:
  - {name: North, trainer: {environment: env.zip}}
  - {name: South, trainer: {environment: env.zip}}
  - {name: East}
trainer: {command: [python, train.py], files: [train.py], metric: {name: auc}}
search: {rounds: 1, parallel: 1, space: {rate: {real: [0.01, 1.0]}}}
job: {gpus: 0, disk: 2MB}
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "train.py").write_text("print('auc=1')")
    pack({"bin/python": b"#!/bin/sh\n", "lib/large": bytes(900_000)}, tmp_path / "env.zip")
    return tmp_path


def generate(folder: Path, capsys, text: str = STUDY) -> RunFolder:
    code = main(["generate", str(write_study(folder, text))])
    said = capsys.readouterr()
    assert code == 0, said.err
    return RunFolder(Path(said.out.strip()))


def test_regions_share_it_and_their_jobs_know_its_digest(folder, capsys):
    run = generate(folder, capsys)
    north, south, east = (run.region(slug) for slug in ("north", "south", "east"))
    assert north.environment.samefile(south.environment)
    assert not north.environment.samefile(folder / "env.zip"), "who packs it anew does not change the run"
    digest = sha256_of(folder / "env.zip")
    manifest = json.loads(run.manifest.read_text())
    assert manifest["sha256"][f"regions/south/{ENVIRONMENT_FILE}"] == digest
    assert manifest["sources"][f"regions/south/{ENVIRONMENT_FILE}"] == str(folder / "env.zip")
    assert [read_spec(one.spec).sha256.get(ENVIRONMENT_FILE) for one in (north, east)] == [digest, None]
    for one in (north, east):
        for submit in one.submit_files:
            assert (str(one.environment) in submit.read_text()) == (one is north)


@pytest.mark.parametrize("disk", ["disk: 1MB", "disk: 4MB}\nfinal: {disk: 1MB"])
def test_a_job_that_cannot_hold_it_is_refused_before_anything_is_written(folder, capsys, disk):
    assert main(["generate", str(write_study(folder, STUDY.replace("disk: 2MB", disk)))]) == 1
    said = capsys.readouterr().err
    assert "env.zip, the environment of North: it takes 1.7 MiB of a job's disk" in said
    assert "job.disk is 1.0 MiB" in said
    assert not list((folder / "runs").glob("*"))


def test_an_archive_without_its_python_is_refused(folder, capsys):
    pack({"bin/tool": b""}, folder / "env.zip")
    assert main(["generate", str(write_study(folder, STUDY))]) == 1
    assert "it has no bin/python, which python in trainer.command would be" in capsys.readouterr().err
