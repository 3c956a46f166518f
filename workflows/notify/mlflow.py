"""Speak with a tracking server of MLflow: the few requests of its REST API, version 2.0, that make a run.

https://mlflow.org/docs/latest/rest-api.html; MLflow's own client is not needed, and secrets stand in no error.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from regiondag.errors import RegiondagError
from regiondag.notify.send import read_secret, show_answer
from regiondag.notify.tracked import KEY, TrackedRun, batches_of
from regiondag.study.track import Track, may_have_secrets

PATIENCE = 3.0  # seconds that the server may be silent while a POST waits for it
LONGEST_ANSWER = 1 << 20  # bytes
MODEL = "champion"  # folder of a run's artifacts
ABSENT, EXISTS = "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"  # MLflow's error_code


class NotTrackedError(RegiondagError):
    """The server did not do what it was asked; `code` is its error_code, where it gave one."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class RefusedError(NotTrackedError):
    """The server does not take what this one run holds."""


class Server:
    """One connection. Each method raises NotTrackedError where it gets no answer or another one than it should."""

    def __init__(self, settings: Track, patience: float = PATIENCE, variables: Mapping[str, str] = os.environ) -> None:
        parts = urlsplit(settings.mlflow)
        self._host = str(parts.hostname)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._link = kind(self._host, parts.port, timeout=patience)
        api = f"{parts.path.rstrip('/')}/api/2.0/"
        self._path, self._artifacts = f"{api}mlflow/", f"{api}mlflow-artifacts/artifacts/"
        secret, self._secrets = _authorize(settings, variables)
        if secret and not may_have_secrets(settings.mlflow):
            raise NotTrackedError(f"{settings.mlflow}: a token or password goes by https alone, or to this machine")
        self._headers = {"Content-Type": "application/json", "User-Agent": "regiondag", **secret}

    def close(self) -> None:
        """End the connection."""
        self._link.close()

    def find_experiment(self, name: str) -> str:
        """Return the id of the experiment of that name, which is made where there is none."""
        by_name = f"experiments/get-by-name?experiment_name={quote(name, safe='')}"
        try:
            return _id_of(self._ask("GET", by_name), "experiment", "experiment_id")
        except NotTrackedError as error:
            if error.code != ABSENT:
                raise
        try:
            return _id_of(self._ask("POST", "experiments/create", {"name": name}), "experiment_id")
        except NotTrackedError as error:
            if error.code != EXISTS:
                raise
        return _id_of(self._ask("GET", by_name), "experiment", "experiment_id")  # another script was quicker

    def find_run(self, experiment: str, key: str) -> str:
        """Return the id of the run with that key; nothing where there is none."""
        condition = f"tags.{KEY} = '{key}'"  # of names of ours alone
        body = {"experiment_ids": [experiment], "filter": condition, "max_results": 1}
        found = self._ask("POST", "runs/search", body).get("runs")
        return _id_of({"run": found[0]}, "run", "info", "run_id") if found else ""

    def create_run(self, experiment: str, run: TrackedRun) -> str:
        """Begin a run; return its id."""
        tags = [{"key": name, "value": text} for name, text in run.tags.items()]
        body = {"experiment_id": experiment, "run_name": run.name, "start_time": run.start, "tags": tags}
        return _id_of(self._ask("POST", "runs/create", body), "run", "info", "run_id")

    def fill_run(self, run_id: str, run: TrackedRun) -> None:
        """Give a run its parameters and metrics, and end it; once more changes nothing. RefusedError for its values."""
        for parameters, points in batches_of(run):
            metrics = [{"key": p.name, "value": p.value, "step": p.step, "timestamp": p.time} for p in points]
            params = [{"key": name, "value": text} for name, text in parameters.items()]
            self._ask("POST", "runs/log-batch", {"run_id": run_id, "metrics": metrics, "params": params}, refuses=True)
        self._ask("POST", "runs/update", {"run_id": run_id, "status": run.status, "end_time": run.end})

    def add_model(self, name: str, run_id: str, file: Path) -> None:
        """Make a file a version of the registered model `name`; once more changes nothing.

        The file goes to the server, which keeps it; RefusedError for one that keeps none.
        """
        if not file.is_file():
            raise RefusedError(f"{file} is gone")
        found = self._ask("GET", f"runs/get?run_id={quote(run_id, safe='')}")
        uri = _id_of(found, "run", "info", "artifact_uri")
        scheme, _, place = uri.partition(":")
        if scheme != "mlflow-artifacts":
            raise RefusedError(
                f"{self._host} keeps artifacts at {scheme}:, to which nothing goes by way of it; legal: a server that "
                "takes them (--serve-artifacts), or `models: false`"
            )
        try:
            self._ask("POST", "registered-models/create", {"name": name}, refuses=True)
        except NotTrackedError as error:
            if error.code != EXISTS:
                raise
        condition = quote(f"name='{name}' and run_id='{run_id}'", safe="")
        if self._ask("GET", f"model-versions/search?filter={condition}").get("model_versions"):
            return
        path = f"{urlsplit(place).path.strip('/')}/{MODEL}/{file.name}"  # a host may stand before it
        self._ask("PUT", f"{self._artifacts}{quote(path)}", file)
        body = {"name": name, "source": f"{uri.rstrip('/')}/{MODEL}", "run_id": run_id}
        self._ask("POST", "model-versions/create", body, refuses=True)

    def _send(self, method: str, path: str, body: Mapping[str, object] | Path | None, headers: dict[str, str]) -> None:
        if isinstance(body, Path):
            with body.open("rb") as content:
                self._link.request(method, path, content, headers)
        else:
            text = None if body is None else json.dumps(body, allow_nan=False).encode()
            self._link.request(method, path, text, headers)

    def _ask(
        self, method: str, path: str, body: Mapping[str, object] | Path | None = None, *, refuses: bool = False
    ) -> dict[str, Any]:
        """Send one request, with JSON or a file; redirects are not followed: they would take the secrets elsewhere."""
        headers = self._headers
        if isinstance(body, Path):
            headers = headers | {"Content-Type": "application/octet-stream", "Content-Length": str(body.stat().st_size)}
        try:
            self._send(method, path if path.startswith("/") else self._path + path, body, headers)
            with self._link.getresponse() as answer:
                text = answer.read(LONGEST_ANSWER)
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            said = show_answer(f"{type(error).__name__}: {error}".encode(), *self._secrets)
            raise NotTrackedError(f"{self._host}: {said}") from None
        try:
            raw = json.loads(text)
        except ValueError:
            raw = None
        if answer.status == 200 and (isinstance(raw, dict) or isinstance(body, Path)):  # to a file nothing is said
            return raw or {}
        self.close()
        said = show_answer(text, *self._secrets)
        code = str(raw.get("error_code", "")) if isinstance(raw, dict) else ""
        where = f"{self._host} answers {answer.status} to {path.partition('?')[0]}{f': {said}' if said else ''}"
        kind = RefusedError if refuses and answer.status == 400 else NotTrackedError
        raise kind(where, code)


def _authorize(settings: Track, variables: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the header that says who asks, and what of it is secret; by MLflow's own variables where study.yaml names
    nothing."""
    token = read_secret(settings.token, variables) if settings.token else ""
    user, password = settings.username, read_secret(settings.password, variables) if settings.password else ""
    if not token and not user:
        token = variables.get("MLFLOW_TRACKING_TOKEN", "")
        user, password = variables.get("MLFLOW_TRACKING_USERNAME", ""), variables.get("MLFLOW_TRACKING_PASSWORD", "")
    if user and password:  # as MLflow's client has it, before a token
        both = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {both}"}, (password, both)
    return ({"Authorization": f"Bearer {token}"}, (token,)) if token else ({}, ())


def _id_of(answer: Any, *path: str) -> str:
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(answer, str) or not answer:
        raise NotTrackedError(f"an answer without {'.'.join(path)}: this is no server of MLflow")
    return answer
