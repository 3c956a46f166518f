"""What the product does on a GPU, beside the step alone, each in a process of its own: `product PART [quick]`.

A line of JSON is an answer; what was said before a part fails or its time is over stays.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.data.file import write_data
from nnlib.data.rows import Csr
from nnlib.data.sets import Data, DataSet
from nnlib.data.stream import open_data
from nnlib.gpu.backend import Gpu
from nnlib.gpu.runtime import Runtime
from nnlib.model.examples import examples_of
from nnlib.model.network import Network
from nnlib.training import loop
from scripts.bench.common.nnlib_side import data_sets
from scripts.bench.common.processes import REPOSITORY
from scripts.bench.common.workload import AUTOENCODER
from scripts.bench.gpu.ours import THREADS, Training, network_of
from scripts.bench.gpu.work import SMALL, GpuWork, K, top_work

Answers = Iterator[dict[str, Any]]
CHECK = 45.0  # seconds for the check of all kernels
COPIED = 1 << 26  # words of a copy over the bus
REPEATS = 5
EPOCH_BATCHES = 200  # of an epoch: 51,200 customers


def kernels(_: bool, runtime: Runtime) -> Answers:
    """Every kernel beside NumPy, as `nnlib doctor-gpu` does it."""
    from nnlib.gpu.selfcheck.run import check_kernels

    check = check_kernels(runtime, CHECK)
    differ = {name: [asdict(one) for one in found] for name, found in check.differ.items()}
    yield {"agree": len(check.agree), "differ": differ, "left_out": check.left_out, "failure": check.failure}


def pci(quick: bool, runtime: Runtime) -> Answers:
    """Bytes a second between pinned memory and the GPU, each way."""
    words = COPIED // (64 if quick else 1)
    array, pinned = runtime.zeros(words, np.int32), runtime.pinned(words)
    ways: dict[str, Callable[[], None]] = {
        "to the GPU": lambda: runtime.begin_upload(array, pinned),
        "back": lambda: runtime.begin_download(pinned, array),
    }
    for name, way in ways.items():
        seconds = []
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            way()
            runtime.copy.synchronize()
            runtime.compute.synchronize()
            seconds.append(time.perf_counter() - began)
        yield {"way": name, "bytes_a_second": 4 * words / statistics.median(seconds[1:])}


def determinism(quick: bool, runtime: Runtime) -> Answers:
    """The digest of a model after some epochs with dropout, clipping and Adam; asked of two processes."""
    work = GpuWork(AUTOENCODER, **(SMALL if quick else {"batches": 16}))
    settings = TrainSettings(epochs=2, batch=work.batch, clip=1.0, seed=7)
    network, _ = fitted(work, runtime, data_sets(work), settings)
    digest = hashlib.sha256()
    for name, array in network.arrays():
        digest.update(name.encode() + array.tobytes())
    yield {"sha256": digest.hexdigest()}


def fitted(
    work: GpuWork, runtime: Runtime, data: Mapping[str, DataSet], settings: TrainSettings
) -> tuple[Network, list[float]]:
    """Train as a job does; return the network and the seconds of each epoch."""
    network = network_of(work, dict(data))
    examples = examples_of(network.spec, data, "bench")
    seconds: list[float] = []
    gpu = Gpu(runtime, THREADS)
    found = loop.fit(network, examples, settings, gpu, lambda epoch: seconds.append(epoch.seconds))
    return found.network, seconds


def epoch(quick: bool, runtime: Runtime) -> Answers:
    """Seconds of an epoch of a training as a job does it, with data in memory and with data left in their file."""
    work = GpuWork(AUTOENCODER, **(SMALL if quick else {"batches": EPOCH_BATCHES}))
    settings = TrainSettings(epochs=3, batch=work.batch, seed=7)
    data = data_sets(work)
    count = work.batch * work.batches
    _, seconds = fitted(work, runtime, data, settings)
    yield {"data": "in memory", "examples": count, "first": seconds[0], "seconds": min(seconds[1:])}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.nc"
        write_data(path, Data(tuple(data.values())))
        left = {one.name: one for one in open_data([path], limit_bytes=0, cache_bytes=0).sets}
        _, seconds = fitted(work, runtime, left, settings)
    yield {"data": "left in a file", "examples": count, "first": seconds[0], "seconds": min(seconds[1:])}


def top(quick: bool, runtime: Runtime) -> Answers:
    """Customers a second whose best items are found, from their histories, those left out."""
    work = top_work(quick)
    data = data_sets(work)
    network = network_of(work, data)
    examples = examples_of(network.spec, data, "bench")
    output = len(network.spec.layers) - 1
    parts = [np.arange(work.batch) + low for low in range(0, work.batch * work.batches, work.batch)]
    evaluator = Gpu(runtime, THREADS).evaluator(network)
    for _ in range(2):  # the first time kernels are loaded and graphs captured
        began = time.perf_counter()
        for rows in parts:
            some = examples.take(rows)
            owned = some.sets[0].rows
            assert isinstance(owned, Csr)  # noqa: S101 -- for the type checker
            evaluator.top(some, output, min(K, work.items), owned)
        seconds = time.perf_counter() - began
    yield {"customers_a_second": work.batch * work.batches / seconds, "k": K}


class Apart(Runtime):
    """A GPU whose every launch is waited for and timed: what a step is made of. Nothing is captured."""

    spent: dict[str, float]

    def launch(self, name: str, grid: tuple[int, ...], *arguments: Any) -> None:
        """See `Runtime.launch`."""
        with self._timed(name):
            super().launch(name, grid, *arguments)

    def multiply(self, a: Any, b: Any, out: Any, *more: Any, **named: Any) -> None:
        """See `Runtime.multiply`."""
        with self._timed("product {} {}".format(*out.shape)):
            super().multiply(a, b, out, *more, **named)

    def move(self, *arguments: Any) -> None:
        """See `Runtime.move`."""
        with self._timed("move"):
            super().move(*arguments)

    def clear(self, array: Any) -> None:
        """See `Runtime.clear`."""
        with self._timed("clear"):
            super().clear(array)

    def capture(self, work: Callable[[], None]) -> Any:
        """See `Runtime.capture`: what is launched stays apart."""
        return work

    def replay(self, graph: Any) -> None:
        """See `Runtime.replay`."""
        graph()

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        self.compute.synchronize()
        began = time.perf_counter()
        yield
        self.compute.synchronize()
        self.spent[name] += time.perf_counter() - began


def launches(quick: bool, runtime: Runtime) -> Answers:
    """Milliseconds of a step by what is launched, each waited for: more than a step in one graph takes."""
    work = GpuWork(AUTOENCODER, **(SMALL if quick else {"batches": 8}))
    assert isinstance(runtime, Apart)  # noqa: S101 -- see `opened`
    runtime.spent = defaultdict(float)
    training = Training(work, Gpu(runtime, THREADS))
    for _ in range(2):  # the first time kernels are loaded
        runtime.spent.clear()
        for _ in range(work.batches):
            training.step()
        training.settle()
    found = {name: 1e3 * seconds / work.batches for name, seconds in runtime.spent.items()}
    yield {"ms": dict(sorted(found.items(), key=lambda pair: -pair[1]))}


def tests(quick: bool) -> None:
    """Print the tests that are meant for a GPU, a line each as they end."""
    import pytest

    class Reporter:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                said = json.dumps({"test": report.nodeid, "outcome": report.outcome})
                print(f"\n{said}", flush=True)  # on a line of its own

    words = ["-k", "doctor or inputs or epochs"] if quick else ["-k", "not sanitizer and not far_apart"]
    folder = REPOSITORY / "tests/nnlib/gpu"
    plugins = ["-p", "no:randomly", "-p", "no:cacheprovider"]
    pytest.main(["-q", *plugins, "--rootdir", str(REPOSITORY), "-m", "gpu", *words, str(folder)], [Reporter()])


PARTS = {part.__name__: part for part in (kernels, pci, determinism, epoch, top, launches)}


def main() -> None:
    """Do the part that the command line names."""
    name, quick = sys.argv[1], "quick" in sys.argv[2:]
    if name == "tests":
        tests(quick)
        return
    runtime = (Apart if name == "launches" else Runtime).open()
    for answer in PARTS[name](quick, runtime):
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
