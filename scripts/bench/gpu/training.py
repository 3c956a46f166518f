"""How long a training step takes on a GPU, beside PyTorch and beside the floor; a part of the GPU benchmark.

Each side is a process of its own. All of them get ready at once, give the losses of their first steps, and those whose
losses are not ours are left out. Then each goes through all batches, in turn, again and again.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from scripts.bench.common.child import Child
from scripts.bench.common.harness import Row
from scripts.bench.common.pictures import PICTURES
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.common.workload import AUTOENCODER, IMAGES, MEMORY, PREPARE, STEP
from scripts.bench.gpu.floor import Floor
from scripts.bench.gpu.work import (
    BF16,
    BY_CUDNN,
    COMPILATIONS,
    DENSE,
    EAGER,
    FLOAT32,
    GRAPHED,
    OURS,
    PLAIN,
    SMALL,
    TF32,
    GpuWork,
    difference,
)

COMPILERS = {"TORCHINDUCTOR_COMPILE_THREADS": "4"}  # processes of each PyTorch, as several compile at a time
GETTING_READY = 0.7  # of the time for a workload
ANSWER = 30.0  # seconds in which a side must have done a command
ROUNDS = 5
OVER_DENSE, OVER_EAGER, OVER_COMPILED, OF_FLOOR, OVER_EAGER_IMAGES = 2.0, 1.3, 1.1, 0.7, 3.0  # goals
RMSPROP_RATE = 1e-4
NAMES = {FLOAT32: "float32", TF32: "TF32", BF16: "bfloat16"}
OF_PICTURES = 4.0  # times as much their losses may differ: sums of more terms, divided by deviations of a batch
FIRST = 4  # workloads without which the others say little


@dataclass
class Side:
    """What is known of one side."""

    rounds: list[float] = field(default_factory=list)  # milliseconds of a step
    losses: list[float] = field(default_factory=list)
    memory: dict[str, float] = field(default_factory=dict)
    reason: str = ""  # why it was not measured

    @property
    def ms(self) -> float | None:
        """The median."""
        return statistics.median(self.rounds) if self.rounds and not self.reason else None


@dataclass
class Outcome:
    """What came of a workload."""

    work: GpuWork
    sides: dict[str, Side] = field(default_factory=dict)
    preparing: Side = field(default_factory=Side)  # ours, with batches that must be prepared
    floor: Floor | None = None

    def ms(self, variant: str) -> float | None:
        """Return the time of a side, None when it was not measured."""
        return self.sides[variant].ms if variant in self.sides else None

    def best(self, variants: Sequence[str]) -> str | None:
        """Return the fastest of some variants, None when none was measured."""
        found = [variant for variant in variants if self.ms(variant) is not None]
        return min(found, key=lambda variant: self.ms(variant) or 0.0, default=None)


Peers = tuple[str, Sequence[str], float | None]  # how its input is made, the best of these, and our goal beside it
Start = Callable[[GpuWork], Any]  # gives a context of what answers as Child does


def works(quick: bool, tensor_cores: bool) -> list[GpuWork]:
    """Return the workloads, the FIRST ones the most telling; with `tensor_cores` products may be rounded."""
    sizes: dict[str, Any] = {**SMALL, "steps": 8, "warm": 8} if quick else {}
    wide = GpuWork(AUTOENCODER, **sizes)
    images = GpuWork(IMAGES, batches=64, steps=256, warm=128)
    if quick:
        return [wide, images]
    rmsprop: dict[str, Any] = {"optimizer": "rmsprop", "rate": RMSPROP_RATE}
    wider = replace(wide, hidden=1536)
    rounded = [replace(wide, precision=precision) for precision in (TF32, BF16) if tensor_cores]
    plain = [replace(wide, **rmsprop), wider, replace(wider, **rmsprop)]
    return [wide, *rounded, images, *plain, *(replace(work, precision=TF32) for work in plain if tensor_cores)]


def variants_of(work: GpuWork, compiled: bool = True) -> tuple[str, ...]:
    """Return who does a workload, ours first; what PyTorch compiles takes long to get ready."""
    if work.kind == IMAGES:
        return OURS, *PLAIN
    dense = (DENSE,) if work.precision == FLOAT32 else ()
    return (OURS, *dense, *PLAIN, *(COMPILATIONS if compiled else ()))


def starter(own: str, peers: str) -> Start:
    """Return what starts a side: ours with one Python, PyTorch's with another."""

    def start(work: GpuWork) -> Child:
        python, name = (own, "gpu.ours") if work.variant in (OURS, BY_CUDNN) else (peers, "gpu.peer")
        convolutions = {"NNLIB_CONVOLUTIONS": "cudnn" if work.variant == BY_CUDNN else "own"}
        return Child(python, name, work.arguments(), env=COMPILERS | convolutions)

    return start


