"""How long training and prediction take on the CPU, beside PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.workload import AUTOENCODER, IMAGES, TOP, Work
from scripts.bench.cpu.turns import Turn, sides

BENCH = "train_cpu"
USERS = 10_000


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    autoencoder: Work
    images: Work
    ranking: Work
    margins_warm: int
    rounds: int
    threads: tuple[int, ...]


SMALL = Work(AUTOENCODER, items=4000, hidden=256, batches=4, density=0.02)
QUICK = Sizes(SMALL, Work(IMAGES, batches=8, steps=5), replace(SMALL, kind=TOP, warm=1), 20, 3, (1,))
FULL = Sizes(
    Work(AUTOENCODER),
    Work(IMAGES, batches=64, steps=50, warm=50),
    Work(TOP, batches=5, steps=5, warm=1),
    margins_warm=200,
    rounds=5,
    threads=(1, 2),
)


class TrainCpu(Bench[Sizes]):
    """The rows."""

    def adam(self) -> Iterator[Row]:
        """The sparse autoencoder, its time and its memory."""
        for work in self._on_threads(self.sizes.autoencoder):
            name = f"{_name(work)}, Adam (peer: EmbeddingBag, fused Adam)"
            with sides(work) as both:
                yield _row(name, work, both.in_turn(self.sizes.rounds), 1.35)
                if work.threads == 1:
                    ours, peer = both.peaks()
                    yield Row(f"{name}: peak memory", ours, peer, "MB", 0.6 * peer)

    def rmsprop(self) -> Iterator[Row]:
        """The same with RMSProp."""
        for work in self._on_threads(replace(self.sizes.autoencoder, optimizer="rmsprop", rate=1e-4)):
            yield self._timed(f"{_name(work)}, RMSProp (peer: EmbeddingBag, foreach RMSprop)", work, 2.3)

    def margins(self) -> Iterator[Row]:
        """The same with margins, when most units are beyond them."""
        warm = self.sizes.margins_warm
        for work in self._on_threads(replace(self.sizes.autoencoder, zero_target=0.1, batches=32, warm=warm)):
            name = f"{_name(work)}, Adam, zeroTarget 0.1, after {warm} steps (peer: the same loss)"
            yield self._timed(name, work, 2.0)

    def images(self) -> Iterator[Row]:
        """Dense layers."""
        for work in self._on_threads(self.sizes.images):
            yield self._timed(f"784-512-512-10, batch {work.batch}, Adam (peer: fused Adam)", work, 0.95)

    def top(self) -> Iterator[Row]:
        """The best items of users, in seconds for all of them."""
        for work in self._on_threads(self.sizes.ranking):
            with sides(work) as both:
                turn = both.in_turn(self.sizes.rounds)
            all_users = USERS / work.batch / 1000
            name = f"top {work.k} of {work.items:,} for {USERS:,} users, without what they have (peer: topk)"
            yield _row(name, work, Turn(turn.ours * all_users, turn.peer * all_users), 1.2, "s")

    def _on_threads(self, work: Work) -> Iterator[Work]:
        return (replace(work, threads=threads) for threads in self.sizes.threads)

    def _timed(self, name: str, work: Work, ratio: float) -> Row:
        with sides(work) as both:
            return _row(name, work, both.in_turn(self.sizes.rounds), ratio)


def _row(name: str, work: Work, turn: Turn, ratio: float, unit: str = "ms") -> Row:
    """Return a row whose goal is a ratio; it is kept as the time that we may take for it."""
    threads = "1 thread, CPU time" if work.threads == 1 else f"{work.threads} threads, wall time"
    return Row(f"{name}, {threads}", turn.ours, turn.peer, unit, turn.peer / ratio)


def _name(work: Work) -> str:
    return f"{work.items:,}-{work.hidden:,}x3-{work.items:,}, batch {work.batch}, {work.density:.1%} density"


if __name__ == "__main__":
    sys.exit(main(BENCH, TrainCpu, FULL, QUICK, merged=True))
