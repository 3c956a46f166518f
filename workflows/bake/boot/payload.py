"""The jobs that a machine under test has to run: real trainings of nnlib on made-up purchases."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import Metric, Role, Status, TrainSettings, Trial, trial_to_json
from regiondag.errors import BakeError, PoolError
from regiondag.generate.bundle import pack_worker
from regiondag.pool import sandbox
from regiondag.pool.pool import ROOT, Pool, pool_folder, read_state
from regiondag.util.resources import resource_dir

CUSTOMERS = 300
ITEMS = 80
BOUGHT = 16
FOR_EVER = 100_000  # epochs
EVICTED, ENDED = "004", "005"  # events in HTCondor's log of a job
HELD = "012"

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


@dataclass(frozen=True)
class PayloadJob:
    """A training that a pool is given, in a folder of the pool's own /tmp."""

    pool: Pool
    name: str

    @property
    def folder(self) -> Path:
        """Where its files are, seen from here."""
        return pool_folder(self.pool.name) / "tmp" / self.name

    def submit(self, epochs: int) -> None:
        """Submit it as the pool's user."""
        argv = write_job(self.folder, epochs)
        state = read_state(self.pool.name)
        if state and state.mode == "chroot":
            subprocess.run(["chown", "--recursive", f"{sandbox.UID}:{sandbox.UID}", str(self.folder)], check=True)
        script = f'cd /tmp/{self.name} && exec "$@"'
        done = self.pool.run(["sh", "-c", script, "sh", *argv], cwd=ROOT, capture_output=True)
        if done.returncode != 0:
            raise PoolError(f"the test's job cannot be submitted: {done.stderr.strip()}")

    def said(self) -> str:
        """Return what it has said so far; only one that trains has something to lose."""
        return _text(self.folder / "job.err")

    def has_event(self, number: str) -> bool:
        """Say whether its log holds an event; BakeError where it was put on hold."""
        text = _text(self.folder / "job.log")
        if held := text.partition(f"\n{HELD} (")[2]:
            raise BakeError(f"the machine under test put the {self.name} job on hold:\n{held[:600]}")
        return f"\n{number} (" in f"\n{text}"

    def check_result(self) -> None:
        """Raise BakeError unless it has ended well."""
        log = _text(self.folder / "job.log")
        status = json.loads(_text(self.folder / "result.json") or "{}").get("status")
        if "(return value 0)" not in log or status != Status.OK:
            said = f"{self.said()[-2000:]}\n{log[-800:]}"
            raise BakeError(f"the training on the machine under test ended with {status!r}; it said:\n{said}")


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def write_job(folder: Path, epochs: int) -> list[str]:
    """Make `folder` with a training of so many epochs; return the arguments of condor_submit, to be called in it."""
    folder.mkdir(parents=True)
    code = pack_worker()
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
    windows = ["--test", "3d", "--validate", "3d"]
    argv = [sys.executable, str(code), "import", str(table), "--out", str(folder / "data"), *windows]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BakeError(f"nnlib cannot make the test's data: {done.stderr.strip()}")
    for part in ("train", "valid"):
        (folder / "data" / f"test.{part}.nc").rename(folder / f"{part}.nc")
