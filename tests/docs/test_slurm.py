"""The scripts of the page on Slurm: that of an allocation runs as Slurm would run it, on any machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from regiondag.cli import main
from tests.docs.blocks import DOCS, blocks_of

SCRIPTS = {
    block.options["file"]: block.text
    for block in blocks_of(DOCS / "guides/slurm.md")
    if block.options.get("file", "").endswith(".sbatch")
}


@pytest.mark.parametrize("name", ["study.sbatch", "worker.sbatch"])
def test_scripts_are_a_shells(name):
    assert SCRIPTS[name].startswith("#!/bin/bash\n#SBATCH ")
    done = subprocess.run(["bash", "-n"], input=SCRIPTS[name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.condor
def test_a_pool_inside_an_allocation(run_area: Path):
    folder = run_area / "sales"
    assert main(["init", "command", str(folder)]) == 0
    study = folder / "study.yaml"
    study.write_text(study.read_text().replace("rounds: 3", "rounds: 1"))
    (folder / "study.sbatch").write_text(SCRIPTS["study.sbatch"])
    here = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_CPUS_ON_NODE": "1", "SLURM_MEM_PER_NODE": "1500"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "study.sbatch"],
        cwd=folder,
        env={**os.environ, "PATH": path, **here},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "3 of 3 regions have their champion" in said and "its queue, logs and settings are removed" in said
