"""An epoch over data of MovieLens-20M's shape, through `nnlib.training.loop.fit`; a part of gpu.py.

The data are drawn: 138,493 users whose activity is as skewed as in MovieLens-20M (20 films at least, 68 in the median,
144 on average), and 27,278 films as popular as the films of their rank there; no user has a film twice.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from gpu_work import GpuWork
from harness import Row
from train_cpu_work import AUTOENCODER

EPOCHS = 3  # the first one also compiles and captures: figures are medians of the others
LEAST, MOST, TYPICAL, SKEW = 20, 9254, 48, 1.38  # activity: LEAST + a log-normal number
SURPLUS = 1.036  # times the events that are wanted, as the most active users get some films twice to the end
FINE = 1 << 22  # parts into which all draws are divided among the films
DRAWS = 4  # times that films are drawn for those who got one twice
PUBLISHED = {"M40": 12.5, "K80": 23.0}  # seconds of DSSTNE, read from the chart of a talk, to a second


@dataclass(frozen=True)
class Shape:
    """How large the data are."""

    users: int = 138_493
    items: int = 27_278
    events: int = 20_000_263
    hidden: int = 1024


QUICK = Shape(users=5_000, items=4_000, events=400_000, hidden=256)


def histories(shape: Shape, seed: int = 4) -> tuple[Any, Any]:
    """Return (indptr, indices) of the films of all users, ascending."""
    random = np.random.default_rng(seed)
    wanted = _activity(shape, random)
    rank = np.arange(27_278)[: shape.items] + 1.0
    popularity = np.cumsum(np.exp(-rank / 3000) / (rank + 100) ** 0.9)  # as train_cpu_work.purchases has it
    drawn_by = np.searchsorted(popularity, (np.arange(FINE) + 0.5) * (popularity[-1] / FINE))
    places = random.permutation(shape.items)[drawn_by]
    keys, has = np.empty(0, np.int64), np.zeros(shape.users, np.int64)
    for _ in range(DRAWS):
        users = np.repeat(np.arange(shape.users) * shape.items, wanted - has)
        keys = np.concatenate([keys, users + places[random.integers(FINE, size=len(users), dtype=np.uint32)]])
        keys.sort()
        keys = keys[np.append(True, keys[1:] != keys[:-1])]
        has = np.diff(np.searchsorted(keys, np.arange(shape.users + 1) * shape.items))
    return np.concatenate([[0], np.cumsum(has)]), (keys % shape.items).astype(np.int32)


def _activity(shape: Shape, random: np.random.Generator) -> Any:
    """Return how many films each user is to have."""
    counts = LEAST + TYPICAL * np.exp(SKEW * random.standard_normal(shape.users))
    counts *= SURPLUS * shape.events / counts.sum()
    return np.clip(counts, LEAST, min(MOST, shape.items // 2)).astype(np.int64)


def epochs(shape: Shape, compute: Any, tf32: bool) -> Iterator[dict[str, Any]]:
    """Train; give the data's numbers, and then each epoch as it ends."""
    from gpu_train_ours import network_of

    from nnlib.contract import TrainSettings
    from nnlib.data.rows import Csr
    from nnlib.data.sets import DataSet
    from nnlib.epoch_log import Epoch
    from nnlib.model import examples as examples_module
    from nnlib.training import loop

    began = time.perf_counter()
    indptr, indices = histories(shape)
    rows = Csr(indptr, indices, shape.items)
    data = {"input": DataSet("input", rows), "output": DataSet("output", rows)}
    network = network_of(GpuWork(AUTOENCODER, items=shape.items, hidden=shape.hidden), data)
    examples = examples_module.examples_of(network.spec, data, "bench")
    yield asdict(shape) | {"events": len(indices), "made_in_s": time.perf_counter() - began}
    for precision in ("float32", "tf32") if tf32 else ("float32",):
        settings = TrainSettings(epochs=EPOCHS, batch=256, stop_after=0, precision=precision)
        found: list[dict[str, Any]] = []

        def report(epoch: Epoch, precision: str = precision) -> None:
            found.append({"precision": precision} | asdict(epoch))  # noqa: B023 -- called before the next round

        loop.fit(network.copy(), examples, settings, compute, report)
        yield from found


def rows_of(answers: Sequence[dict[str, Any]], published: bool = True) -> Iterator[Row]:
    """Return the seconds of an epoch beside what was published for other hardware."""
    shape = answers[0]
    name = f"epoch of {shape['users']:,} users, {shape['items']:,} items, {shape['events']:,} events, "
    name += f"{shape['hidden']:,}x3, batch 256, Adam"
    for precision in dict.fromkeys(answer["precision"] for answer in answers[1:]):
        seconds = [answer["seconds"] for answer in answers[1:] if answer["precision"] == precision]
        ours = float(np.median(seconds[1:] or seconds))
        if not published:
            yield Row(f"{name}, {precision}", ours, None, "s")
            continue
        for gpu, peer in PUBLISHED.items():
            origin = f"{peer:g} s of DSSTNE on one {gpu}, published in 2016: other hardware, not measured here"
            yield Row(f"{name}, {precision} (reference: {origin})", ours, peer, "s")


def main() -> None:
    """Print what comes as it comes."""
    from nnlib.gpu.backend import Gpu

    shape, tf32, threads = json.loads(sys.argv[1])
    with Gpu.open(threads) as gpu:
        for answer in epochs(Shape(**shape), gpu, tf32):
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
