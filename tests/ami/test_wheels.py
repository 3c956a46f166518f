"""The script that fetches the recipe's wheels for a machine that has booted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

AMI = Path(__file__).parents[2] / "ami"


@pytest.fixture
def fetch(tmp_path):
    """A copy of the script and its lists, with a pip that writes down how it was called."""
    shutil.copytree(AMI / "provision", tmp_path / "provision", symlinks=True)
    shutil.copy(AMI / "wheels.sh", tmp_path)
    pip = tmp_path / "pip"
    pip.write_text('#!/bin/sh\necho "$*" >>"$(dirname "$0")/called"\n')
    pip.chmod(0o755)

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PIP": str(pip)}
        return subprocess.run(
            ["sh", tmp_path / "wheels.sh", *argv], capture_output=True, text=True, env=env, check=False
        )

    run.folder = tmp_path  # type: ignore[attr-defined]
    return run


def test_every_list_of_the_recipe_is_fetched_for_the_images_python(fetch):
    old = fetch.folder / "wheels" / "old-1.0-py3-none-any.whl"
    old.parent.mkdir()
    old.touch()
    assert fetch("3.14").returncode == 0
    calls = (fetch.folder / "called").read_text().splitlines()
    lists = sorted((AMI / "provision").glob("requirements*.txt"))
    assert len(calls) == len(lists) >= 1
    for call, path in zip(calls, lists, strict=True):
        assert "--python-version 3.14 " in call
        assert f"/{path.name} --dest {fetch.folder}/wheels" in call
    assert not old.exists()


@pytest.mark.parametrize("place", ["kernels", "nnlib/kernels", ""])
def test_nnlibs_kernels_are_laid_beside_them(fetch, place):
    """As they lie in a checkout, in an installed wheel, and not at all."""
    ami = fetch.folder / ("regiondag/ami" if place.startswith("nnlib") else "ami")
    ami.mkdir(parents=True)
    shutil.copy(AMI / "wheels.sh", ami)
    (ami / "provision").symlink_to(AMI / "provision")
    if place:
        (fetch.folder / place).mkdir(parents=True)
        for name in ("gather.cu", "batch.cuh", "README.md"):
            (fetch.folder / place / name).touch()
    env = {**os.environ, "PIP": str(fetch.folder / "pip")}
    assert subprocess.run(["sh", ami / "wheels.sh"], env=env, check=False).returncode == 0
    laid = {path.name for path in (ami / "wheels/kernels").glob("*")}
    assert laid == ({"gather.cu", "batch.cuh"} if place else set())


def test_debian_13_is_the_default(fetch):
    assert fetch().returncode == 0
    assert "--python-version 3.13 " in (fetch.folder / "called").read_text()


@pytest.mark.parametrize("python", ["3", "three", "3.13; reboot"])
def test_what_is_no_version_of_python(fetch, python):
    done = fetch(python)
    assert done.returncode == 2
    assert f"seen '{python}', legal:" in done.stderr


def test_a_pip_that_fails_fails_the_script(fetch):
    (fetch.folder / "pip").write_text("#!/bin/sh\nexit 3\n")
    assert fetch().returncode == 3


def test_it_is_sound_shell():
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "shellcheck"
    done = subprocess.run([shellcheck, AMI / "wheels.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
