"""What eight shards of examples cost one rank: products of an eighth of the rows, and eight gradients.

`python -m scripts.bench.level3.examples`. Ours is `parallel: examples`, the peer `none`: the same network, in turn, in
this process; medians of CPU time of a step of one thread.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.engines import Engine
from nnlib.util.threads import take_over_blas, workers
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.nnlib_side import problem_of
from scripts.bench.common.workload import IMAGES, Work

BENCH = "level3_examples"
UNITS = (784, 1024, 1024, 10)  # of images: the first and the last are theirs


@dataclass(frozen=True)
class Sizes:
    """How many steps of each, and the batches."""

    rounds: int
    batches: tuple[int, ...]


QUICK = Sizes(3, (256,))
FULL = Sizes(21, (256, 1024, 4096))


class Shards(Bench[Sizes]):
    """The rows."""

    def cost(self) -> Iterator[Row]:
        """Return what a step takes with shards of examples, and without."""
        shape = "-".join(map(str, UNITS))
        for batch in self.sizes.batches:
            name = f"{shape}, batch {batch}, one thread: a step by examples (peer: whole)"
            with workers(1):
                ours, peer = self._seconds(batch)
            yield Row(name, 1e3 * ours, 1e3 * peer, "ms")

    def _seconds(self, batch: int) -> tuple[float, float]:
        engines = [_engine(batch, parallel) for parallel in ("examples", "none")]
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(self.sizes.rounds + 1):
            for n in (0, 1) if turn % 2 else (1, 0):
                [prepared] = engines[n].batches([np.arange(batch)])
                begun = time.process_time()
                engines[n].run(prepared)
                if turn:
                    times[n].append(time.process_time() - begun)
        return statistics.median(times[0]), statistics.median(times[1])


def _engine(batch: int, parallel: str) -> Engine:
    network, examples = problem_of(Work(IMAGES, batch=batch, batches=1), UNITS[1:-1])
    return Cpu().engine(network, examples, TrainSettings(batch=batch, parallel=parallel))


if __name__ == "__main__":
    take_over_blas()
    sys.exit(main(BENCH, Shards, FULL, QUICK))
