"""What a batch costs where the input is wide and the entries of a row are as many as ever, beside PyTorch."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.bench.common.child import Child
from scripts.bench.common.environments import torch_python
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import ONE_THREAD
from scripts.bench.wide.data import Wide
from scripts.bench.wide.serve import EPOCH, MEMORY, STEP

BENCH = "wide"
ANSWER = 600.0  # seconds that a side may take to get ready, or for a command
FLAT = 1.3  # how many times the time at the width FROM the widest may take
FROM = 100_000
ROOM = 1024.0  # MB beside weights and state
LATER = 700  # batches after which all units of the widest input have been met, on average once


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    widths: tuple[int, ...]
    work: Wide
    later: int  # batches before the figures of a later epoch
    rounds: int


@dataclass(frozen=True)
class Found:
    """Milliseconds of a batch and of the end of an epoch, and the most memory in MB, of both sides."""

    batch: tuple[float, float]
    epoch: float
    peak: tuple[float, float]


FULL = Sizes((10_000, 100_000, 1_000_000, 10_000_000), Wide(FROM), LATER, 7)
QUICK = Sizes((10_000, 100_000), Wide(FROM, batches=24, warm=4, steps=4), 20, 2)


class WideBench(Bench[Sizes]):
    """The rows."""

    def sgd(self) -> Iterator[Row]:
        """Rows that no batch touches stay as they are."""
        return self._widths("SGD", "SGD", replace(self.sizes.work, optimizer="sgd", rate=0.1))

    def rmsprop(self) -> Iterator[Row]:
        """The state of rows that no batch touches shrinks."""
        return self._widths("RMSProp", "SparseAdam: no sparse RMSprop", replace(self.sizes.work, optimizer="rmsprop"))

    def adam(self) -> Iterator[Row]:
        """Rows that no batch touches move on, while SparseAdam leaves them."""
        return self._widths("Adam", "SparseAdam", self.sizes.work)

    def adam_later(self) -> Iterator[Row]:
        """The same when rows have been touched before, most of them long ago: their missed steps are made up for."""
        batches = self.sizes.later
        work = replace(self.sizes.work, batches=batches, warm=batches)
        return self._widths("Adam, later epochs", "SparseAdam", work)

    def _widths(self, rule: str, peer: str, work: Wide) -> Iterator[Row]:
        times: dict[int, tuple[float, float]] = {}
        for width in self.sizes.widths:
            found = self._measure(one := replace(work, width=width))
            times[width] = found.batch
            name = f"{width:,}-{work.hidden}-{work.classes}, batch {work.batch}, {work.entries} entries a row, {rule}"
            yield Row(f"{name} (peer: EmbeddingBag, {peer}), 1 thread, CPU time", *found.batch, "ms")
            yield Row(f"{name}: end of an epoch", found.epoch, None, "ms")
            yield Row(f"{name}: peak memory", *found.peak, "MB", one.kept_mb + ROOM)
        if FROM in times:
            first, last = times[FROM], times[max(times)]
            name = f"{max(times):,} wide as a multiple of {FROM:,}, {rule}"
            yield Row(name, last[0] / first[0], last[1] / first[1], "x", FLAT)

    def _measure(self, work: Wide) -> Found:
        """Measure one side after the other: of the widest input a machine need not hold both."""
        peer, _, peer_peak = self._side(torch_python(), "wide.peer", work)
        ours, epoch, peak = self._side(sys.executable, "wide.ours", work)
        return Found((ours, peer), epoch, (peak, peer_peak))

    def _side(self, python: str | Path, name: str, work: Wide) -> tuple[float, float, float]:
        env = dict.fromkeys(ONE_THREAD, str(work.threads))
        with Child(python, name, work.arguments(), env=env) as side:
            side.answer(ANSWER)
            batch = statistics.median(side.ask(STEP, ANSWER)["ms"] for _ in range(self.sizes.rounds))
            return batch, side.ask(EPOCH, ANSWER)["ms"], side.ask(MEMORY, ANSWER)["mb"]


if __name__ == "__main__":
    sys.exit(main(BENCH, WideBench, FULL, QUICK))
