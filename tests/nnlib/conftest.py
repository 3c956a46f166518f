"""A trial ready to run, and the code for the inner loops, as fixtures."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nnlib.contract import Metric, Role, TrainSettings, Trial, sha256_of, trial_to_json
from nnlib.cpu import optimizer, output, sparse_products
from nnlib.cpu.maps import pooling
from nnlib.data.file import write_data
from nnlib.families.common import products
from nnlib.ops import ranking
from nnlib.util import threads
from tests.nnlib.samples import NETWORK, clustered


@pytest.fixture(autouse=True)
def _little_work_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have several threads share what tests have of work: it is all too little for that."""
    monkeypatch.setattr(threads, "LEAST_WORK", 0)


@pytest.fixture
def use_backend(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that has the inner loops done by "numpy" or "numba", if that is installed."""

    def use(name: str) -> None:
        if name == "numba":
            pytest.importorskip("numba")
        loops = importlib.import_module("nnlib.compiled.loops") if name == "numba" else None
        for module in (sparse_products, optimizer, output, ranking, products, pooling):
            monkeypatch.setattr(module, "LOOPS", loops)

    return use


@pytest.fixture(params=["numpy", "numba"])
def backend(request: pytest.FixtureRequest, use_backend: Callable[[str], None]) -> str:
    """Run the test once with each code for the inner loops."""
    use_backend(request.param)
    return str(request.param)


@pytest.fixture
def keep() -> Iterator[Callable[[subprocess.Popen[str]], subprocess.Popen[str]]]:
    """Return a function that takes a process and returns it; where a test fails before its end, it is ended."""
    with ExitStack() as stack:

        def note(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
            stack.enter_context(process)  # which closes its pipes, and waits
            stack.callback(process.kill)
            return process

        yield note


@pytest.fixture
def make_trial(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a trial with its inputs and returns trial.json's path."""

    def make(folder: str = "job", network: Any = NETWORK, hyperparameters: Any = None, **changes: Any) -> Path:
        place = tmp_path / folder
        place.mkdir()
        write_data(place / "train.nc", clustered(64, 1, 9))
        write_data(place / "held.nc", clustered(32, 2, 6))
        (place / "network.json").write_text(json.dumps(network))
        trial = Trial(
            node="r_t0001",
            region="Côte d'Ivoire",
            number=1,
            role=Role.TUNE,
            network="network.json",
            hyperparameters={"hidden": 16, "denoising": 0.2} if hyperparameters is None else hyperparameters,
            train=TrainSettings(epochs=6, batch=16, learning_rate=0.01),
            metric=Metric("p@3"),
            train_files=("train.nc",),
            valid_file="held.nc",
            test_file="held.nc",
            sha256={name: sha256_of(place / name) for name in ("train.nc", "held.nc")},
        )
        (place / "trial.json").write_text(trial_to_json(dataclasses.replace(trial, **changes)))
        return place / "trial.json"

    return make
