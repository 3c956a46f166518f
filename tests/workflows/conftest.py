"""A tiny study on disk: two regions, each with its four data files and a network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from nnlib.data.file import write_data
from nnlib.data.rows import from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.util.files import locked
from regiondag.node import brought, post
from regiondag.run.layout import RegionFolder, RunFolder

settings.register_profile("regiondag", deadline=None)  # a shared machine may stall for a second
settings.load_profile("regiondag")

NETWORK = {
    "Version": 0.8,
    "Name": "tiny",
    "Kind": "FeedForward",
    "Layers": [
        {"Name": "Input", "Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Name": "Hidden", "Kind": "Hidden", "N": "$hidden", "Activation": "Tanh"},
        {"Name": "Output", "Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "SoftMax"},
    ],
    "ErrorFunction": "CrossEntropy",
}

STUDY = """\
study: tiny
regions:
  - {name: United Kingdom, data: data/uk.nc}
  - {name: Germany, data: data/germany.nc}
network: network.json
metric: ndcg@5
train: {epochs: 2, batch: 4, seed: 7}
search:
  method: bayes
  rounds: 2
  parallel: 2
  space:
    hidden: {int: [2, 8], log: true}
    learning_rate: {real: [1e-3, 1e-1], log: true}
job: {cpus: 1, memory: 256MB, disk: 100MB}
limits: {jobs: 8, jobs_per_region: 2}
"""

WIDTH = 12


@pytest.fixture(scope="session", autouse=True)
def played_models() -> Iterator[None]:
    """Let pass the texts that `play_job` has in the place of models; others are looked into as ever."""
    from tests.workflows.played import is_played

    def find_misfit(place: Path, inputs: Path, archive: Path) -> str:
        return "" if is_played(place) else brought.find_misfit(place, inputs, archive)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(post, "find_misfit", find_misfit)
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> RunFolder:
    """Return a run whose trials and final training were trained, once for all processes; nobody may change it."""
    from tests.workflows.trained import trained_run  # which takes the study from here

    own = tmp_path_factory.getbasetemp()
    folder = own.parent if hasattr(request.config, "workerinput") else own  # of pytest-xdist
    made = folder / "trained.path"
    with locked(folder / "trained.lock"):
        if not made.exists():
            made.write_text(str(trained_run(folder / "trained").path))
    return RunFolder(Path(made.read_text()))


def write_region(folder: Path, stem: str, users: int = 8, names: Sequence[str] = ()) -> None:
    """Write train, valid, final and test: each user owns a run of items, the last ones held back.

    `names` are those of the WIDTH items; by default they have none.
    """
    owned = [[(user + i) % WIDTH for i in range(6)] for user in range(users)]
    parts = {
        "train": ([row[:3] for row in owned], [row[:3] for row in owned]),
        "valid": ([row[:3] for row in owned], [row[3:4] for row in owned]),
        "final": ([row[:4] for row in owned], [row[:4] for row in owned]),
        "test": ([row[:4] for row in owned], [row[4:] for row in owned]),
    }
    for part, (inputs, outputs) in parts.items():
        sets = (
            DataSet("input", from_rows(inputs, WIDTH), tuple(names)),
            DataSet("output", from_rows(outputs, WIDTH), tuple(names)),
        )
        write_data(folder / f"{stem}.{part}.nc", Data(sets))


def write_study(folder: Path, text: str = STUDY) -> Path:
    """Write study.yaml, network.json and data; return the path of study.yaml."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for stem in ("uk", "germany"):
        write_region(folder / "data", stem)
    (folder / "network.json").write_text(json.dumps(NETWORK))
    (folder / "study.yaml").write_text(text)
    return folder / "study.yaml"


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    return write_study(tmp_path)


@pytest.fixture
def run(study_file: Path, tmp_path: Path) -> RunFolder:
    """Return a run directory of the study, in which nothing has happened yet."""
    from tests.workflows.generate.test_write_run import create  # which takes the study from here

    made: RunFolder = create(study_file, tmp_path / "runs")
    return made


@pytest.fixture
def folder(run: RunFolder) -> RegionFolder:
    return run.region("germany")
