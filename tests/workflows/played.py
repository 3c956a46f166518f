"""Jobs without a pool: played, as if a worker had trained, or done in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.contract import Result, Role, Status, result_to_json, scored_metrics, sha256_of, trial_from_json
from nnlib.data.sources import open_files
from nnlib.model.examples import resolve
from nnlib.model.file import model_of, write_model
from nnlib.model.network import create
from nnlib.spec.network import network_of, read_json
from nnlib.worker import job
from nnlib.worker.recipe_job import run_recipe
from nnlib.worker.rivals import write_recipe
from regiondag.run.layout import NodeName, RegionFolder

CUSTOMERS, FLOOR = 12, 0.01  # who is asked, and what each gets by recent popularity


def play_job(
    folder: RegionFolder,
    node: NodeName,
    value: float = 0.5,
    floor: float = FLOOR,
    customers: Any = None,
    **more: Any,
) -> None:
    """Write result.json, scores.npy and the models of a job that has trained a network to `value`.

    Every customer gets that, or what `customers` (n,) says, and `floor` by all that it is compared with.
    """
    place = folder.trial(node)
    trial = trial_from_json((place / "trial.json").read_text())
    each = np.full(CUSTOMERS, value) if customers is None else np.array(customers, float)
    others = sorted(trial.compare) if trial.role is Role.FINAL else ["floor"]
    floors = np.full(len(each), floor)
    names = scored_metrics(trial.metric)
    scores = np.array([[each] * len(names), *([floors] * len(names) for _ in others)], np.float32)
    np.save(place / "scores.npy", scores, allow_pickle=False)
    for name in ("model.nc", "floor.nc"):
        (place / name).write_bytes(f"{name} {value}".encode())
    final = {
        "model": sha256_of(place / "model.nc"),
        "floor": sha256_of(place / "floor.nc"),
        "compared": {name: dict.fromkeys(names, floor) for name in others},
        "baseline": dict.fromkeys(names, floor),
    }
    result: dict[str, Any] = {
        "node": str(node),
        "status": Status.OK,
        "value": value,
        "metrics": {"ndcg@5": value, "p@10": value / 2},
        "best_epoch": 2,
        "seconds": 3.0,
        "scores": sha256_of(place / "scores.npy"),
    }
    result |= (final if trial.role is Role.FINAL else {}) | more
    (place / "result.json").write_text(result_to_json(Result(**result)))


def is_played(place: Path) -> bool:
    """Return whether a node's folder holds a text in the place of a model."""
    return (place / "model.nc").read_bytes().startswith(b"model.nc ")


def bring_models(folder: RegionFolder, node: NodeName) -> None:
    """Write models of a final training that was played, of its network as it is drawn, for which its result vouches."""
    place = folder.trial(node)
    trial = trial_from_json((place / "trial.json").read_text())
    [train] = trial.train_files
    spec = network_of(read_json(folder.path / trial.network), trial.network, trial.hyperparameters)
    data = open_files([folder.path / train])
    network = create(resolve(spec, data.sets, trial.network), np.random.default_rng(1))
    write_model(place / "model.nc", model_of(network, data.sets, data.region))
    write_recipe(trial.compare["floor"], folder.path / train, place / "floor.nc")
    result = json.loads((place / "result.json").read_text())
    result |= {name: sha256_of(place / f"{name}.nc") for name in ("model", "floor")}
    (place / "result.json").write_text(json.dumps(result))


def run_job(folder: RegionFolder, node: NodeName) -> None:
    """Do a node's job in this process, on the inputs that lie in `folder`."""
    place = folder.trial(node)
    trial = trial_from_json((place / "trial.json").read_text())
    for name, digest in trial.sha256.items():
        assert sha256_of(folder.path / name) == digest
        (place / name).unlink(missing_ok=True)
        (place / name).symlink_to(folder.path / name)
    (place / "log.jsonl").touch()
    result = job.run(trial, place) if trial.recipe is None else run_recipe(trial, place)
    for name in trial.sha256:
        (place / name).unlink()  # jobs bring back none of it
    (place / "result.json").write_text(result_to_json(result))
