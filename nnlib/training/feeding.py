"""How fast an epoch of data becomes batches, without training, beside how long a step takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.data.rows import Csr, Dense
from nnlib.devices import GPU
from nnlib.engines import Backend, Engine
from nnlib.model.batches import WEIGHTS, batches_of, epoch_order, generator_for
from nnlib.model.examples import Examples
from nnlib.model.network import create
from nnlib.spec.types import NetworkSpec
from nnlib.util.columns import fold_text
from nnlib.util.memory import show_bytes

WARM, STEPS = 3, 20  # batches that are trained on before the step is measured, and for it
SECONDS = 10.0  # after which fewer steps must do


@dataclass(frozen=True, slots=True)
class Feeding:
    """An epoch that was read: seconds, and those of a step without the preparation of its batch."""

    examples: int
    batches: int
    file_bytes: int
    opening: float  # until the first batch could be asked for; with data in memory all of them were read in it
    in_memory: bool
    epoch: float
    step: float
    given: bool  # the step was not measured
    device: str

    @property
    def batch(self) -> float:
        """Seconds from one batch to the next."""
        return self.epoch / self.batches

    @property
    def share(self) -> float:
        """What part of a step the data take: beside it on a GPU, as a part of it on processors."""
        return self.batch / (self.step if self.device == GPU else self.step + self.batch)


def measure_feeding(
    spec: NetworkSpec,
    examples: Examples,
    settings: TrainSettings,
    backend: Backend,
    device: str,
    opened: tuple[float, int],
    step: float | None = None,
) -> Feeding:
    """Read the first epoch as a training of this seed does, then measure a step unless it is told, in seconds.

    `opened` has the seconds that opening the files took, and their bytes.
    """
    engine = backend.engine(create(spec, generator_for(settings.seed, WEIGHTS)), examples, settings)
    places = batches_of(examples.count, settings.batch)
    started = time.perf_counter()
    with closing(_batches(engine, examples, settings, spec.shuffle, len(places))) as batches:
        for _ in batches:
            pass
    epoch = time.perf_counter() - started
    in_memory = all(isinstance(data_set.rows, Csr | Dense) for data_set in examples.sets.values())
    found = _measure_step(engine, examples, settings, spec.shuffle) if step is None else step
    opening, size = opened
    return Feeding(examples.count, len(places), size, opening, in_memory, epoch, found, step is not None, device)


def _batches(engine: Engine, examples: Examples, settings: TrainSettings, shuffle: bool, most: int) -> Any:
    """Return what prepares the first batches of an epoch, as the engine does."""
    order = epoch_order(settings.seed, 1, examples.count, shuffle)
    places = batches_of(examples.count, settings.batch)[:most]
    return engine.batches(order[low:high] for low, high in places)


def _measure_step(engine: Engine, examples: Examples, settings: TrainSettings, shuffle: bool) -> float:
    """Return the seconds of a step on batches that are ready, as the mean of some."""
    with closing(_batches(engine, examples, settings, shuffle, STEPS)) as prepared:
        batches = list(prepared)
    engine.begin_epoch(0.0)
    with np.errstate(all="ignore"):
        for number in range(WARM):
            engine.run(batches[number % len(batches)])
        engine.total()  # waits
        started, count = time.perf_counter(), 0
        while count < STEPS and (not count or time.perf_counter() - started < SECONDS):
            engine.run(batches[count % len(batches)])
            count += 1
        engine.total()
    return (time.perf_counter() - started) / count


def describe_feeding(found: Feeding, room: int) -> str:
    """Return what was measured as lines of at most `room` columns."""
    return "\n".join(part for line in _lines(found) for part in fold_text(line, room, "  "))


def _lines(found: Feeding) -> Iterator[str]:
    how = (
        f"read into memory in {found.opening:.2f} s, from where batches are taken"
        if found.in_memory
        else "larger than a quarter of the free memory: read from the files in blocks, as they are needed"
    )
    yield f"data: {found.examples:,} examples, {show_bytes(found.file_bytes)} in files; {how}"
    yield (
        f"an epoch: {found.batches:,} batches in {found.epoch:.3g} s, {1e3 * found.batch:.3g} ms a batch, "
        f"{found.examples / found.epoch:,.0f} examples/s, {found.file_bytes / found.epoch / 1e6:,.1f} MB/s of the files"
    )
    where = "GPU" if found.device == GPU else "processors"
    yield f"a step: {1e3 * found.step:.3g} ms " + (
        "as given" if found.given else f"on this machine's {where}, measured"
    )
    if found.device != GPU:
        yield f"share: batches are {found.share:.1%} of the time of a training, as they are prepared between the steps"
    elif found.share <= 1:
        yield f"share: batches are prepared beside the steps and take {found.share:.1%} of one: the GPU does not wait"
    else:
        yield (
            f"share: a batch takes {found.share:.2f} times as long as a step: the GPU waits {1 - 1 / found.share:.1%} "
            "of the time; more --threads or a larger network"
        )
