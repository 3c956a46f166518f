"""One training on several ranks: what the same bits cost, how work and time are shared, what travels."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median

from scripts.bench.common.environments import TORCH
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.pictures import RESNET, RESNET_50
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.cpu.turns import PATIENCE, busy, is_quiet
from scripts.bench.level3.bits import digest_of
from scripts.bench.level3.directed import measure_directed
from scripts.bench.level3.gpus import count_gpus
from scripts.bench.level3.team import Team, team
from scripts.bench.level3.work import DDP, EXAMPLES, FSDP, GPU, NONE, SAVE, SPARSE, WIDE_DDP, Ranked

BENCH = "level3"
RANKS = (2, 4, 8)
DIRECTING = 1.0  # milliseconds a step that a job may take which computes nothing
COST = 1.05  # times as long as a step whose sums have any order
STRONG, WEAK = {2: 0.89, 4: 0.78, 8: 0.64}, {4: 0.94, 8: 0.90}  # goals of efficiency on GPUs


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    wide: Ranked
    sparse: Ranked
    bits: Ranked
    on_gpus: Ranked
    images: Ranked  # on GPUs, too
    rounds: int
    weak_rounds: int  # fewer: eight ranks do eight times as much in each
    weak: tuple[int, ...] = RANKS
    full: bool = True  # with peers, on a machine that does nothing else, and the rows of GPUs


FULL = Sizes(
    Ranked(steps=2),
    Ranked(kind=SPARSE, items=1_000_000, hidden=64, batches=96, warm=16, steps=8),
    Ranked(items=27_278, hidden=128, warm=12),
    Ranked(batch=1024, steps=32, warm=32, device=GPU),
    Ranked(kind=RESNET_50, batch=256, batches=2, steps=8, warm=4, device=GPU, parallel=EXAMPLES),
    rounds=9,
    weak_rounds=5,
)
SMALL = Ranked(items=9000, hidden=64, batch=64, batches=4, steps=1, warm=2)
IMAGES = Ranked(kind=RESNET, batch=16, batches=1, side=32, steps=1, warm=2, device=GPU, parallel=EXAMPLES)
QUICK = Sizes(SMALL, replace(SMALL, kind=SPARSE), SMALL, replace(SMALL, device=GPU), IMAGES, 2, 2, (2,), False)


class Level3(Bench[Sizes]):
    """The rows."""

    def same_bits(self) -> Iterator[Row]:
        """One process by items beside one that cuts nothing: what the fixed order of sums costs."""
        for work in (self.sizes.wide, self.sizes.sparse):
            rounds = 3 * self.sizes.rounds  # for a difference as small as that
            alone, cut = self._pair(replace(work, parallel=NONE), work, 1, rounds)
            name = f"{work.shape}, by items on one (peer: nothing cut), 1 thread, CPU time"
            yield Row(name, cut, alone, "ms", goal=1 / COST, goal_is_ratio=True)

    def bits(self) -> Iterator[Row]:
        """Whether ranks change parameters or the optimizer's state, and whether they send what they should."""
        self.digests, work = {}, self.sizes.bits
        for ranks in (1, *RANKS):
            self.digests[str(ranks)], sent = self._saved(work, ranks)
            if ranks > 1:
                wanted = replace(work, ranks=ranks).exchanged
                name = f"{work.shape}, {ranks} ranks: bytes that each sends in a step (peer: 16 b h (R - 1) / R)"
                yield Row(name, sent, wanted, "B", wanted)
        others = len(set(self.digests.values())) - 1
        yield Row(f"{work.shape}, 1, 2, 4, 8 ranks: models and states that differ from one rank's", others, None, "", 0)

    def strong(self) -> Iterator[Row]:
        """The same batch on more ranks: the ratio is the efficiency of work."""
        work = self.sizes.wide
        for ranks in RANKS:
            alone, some = self._pair(replace(work, parallel=NONE), work, ranks, self.sizes.rounds)
            name = f"strong, {work.shape}, {ranks} ranks: CPU time of a rank, without waiting (peer: a share of one's)"
            yield Row(name, some, alone / ranks, "ms")

    def weak(self) -> Iterator[Row]:
        """A batch that grows with the ranks: the ratio is the efficiency of work."""
        for ranks in self.sizes.weak:
            one = replace(self.sizes.wide, batches=4, steps=1, warm=2)
            work = replace(one, batch=ranks * one.batch)
            alone, some = self._pair(replace(one, parallel=NONE), work, ranks, self.sizes.weak_rounds)
            name = (
                f"weak, {work.shape}, {ranks} ranks: CPU time of a rank, without waiting (peer: one's at {one.batch})"
            )
            yield Row(name, some, alone, "ms")

    def two_cores(self) -> Iterator[Row]:
        """Wall time of two ranks, each with a core, beside others that have both."""
        work = self.sizes.wide
        alone = replace(work, parallel=NONE)
        sides = {"one process, 1 thread": (alone, 1, 1), "one process, 2 threads": (alone, 1, 2), "ours": (work, 2, 1)}
        if self.sizes.full:
            sides |= {f"PyTorch {way} over gloo": (replace(work, way=way), 2, 1) for way in (DDP, WIDE_DDP)}
        found = self._walls(sides)
        for name in (name for name in sides if name != "ours"):
            title = f"strong, {work.shape}, 2 ranks on 2 cores, wall time (peer: {name})"
            yield Row(title, found["ours"], found[name], "ms")

    def directed(self) -> Iterator[Row]:
        """A job that directs ranks and computes nothing: what telling, hearing and watching them takes."""
        for ranks in self.sizes.weak:
            work = replace(self.sizes.bits, ranks=ranks, steps=8 * self.sizes.bits.warm)
            found = measure_directed(work)
            name = f"{work.shape}, {ranks} ranks: CPU time of the job that directs them (peer: of its busiest rank)"
            yield Row(name, found["job"], found["rank"], "ms", goal=DIRECTING)

    def gpus(self) -> Iterator[Row]:
        """Strong and weak scaling on the GPUs of this machine, and PyTorch's ways."""
        count, work = count_gpus(), self.sizes.on_gpus
        self.digests_on_gpus: dict[str, dict[str, str]] = {}
        if count:
            sides = {"ours": (work, 1, 1), NONE: (replace(work, parallel=NONE), 1, 1)}
            found = self._walls(sides)
            yield _cost_row(work, found["ours"], found[NONE])
        some = [ranks for ranks in RANKS if ranks <= count]
        if some:
            yield self._bits_on_gpus(work, (1, *some))
        for ranks in some:
            yield from self._on_gpus(work, ranks)
        if count:
            yield from self._by_examples(self.sizes.images, (1, *some))
        if self.sizes.full:
            yield from _list_goals(work, self.sizes.images, count)

    def _by_examples(self, work: Ranked, several: Sequence[int]) -> Iterator[Row]:
        """The batches of a network of images, on one GPU and on several, beside one that cuts nothing.

        A ResNet's layers are normalized by the whole batch, as PyTorch's SyncBatchNorm does it.
        """
        if len(several) > 1:
            yield self._bits_on_gpus(work, several)
        for ranks in several:
            sides = {"one": (replace(work, parallel=NONE), 1, 1), "strong": (work, ranks, 1)}
            found = {name: self._walls({name: side})[name] for name, side in sides.items()}
            yield _by_examples_row(work, ranks, found["strong"], found["one"] / ranks)

    def _bits_on_gpus(self, work: Ranked, several: Sequence[int]) -> Row:
        """Whether cuBLAS gives a shard's product the same bits on every GPU, and NCCL copies what it should."""
        found = self._digests(work, several)
        self.digests_on_gpus[work.shape] = found
        others = len(set(found.values())) - 1
        name = f"GPUs, {work.shape}, {', '.join(map(str, several))} ranks: models and states that differ from one's"
        return Row(name, others, None, "", 0)

    def _digests(self, work: Ranked, several: Sequence[int]) -> dict[str, str]:
        """Return the digests of parameters and states after a few steps, by the number of ranks."""
        return {str(ranks): self._saved(work, ranks)[0] for ranks in several}

    def _saved(self, work: Ranked, ranks: int) -> tuple[str, float]:
        """Return the digest of what ranks have after a few steps, and the bytes that each sent in a step."""
        kept = replace(work, kept=str(self.area))
        with team(kept, ranks, self.area) as some:
            some.measure()
            some.ask(SAVE)
        return digest_of(kept, ranks), some.sent

    def _on_gpus(self, work: Ranked, ranks: int) -> Iterator[Row]:
        alone = replace(work, parallel=NONE)
        weak = replace(work, batch=ranks * work.batch)
        sides = {"one": (alone, 1, 1), "strong": (work, ranks, 1), "weak": (weak, ranks, 1)}
        sides |= {way: (replace(work, way=way), ranks, 1) for way in (DDP, WIDE_DDP, FSDP)}
        found = {name: self._walls({name: side})[name] for name, side in sides.items()}  # one after the other: memory
        yield _strong_row(work, ranks, found["strong"], found["one"] / ranks)
        yield _weak_row(work, ranks, found["weak"], found["one"])
        for way in (DDP, WIDE_DDP, FSDP):
            yield Row(f"GPUs, {work.shape}, {ranks} ranks (peer: PyTorch {way})", found["strong"], found[way], "ms")

    def _pair(self, alone: Ranked, work: Ranked, ranks: int, rounds: int) -> tuple[float, float]:
        """Return the processor time of one process and of the busiest rank, in the round whose ratio is the median."""
        with team(alone, 1, self.area) as one, team(work, ranks, self.area) as several:
            for number in range(rounds):
                for side in (one, several)[:: 1 if number % 2 else -1]:
                    side.measure()
            pairs = zip(one.cpus, several.cpus, strict=True)
            return sorted(pairs, key=lambda pair: pair[0] / pair[1])[rounds // 2]

    def _walls(self, sides: Mapping[str, tuple[Ranked, int, int]]) -> dict[str, float]:
        """Return the wall time of each, all of them in turn: the median over rounds in which nothing else ran."""
        with ExitStack() as stack:
            teams = {
                name: stack.enter_context(team(work, ranks, self.area, threads))
                for name, (work, ranks, threads) in sides.items()
            }
            deadline, rounds = time.monotonic() + PATIENCE, 0
            while rounds < self.sizes.rounds:
                quiet = _measure_all(list(teams.values()))
                if quiet or not self.sizes.full:
                    rounds += 1
                    continue
                for one in teams.values():
                    one.rounds.pop()
                if time.monotonic() > deadline:
                    raise NotMeasuredError("other programs kept the machine busy")
            return {name: median(one.walls) for name, one in teams.items()}

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return the digests and the peer's version."""
        digests = {"digests": getattr(self, "digests", {})}
        if found := getattr(self, "digests_on_gpus", {}):
            digests["digests_on_gpus"] = found
        return {**digests, "peer": {"torch": TORCH}}


def _cost_row(work: Ranked, ours: float | None, whole: float | None) -> Row:
    name = f"GPUs, {work.shape}, by items on one (peer: nothing cut)"
    return Row(name, ours, whole, "ms", goal=1 / COST, goal_is_ratio=True)


def _strong_row(work: Ranked, ranks: int, ours: float | None, share: float | None) -> Row:
    name = f"GPUs, strong, {work.shape}, {ranks} ranks (peer: a share of one's)"
    return Row(name, ours, share, "ms", goal=STRONG[ranks], goal_is_ratio=True)


def _weak_row(work: Ranked, ranks: int, ours: float | None, one: float | None) -> Row:
    name = f"GPUs, weak, {replace(work, batch=ranks * work.batch).shape}, {ranks} ranks (peer: one's at {work.batch})"
    return Row(name, ours, one, "ms", goal=WEAK.get(ranks), goal_is_ratio=ranks in WEAK)


def _by_examples_row(work: Ranked, ranks: int, ours: float | None, share: float | None) -> Row:
    name = f"GPUs, strong, {work.shape}, by examples, {ranks} ranks (peer: a share of one's, nothing cut)"
    return Row(name, ours, share, "ms", goal=STRONG.get(ranks), goal_is_ratio=ranks in STRONG)


def _list_goals(work: Ranked, images: Ranked, count: int) -> Iterator[Row]:
    """Return the rows with a goal that need more GPUs than there are, so that these stay visible."""
    rows = {1: [_cost_row(work, None, None)]}
    for ranks in RANKS:
        by_items = [_strong_row(work, ranks, None, None), _weak_row(work, ranks, None, None)]
        rows[ranks] = [*by_items, _by_examples_row(images, ranks, None, None)]
    for needed, listed in rows.items():
        if needed > count:
            note = f"{needed} GPUs that CuPy can use, seen: {count}"
            yield from (replace(row, note=note) for row in listed if row.goal)


def _measure_all(teams: Sequence[Team]) -> bool:
    """Let each train for some steps; return whether others left the processors alone meanwhile."""
    before, began, spent = busy(), time.monotonic(), 0.0
    for one in teams:
        spent += sum(answer["all_cpu"] for answer in one.measure()) * one.work.steps / 1e3
    return is_quiet(before, spent, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main(BENCH, Level3, FULL, QUICK))
