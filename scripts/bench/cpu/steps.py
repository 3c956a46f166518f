"""Where the time of a training step goes, and what a second thread brings to small, middle and wide networks.

python -m scripts.bench.cpu.steps
python -m scripts.bench.cpu.steps --only parts

Each processor's results have a file of their own, in which runs of some rows put theirs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nnlib.cpu.products import has_amx, obstacle
from scripts.bench.common.child import Child
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import ONE_THREAD, NotMeasuredError, measure, module
from scripts.bench.common.processor import name_processor
from scripts.bench.common.workload import AUTOENCODER, IMAGES, STEP, Work, count_operations, widths

BENCH = "steps"
LONG = 600.0  # seconds that a side may take to get ready, or for a command
BYTES = "the floor: weights and states of Adam read and written once, by a pass that does no more"
NOT_SLOWER = 0.97  # one thread's time over that of two, with a tolerance


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    parts: Work
    small: Work
    middle: Work
    wide: Work
    rounds: int
    wide_rounds: int


IMAGE = Work(IMAGES, batches=4, steps=1, warm=30)
FULL = Sizes(
    replace(IMAGE, steps=20, batches=16),
    replace(IMAGE, inside=64, batch=64),
    replace(IMAGE, inside=256),
    Work(AUTOENCODER, batches=4, steps=1),
    rounds=300,
    wide_rounds=20,
)
SMALL = Work(AUTOENCODER, items=4000, hidden=256, batches=4, density=0.02, steps=1)
QUICK = Sizes(
    replace(FULL.parts, steps=2, warm=2), replace(FULL.small, warm=2), replace(FULL.middle, warm=2), SMALL, 3, 3
)


class Steps(Bench[Sizes]):
    """The rows."""

    def parts(self) -> Iterator[Row]:
        """What a step is made of, by the threads' own time: on one, and on two beside it."""
        why = "compiled products of bfloat16 are for processors without AMX" if has_amx() else obstacle()
        if why:
            raise NotMeasuredError(why)
        work = replace(self.sizes.parts, precision="bf16")
        alone, name = _parts(work), f"{_name(work)}, bf16"
        whole, found, least = alone.whole, alone.parts, alone.least
        found["the rest: activations, output layer, Python"] = whole - sum(found.values())
        floor = f"the floor: {count_operations(work) / 1e9:.2g} GFLOP at what the instruction reaches in registers"
        peers = {"products": (floor, least["operations"]), "updates": (BYTES, least["bytes"])}
        yield Row(f"{name}, 1 thread: a step (peer: {floor})", whole, least["operations"], "ms")
        for part, spent in found.items():
            peer, ms = peers.get(part, ("", None))
            yield Row(f"{name}, 1 thread: {part}" + (f" (peer: {peer})" if peer else ""), spent, ms, "ms")
        both = _parts(replace(work, threads=2))
        yield Row(f"{name}, 2 threads, wall time: a step (peer: 1 thread)", both.whole, whole, "ms")
        for part, spent in both.parts.items():
            yield Row(f"{name}, 2 threads together: {part} (peer: 1 thread)", spent, found.get(part), "ms")

    def small(self) -> Iterator[Row]:
        """A network whose products are all too small for a second thread."""
        yield from self._two(self.sizes.small, self.sizes.rounds)

    def middle(self) -> Iterator[Row]:
        """One of whose products some are worth it."""
        yield from self._two(self.sizes.middle, self.sizes.rounds)

    def wide(self) -> Iterator[Row]:
        """The wide autoencoder."""
        yield from self._two(self.sizes.wide, self.sizes.wide_rounds)

    def _two(self, work: Work, count: int) -> Iterator[Row]:
        for precision in ("float32",) if obstacle() else ("float32", "bf16"):
            both = (replace(work, precision=precision, threads=2), replace(work, precision=precision))
            with _side(both[0]) as two, _side(both[1]) as one:
                for side in (two, one):
                    side.answer(LONG)
                rounds = [[side.ask(STEP, LONG)["wall"] for side in (two, one)] for _ in range(count)]
            # The fastest step: other programs only slow one down, and few of so many short ones escape them.
            faster, alone = (min(found) for found in zip(*rounds, strict=True))
            name = f"{_name(work)}, {precision}: 2 threads (peer: 1 thread)"
            yield Row(name, faster, alone, "ms", NOT_SLOWER, goal_is_ratio=True)


@dataclass(frozen=True)
class Parts:
    """Milliseconds of a step, of its parts, and the least that the products' operations and the states' bytes take."""

    whole: float
    parts: dict[str, float]
    least: dict[str, float]


def _parts(work: Work) -> Parts:
    env = dict.fromkeys(ONE_THREAD, str(work.threads))
    done = measure(module("cpu.parts", work.arguments()), env=env)
    return Parts(**json.loads(done.output))


def _side(work: Work) -> Child:
    return Child(sys.executable, "cpu.ours", work.arguments(), env=dict.fromkeys(ONE_THREAD, str(work.threads)))


def _name(work: Work) -> str:
    return f"{'-'.join(map('{:,}'.format, widths(work)))}, batch {work.batch}"


if __name__ == "__main__":
    sys.exit(main(f"{BENCH}-{name_processor()}", Steps, FULL, QUICK, merged=True))
