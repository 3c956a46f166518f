"""How long a training step takes on a CPU without AMX and with it, beside PyTorch in its fastest precision there.

python -m scripts.bench.cpu.precisions
python -m scripts.bench.cpu.precisions --only one_adam       # on one thread, which a busy machine disturbs little
chrt -f 50 python -m scripts.bench.cpu.precisions            # by root, on a busy one: others wait

Each processor's results have a file of their own, in which runs of some rows put theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nnlib.cpu.products import has_amx, obstacle
from scripts.bench.common.environments import TORCH
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.common.processor import name_processor
from scripts.bench.common.workload import AUTOENCODER, IMAGES, Work
from scripts.bench.cpu.turns import Turn, find_fastest, sides

BENCH = "train_bf16"
# What PyTorch's oneDNN may use in rows without AMX of a processor that has it. One that has none is held to nothing.
NO_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
PEERS = ("float32", "medium", "autocast")


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    wide: Work
    images: Work
    margins_warm: int
    rounds: int


SMALL = Work(AUTOENCODER, items=4000, hidden=256, batches=4, density=0.02)
QUICK = Sizes(SMALL, Work(IMAGES, batches=8, steps=5), 20, 3)
FULL = Sizes(Work(AUTOENCODER, batches=8), Work(IMAGES, batches=64, steps=50, warm=50), 200, 5)


class Precisions(Bench[Sizes]):
    """The rows: what is trained, on one thread or on two."""

    _ours: str = ""  # with which kernels

    def one_adam(self) -> Iterator[Row]:
        """The wide autoencoder."""
        yield from self._adam(1)

    def one_rmsprop(self) -> Iterator[Row]:
        """The same with RMSProp."""
        yield from self._rmsprop(1)

    def one_margins(self) -> Iterator[Row]:
        """The same when most units are beyond their margins."""
        yield from self._margins(1)

    def one_images(self) -> Iterator[Row]:
        """Dense layers."""
        yield from self._images(1)

    def two_adam(self) -> Iterator[Row]:
        """See `one_adam`."""
        yield from self._adam(2)

    def two_rmsprop(self) -> Iterator[Row]:
        """See `one_rmsprop`."""
        yield from self._rmsprop(2)

    def two_margins(self) -> Iterator[Row]:
        """See `one_margins`."""
        yield from self._margins(2)

    def two_images(self) -> Iterator[Row]:
        """See `one_images`."""
        yield from self._images(2)

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return the peer's version, and what computes our products in float32."""
        return {"peer": {"torch": TORCH}, "openblas": self._ours}

    def _adam(self, threads: int) -> Iterator[Row]:
        return self._rows("Adam", replace(self.sizes.wide, threads=threads), (1.5, 1.3))

    def _rmsprop(self, threads: int) -> Iterator[Row]:
        work = replace(self.sizes.wide, threads=threads, optimizer="rmsprop", rate=1e-4)
        return self._rows("RMSProp", work, (2.3, 2.3))

    def _margins(self, threads: int) -> Iterator[Row]:
        warm = self.sizes.margins_warm
        work = replace(self.sizes.wide, threads=threads, zero_target=0.1, warm=warm)
        return self._rows(f"Adam, zeroTarget 0.1, after {warm} steps", work, (2.5, 2.5))

    def _images(self, threads: int) -> Iterator[Row]:
        return self._rows("784-512-512-10, Adam", replace(self.sizes.images, threads=threads), (1.2, 1.2))

    def _rows(self, name: str, work: Work, goals: tuple[float, float]) -> Iterator[Row]:
        """Measure without AMX, and with it where there is one; the goals are in this order.

        A goal is that of what `precision: auto` chooses.
        """
        clock = "1 thread, CPU time" if work.threads == 1 else f"{work.threads} threads, wall time"
        slow = "float32, no AMX", "float32", goals[0] if has_amx() or obstacle() else None
        fast = ("bf16 on AMX" if has_amx() else "bf16 on AVX-512"), "bf16", goals[has_amx()]
        for how, precision, goal in (slow, fast) if has_amx() or not obstacle() else (slow,):
            title = f"{name}, {how}"
            try:
                variant, turn = self._measure(replace(work, precision=precision))
            except NotMeasuredError as error:
                yield Row(f"{title}, {clock}", None, None, "ms", note=str(error))
                continue
            title = f"{title} (peer: {variant}), {clock}"
            yield Row(title, turn.ours, turn.peer, "ms", goal, goal_is_ratio=goal is not None)

    def _measure(self, work: Work) -> tuple[str, Turn]:
        """Return the peer's fastest precision, and the round whose ratio to it is the median."""
        rounded = work.precision == "bf16"
        if rounded and (why := obstacle()):
            raise NotMeasuredError(why)
        held = NO_AMX if has_amx() and not rounded else {}
        variant = find_fastest(work, PEERS, held)
        with sides(work, (variant,), held) as both:
            self._ours = both.kernels
            return variant, both.in_turn(self.sizes.rounds)


if __name__ == "__main__":
    sys.exit(main(f"{BENCH}-{name_processor()}", Precisions, FULL, QUICK, merged=True))
