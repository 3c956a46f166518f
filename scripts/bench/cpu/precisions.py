"""How long a training step takes on a CPU without AMX and with it, beside PyTorch in its fastest precision there.

python -m scripts.bench.cpu.precisions
python -m scripts.bench.cpu.precisions --only one       # on one thread, which a busy machine disturbs little
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nnlib.cpu.products import obstacle
from scripts.bench.common.environments import TORCH
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.common.workload import AUTOENCODER, IMAGES, Work
from scripts.bench.cpu.turns import sides

BENCH = "train_bf16"
# What PyTorch's oneDNN may use. Ours are float32 there, as `precision: auto` chooses them, and OpenBLAS has no AMX.
NO_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
PEERS = ("float32", "medium", "autocast")


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats, the works by name, and the ratios without and with AMX that are goals."""

    works: Mapping[str, Work]
    goals: Mapping[str, tuple[float, float]]
    rounds: int


def _works(wide: Work, images: Work, margins_warm: int) -> dict[str, Work]:
    return {
        "Adam": wide,
        "RMSProp": replace(wide, optimizer="rmsprop", rate=1e-4),
        f"Adam, zeroTarget 0.1, after {margins_warm} steps": replace(wide, zero_target=0.1, warm=margins_warm),
        "784-512-512-10, Adam": images,
    }


SMALL = Work(AUTOENCODER, items=4000, hidden=256, batches=4, density=0.02)
QUICK = Sizes(_works(SMALL, Work(IMAGES, batches=8, steps=5), 20), {}, 3)
FULL_WORKS = _works(Work(AUTOENCODER, batches=8), Work(IMAGES, batches=64, steps=50, warm=50), 200)
GOALS = dict(zip(FULL_WORKS, ((1.5, 1.3), (2.3, 2.3), (2.5, 2.5), (1.2, 1.2)), strict=True))
FULL = Sizes(FULL_WORKS, GOALS, 9)


class Precisions(Bench[Sizes]):
    """The rows."""

    def one(self) -> Iterator[Row]:
        """On one thread."""
        yield from self._rows(1)

    def two(self) -> Iterator[Row]:
        """On two."""
        yield from self._rows(2)

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return the peer's version."""
        return {"peer": {"torch": TORCH}}

    def _rows(self, threads: int) -> Iterator[Row]:
        for name, work in self.sizes.works.items():
            for amx in (False, True):
                yield self._row(name, replace(work, threads=threads), amx)

    def _row(self, name: str, work: Work, amx: bool) -> Row:
        clock = "1 thread, CPU time" if work.threads == 1 else f"{work.threads} threads, wall time"
        title = f"{name}, {'bf16 on AMX' if amx else 'float32, no AMX'}, {clock}"
        if amx and (why := obstacle()):
            return Row(title, None, None, "ms", note=why)
        try:
            with sides(
                replace(work, precision="bf16" if amx else "float32"), PEERS, {} if amx else NO_AMX
            ) as all_sides:
                turn = all_sides.in_turn(self.sizes.rounds)
        except NotMeasuredError as error:
            return Row(title, None, None, "ms", note=str(error))
        goal = self.sizes.goals.get(name, (0.0, 0.0))[amx]
        title = title.replace(f", {clock}", f" (peer: {turn.variant}), {clock}")
        return Row(title, turn.ours, turn.peer, "ms", goal or None, goal_is_ratio=bool(goal))


if __name__ == "__main__":
    sys.exit(main(BENCH, Precisions, FULL, QUICK))
