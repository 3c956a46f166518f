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
from scripts.bench.common.workload import AUTOENCODER, IMAGES, STEP, Work, widths

BENCH = "steps"
LONG = 600.0  # seconds that a side may take to get ready, or for a command
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
        found, name = _parts(work), f"{_name(work)}, bf16"
        whole, floor = found.pop("a step"), found.pop("the floor")
        found["the rest: activations, output layer, Python"] = whole - sum(found.values())
        yield Row(f"{name}, 1 thread: a step (peer: its products at the fastest)", whole, floor, "ms")
        for part, spent in found.items():
            yield Row(f"{name}, 1 thread: {part}", spent, None, "ms")
        both = _parts(replace(work, threads=2))
        yield Row(f"{name}, 2 threads, wall time: a step (peer: 1 thread)", both.pop("a step"), whole, "ms")
        del both["the floor"]
        for part, spent in both.items():
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


def _parts(work: Work) -> dict[str, float]:
    """Return the milliseconds of a step, of its parts, and of its products at the fastest."""
    env = dict.fromkeys(ONE_THREAD, str(work.threads))
    done = measure(module("cpu.parts", work.arguments()), env=env)
    return {name: float(spent) for name, spent in json.loads(done.output).items()}


def _side(work: Work) -> Child:
    return Child(sys.executable, "cpu.ours", work.arguments(), env=dict.fromkeys(ONE_THREAD, str(work.threads)))


def _name(work: Work) -> str:
    return f"{'-'.join(map('{:,}'.format, widths(work)))}, batch {work.batch}"


if __name__ == "__main__":
    sys.exit(main(f"{BENCH}-{name_processor()}", Steps, FULL, QUICK, merged=True))
