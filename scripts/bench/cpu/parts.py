"""What a step in bfloat16 is made of, on one thread or on two, in a process of its own: milliseconds as JSON.

A part is what the threads spend on it by their own clocks, together.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from nnlib.util.threads import take_over_blas, workers

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
SECOND = "of these by the second thread"

Spent = defaultdict[str, list[float]]  # seconds of each call, by part


def main() -> None:
    """Print the parts of the work named on the command line."""
    work = Work(**json.loads(sys.argv[1]))
    with workers(work.threads) as each:
        step, _ = training(work, each)
        for _ in range(work.warm):
            step()
        clock = time.thread_time if work.threads == 1 else time.perf_counter
        whole = _fastest(step, work.steps, clock)
        parts = _parts(step, work)
    print(json.dumps({"a step": whole, **parts, "the floor": _floor(work)}))


def _parts(step: Callable[[], float], work: Work) -> dict[str, float]:
    """Return the milliseconds of each part in the fastest of some rounds."""
    loops: Any = LOOPS  # there are some: who starts this has looked
    spent: Spent = defaultdict(list)
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
        rounds.append({part: 1e3 * sum(seconds) / work.steps for part, seconds in spent.items()})
    found = min(rounds, key=lambda found: sum(found.values()))
    return {name: found[name] for name in sorted(found, key=lambda name: name == SECOND)}


def _watch(owner: Any, name: str, part: str, spent: Spent) -> None:
    watched = getattr(owner, name)

    def timed(*arguments: Any) -> Any:
        begun = time.thread_time()
        try:
            return watched(*arguments)
        finally:
            seconds = time.thread_time() - begun
            spent[part].append(seconds)  # of either thread: to append is one instruction
            if threading.current_thread() is not threading.main_thread():
                spent[SECOND].append(seconds)

    setattr(owner, name, timed)


def _floor(work: Work) -> float:
    """Return how long the products alone would take, all as fast as one whose factors are laid out in the cache."""
    n, k, m = PEAK
    a, b = (Paired().factor(np.ones(shape, np.float32)) for shape in ((n, k), (k, m)))
    out = np.empty((n, m), np.float32)
    each = _fastest(lambda: Paired().multiply(a, b, out), work.steps, time.thread_time)
    sizes = [below * above for below, above in pairwise(widths(work))]
    products = 3 * sum(sizes) - sizes[0]  # nothing lies below the first layer
    return each * work.batch * products / (n * k * m)


def _fastest(act: Callable[[], object], steps: int, clock: Callable[[], float]) -> float:
    """Return the milliseconds of a call in the fastest of some rounds, by a clock."""
    found = []
    for _ in range(TRIES):
        begun = clock()
        for _ in range(steps):
            act()
        found.append(1e3 * (clock() - begun) / steps)
    return min(found)


if __name__ == "__main__":
    main()
