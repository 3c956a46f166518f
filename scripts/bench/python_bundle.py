"""What `job.python: bundle` costs: to make the Python once, to send it, to unpack it, and at each start of it."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from regiondag.trainers.python_bundle import Bundle, build_python
from regiondag.util.user_dirs import HOME_VARIABLE
from scripts.bench.common.harness import MB, Bench, Row, main

BENCH = "python_bundle"
Result = TypeVar("Result")
IMPORTS = "import netCDF4, numpy, scipy.linalg, scipy.sparse, threadpoolctl"


@dataclass(frozen=True)
class Sizes:
    """How often each is done."""

    repeats: int = 5


class PythonBench(Bench[Sizes]):
    """The rows; the peer is the Python that the bundle is made of, where it lies."""

    @cached_property
    def built(self) -> tuple[Bundle, float]:
        """The bundle, and the seconds that it took with an empty cache."""
        os.environ[HOME_VARIABLE] = str(self.area / "home")
        return _timed(lambda: build_python(lambda _: None))

    def making(self) -> Iterator[Row]:
        """Once on the manager; later runs look whether a file of it has changed."""
        bundle, seconds = self.built
        yield Row("made, once until Python or a package changes", seconds, None, "s")
        yield Row("the next run, of the same files", _timed(lambda: build_python(lambda _: None))[1], None, "s")
        yield Row("as it is sent", bundle.file.stat().st_size / MB, None, "MB")
        yield Row("unpacked in a job's folder", bundle.unpacked / MB, None, "MB")

    def starting(self) -> Iterator[Row]:
        """On the worker: each job unpacks it once, whatever it starts."""
        file = self.built[0].file
        unpacked, started, peers = list[float](), list[float](), list[float]()
        for number in range(self.sizes.repeats):
            folder = self.area / str(number)
            folder.mkdir()
            shutil.copy(file, folder / "python.bundle")
            python, seconds = _timed(partial(_say, ["sh", str(folder / "python.bundle")]))
            unpacked.append(seconds)
            _say([python, "-c", IMPORTS])  # as the peer's, its files are in memory
            started.append(_timed(partial(_say, [python, "-c", IMPORTS]))[1])
            peers.append(_timed(partial(_say, [sys.executable, "-c", IMPORTS]))[1])
            shutil.rmtree(folder)
        yield Row("unpacked and tried, once a job", statistics.median(unpacked), None, "s")
        text = "a start that imports NumPy, SciPy and netCDF4 (peer: the Python that it was made of)"
        yield Row(text, statistics.median(started), statistics.median(peers), "s")


def _timed(call: Callable[[], Result]) -> tuple[Result, float]:
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def _say(words: list[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd=Path("/")).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(BENCH, PythonBench, Sizes(), Sizes(repeats=1)))