def compared(work: GpuWork, variants: Sequence[str], start: Start, seconds: float, rounds: int = ROUNDS) -> Outcome:
    """Measure a workload by some variants, ours first; what is not ready when most of the time is up is left out."""
    outcome = Outcome(work, {variant: Side() for variant in variants})
    began = time.monotonic()
    deadline = began + seconds
    with ExitStack() as stack:
        children = _ready(outcome, lambda work: stack.enter_context(start(work)), began + GETTING_READY * seconds)
        for _ in range(rounds):
            began = time.monotonic()
            for name, child in children.items():
                _take(outcome.sides[name], child, STEP, deadline)
            if OURS in children:
                _take(outcome.preparing, children[OURS], PREPARE, deadline)
            if 2 * time.monotonic() - began > deadline:
                break  # there is no time for another round like this one
        for name, child in children.items():
            _remember(outcome.sides[name], child, deadline)
    return outcome


def _ready(outcome: Outcome, start: Start, deadline: float) -> dict[str, Any]:
    """Start all sides, as many at once as there are processors; return those that can be measured."""
    names, children = list(outcome.sides), {}
    at_once = max(2, os.cpu_count() or 1)
    for low in range(0, len(names), at_once):
        started = {name: start(replace(outcome.work, variant=name)) for name in names[low : low + at_once]}
        for name, child in started.items():
            if _is_ready(outcome, name, child, deadline):
                children[name] = child
            else:
                child.end()
    return children


def _is_ready(outcome: Outcome, name: str, child: Any, deadline: float) -> bool:
    """Wait for a side; whether it can be measured."""
    side, ours = outcome.sides[name], outcome.sides[OURS]
    if ours.reason:
        side.reason = f"there is nothing to compare its losses with: {ours.reason}"
        return False
    try:
        side.losses = child.answer(max(0.1, deadline - time.monotonic()))["losses"]
    except NotMeasuredError as error:
        side.reason = str(error)
        return False
    if name != OURS:
        times = OF_PICTURES if outcome.work.kind in PICTURES else 1.0
        side.reason = difference(ours.losses, side.losses, outcome.work.precision, times)
    return not side.reason


def _take(side: Side, child: Any, command: str, deadline: float) -> None:
    """Measure a side once more, unless it failed before; one that fails must not go on beside the others."""
    if side.reason:
        return
    try:
        side.rounds.append(child.ask(command, _left(deadline))["ms"])
    except NotMeasuredError as error:
        side.reason = str(error)
        child.end()


def _remember(side: Side, child: Any, deadline: float) -> None:
    if side.reason:
        return
    try:
        answer = child.ask(MEMORY, _left(deadline))
        side.memory = {name: value for name, value in answer.items() if value is not None}
    except NotMeasuredError:
        return  # its time is known all the same


def _left(deadline: float) -> float:
    """Return the seconds in which an answer must come; one that is already there is taken even after the deadline."""
    return max(0.1, min(ANSWER, deadline - time.monotonic()))


