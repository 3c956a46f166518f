"""The jobs that a machine under test has to run: real trainings of nnlib on made-up purchases."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from nnlib.contract import Metric, Role, TrainSettings, Trial, trial_to_json
from regiondag.errors import BakeError
from regiondag.generate.bundle import worker_archive
from regiondag.util.resources import resource_dir

CUSTOMERS = 300
ITEMS = 80
BOUGHT = 16
FOR_EVER = 100_000  # epochs

NETWORK = {
    "Version": 0.8,
    "Name": "bake-test",
    "Kind": "AutoEncoder",
    "ErrorFunction": "CrossEntropy",
    "Layers": [
        {"Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Kind": "Hidden", "N": 32, "Activation": "Relu"},
        {"Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "Sigmoid"},
    ],
}


def write_job(folder: Path, epochs: int) -> list[str]:
    """Make `folder` with a training of so many epochs; return the arguments of condor_submit, to be called in it."""
    folder.mkdir(parents=True)
    code = worker_archive()
    (folder / code.name).write_bytes(code.content)
    for name in ("job.sub", "job.sh"):
        (folder / name).write_bytes((resource_dir("templates") / "bake" / name).read_bytes())
    (folder / "train.sh").write_bytes((resource_dir("scripts") / "dag" / "train.sh").read_bytes())
    _write_data(folder, folder / code.name)
    (folder / "network.json").write_text(json.dumps(NETWORK), encoding="utf-8")
    trial = Trial(
        node="bake-test",
        region="bake test",
        number=0,
        role=Role.TUNE,
        network="network.json",
        hyperparameters={},
        train=TrainSettings(epochs=epochs, stop_after=0, batch=64),
        metric=Metric("ndcg@10"),
        train_files=("train.nc",),
        valid_file="valid.nc",
    )
    (folder / "trial.json").write_text(trial_to_json(trial), encoding="utf-8")
    return ["condor_submit", "-terse", "job.sub", f"code={code.name}"]


def _write_data(folder: Path, code: Path) -> None:
    """Write train.nc and valid.nc with `nnlib import`, as a user would."""
    chance = random.Random(1)  # noqa: S311 - data, not secrets
    table = folder / "purchases.csv"
    with table.open("w", encoding="utf-8") as file:
        file.write("region,customer,item,date\n")
        for customer in range(CUSTOMERS):
            for day, item in enumerate(chance.sample(range(ITEMS), BOUGHT)):
                file.write(f"test,c{customer},i{item},2026-01-{day + 1:02d}\n")
    argv = [sys.executable, str(code), "import", str(table), "--out", str(folder / "data")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BakeError(f"nnlib cannot make the test's data: {done.stderr.strip()}")
    for part in ("train", "valid"):
        (folder / "data" / f"test.{part}.nc").rename(folder / f"{part}.nc")
