"""A trial ready to run, as a fixture."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nnlib_samples import NETWORK, clustered

from nnlib.contract import Metric, Role, TrainSettings, Trial, sha256_of, trial_to_json
from nnlib.datafile import write_data


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
