"""The work that all sides of a training benchmark get, and how they serve it. Imports nothing that one side lacks."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

AUTOENCODER, IMAGES, TOP = "autoencoder", "images", "top"
STEP, PREPARE, MEMORY = "step", "prepare", "memory"  # commands


@dataclass(frozen=True)
class Work:
    """One workload, with the shape of the data as ML-20M has it unless said otherwise."""

    kind: str
    items: int = 27278
    hidden: int = 1024
    inside: int = 512  # units of both hidden layers of images
    batch: int = 256
    batches: int = 16  # different ones, taken in turn
    density: float = 0.005
    optimizer: str = "adam"
    rate: float = 1e-3
    zero_target: float = 0.0  # above 0: the marginal cross entropy, else the plain one
    precision: str = "float32"  # of products: as nnlib's setting; PyTorch's are float32, medium and autocast
    k: int = 100
    side: int = 0  # of pictures; 0: as their network has it
    threads: int = 1
    steps: int = 2  # for each command
    warm: int = 3  # steps before the first command

    def arguments(self) -> str:
        """Return itself as one word of a command line."""
        return json.dumps(dataclasses.asdict(self))


def widths(work: Work) -> tuple[int, ...]:
    """Return the units of each layer."""
    return (
        (work.items, *(work.hidden,) * 3, work.items)
        if work.kind == AUTOENCODER
        else (784, work.inside, work.inside, 10)
    )


def count_operations(work: Work) -> float:
    """Return the operations of a step's products, two for each product and its sum."""
    sizes = [below * above for below, above in pairwise(widths(work))]
    return 2.0 * work.batch * (3 * sum(sizes) - sizes[0])  # nothing lies below the first layer


def weights(work: Work) -> list[Any]:
    """Return the first weights (in, out) between the layers, the same for all sides; biases start at zero."""
    random, found = np.random.default_rng(2), []
    for below, above in pairwise(widths(work)):
        limit = np.float32(np.sqrt(6 / (below + above)))
        drawn = random.random((below, above), np.float32)
        drawn *= 2 * limit
        drawn -= limit
        found.append(drawn)
    return found


def purchases(work: Work, seed: int = 1) -> list[tuple[Any, Any]]:
    """Return (indptr, indices) of batches of users; an item is as popular as the film of its rank in ML-20M.

    There the first film has 67,000 ratings, the 1,000th 4,700, the 5,000th 350 and the 10,000th 40; users have 0.5 %
    of the films on average, most of them far fewer.
    """
    random = np.random.default_rng(seed)
    rank = np.arange(27278)[: work.items] + 1.0
    popularity = np.cumsum(np.exp(-rank / 3000) / (rank + 100) ** 0.9)
    places = random.permutation(work.items)
    mean = 1.13 * work.density * work.items  # popular items are drawn twice, and are one
    found = []
    for _ in range(work.batches):
        rows = []
        for count in random.lognormal(np.log(mean) - 0.9**2 / 2, 0.9, work.batch):
            drawn = random.random(int(min(4000, max(20, count)))) * popularity[-1]
            rows.append(np.unique(places[np.searchsorted(popularity, drawn)]))
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        found.append((indptr.astype(np.int64), np.concatenate(rows).astype(np.int32)))
    return found


def filled(indptr: Any, indices: Any, most: int, filler: int) -> tuple[Any, Any]:
    """Return a batch with `most` entries, each row filled up by about as many.

    >>> filled(np.array([0, 1, 3]), np.array([7, 7, 8]), 6, 9)
    (array([0, 2, 6]), array([7, 9, 7, 8, 9, 9]))
    """
    rows = len(indptr) - 1
    more = np.diff((most - len(indices)) * np.arange(rows + 1) // rows)
    starts = np.concatenate([[0], np.cumsum(np.diff(indptr) + more)])
    full = np.full(most, filler, indices.dtype)
    full[np.arange(len(indices)) + np.repeat(starts[:-1] - indptr[:-1], np.diff(indptr))] = indices
    return starts, full


def images(work: Work, seed: int = 1) -> list[tuple[Any, Any]]:
    """Return (pixels (b, 784) in [0, 1), classes of ten) of batches."""
    random = np.random.default_rng(seed)
    draws = [random.random((work.batch, 784), np.float32) for _ in range(work.batches)]
    return [(pixels, random.integers(0, 10, work.batch)) for pixels in draws]


def activations(work: Work, seed: int = 1) -> tuple[Any, Any]:
    """Return hidden activations (users, hidden), and weights (items, hidden) that score them."""
    random = np.random.default_rng(seed)
    weights = random.standard_normal((work.items, work.hidden), np.float32)
    weights *= np.float32(work.hidden**-0.5)
    return random.random((work.batch * work.batches, work.hidden), np.float32), weights


def serve(ready: Mapping[str, Any], commands: Mapping[str, Callable[[], Mapping[str, Any]]]) -> None:
    """Print an answer, and then one for each line on stdin."""
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        print(json.dumps(commands[line.strip()]()), flush=True)