def name_of(work: GpuWork) -> str:
    """Return what a workload is called in rows."""
    shape = f"{work.items:,}-{work.hidden:,}x3-{work.items:,}" if work.kind == AUTOENCODER else "784-512-512-10"
    rule = {"adam": "Adam", "rmsprop": "RMSProp"}[work.optimizer]
    return f"{shape}, batch {work.batch}, {rule}, {NAMES[work.precision]}"


def _peers_of(work: GpuWork) -> list[Peers]:
    if work.kind == IMAGES:
        return [("", (EAGER,), OVER_EAGER_IMAGES), ("", (GRAPHED,), None)]
    dense: list[Peers] = [("", (DENSE,), OVER_DENSE)] if DENSE in variants_of(work) else []
    return [("EmbeddingBag, ", PLAIN, OVER_EAGER), ("EmbeddingBag, ", COMPILATIONS, OVER_COMPILED), *dense]


def unmeasured() -> Iterator[Row]:
    """Return the rows that have a goal, as they are while no GPU was there to be measured."""
    for work in works(quick=False, tensor_cores=True):
        for kind, variants, goal in _peers_of(work):
            if goal is not None:
                yield Row(_title(work, kind, variants[0]), None, None, "ms", goal, goal_is_ratio=True)
        if work.kind == AUTOENCODER:
            yield Row(f"{name_of(work)} (peer: the floor)", None, None, "ms", OF_FLOOR, goal_is_ratio=True)


def rows_of(outcome: Outcome) -> Iterator[Row]:
    """Return the rows of a workload: ours beside the best peers of each kind, and beside the floor."""
    work, ours, floor = outcome.work, outcome.sides[OURS], outcome.floor
    for peers in _peers_of(work):
        yield _row(outcome, *peers)
    if floor and work.kind == AUTOENCODER:
        name = f"{name_of(work)} (peer: the floor by {floor.by})"
        yield Row(name, ours.ms, floor.ms, "ms", OF_FLOOR, ours.reason, goal_is_ratio=True)
    prepared = f"{name_of(work)}: batches prepared meanwhile"
    yield Row(prepared, outcome.preparing.ms, None, "ms", note=outcome.preparing.reason)
    if work.precision == FLOAT32:
        best = outcome.best(PLAIN)
        sides = [outcome.sides.get(name or "", Side()) for name in (OURS, best)]
        own, its = (side.memory.get("mb") for side in sides)
        yield Row(f"{name_of(work)}: GPU memory (peer: PyTorch, {best or EAGER})", own, its, "MB")


def _row(outcome: Outcome, kind: str, variants: Sequence[str], goal: float | None) -> Row:
    """Return ours beside the best of some variants, without a goal when none of them was measured."""
    ours, best = outcome.sides[OURS], outcome.best(variants)
    ms = outcome.ms(best) if best else None
    reasons = {name: outcome.sides[name].reason for name in (OURS, *variants) if name in outcome.sides}
    note = "\n".join(f"{name}: {reason}" for name, reason in reasons.items() if reason)
    return Row(
        _title(outcome.work, kind, best or variants[0]),
        ours.ms,
        ms,
        "ms",
        goal if ms else None,
        note,
        goal_is_ratio=bool(goal and ms),
    )


def _title(work: GpuWork, kind: str, variant: str) -> str:
    return f"{name_of(work)} (peer: PyTorch, {kind}{variant})"


def to_keep(outcome: Outcome, name: str) -> dict[str, Any]:
    """Return the form in which everything that was measured is kept."""
    sides = {name: asdict(side) | {"ms": side.ms} for name, side in outcome.sides.items()}
    return {
        "workload": name,
        "work": asdict(outcome.work),
        "sides": sides,
        "preparing": asdict(outcome.preparing) | {"ms": outcome.preparing.ms},
        "floor": asdict(outcome.floor) | {"ms": outcome.floor.ms, "by": outcome.floor.by} if outcome.floor else None,
    }
