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
from typing import Any

from nnlib.util.threads import take_over_blas, workers

take_over_blas()  # before NumPy

from nnlib.compiled.select import LOOPS  # noqa: E402
from nnlib.cpu.updates import CompiledUpdates  # noqa: E402
from nnlib.model import batches  # noqa: E402
from scripts.bench.common.workload import Work  # noqa: E402
from scripts.bench.cpu.ours import training  # noqa: E402
from scripts.bench.cpu.peak import TRIES, fastest, least_by_bytes, least_by_operations  # noqa: E402

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
        whole = fastest(step, work.steps, clock)
        parts = _parts(step, work)
    least = {"operations": least_by_operations(work), "bytes": least_by_bytes(work)}
    print(json.dumps({"whole": whole, "parts": parts, "least": least}))


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


if __name__ == "__main__":
    main()
