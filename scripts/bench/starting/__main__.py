"""How long a training takes from the start of its process to the end of its first batch, beside PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnlib.data.file import read_data
from nnlib.data.rows import Csr
from regiondag.generate.bundle import pack_worker
from scripts.bench.common.environments import torch_python
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import REPOSITORY, measure, measure_in_turn, middle, module
from scripts.bench.starting import ours

BENCH = "starting"
EXAMPLE = REPOSITORY / "workflows/examples/retail"
REGION = "united-kingdom"  # the example's largest
GOAL = 1.5  # seconds


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    repeats: int


class Starting(Bench[Sizes]):
    """The rows; processor's time is what other programs hardly stretch."""

    def first_batch(self) -> Iterator[Row]:
        """With everything compiled that is compiled once."""
        argv, peer = module("starting.ours", *self._arguments()), module("starting.peer", self._examples())
        peer[0] = torch_python()
        measure(argv)
        found, other = measure_in_turn(argv, peer, repeats=self.sizes.repeats)
        name = f"retail, {REGION}: start to first batch (peer: import torch, the same network)"
        yield Row(f"{name}, processor's time", found.cpu_seconds, other.cpu_seconds, "s", GOAL)
        yield Row(name, found.seconds, other.seconds, "s", GOAL)
        yield Row(f"{name}: peak memory", found.peak_mb, other.peak_mb, "MB")

    def from_archive(self) -> Iterator[Row]:
        """As jobs have it: nnlib in a zip; compiled loops are kept among the caches of the account that runs jobs."""
        archive = self.area / "nnlib.pyz"
        archive.write_bytes(pack_worker().content)
        argv = [sys.executable, Path(ours.__file__), *self._arguments()]
        caches = {"XDG_CACHE_HOME": str(self.area / "caches"), "NUMBA_CACHE_DIR": "", "PYTHONPATH": str(archive)}
        first = measure(argv, env=caches)
        later = middle([measure(argv, env=caches) for _ in range(self.sizes.repeats)])
        name = f"retail, {REGION}: start to first batch from a zip, processor's time"
        yield Row(f"{name}, a machine's first job, which compiles", first.cpu_seconds, None, "s")
        yield Row(f"{name}, later jobs", later.cpu_seconds, None, "s", GOAL)

    def _arguments(self) -> list[str | Path]:
        """Return the command that trains on the region, and import its data."""
        data = self.area / "data"
        table = EXAMPLE / "purchases.csv.gz"
        if not data.exists():
            measure([sys.executable, "-m", "nnlib", "import", table, "--out", data])
        train, valid = (data / f"{REGION}.{part}.nc" for part in ("train", "valid"))
        held_out: list[str | Path] = ["--valid", valid, "--metric", "ndcg@20", "--out", self.area / "model.nc"]
        values = [word for value in ("hidden=128", "dropout=0.2", "denoising=0.3") for word in ("--set", value)]
        return ["train", EXAMPLE / "network.json", train, *held_out, *values]

    def _examples(self) -> Path:
        """Return a file of the same examples for the peer."""
        path, [first, *_] = self.area / "examples.npz", read_data(self.area / "data" / f"{REGION}.train.nc").sets
        assert isinstance(first.rows, Csr)  # noqa: S101 -- for the type checker
        np.savez(path, indptr=first.rows.indptr, indices=first.rows.indices, width=first.width)
        return path


if __name__ == "__main__":
    sys.exit(main(BENCH, Starting, Sizes(7), Sizes(1)))
