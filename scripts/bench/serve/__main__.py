"""Requests a second of `regiondag serve`, and how long they take, beside a plain handler with the same model."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import ONE_THREAD, REPOSITORY, NotMeasuredError, environment, measure, module
from scripts.bench.serve.load import Load, ask

BENCH = "serve"
NEEDED = ("fastapi", "implicit")
EXAMPLE = REPOSITORY / "workflows" / "examples" / "retail" / "purchases.csv.gz"
REGION = "United Kingdom"
MOST_P99 = 20.0  # milliseconds at half of what the service can do
PATIENCE = 120.0  # seconds until a side is ready
MANY = 64  # connections of people who pause


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    connections: tuple[int, ...] = (1, 8, 32)
    seconds: float = 5
    repeats: int = 3
    customers: int = 100_000  # of the larger region
    items: int = 20_000


QUICK = Sizes(connections=(8,), seconds=2, repeats=1, customers=5_000, items=2_000)


@dataclass(frozen=True)
class Region:
    """A study's folder with one region, and what is asked about it."""

    study: Path
    model: Path
    data: Path
    customers: Path


class Serve(Bench[Sizes]):
    """The rows."""

    def retail(self) -> Iterator[Row]:
        """The example's largest region: a blend of three over 4,619 items."""
        measure([sys.executable, "-m", "nnlib", "import", EXAMPLE, "--regions", REGION, "--out", self.area / "data"])
        [data] = (self.area / "data").glob("*.all.nc")
        yield from self._rows("retail", self._make("retail", str(data)), "numpy")

    def large(self) -> Iterator[Row]:
        """One with many customers and items: a factorization, beside implicit's own."""
        sizes = self.sizes
        region = self._make("large", "", str(sizes.customers), str(sizes.items))
        name = f"{sizes.customers:,} customers, {sizes.items:,} items"
        yield from self._rows(name, region, "implicit")

    def _make(self, name: str, *words: str) -> Region:
        study = self.area / name
        measure(module("serve.made", study, *words), env=ONE_THREAD)
        run = study / "runs/run-bench-20260101-000000/regions/bench"
        customers = self.area / f"{name}.txt"
        code = "import sys; from pathlib import Path; from nnlib.prediction.recommender import read_samples; "
        code += "print('\\n'.join(read_samples(Path(sys.argv[1]))))"
        customers.write_text(measure([sys.executable, "-c", code, run / "data.all.nc"]).output, encoding="utf-8")
        return Region(study, run / "champion/model.nc", run / "data.all.nc", customers)

    def _rows(self, name: str, region: Region, peer: str) -> Iterator[Row]:
        missing = [one for one in NEEDED if importlib.util.find_spec(one) is None]
        if missing:
            raise NotMeasuredError(f"the peer needs {', '.join(missing)}: pip install '.[bench]'")
        with _ours(region) as ours, _peer(peer, region) as theirs:
            sides = {"ours": ours, "peer": theirs}
            most = 0.0
            for connections in self.sizes.connections:
                found = self._in_turn(sides, region, connections)
                rates = {side: median(one.rate for one in loads) for side, loads in found.items()}
                most = max(most, rates["ours"])
                what = f"{name}, {connections} connection{'s' * (connections > 1)}"
                last = connections == self.sizes.connections[-1]
                yield Row(f"{what}: requests a second", rates["ours"], rates["peer"], "/s", goal=1.5 if last else None,
                          higher=True, goal_is_ratio=last)  # fmt: skip
                for quantile in ("p50", "p99"):
                    values = {side: median(getattr(one, quantile) for one in loads) for side, loads in found.items()}
                    yield Row(f"{what}: {quantile}", values["ours"], values["peer"], "ms")
            yield from self._half(name, sides, region, most)

    def _half(self, name: str, sides: dict[str, str], region: Region, most: float) -> Iterator[Row]:
        """Both sides at half of the rate that ours can do, by requests that come at random."""
        pause = 1e3 * MANY / (most / 2)
        found = self._in_turn(sides, region, MANY, pause)
        rate = median(one.rate for one in found["ours"])
        for quantile, goal in (("p50", None), ("p99", MOST_P99)):
            values = {side: median(getattr(one, quantile) for one in loads) for side, loads in found.items()}
            note = f"{rate:.0f} requests a second; the peer did {median(one.rate for one in found['peer']):.0f}"
            yield Row(f"{name}, half of the load: {quantile}", values["ours"], values["peer"], "ms", goal, note)

    def _in_turn(
        self, sides: dict[str, str], region: Region, connections: int, pause: float = 0.0
    ) -> dict[str, list[Load]]:
        """Ask each side once, then each again: what else the machine does meets both."""
        found: dict[str, list[Load]] = {side: [] for side in sides}
        for seed in range(1, self.sizes.repeats + 1):
            for side, url in sides.items():
                found[side].append(ask(url, region.customers, connections, self.sizes.seconds, pause, seed))
        return found


@contextmanager
def _ours(region: Region) -> Iterator[str]:
    with _running([sys.executable, "-m", "regiondag", "serve", region.study, "--port", "0", "--quiet"]) as process:
        assert process.stdout  # noqa: S101
        url = process.stdout.readline().decode().strip()
        _wait_ready(url, process)
        yield url


@contextmanager
def _peer(kind: str, region: Region) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with _running(module("serve.peer", kind, region.model, region.data, str(port))) as process:
        url = f"http://127.0.0.1:{port}"
        _wait_ready(url, process)
        yield url


@contextmanager
def _running(argv: list[str | Path]) -> Iterator[subprocess.Popen[bytes]]:
    quiet = {**environment(ONE_THREAD)}
    quiet.pop("PYTHONUNBUFFERED", None)
    process = subprocess.Popen(
        [str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=quiet, cwd=REPOSITORY
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout  # noqa: S101
        process.stdout.close()


def _wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:  # noqa: S310
                if json.load(answer)["ready"]:
                    return
        except OSError:
            time.sleep(0.2)
    raise NotMeasuredError(f"{url} was not ready within {PATIENCE:.0f} seconds")


if __name__ == "__main__":
    os.environ.pop("PYTHONUNBUFFERED", None)
    sys.exit(main(BENCH, Serve, Sizes(), QUICK))
