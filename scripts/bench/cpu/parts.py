"""What a step in bfloat16 is made of, on one thread, in a process of its own: milliseconds as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from nnlib.util.threads import map_in_turn, take_over_blas

take_over_blas()  # before NumPy

import numpy as np  # noqa: E402

from nnlib.compiled.select import LOOPS  # noqa: E402
from nnlib.cpu.products import Paired  # noqa: E402
from nnlib.cpu.updates import CompiledUpdates  # noqa: E402
from nnlib.model import batches  # noqa: E402
from scripts.bench.common.workload import Work, widths  # noqa: E402
from scripts.bench.cpu.ours import training  # noqa: E402

PEAK = (256, 512, 512)  # a product whose factors stay in a core's cache
TRIES = 20


def main() -> None:
    """Print the parts of the work named on the command line."""
    work = Work(**json.loads(sys.argv[1]))
    step, _ = training(work, map_in_turn)
    for _ in range(work.warm):
        step()
    print(json.dumps({"a step": _fastest(step, work.steps), **_parts(step, work), "the floor": _floor(work)}))


def _parts(step: Callable[[], float], work: Work) -> dict[str, float]:
    """Return the milliseconds of each part in the fastest of some rounds."""
    loops: Any = LOOPS  # there are some: who starts this has looked
    spent = Counter[str]()
    for owner, names, part in (
        (loops.bf16, ("multiply_pairs",), "products"),
        (loops.bf16, ("round_rows", "pair_rows", "pair_columns"), "factors rounded and laid out"),
        (CompiledUpdates, ("update",), "updates"),
        (batches, ("batch_of",), "the batch prepared"),
    ):
        for name in names:
            _watch(owner, name, part, spent)
    rounds = []
    for _ in range(TRIES):
        spent.clear()
        for _ in range(work.steps):
            step()
        rounds.append({part: 1e3 * seconds / work.steps for part, seconds in spent.items()})
    return min(rounds, key=lambda found: sum(found.values()))


def _watch(owner: Any, name: str, part: str, spent: Counter[str]) -> None:
    watched = getattr(owner, name)

    def timed(*arguments: Any) -> Any:
        begun = time.thread_time()
        try:
            return watched(*arguments)
        finally:
            spent[part] += time.thread_time() - begun  # type: ignore[assignment]

    setattr(owner, name, timed)


def _floor(work: Work) -> float:
    """Return how long the products alone would take, all as fast as one whose factors are laid out in the cache."""
    n, k, m = PEAK
    a, b = (Paired().factor(np.ones(shape, np.float32)) for shape in ((n, k), (k, m)))
    out = np.empty((n, m), np.float32)
    each = _fastest(lambda: Paired().multiply(a, b, out), work.steps)
    sizes = [below * above for below, above in pairwise(widths(work))]
    products = 3 * sum(sizes) - sizes[0]  # nothing lies below the first layer
    return each * work.batch * products / (n * k * m)


def _fastest(act: Callable[[], object], steps: int) -> float:
    """Return the milliseconds of a call in the fastest of some rounds, of the thread's own time."""
    found = []
    for _ in range(TRIES):
        begun = time.thread_time()
        for _ in range(steps):
            act()
        found.append(1e3 * (time.thread_time() - begun) / steps)
    return min(found)


if __name__ == "__main__":
    main()
