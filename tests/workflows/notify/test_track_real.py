"""Trials on a real server of MLflow, where its program is installed: what the played one stands for."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from dataclasses import replace

import pytest

from regiondag.notify.mlflow import NotTrackedError, RefusedError, Server
from regiondag.notify.track import track_run
from regiondag.notify.tracked import Point, TrackedRun
from regiondag.run.journal import Journal
from regiondag.study.track import Track
from tests.support.made_up_run import Shape, write_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mlflow") is None, reason="the program mlflow is not installed"),
]
SLUGS = ("region-0", "region-1", "region-2")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/runs.db", "--host", "127.0.0.1"]
    words += ["--port", str(port), "--workers", "1", "--artifacts-destination", str(folder / "artifacts")]
    with (folder / "log").open("wb") as log:
        program = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            _wait(port, program)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def _wait(port: int, program: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while program.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(0.3)
    raise AssertionError("mlflow server did not start")


def ask(url: str, path: str, body: dict[str, object] | None = None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/2.0/mlflow/{path}", data, headers)  # noqa: S310 (http)
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 (http)
        return json.load(answer)


def read_curve(url: str, run_id: str, name: str) -> list[tuple[int, float]]:
    path = f"metrics/get-history?run_id={run_id}&metric_key={name}&max_results=5000"
    return [(metric["step"], metric["value"]) for metric in ask(url, path)["metrics"]]


def test_a_run_arrives_whole_and_once_though_the_first_try_is_cut_off(url, tmp_path, monkeypatch):
    run = write_run(tmp_path / "run-made-1", Shape(regions=3, trials=6, epochs=5, served=True), ["North", "Süd"])
    with monkeypatch.context() as patch:
        patch.setattr(Server, "fill_run", lambda *_: (_ for _ in ()).throw(NotTrackedError("cut off")))
        assert track_run(run, Track(url), SLUGS, math.inf, again=True) == [
            "mlflow: NOT sent: cut off; it is sent later"
        ]
    assert track_run(run, Track(url), SLUGS, math.inf, again=True) == ["mlflow: 15 sent"]
    assert track_run(run, Track(url), SLUGS, math.inf, again=True) == []
    experiment = json.loads(run.tracked.read_text())["experiment"]
    body = {"experiment_ids": [experiment], "max_results": 100, "filter": "tags.run = 'run-made-1'"}
    found = ask(url, "runs/search", body)["runs"]
    assert len(found) == 15
    body["filter"] += " and tags.region = 'Süd'"
    assert len(ask(url, "runs/search", body)["runs"]) == 7
    runs = {one["info"]["run_name"]: one for one in found}
    for number, outcome in Journal(run.region("region-1").journal).read().settled.items():
        one = runs[f"region-1_t{number:04d}"]
        assert one["info"]["status"] in ("FINISHED", "FAILED")
        metrics = {metric["key"]: metric["value"] for metric in one["data"].get("metrics", [])}
        assert metrics.get("ndcg_at_20") == outcome.value
        if outcome.curve:
            assert read_curve(url, one["info"]["run_id"], "curve/ndcg_at_20") == list(enumerate(outcome.curve, start=1))


def test_champions_become_versions_of_registered_models_once(url, tmp_path, monkeypatch):
    run = write_run(tmp_path / "run-made-2", Shape(regions=3, trials=2, epochs=2), ["North", "Süd"])
    for slug in SLUGS:
        run.region(slug).champion_model.write_bytes(slug.encode() * 100_000)
    settings = Track(url, models=True)
    with monkeypatch.context() as patch:
        patch.setattr(Server, "add_model", lambda *_: (_ for _ in ()).throw(NotTrackedError("cut off")))
        assert "mlflow: NOT sent: cut off; it is sent later" in track_run(run, settings, SLUGS, math.inf, again=True)
    assert track_run(run, settings, SLUGS, math.inf, again=True) == ["mlflow: 7 sent"]
    track_run(run, settings, SLUGS, math.inf, again=True)
    for slug in SLUGS:
        found = ask(url, f"model-versions/search?filter=name%3D'made%20up.{slug}'")["model_versions"]
        assert [version["version"] for version in found] == ["1"] and found[0]["source"].endswith("/artifacts/champion")
        path = found[0]["source"].partition(":")[2].strip("/")
        with urllib.request.urlopen(f"{url}/api/2.0/mlflow-artifacts/artifacts/{path}/model.nc") as answer:  # noqa: S310
            assert answer.read() == slug.encode() * 100_000


def test_the_bounds_of_a_request_hold_and_the_same_said_twice_changes_nothing(url):
    points = tuple(Point("curve/auc", step / 7, step, 1000 + step) for step in range(1, 2001))
    params = {f"p{number} -_.": "x" * 500 for number in range(150)}
    run = TrackedRun(
        "a/b/1.000", "b", "KILLED", 1000, 5000, params, points, {"regiondag": "a/b/1.000", "r": "x" * 1000}
    )
    server = Server(Track(url), patience=30.0)
    experiment = server.find_experiment("Ünïcode & more/50%")
    assert server.find_experiment("Ünïcode & more/50%") == experiment and server.find_run(experiment, run.key) == ""
    made = server.create_run(experiment, run)
    for _ in range(2):
        server.fill_run(made, run)
    assert server.find_run(experiment, run.key) == made
    with pytest.raises(RefusedError, match="answers 400 to runs/log-batch"):
        server.fill_run(made, replace(run, parameters={"p0 -_.": "another"}))
    server.close()
    [found] = ask(url, "runs/search", {"experiment_ids": [experiment]})["runs"]
    assert len(found["data"]["params"]) == 150 and found["info"]["status"] == "KILLED"
    assert read_curve(url, made, "curve/auc") == [(point.step, point.value) for point in points]
