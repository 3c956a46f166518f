"""How long convolutions and their gradients take on the CPU, and how exact they are, beside PyTorch."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np

from scripts.bench.common.child import Child
from scripts.bench.common.environments import torch_python
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import ONE_THREAD
from scripts.bench.common.processor import name_processor
from scripts.bench.convolution.shapes import PARTS, SHAPES, Shape, to_raw
from scripts.bench.cpu.turns import after_rest, quiet_rounds

BENCH = "convolution"
LAYOUTS = ("", "channels last")  # of the peer
GOAL = 0.8
ANSWER = 600.0  # seconds that a side may take
LONG = 0.05  # seconds of a turn, at least


@dataclass(frozen=True)
class Sizes:
    """What is measured, and how often."""

    shapes: tuple[Shape, ...]
    rounds: int
    compared: int
    both: tuple[Shape, ...]  # on two threads, too
    alone: tuple[Shape, ...]  # by NumPy, too


QUICK_SHAPES = (replace(SHAPES[9], examples=4), replace(SHAPES[14], examples=4), replace(SHAPES[21], examples=4))
FULL = Sizes(SHAPES, 5, 200, SHAPES, tuple(SHAPES[n] for n in (7, 12, 19)))
QUICK = Sizes(QUICK_SHAPES, 3, 20, (), QUICK_SHAPES[:1])


class Convolution(Bench[Sizes]):
    """The rows."""

    def one_thread(self) -> Iterator[Row]:
        """Each part, by the processor's time."""
        with self._sides(1) as all_sides:
            for shape in self.sizes.shapes:
                turns = self._measured(all_sides, shape, 1, ("", *LAYOUTS))
                for part in PARTS:
                    yield _row(shape, part, 1, [turn[part] for turn in turns])

    def numpy_alone(self) -> Iterator[Row]:
        """What is computed where Numba is missing."""
        with self._sides(1) as all_sides:
            for shape in self.sizes.alone:
                turns = self._measured(all_sides, shape, 1, ("numpy", *LAYOUTS))
                row = _row(shape, "all three", 1, [turn["all"] for turn in turns])
                yield replace(row, workload=f"NumPy alone: {row.workload}", goal=None, goal_is_ratio=False)

    def values(self) -> Iterator[Row]:
        """How far results are from those in double precision, beside the peer's own in single precision."""
        with self._sides(1) as (ours, peer, _):
            for side in (ours, peer):
                side.ask(json.dumps({"compare": self.sizes.compared, "folder": str(self.area)}), ANSWER)
        for part in PARTS:
            apart = [self._apart(number, part) for number in range(self.sizes.compared)]
            found, theirs = (max(values) for values in zip(*apart, strict=True))
            name = f"{self.sizes.compared} convolutions of all kinds, {part}: largest error, of the largest value"
            yield Row(name, found * 1e6, theirs * 1e6, "millionths", 3.0)

    def two_threads(self) -> Iterator[Row]:
        """All parts together, by the clock."""
        if self.sizes.both:
            with self._sides(2) as all_sides:
                for shape in self.sizes.both:
                    turns = self._measured(all_sides, shape, 2, ("", *LAYOUTS))
                    yield _row(shape, "all three", 2, [turn["all"] for turn in turns])

    def _apart(self, number: int, part: str) -> tuple[float, float]:
        ours, single, double = (
            np.load(self.area / f"{name}{number}.npz")[part] for name in ("ours", "single", "double")
        )
        scale = max(1.0, float(np.abs(double).max()))
        return float(np.abs(ours - double).max()) / scale, float(np.abs(single - double).max()) / scale

    @contextmanager
    def _sides(self, threads: int) -> Iterator[list[Child]]:
        env = dict.fromkeys(ONE_THREAD, str(threads))
        with ExitStack() as stack:
            children = [Child(sys.executable, "convolution.ours", env=env)]
            children += [Child(torch_python(), "convolution.peer", env=env) for _ in LAYOUTS]
            for child in children:
                stack.enter_context(child)
            for child in children:
                child.answer(ANSWER)
            yield children

    def _measured(
        self, sides: list[Child], shape: Shape, threads: int, layouts: tuple[str, ...]
    ) -> list[dict[str, list[float]]]:
        """Return what each side took in each round: by part, and for all."""
        for side, layout in zip(sides, layouts, strict=True):
            side.ask(json.dumps({"shape": to_raw(shape), "layout": layout}), ANSWER)
        clock = "cpu" if threads == 1 else "wall"
        first = {part: [_ask(threads, side, part, 1)["wall"] for side in sides] for part in PARTS}
        times = {part: [max(1, round(1e3 * LONG / ms)) for ms in found] for part, found in first.items()}

        def turn() -> tuple[dict[str, list[float]], float]:
            spent = 0.0
            found: dict[str, list[float]] = {}
            for part in PARTS:
                answers = [_ask(threads, side, part, n) for side, n in zip(sides, times[part], strict=True)]
                spent += sum(answer["cpu"] * n / 1e3 for answer, n in zip(answers, times[part], strict=True))
                found[part] = [answer[clock] for answer in answers]
            found["all"] = [sum(values) for values in zip(*(found[part] for part in PARTS), strict=True)]
            return found, spent

        return quiet_rounds(threads, self.sizes.rounds, turn)


def _ask(threads: int, side: Child, part: str, times: int) -> dict[str, float]:
    return after_rest(threads, side, json.dumps({"part": part, "times": times}))


def _row(shape: Shape, part: str, threads: int, turns: list[list[float]]) -> Row:
    """Return the round whose ratio to the peer's faster layout is the median."""
    ours, *theirs = zip(*turns, strict=True)
    fastest = min(theirs, key=statistics.median)
    mine, peer = sorted(zip(ours, fastest, strict=True), key=lambda turn: turn[1] / turn[0])[len(turns) // 2]
    layout = LAYOUTS[theirs.index(fastest)] or "channels first"
    clock = "1 thread, CPU time" if threads == 1 else f"{threads} threads, wall time"
    name = f"{shape.name}, batch {shape.examples}: {part}, {clock} (peer: {layout})"
    return Row(name, mine, peer, "ms", GOAL, goal_is_ratio=True)


if __name__ == "__main__":
    sys.exit(main(f"{BENCH}-{name_processor()}", Convolution, FULL, QUICK, merged=True))
