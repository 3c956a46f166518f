#!/usr/bin/env python3
"""How long training and prediction take on the CPU, beside PyTorch. See README.md in this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import harness
from harness import Row, finish, measure_groups, options
from train_cpu_turns import TORCH, Turn, in_turn, peaks, sides
from train_cpu_work import AUTOENCODER, IMAGES, TOP, Work

BENCH = "train_cpu"
USERS = 10_000
harness.PACKAGES = (*harness.PACKAGES, "numba")


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    autoencoder: Work = field(default_factory=lambda: Work(AUTOENCODER))
    images: Work = field(default_factory=lambda: Work(IMAGES, batches=64, steps=50, warm=50))
    ranking: Work = field(default_factory=lambda: Work(TOP, batches=5, steps=5, warm=1))
    margins_warm: int = 200
    rounds: int = 11
    threads: tuple[int, ...] = (1, 2)
    goals: bool = True  # they are for the full sizes


SMALL = Work(AUTOENCODER, items=4000, hidden=256, batches=4, density=0.02)
QUICK = Sizes(
    autoencoder=SMALL,
    images=Work(IMAGES, batches=8, steps=5),
    ranking=replace(SMALL, kind=TOP, warm=1),
    margins_warm=20,
    rounds=3,
    threads=(1,),
    goals=False,
)


class TrainCpu:
    """The rows, in groups that can be measured alone."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.groups = {
            "adam": self.adam,
            "rmsprop": self.rmsprop,
            "margins": self.margins,
            "images": self.images,
            "top": self.top,
        }

    def adam(self) -> Iterator[Row]:
        """The sparse autoencoder, its time and its memory."""
        for threads in self.sizes.threads:
            work = replace(self.sizes.autoencoder, threads=threads)
            name = f"{_name(work)}, Adam (peer: EmbeddingBag, fused Adam)"
            with sides(work) as (ours, peer):
                yield self._row(name, work, in_turn(ours, peer, work, self.sizes.rounds), 1.35)
                if threads == 1:
                    ours_mb, peer_mb = peaks(ours, peer)
                    yield Row(f"{name}: peak memory", ours_mb, peer_mb, "MB", self._goal(0.6 * peer_mb))

    def rmsprop(self) -> Iterator[Row]:
        """The same with RMSProp."""
        for threads in self.sizes.threads:
            work = replace(self.sizes.autoencoder, threads=threads, optimizer="rmsprop", rate=1e-4)
            yield self._timed(f"{_name(work)}, RMSProp (peer: EmbeddingBag, foreach RMSprop)", work, 2.3)

    def margins(self) -> Iterator[Row]:
        """The same with margins, when most units are beyond them."""
        for threads in self.sizes.threads:
            warm = self.sizes.margins_warm
            work = replace(self.sizes.autoencoder, threads=threads, zero_target=0.1, batches=32, warm=warm)
            name = f"{_name(work)}, Adam, zeroTarget 0.1, after {warm} steps (peer: the same loss)"
            yield self._timed(name, work, 2.0)

    def images(self) -> Iterator[Row]:
        """Dense layers."""
        for threads in self.sizes.threads:
            work = replace(self.sizes.images, threads=threads)
            yield self._timed(f"784-512-512-10, batch {work.batch}, Adam (peer: fused Adam)", work, 0.95)

    def top(self) -> Iterator[Row]:
        """The best items of users, in seconds for all of them."""
        for threads in self.sizes.threads:
            work = replace(self.sizes.ranking, threads=threads)
            with sides(work) as (ours, peer):
                turn = in_turn(ours, peer, work, self.sizes.rounds)
            all_users = USERS / work.batch / 1000
            name = f"top {work.k} of {work.items:,} for {USERS:,} users, without what they have (peer: topk)"
            turn = Turn(turn.ours * all_users, turn.peer * all_users)
            yield self._row(name, work, turn, 1.2, "s")

    def _timed(self, name: str, work: Work, goal: float) -> Row:
        with sides(work) as (ours, peer):
            return self._row(name, work, in_turn(ours, peer, work, self.sizes.rounds), goal)

    def _row(self, name: str, work: Work, turn: Turn, ratio: float, unit: str = "ms") -> Row:
        """Return a row whose goal is a ratio; it is kept as the time that we may take for it."""
        threads = "1 thread, CPU time" if work.threads == 1 else f"{work.threads} threads, wall time"
        return Row(f"{name}, {threads}", turn.ours, turn.peer, unit, self._goal(turn.peer / ratio))

    def _goal(self, value: float) -> float | None:
        return value if self.sizes.goals else None


def _name(work: Work) -> str:
    return f"{work.items:,}-{work.hidden:,}x3-{work.items:,}, batch {work.batch}, {work.density:.1%} density"


def main() -> int:
    """Measure and print."""
    arguments = options(BENCH, TrainCpu(QUICK).groups)
    print(f"peer: PyTorch {TORCH}; the ratio is the median of rounds", file=sys.stderr)
    rows = measure_groups(TrainCpu(QUICK if arguments.quick else Sizes()).groups, arguments.only)
    return finish(BENCH, rows, arguments)


if __name__ == "__main__":
    sys.exit(main())
