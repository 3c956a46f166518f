"""The examples whose trials are programs, from `init` to what serves, on a real HTCondor pool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.pool.pool import Pool
from regiondag.run.champions import earlier_runs
from regiondag.run.layout import NodeName, RunFolder
from scripts.bench.common.environments import TORCH_FOLDER
from tests.workflows.on_pool.test_eviction import evict, place
from tests.workflows.on_pool.test_study import finish, result_of, submit, summary

pytestmark = pytest.mark.condor

WITHOUT_R = "the pool's machines have no R: regiondag pool up --packages r-base-core"
REGIONS = {"command": ("market", "quay", "station"), "sklearn": ("Islands", "North", "South")}
MADE = {
    "command": "model.csv",
    "sklearn": "model.json",
    "r": "model.rds",
    "lightgbm": "model.txt",
    "pytorch": "model.pt",
}
TORCH = TORCH_FOLDER / "bin" / "python"
WITHOUT_TORCH = "no environment with PyTorch; python -m scripts.bench.autoencoder makes one"


def write_example(name: str, folder: Path, *changes: tuple[str, str]) -> Path:
    """Write an example with a few trials; `changes` are further ones of study.yaml."""
    assert main(["init", name, str(folder)]) == 0
    study = folder / "study.yaml"
    text = study.read_text()
    for old, new in (("rounds: 3", "rounds: 1"), ("parallel: 3", "parallel: 1"), *changes):
        assert old in text
        text = text.replace(old, new)
    study.write_text(text)
    return study


def finish_example(name: str, folder: Path) -> RunFolder:
    """Run it to its end; every region has a champion whose archive holds what the program has made."""
    assert main(["run", str(folder), "--quiet"]) == 0
    [run] = earlier_runs(folder / "runs", json.loads(next(folder.glob("runs/*/manifest.json")).read_text())["study"])
    rows = summary(run)["regions"]
    assert tuple(row["region"] for row in rows) == REGIONS.get(name, REGIONS["sklearn"])
    for row in rows:
        [value] = row["test"].values() if len(row["test"]) == 1 else [row["test"]["auc"]]
        assert value > 0
        with zipfile.ZipFile(run.region(row["slug"]).champion_metrics.with_name("model.zip")) as archive:
            assert archive.namelist() == [MADE[name]] and archive.read(MADE[name])
    return run


@pytest.mark.parametrize("name", ["command", "sklearn", "r"])
def test_an_example_to_its_champions(pool: Pool, run_area: Path, name: str):
    if name == "r" and pool.run(["Rscript", "--version"], cwd=run_area, capture_output=True).returncode != 0:
        pytest.skip(WITHOUT_R)
    write_example(name, run_area / name)
    run = finish_example(name, run_area / name)
    assert all(
        result_of(place(run, NodeName(slug, 0))).stderr for slug in json.loads(run.manifest.read_text())["regions"]
    )


def test_the_example_of_a_library_that_goes_with_the_jobs(pool, run_area):
    study = write_example("lightgbm", run_area / "leaving", ("epochs: 60", "epochs: 10"))
    assert main(["validate", str(study)]) == 2  # as long as there is no lib/
    call = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", study.parent / "lib"]
    done = subprocess.run([*call, "lightgbm", "narwhals"], capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"pip cannot bring LightGBM: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    run = finish_example("lightgbm", study.parent)
    assert len(result_of(place(run, NodeName("south", None))).curve) == 10


@pytest.mark.skipif(not TORCH.exists(), reason=WITHOUT_TORCH)
def test_the_example_that_saves_itself_goes_on_after_an_eviction(pool: Pool, run_area: Path, capsys):
    whole = [
        ("[python,", f"[{TORCH},"),
        ("prune: asha", "prune: none"),
        ("epochs: 60", "epochs: 30"),
    ]
    slowly = ("    torch.save((epoch", "    __import__('time').sleep(0.2)\n    torch.save((epoch")
    runs = []
    for name in ("undisturbed", "disturbed"):
        study = write_example("pytorch", run_area / name, *whole)
        for region in ("Islands", "North"):
            (study.parent / "data" / f"{region}.csv").unlink()
        program = study.with_name("train.py")
        assert slowly[0] in program.read_text()
        program.write_text(program.read_text().replace(*slowly))
        capsys.readouterr()
        assert main(["generate", str(study)]) == 0
        runs.append(RunFolder(Path(capsys.readouterr().out.strip())))
    one, other = runs
    submit(one)
    assert finish(pool, one).exit_code == 0
    submit(other)
    node = NodeName("south", 0)
    evict(pool, other, node, 5)
    assert finish(pool, other).exit_code == 0
    expected, result = result_of(place(one, node)), result_of(place(other, node))
    assert len(result.curve) == 30 and result.curve == expected.curve
    with zipfile.ZipFile(other.region("south").champion_metrics.with_name("model.zip")) as archive:
        assert archive.namelist() == ["model.pt"]
