"""A run whose trials were trained by its own code archive, without a pool: PRE, job and POST one after the other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from nnlib.contract import trial_from_json
from regiondag.node.post import JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.run.layout import NodeName, RegionFolder, RunFolder
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create

OUTPUTS = ("result.json", "log.jsonl", "scores.npy", "model.nc", "floor.nc", "model.zip")


def train(folder: RegionFolder, node: NodeName) -> int:
    """Run a node's job as a worker does, in a folder of its own; return its exit code."""
    place = folder.trial(node)
    sandbox = folder.path / "sandbox"
    sandbox.mkdir()
    trial = trial_from_json((place / "trial.json").read_text())
    shutil.copyfile(place / "trial.json", sandbox / "trial.json")
    for name in trial.sha256:
        shutil.copyfile(folder.path / name, sandbox / name)
    archive = next(folder.path.parents[1].glob("nnlib-*.pyz"))
    argv = [sys.executable, str(archive), "train", "--trial", "trial.json", "--device", "cpu"]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    code = subprocess.run(argv, cwd=sandbox, env=bare, capture_output=True, check=False, timeout=120).returncode
    for name in OUTPUTS:
        if (sandbox / name).exists():
            shutil.copyfile(sandbox / name, place / name)
    shutil.rmtree(sandbox)
    return code


def trained_run(folder: Path, text: str = STUDY, trials: int = 4, *, final: bool = True) -> RunFolder:
    """Return a run in which Germany's first trials, and its final training, have ended."""
    run: RunFolder = create(write_study(folder, text), folder / "runs")
    region = run.region("germany")
    for number in range(trials):
        node = NodeName("germany", number)
        prepare_trial(region, node)
        settle_trial(region, node, JobEnd(train(region, node), 0, 2))
    if final:
        node = NodeName("germany", None)
        prepare_final(region, node)
        settle_final(region, node, JobEnd(train(region, node), 0, 2))
    return run
