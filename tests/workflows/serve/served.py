"""Studies with champions that answer, made without a pool, and the service as a process."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nnlib.contract import Recipe, sha256_of
from nnlib.data.file import write_data
from nnlib.data.read_events import read_events
from nnlib.data.sets import Data, DataSet
from nnlib.families.fit import fit_recipe
from nnlib.families.model_file import write_recipe_model
from regiondag.registry.promote import promote_region
from regiondag.registry.read import Champion, open_registry
from regiondag.run.layout import RegionFolder, RunFolder
from tests.nnlib.families.made_up import drawn
from tests.workflows.registry.registered import place_champion, spec_of

NIGHTS = ("20260101-033000", "20260102-033000", "20260103-033000", "20260104-033000")
CUSTOMERS, ITEMS = 80, 24
PATIENCE = 60.0


def place(folder: Path, night: str, slug: str = "berg", l2: float = 10.0) -> RegionFolder:
    """Write a run whose region has histories and a champion that was fitted on them."""
    region = RunFolder(folder / "runs" / f"run-shop-{night}").region(slug)
    region.path.mkdir(parents=True, exist_ok=True)
    events = drawn(customers=CUSTOMERS, items=ITEMS, regions=(slug,))
    names = tuple(f"c{n}" for n in range(CUSTOMERS))
    data = region.path / "data.all.nc"
    write_data(data, Data((DataSet("input", events.bought, events.items, days=events.days),), names, slug, 100))
    place_champion(folder / "runs", night, slug, floor=False)
    region.champion_model.unlink()
    write_recipe_model(region.champion_model, fit_recipe(Recipe("ease", {"l2": l2}, 1), read_events(data)))
    facts = json.loads(region.champion_metrics.read_text())
    manifest = {"study": "shop", "run": str(region.run.path), "metric": "ndcg@20", "regions": {}, "sha256": {}}
    region.run.manifest.write_text(json.dumps(manifest))
    region.run.items.write_text("unit,item,description\n" + "".join(f"{n},i{n},Thing {n}\n" for n in range(ITEMS)))
    facts |= {"sha256": sha256_of(region.champion_model), "popularity": {"ndcg@20": 0.1}}
    region.champion_metrics.write_text(json.dumps(facts))
    return region


def promote(folder: Path, night: str, slug: str = "berg", l2: float = 10.0) -> Champion:
    """Put a new champion in office."""
    return promote_region(place(folder, night, slug, l2), spec_of(slug))


def registry_of(folder: Path):
    return open_registry(folder / "runs", "shop")


def write_study(folder: Path) -> Path:
    """Write what `regiondag serve` reads of a study."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text("study: shop\n")
    return folder


def make_shop(folder: Path, *slugs: str) -> Path:
    """Return a study's folder with champions in office."""
    write_study(folder)
    for slug in slugs or ("berg", "tal"):
        promote(folder, NIGHTS[0], slug)
    return folder


class Served:
    """A service that runs in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], address: str, log: Path) -> None:
        self.process, self.log = process, log
        host, self.port = re.fullmatch(r"http://(.+):(\d+)", address).groups()
        self.host = host.strip("[]")

    def ask(self, path: str, method: str = "GET", body: object = None, **headers: str) -> tuple[int, dict, dict]:
        """Return status, JSON and headers of an answer."""
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=PATIENCE)
        try:
            raw = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            sent = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, raw, {**sent, **{k.replace("_", "-"): v for k, v in headers.items()}})
            answer = connection.getresponse()
            text = answer.read().decode()
            found = json.loads(text) if text and answer.headers.get_content_type() == "application/json" else text
            return answer.status, found, dict(answer.headers)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> dict:
        status, found, _ = self.ask(path, **headers)
        assert status == 200, found
        return found

    def raw(self, data: bytes, seconds: float = PATIENCE) -> bytes:
        """Return all that comes back for some bytes until the service closes."""
        with socket.create_connection((self.host, int(self.port)), timeout=seconds) as connection:
            connection.sendall(data)
            found = b""
            while piece := connection.recv(65536):
                found += piece
            return found

    def wait(self, true, what: str = "") -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, f"{what}\n{self.log.read_text()[-2000:]}"
            time.sleep(0.05)

    def wait_for(self, version: str, slug: str = "berg") -> None:
        self.wait(lambda: self.ask(f"/v1/regions/{slug}")[1].get("version") == version, f"{slug} is to serve {version}")

    def wait_ready(self, regions: int = 2) -> None:
        self.wait(lambda: self.ask("/readyz")[1]["serving"] == regions, "regions are to be loaded")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(study: Path, *options: str | Path, log: Path | None = None) -> Iterator[Served]:
    """Run the service on a free port of this machine."""
    log = log or study / "serve.log"
    argv = [sys.executable, "-m", "regiondag", "serve", study, "--port", "0", *options]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with log.open("w") as errors:
        process = subprocess.Popen(
            [str(one) for one in argv], stdout=subprocess.PIPE, stderr=errors, text=True, env=env
        )
    try:
        assert process.stdout
        select.select([process.stdout], [], [], PATIENCE)
        address = process.stdout.readline().strip()
        assert address, log.read_text()
        yield Served(process, address, log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()
        process.stdout.close()
