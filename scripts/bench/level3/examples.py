"""What eight shards of examples cost one rank, and how ranks share the work of a validation.

`python -m scripts.bench.level3.examples`. Ours is `parallel: examples`, the peer `none`. Of a step: the same network,
in turn, in this process; medians of CPU time of one thread; and what both are made of. Of networks with batch
normalization by the whole batch, what a rank computes of a step, and the bytes that it sends. Of reading, the bytes of
a file's blocks that a rank takes to prepare an epoch. Of a validation, the mean loss of all examples: the busiest of
some processes, its CPU time without waiting, beside one process that asks about all examples at once.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.data.file import write_data
from nnlib.data.rows import Dense, one_hot
from nnlib.data.sets import Data, DataSet
from nnlib.data.stream import FileRows, open_data
from nnlib.engines import Engine
from nnlib.model.batches import batches_of, epoch_order
from nnlib.model.examples import examples_of
from nnlib.model.network import create
from nnlib.shards.collectives import Alone
from nnlib.shards.cut import Cut
from nnlib.shards.plan import plan_of
from nnlib.shards.tree import SHARDS, shards_of
from nnlib.util.threads import take_over_blas, workers
from scripts.bench.common.harness import MB, Bench, Row, main
from scripts.bench.common.nnlib_pictures import picture_network
from scripts.bench.common.nnlib_side import data_sets, problem_of, spec_between
from scripts.bench.common.pictures import CIFAR, RESNET
from scripts.bench.common.workload import IMAGES, Work, widths
from scripts.bench.level3.parts import measure_parts
from scripts.bench.level3.team import team
from scripts.bench.level3.work import EVALUATE, EXAMPLES, NONE, Ranked

BENCH = "level3_examples"
UNITS = (784, 1024, 1024, 10)  # of images: the first and the last are theirs


@dataclass(frozen=True)
class Sizes:
    """How many steps of each, and the batches; the validations, of `batch` times `batches` examples; rows of a file."""

    rounds: int
    batches: tuple[int, ...]
    validations: tuple[Ranked, ...]
    validation_rounds: int
    rows: int
    normed: tuple[Ranked, ...]
    part_steps: int


NORMED = Ranked(kind=RESNET, batch=32, batches=2, steps=1, warm=2, side=64, parallel=EXAMPLES)
QUICK = Sizes(
    *(3, (256,), (Ranked(kind=CIFAR, batch=16, batches=1, side=16, warm=1, parallel=EXAMPLES),), 2, 20_000),
    (replace(NORMED, batch=8, side=32, warm=1),),
    part_steps=1,
)
FULL = Sizes(
    *(21, (256, 1024, 4096)),
    (
        Ranked(kind=IMAGES, batch=1000, batches=10, warm=1, parallel=EXAMPLES),
        Ranked(kind=CIFAR, batch=16, batches=8, warm=1, parallel=EXAMPLES),
    ),
    *(5, 196_608),  # three groups of blocks, see `epoch_order`
    (NORMED, replace(NORMED, batch=128)),
    part_steps=15,
)
RANKS, SEVERAL, NORMED_RANKS = (1, 2, 4), (2, 4, 8), (1, 2)
READ_BATCH, CACHE = 1024, 256 * MB  # bytes, in which a group has room


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

    def parts(self) -> Iterator[Row]:
        """Return what steps are made of."""
        dense, images = self.sizes.batches[0], self.sizes.normed[0]
        sides: list[tuple[str, int, Callable[[str], Engine]]] = [
            ("-".join(map(str, UNITS)), dense, partial(_engine, dense)),
            (f"{images.kind} of {images.side} x {images.side}", images.batch, partial(_pictures, images)),
        ]
        for shape, batch, engine_of in sides:
            with workers(1):
                found = [_parts(engine_of(parallel), batch, self.sizes.part_steps) for parallel in (EXAMPLES, NONE)]
            for part in dict.fromkeys([*found[0], *found[1]]):
                name = f"{shape}, batch {batch}, one thread: {part}, of a step by examples (peer: of a whole one)"
                ours, peer = (1e3 * one.get(part, 0.0) for one in found)
                yield Row(name, ours, peer or None, "ms")

    def normalization(self) -> Iterator[Row]:
        """Return what a rank does of a step of a network that is normalized by the whole batch, and what it sends."""
        for work in self.sizes.normed:
            shape = f"{work.kind} of {work.side} x {work.side}, batch {work.batch}, all normalized by the whole batch"
            for ranks in NORMED_RANKS:
                with team(work, ranks, self.area) as ours, team(replace(work, parallel=NONE), 1, self.area) as peer:
                    for turn in range(self.sizes.validation_rounds):
                        for one in (ours, peer) if turn % 2 else (peer, ours):
                            one.measure()
                    times, sent = [statistics.median(one.cpus) for one in (ours, peer)], ours.sent
                name = f"{shape}: a step, {ranks} ranks, CPU time of one (peer: a share of one's, whole)"
                yield Row(name, times[0], times[1] / ranks, "ms")
                if ranks > 1:
                    wanted = _bytes_sent(work, ranks)
                    yield Row(
                        f"{shape}, {ranks} ranks: bytes that each sends in a step (peer: formula)",
                        sent,
                        wanted,
                        "B",
                        wanted,
                    )

    def validation(self) -> Iterator[Row]:
        """Return what a rank does of a validation, and whether all numbers of ranks find the same loss."""
        for work in self.sizes.validations:
            losses = set()
            for ranks in RANKS:
                ours, peer, found = self._validate(work, ranks)
                losses |= found
                name = f"{_name(work)}: a validation, {ranks} ranks, CPU time of one (peer: a share of one's, whole)"
                yield Row(name, ours, peer / ranks, "ms")
            yield Row(f"{_name(work)}: losses of 1, 2 and 4 ranks that differ", len(losses) - 1, None, "", 0)

    def _validate(self, work: Ranked, ranks: int) -> tuple[float, float, set[float]]:
        """Return milliseconds of the busiest rank, and of one process that knows of no shards; and the losses."""
        with team(work, ranks, self.area) as ours, team(replace(work, parallel=NONE), 1, self.area) as peer:
            for turn in range(self.sizes.validation_rounds + 1):
                for one in (ours, peer) if turn % 2 else (peer, ours):
                    one.measure(EVALUATE)
            losses = {answer["loss"] for answers in ours.rounds for answer in answers}
            return statistics.median(ours.cpus[1:]), statistics.median(peer.cpus[1:]), losses

    def reading(self) -> Iterator[Row]:
        """Return what a rank reads of a file in an epoch, of which it is given its shards of each batch."""
        file = self.area / "data.nc"
        pixels = np.random.default_rng(1).integers(0, 256, (self.sizes.rows, UNITS[0]), np.uint8)
        classes = one_hot(np.arange(self.sizes.rows) % UNITS[-1], UNITS[-1])
        write_data(file, Data((DataSet("input", Dense(pixels)), DataSet("output", classes))))
        whole = _read(file, 0, 1)
        for ranks in SEVERAL:
            read = max(_read(file, rank, ranks) for rank in range(ranks))
            what = f"{self.sizes.rows:,} rows of {UNITS[0]} bytes in a file, batch {READ_BATCH}, {ranks} ranks"
            yield Row(f"{what}: read by one in an epoch (peer: a share of all)", read / MB, whole / ranks / MB, "MB")

    def _seconds(self, batch: int) -> tuple[float, float]:
        engines = [_engine(batch, parallel) for parallel in (EXAMPLES, NONE)]
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(self.sizes.rounds + 1):
            for n in (0, 1) if turn % 2 else (1, 0):
                [prepared] = engines[n].batches([np.arange(batch)])
                begun = time.process_time()
                engines[n].run(prepared)
                if turn:
                    times[n].append(time.process_time() - begun)
        return statistics.median(times[0]), statistics.median(times[1])


class _One(Alone):
    """A rank that meets no others, as who only prepares batches need not."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks, self.own = rank, ranks, shards_of(rank, ranks)


