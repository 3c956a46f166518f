from __future__ import annotations

import os
from pathlib import Path

import pytest

from nnlib.contract import sha256_of
from nnlib.util.packed import unpack
from nnlib.worker.program_archive import MANIFEST
from regiondag.config.data_check import check_data
from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from regiondag.study.program import Container
from regiondag.trainers.archive import digest_of, write_program
from tests.workflows.conftest import write_study

STUDY = """\
regions: [{name: North}]
trainer:
  command: [Rscript, train.R]
  container: {image: r.sif}
  metric: {name: auc}
search: {rounds: 1, space: {x: {real: [0, 1]}}}
job: {gpus: 0}
"""


def write_image(path: Path, more: bytes = b"") -> Path:
    """Write what begins as an image of Apptainer's does."""
    path.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + more)
    return path


def container_of(folder: Path, said: str) -> Container | None:
    text = STUDY.replace("{image: r.sif}", said)
    program = load_config(write_study(folder, text)).regions[0].program
    assert program is not None
    return program.container


def test_an_image_goes_along_or_lies_on_the_workers(tmp_path):
    image = write_image(tmp_path / "r.sif")
    assert container_of(tmp_path, "{image: r.sif}") == Container("r.sif", image)
    assert container_of(tmp_path, f"{{image: {image}}}") == Container(str(image), image)
    assert container_of(tmp_path, "{image: /images/r, shared: true}") == Container("/images/r")
    for name in ("docker://rocker/r-ver:4.4", "oras://ghcr.io/a/b@sha256:0123"):
        assert container_of(tmp_path, f'{{image: "{name}"}}') == Container(name)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("{}", "trainer.container.image: missing, legal: a .sif file"),
        ("{image: 3}", "legal: a .sif file"),
        ('{image: "a\\nb"}', "legal: a .sif file"),
        ("{image: none.sif}", "none.sif: No such file or directory"),
        ("{image: /cvmfs/none.sif}", "a path that only workers have needs shared: true"),
        ("{image: text.sif}", "text.sif is no SIF image, legal: a .sif file"),
        ("{image: box}", "box is a folder; make a file of it (apptainer build image.sif box)"),
        ("{image: r.sif, shared: true}", "seen 'r.sif' with shared: true, legal: a path that begins with /"),
        ("{image: r.sif, shared: 1}", "legal: true or false"),
        ('{image: "docker://a b"}', "legal: a .sif file"),
        ('{image: "docker://--x"}', "legal: a .sif file"),
        ('{image: "http://a/b.sif"}', "legal: a .sif file"),
        ("{image: r.sif, nv: true}", "nv"),
    ],
)
def test_mistakes(tmp_path, image, said):
    write_image(tmp_path / "r.sif")
    (tmp_path / "text.sif").write_text("version https://git-lfs.github.com/spec/v1\n")
    (tmp_path / "box").mkdir()
    with pytest.raises(ConfigError) as caught:
        container_of(tmp_path, image)
    assert said in str(caught.value)


def test_a_job_has_room_for_its_image(tmp_path):
    os.truncate(write_image(tmp_path / "r.sif"), 3 << 20)
    check_data(load_config(write_study(tmp_path, STUDY)))
    small = STUDY.replace("gpus: 0", "gpus: 0, disk: 2MB") + "final: {disk: 1GB}\n"
    with pytest.raises(ConfigError, match=r"region 'North': job.disk is 2.0 MiB, the image .*r.sif alone has 3.0 MiB"):
        check_data(load_config(write_study(tmp_path, small)))


def test_another_image_is_another_program(tmp_path):
    image = write_image(tmp_path / "r.sif")
    program = load_config(write_study(tmp_path, STUDY)).regions[0].program
    assert program is not None
    write_program(program, tmp_path / "program.zip")
    unpack(tmp_path / "program.zip", tmp_path / "out")
    said = (tmp_path / "out" / MANIFEST).read_text()
    assert sha256_of(image) in said and '"container.sif"' in said
    before = digest_of(program)
    write_image(image, b"newer")
    assert digest_of(program) != before
