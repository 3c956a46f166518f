"""Everything that is measured on a GPU, in less than nine minutes: `gpu.sh [--quick] [--json FILE]`."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.bench.common import harness
from scripts.bench.common.child import Answer, Child
from scripts.bench.common.harness import Row, number, options, to_json
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.gpu import floor, multiply, pictures, training
from scripts.bench.gpu.rows import rows_of
from scripts.bench.gpu.work import GpuWork

BENCH = "gpu"
NO_GPU = 75
BUDGET, QUICK_BUDGET = 525.0, 100.0  # seconds for everything
LEAST = 5.0  # seconds with which something may be begun
PRODUCT = {
    "kernels": 60.0,
    "pci": 20.0,
    "determinism": 60.0,
    "launches": 40.0,
    "top": 40.0,
    "epoch": 60.0,
    "tests": 90.0,
}
LIMITS = {"gpu": 60.0, "torch": 60.0, "ceilings": 45.0, "multiply": 60.0, "training": 90.0, "pictures": 90.0} | PRODUCT
PARTS = ("multiply", "training", "pictures", *PRODUCT)  # besides what is always done
TWICE = 2  # trainings whose models must be the same
TORCH_PYTHON = "TORCH_PYTHON"  # the variable with a Python that has PyTorch, where it is another one
INSTALL = (
    "pip install '.[gpu-cuda13]' (or '.[gpu-cuda12]') in this checkout brings regiondag with CuPy, pip install torch "
    "the peers; PYTHON=that/python scripts/bench/gpu.sh uses them; nvidia-smi shows whether there is a GPU"
)


class Gpu:
    """All that is measured: `rows`, `details`, and of each part its time and why it has failed, if it has."""

    def __init__(self, quick: bool, keep: Callable[[Gpu], None] = lambda _: None) -> None:
        self.quick, self.own = quick, sys.executable
        self.peers = os.environ.get(TORCH_PYTHON) or self.own
        self.rows: list[Row] = []
        self.details: dict[str, Any] = {"gpu": {}, "torch": {}, "parts": {}}
        self._end, self._keep = time.monotonic() + (QUICK_BUDGET if quick else BUDGET), keep

    def run(self, only: str | None = None) -> None:
        """Do all parts, or one of them."""
        for name in ("gpu", "torch", "ceilings"):
            self.part(name, lambda name=name: self._ask(name))  # type: ignore[misc]
        self.details |= {"training": [], "pictures": []}
        works = training.works(self.quick, self._has_tensor_cores)
        for name in ("kernels", "pci", "determinism"):
            self._maybe(only, name, lambda name=name: self._product(name))  # type: ignore[misc]
        self._trainings(only, works[: training.FIRST])
        self._maybe(only, "multiply", self._multiply)
        for name in ("launches", "top", "epoch", "tests"):
            self._maybe(only, name, lambda name=name: self._product(name))  # type: ignore[misc]
        self._trainings(only, works[training.FIRST :])
        for work in pictures.works(self.quick, self._has_tensor_cores):
            title = f"pictures {pictures.name_of(work)}"
            self._maybe(only, "pictures", lambda work=work: self._pictures(work), title)  # type: ignore[misc]

    def _maybe(self, only: str | None, name: str, work: Callable[[], Iterable[Row]], title: str = "") -> None:
        if only in (None, name):
            self.part(title or name, work)

    def _trainings(self, only: str | None, works: Iterable[GpuWork]) -> None:
        for work in works:
            title = f"training {training.name_of(work)}"
            self._maybe(only, "training", lambda work=work: self._train(work), title)  # type: ignore[misc]

    def part(self, name: str, work: Callable[[], Iterable[Row]]) -> None:
        """Do a part; what it raises does not end the others, and what it measured before stays."""
        print(f"{name} ...", file=sys.stderr, flush=True)
        began, reason = time.monotonic(), ""
        try:
            for row in work():
                self.rows.append(replace(row, goal=None, goal_is_ratio=False) if self.quick else row)
        except NotMeasuredError as error:
            reason = str(error)
        except Exception as error:  # a bug in one part must not cost what the others measured
            reason = f"{type(error).__name__}: {error}"
        self.details["parts"][name] = {"seconds": round(time.monotonic() - began, 1), "reason": reason}
        if reason:
            self.rows.append(Row(name, None, None, "", note=reason))
        self._keep(self)

    def _seconds(self, part: str) -> float:
        """Return the seconds that a part may take; NotMeasuredError when the time is up."""
        left = self._end - time.monotonic()
        if left < LEAST:
            raise NotMeasuredError("the time for everything was up")
        return min(LIMITS[part], left)

    def _ask(self, name: str) -> Iterator[Row]:
        """Find out what there is and what it reaches."""
        python = self.peers if name == "torch" else self.own
        self.details[name] = ask(python, name, self._seconds(name), *self._words)
        return iter(())

    def _product(self, name: str) -> Iterator[Row]:
        """Have a part of product.py done; what it answered before a failure stays."""
        answers: list[Answer] = []
        self.details[name] = answers
        failure = None
        try:
            for module, python in self._processes(name):
                with Child(python, module, name, *self._words) as child:
                    answers.extend(child.answers(self._seconds(name)))
        except NotMeasuredError as error:
            failure = error
        yield from rows_of(name, answers)
        if failure:
            raise failure

    def _processes(self, name: str) -> list[tuple[str, str]]:
        """Return the modules that do a part, and each one's Python."""
        count = TWICE if name == "determinism" else 1
        peers = (
            [("gpu.peer_top", self.peers)] if name == "top" and "reason" not in self.details.get("torch", {}) else []
        )
        return [("gpu.product", self.own)] * count + peers

    def _multiply(self) -> Iterator[Row]:
        """`data[i] *= c` as in 2014; what was measured before a failure stays."""
        answers: list[Answer] = []
        self.details["multiply"] = answers
        failure, seconds = None, self._seconds("multiply")
        with Child(self.own, "gpu.multiply", *self._words) as child:
            try:
                answers.extend(child.answers(seconds))
            except NotMeasuredError as error:
                failure = error
        yield from multiply.rows_of(answers)
        if failure:
            raise failure

    def _train(self, work: GpuWork) -> Iterator[Row]:
        outcome = self._compared(work, training.variants_of(work, compiled=not self.quick), "training")
        if "ceilings" in self.details:
            ceilings = floor.Ceilings(**self.details["ceilings"])
            outcome.floor = floor.floor_of(work, floor.touched_by(work), ceilings)
        self.details["training"].append(training.to_keep(outcome, training.name_of(work)))
        yield from training.rows_of(outcome)

    def _pictures(self, work: GpuWork) -> Iterator[Row]:
        outcome = self._compared(work, pictures.variants_of(compiled=not self.quick), "pictures")
        if "ceilings" in self.details:
            outcome.floor = pictures.floor_of(work, floor.Ceilings(**self.details["ceilings"]))
        self.details["pictures"].append(training.to_keep(outcome, pictures.name_of(work)))
        yield from pictures.rows_of(outcome)

    def _compared(self, work: GpuWork, variants: Sequence[str], part: str) -> training.Outcome:
        if "reason" in self.details["torch"]:
            variants = variants[:1]
        start = training.starter(self.own, self.peers)
        return training.compared(work, variants, start, self._seconds(part))

    @property
    def _words(self) -> list[str]:
        return ["quick"] if self.quick else []

    @property
    def _has_tensor_cores(self) -> bool:
        return bool(self.details["gpu"].get("tf32"))

    @property
    def name(self) -> str:
        """The GPU, as a part of a file's name."""
        return re.sub("[^a-z0-9]+", "-", str(self.details["gpu"].get("GPU", "unknown")).lower()).strip("-")

    def to_json(self) -> dict[str, Any]:
        """Return the form in which results are kept, with everything that was measured."""
        kept = to_json(BENCH, self.rows)
        known = self.details["gpu"]
        kept["machine"] = f"{known.get('GPU', 'unknown GPU')}, {kept['machine']}"
        kept["versions"] |= {name: text for name, text in self.details["torch"].items() if name != "reason"}
        kept["versions"] |= {name: known[name] for name in ("CUDA", "driver version") if name in known}
        return kept | self.details