def _read(file: Path, rank: int, ranks: int) -> int:
    """Return how many bytes a rank reads while it prepares the batches of an epoch."""
    sets = {found.name: found for found in open_data([file], limit_bytes=0, cache_bytes=CACHE).sets}
    network = create(spec_between(sets, (8,), "SoftMax", sparse=False), np.random.default_rng(1))
    settings = TrainSettings(batch=READ_BATCH, parallel=EXAMPLES)
    read, rows = list[int](), sets["input"].rows
    if not isinstance(rows, FileRows):
        raise TypeError(f"rows are left in their file, not {type(rows).__name__}")
    rows.cache.count = read.append
    cut = Cut(plan_of(network.spec, READ_BATCH, EXAMPLES), network.spec, shards_of(rank, ranks))
    examples = examples_of(network.spec, sets, file.name)
    engine = Cpu().part(network, examples, settings, cut, _One(rank, ranks))
    order = epoch_order(1, 1, examples.count, shuffle=True)
    for _ in engine.batches(order[low:high] for low, high in batches_of(examples.count, READ_BATCH)):
        pass
    return sum(read)


def _name(work: Ranked) -> str:
    """Return the network, and how many examples it is asked about."""
    shape = "-".join(map(str, widths(work))) if work.kind == IMAGES else work.kind
    return f"{shape}, {work.batch * work.batches:,} examples"


def _bytes_sent(work: Ranked, ranks: int) -> float:
    """Return what a rank sends in a step: 2 (R - 1) / R of all parameters, whose rows are made a multiple of eight.

    And each way two numbers of every channel that is normalized, to each other rank.
    """
    network = picture_network(work, data_sets(work))
    arrays = [array for name, array in network.arrays() if not name.endswith(("_mean", "_variance"))]
    padded = sum(math.ceil(len(array) / SHARDS) * SHARDS * (array.size // len(array)) for array in arrays)
    channels = sum(norm.scale.size for norm in network.norms.values())
    return 4.0 * (2 * (ranks - 1) * padded // ranks + 2 * (ranks - 1) * 2 * channels)


def _engine(batch: int, parallel: str) -> Engine:
    network, examples = problem_of(Work(IMAGES, batch=batch, batches=1), UNITS[1:-1])
    return Cpu().engine(network, examples, TrainSettings(batch=batch, parallel=parallel))


def _pictures(work: Ranked, parallel: str) -> Engine:
    data = data_sets(work)
    network = picture_network(work, data)
    examples = examples_of(network.spec, data, work.kind)
    return Cpu().engine(network, examples, TrainSettings(batch=work.batch, parallel=parallel))


def _parts(engine: Engine, batch: int, steps: int) -> Mapping[str, float]:
    """Return the seconds of each part of a step; the first one compiles and takes memory."""
    [prepared] = engine.batches([np.arange(batch)])
    engine.run(prepared)
    return measure_parts(lambda: engine.run(prepared), steps)


if __name__ == "__main__":
    take_over_blas()
    sys.exit(main(BENCH, Shards, FULL, QUICK, merged=True))
