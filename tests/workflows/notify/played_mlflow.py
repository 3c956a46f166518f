"""A tracking server of MLflow, played: it takes the few requests that regiondag sends, as the reference has them."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

API = "/api/2.0/mlflow/"
ARTIFACTS = "api/2.0/mlflow-artifacts/artifacts/"
NAME = re.compile(r"[\w .\-:/]{1,250}")  # what MLflow says that names may hold
FIELDS = {  # of each request, with its type
    "experiments/create": {"name": str},
    "runs/search": {"experiment_ids": list, "filter": str, "max_results": int},
    "runs/create": {"experiment_id": str, "run_name": str, "start_time": int, "tags": list},
    "runs/log-batch": {"run_id": str, "metrics": list, "params": list},
    "runs/update": {"run_id": str, "status": str, "end_time": int},
    "registered-models/create": {"name": str},
    "model-versions/create": {"name": str, "source": str, "run_id": str},
}


@dataclass
class PlayedMlflow:
    """What the server holds; `before` may answer in its place, with a status and a body."""

    port: int = 0
    experiments: dict[str, str] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    artifacts: str = "mlflow-artifacts:"  # where they are kept
    files: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # of registered models
    before: Callable[[str], tuple[int, bytes] | None] = lambda _: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        path, self.headers = urlsplit(target).path.removeprefix(API).lstrip("/"), [*self.headers, headers]
        assert target.startswith((API, f"/{ARTIFACTS}")), target
        self.asked.append(path)
        instead = self.before(path)
        if instead:
            return instead
        if method == "PUT":
            assert headers["Content-Type"] == "application/octet-stream" and path.startswith(ARTIFACTS)
            self.files[path.removeprefix(ARTIFACTS)] = body
            return 200, b""
        if method == "GET" and path == "runs/get":
            [run_id] = parse_qs(urlsplit(target).query, strict_parsing=True)["run_id"]
            uri = f"{self.artifacts}/1/{self.runs[run_id]['id']}/artifacts"
            return _ok({"run": {"info": {"run_id": run_id, "artifact_uri": uri}}})
        if method == "GET" and path == "model-versions/search":
            [condition] = parse_qs(urlsplit(target).query, strict_parsing=True)["filter"]
            match = re.fullmatch(r"name='([^']+)' and run_id='(\w+)'", condition)
            assert match, condition
            found = [version for version in self.versions.get(match[1], []) if version["run_id"] == match[2]]
            return _ok({"model_versions": found} if found else {})
        if method == "GET":
            assert path == "experiments/get-by-name"
            [name] = parse_qs(urlsplit(target).query, strict_parsing=True)["experiment_name"]
            if name not in self.experiments:
                return _fail(404, "RESOURCE_DOES_NOT_EXIST")
            return _ok({"experiment": {"experiment_id": self.experiments[name], "name": name}})
        assert method == "POST" and headers["Content-Type"] == "application/json"
        raw = json.loads(body)
        assert {name: type(value) for name, value in raw.items()} == FIELDS[path], raw
        return getattr(self, "_" + path.replace("/", "_").replace("-", "_"))(raw)

    def _experiments_create(self, raw: dict[str, Any]) -> tuple[int, bytes]:
        if raw["name"] in self.experiments:
            return _fail(400, "RESOURCE_ALREADY_EXISTS")
        self.experiments[raw["name"]] = str(len(self.experiments) + 1)
        return _ok({"experiment_id": self.experiments[raw["name"]]})

    def _runs_search(self, raw: dict[str, Any]) -> tuple[int, bytes]:
        match = re.fullmatch(r"tags\.(\w+) = '([^']*)'", raw["filter"])
        assert match, raw
        found = [run for run in self.runs.values() if run["tags"].get(match[1]) == match[2]]
        return _ok({"runs": [{"info": {"run_id": run["id"]}} for run in found][: raw["max_results"]]} if found else {})

    def _runs_create(self, raw: dict[str, Any]) -> tuple[int, bytes]:
        if raw["experiment_id"] not in self.experiments.values():
            return _fail(404, "RESOURCE_DOES_NOT_EXIST")
        tags = {tag["key"]: tag["value"] for tag in raw["tags"]}
        assert all(map(NAME.fullmatch, tags)) and all(0 < len(value) <= 5000 for value in tags.values()), tags
        run = {"id": f"{len(self.runs):032x}", "name": raw["run_name"], "start": raw["start_time"], "tags": tags}
        self.runs[run["id"]] = run | {"params": {}, "metrics": set(), "status": "RUNNING", "end": 0}
        return _ok({"run": {"info": {"run_id": run["id"]}, "data": {}}})

    def _runs_log_batch(self, raw: dict[str, Any]) -> tuple[int, bytes]:
        run = self.runs[raw["run_id"]]
        assert len(raw["params"]) <= 100 and len(raw["params"]) + len(raw["metrics"]) <= 1000
        for param in raw["params"]:
            assert set(param) == {"key", "value"} and NAME.fullmatch(param["key"]) and len(param["value"]) <= 500
            assert run["params"].setdefault(param["key"], param["value"]) == param["value"]
        for metric in raw["metrics"]:
            assert set(metric) == {"key", "value", "step", "timestamp"} and NAME.fullmatch(metric["key"]), metric
            assert isinstance(metric["value"], int | float) and {type(metric[n]) for n in ("step", "timestamp")} == {
                int
            }
            run["metrics"].add((metric["key"], metric["value"], metric["step"], metric["timestamp"]))
        return _ok({})

    def _registered_models_create(self, raw: dict[str, Any]) -> tuple[int, bytes]:
        assert NAME.fullmatch(raw["name"]) and not set(raw["name"]) & set("/:"), raw
        if raw["name"] in self.versions:
            return _fail(400, "RESOURCE_ALREADY_EXISTS")
        self.versions[raw["name"]] = []
        return _ok({"registered_model": {"name": raw["name"]}})

    def _model_versions_create(self, raw: dict[str, Any]) -> tuple[int, bytes]:
        self.versions[raw["name"]].append(raw)
        return _ok({"model_version": {"name": raw["name"], "version": str(len(self.versions[raw["name"]]))}})

    def _runs_update(self, raw: dict[str, Any]) -> tuple[int, bytes]:
        assert raw["status"] in ("FINISHED", "FAILED", "KILLED")
        self.runs[raw["run_id"]] |= {"status": raw["status"], "end": raw["end_time"]}
        return _ok({"run_info": {"run_id": raw["run_id"]}})


def _ok(answer: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps(answer).encode()


def _fail(status: int, code: str) -> tuple[int, bytes]:
    return status, json.dumps({"error_code": code, "message": "no"}).encode()


@contextmanager
def played_mlflow() -> Iterator[PlayedMlflow]:
    """Serve on loopback. What a request holds that it should not is answered with 500 and says so."""
    played = PlayedMlflow()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                status, answer = played.answer(self.command, self.path, dict(self.headers), body)
            except (AssertionError, KeyError, ValueError, AttributeError) as error:
                status, answer = 500, repr(error).encode()
            with suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        do_POST = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        played.port = listening.server_port
        yield played
        listening.shutdown()