def ask(python: str, fact: str, seconds: float, *words: str) -> Answer:
    """Return one of the facts."""
    with Child(python, "gpu.facts", fact, *words) as child:
        return child.answer(seconds)


def missing() -> str:
    """Return why nothing can be measured here, or nothing; asked elsewhere, as this process is to have no GPU."""
    try:
        return str(ask(sys.executable, "device", 90)["missing"])
    except NotMeasuredError as error:
        return str(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments = options(BENCH, PARTS, argv)
    if reason := missing():
        print(f"{BENCH}: {reason}; {INSTALL}", file=sys.stderr)
        return NO_GPU
    kept = not arguments.quick and arguments.only is None

    def file_of(gpu: Gpu) -> Path | None:
        return arguments.json or (harness.RESULTS / f"{BENCH}-{gpu.name}.json" if kept else None)

    def keep(gpu: Gpu) -> None:
        if (file := file_of(gpu)) is not None:
            file.write_text(json.dumps(gpu.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    gpu = Gpu(arguments.quick, keep)
    gpu.run(arguments.only)
    print(*(f"{name}: {fact}" for part in ("gpu", "torch") for name, fact in gpu.details[part].items()), sep="\n")
    print("", harness.table(gpu.rows), sep="\n")
    seconds = sum(part["seconds"] for part in gpu.details["parts"].values())
    print(f"\n{number(seconds, 's')}" + (f", kept in {file}" if (file := file_of(gpu)) else ""))
    return int(any(row.met is False or row.ours is None for row in gpu.rows))


if __name__ == "__main__":
    sys.exit(main())
