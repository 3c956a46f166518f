#!/usr/bin/env python3
"""Everything that is measured on a GPU, in less than eight minutes: `gpu.sh [--quick] [--json FILE]`. See README.md."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import harness
from harness import NotMeasuredError, Row, number, options, to_json

BENCH = "gpu"
NO_GPU = 75
BUDGET, QUICK_BUDGET = 465.0, 100.0  # seconds for everything
LEAST = 5.0  # seconds with which something may be begun
LIMITS = {"facts": 60.0, "ceilings": 45.0, "multiply": 60.0, "training": 100.0, "epoch": 75.0}
PARTS = ("multiply", "epoch", "training")  # besides what is always done
TORCH_PYTHON = "TORCH_PYTHON"  # the variable with a Python that has PyTorch, where it is another one
NEEDS = ("numpy", "scipy", "cupy")
INSTALL = (
    "pip install '.[gpu-cuda13]' (or '.[gpu-cuda12]') in this checkout brings regiondag with CuPy, "
    "pip install torch the peers; PYTHON=that/python scripts/bench/gpu.sh uses them"
)
DRIVER = "nvidia-smi shows whether there are a driver and a GPU"
harness.PACKAGES = (*harness.PACKAGES, "cupy-cuda13x", "cuda-toolkit", "nvidia-npp", "nvidia-npp-cu12", "numba")

K, M = 1 << 10, 1 << 20
CHOSEN = ((K, "mul_c", "NPP"), (K, "mul_c", "cupy.multiply"), (K, "multi_mul_c", "torch _foreach_mul_"))
COPIED = 16 * M  # floats of the arrays whose bandwidth is a row


def missing() -> str:
    """Return on one line why nothing can be measured here and what helps, or nothing."""
    lacking = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if lacking:
        return f"{', '.join(lacking)}: not in {sys.executable}; {INSTALL}"
    code = "import gpu_multiply_ways; print(gpu_multiply_ways.no_gpu())"  # not in this process, which is to have no GPU
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=90, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the GPU does not answer; {DRIVER}"
    found = (done.stdout if done.returncode == 0 else done.stderr).strip().rpartition("\n")[2]
    return f"{found}; {DRIVER}" if found else ""


class Budget:
    """The time that is left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def of(self, part: str) -> float:
        """Return the seconds that a part may take; NotMeasuredError when the time is up."""
        left = self._end - time.monotonic()
        if left < LEAST:
            raise NotMeasuredError("the time for everything was up")
        return min(LIMITS[part], left)


class Gpu:
    """All that is measured: `rows`, `details`, and of each part its time and why it has failed, if it has."""

    def __init__(self, quick: bool, keep: Callable[[Gpu], None] = lambda _: None) -> None:
        self.quick, self.own = quick, sys.executable
        self.peers = os.environ.get(TORCH_PYTHON) or self.own
        self.rows: list[Row] = []
        self.details: dict[str, Any] = {"gpu": {}, "torch": {}, "parts": {}}
        self.tables: list[Sequence[tuple[str, ...]]] = []
        self._budget, self._keep = Budget(QUICK_BUDGET if quick else BUDGET), keep

    def run(self, only: str | None = None) -> None:
        """Do all parts, or one of them."""
        for name in ("facts", "torch", "ceilings"):
            self.part(name, lambda name=name: self.ask(name))  # type: ignore[misc]
        if only in (None, "multiply"):
            self.part("multiply", self.multiply)
        if only in (None, "epoch"):
            self.part("epoch", self.epoch)
        if only in (None, "training"):
            self.training()

    def part(self, name: str, work: Callable[[], Iterable[Row]]) -> None:
        """Do a part; what it raises does not end the others, and what it measured before stays."""
        print(f"{name} ...", file=sys.stderr, flush=True)
        began, reason = time.monotonic(), ""
        try:
            for row in work():
                self.rows.append(row)
        except NotMeasuredError as error:
            reason = str(error)
        except Exception as error:  # a bug in one part must not cost what the others measured
            reason = f"{type(error).__name__}: {error}"
        self.details["parts"][name] = {"seconds": round(time.monotonic() - began, 1), "reason": reason}
        if reason:
            self.rows.append(Row(name, None, None, "", note=reason))
        self._keep(self)

    def ask(self, name: str) -> Iterator[Row]:
        """Find out what there is and what it reaches."""
        from gpu_child import one_answer

        python = self.peers if name == "torch" else self.own
        words = [name, *(["quick"] if self.quick else [])]
        limit = self._budget.of(name if name in LIMITS else "facts")
        self.details["gpu" if name == "facts" else name] = one_answer(python, "gpu_parts.py", limit, *words)
        return iter(())

    def multiply(self) -> Iterator[Row]:
        """`data[i] *= c` as in 2014."""
        import gpu_multiply
        from gpu_child import Child

        lines: list[gpu_multiply.Line] = []
        kept = self.details["multiply"] = {"lines": [], "not measured": {}}
        failure = None
        with Child(self.own, "gpu_parts.py", "multiply", *(["quick"] if self.quick else [])) as child:
            try:
                for answer in child.answers(self._budget.of("multiply")):
                    kept["lines"] += answer["lines"]
                    kept["not measured"] |= answer["absent"]
            except NotMeasuredError as error:
                failure = error
        for raw in kept["lines"]:
            lines.append(gpu_multiply.Line(**raw | {"times": gpu_multiply.Times(**raw["times"])}))
        self.tables.append([gpu_multiply.HEADINGS, *map(gpu_multiply.cells, lines)])
        yield from chosen({(line.n, line.way): line for line in lines})
        if failure:
            raise failure

    def epoch(self) -> Iterator[Row]:
        """An epoch over data of MovieLens-20M's shape."""
        import gpu_epoch
        from gpu_child import Child

        shape = gpu_epoch.QUICK if self.quick else gpu_epoch.Shape()
        given = json.dumps([asdict(shape), self._has_tf32, min(8, os.cpu_count() or 1)])
        answers = self.details["epoch"] = []
        failure = None
        with Child(self.own, "gpu_epoch.py", given) as child:
            try:
                answers.extend(child.answers(self._budget.of("epoch")))
            except NotMeasuredError as error:
                failure = error
        yield from gpu_epoch.rows_of(answers, published=not self.quick) if answers else ()
        if failure:
            raise failure

    def training(self) -> None:
        """Every workload is a part."""
        import gpu_train

        self.details["training"] = []
        table: list[tuple[str, ...]] = [gpu_train.HEADINGS]
        self.tables.append(table)
        for work in gpu_train.works(self.quick, self._has_tf32):
            self.part(f"training {gpu_train.name_of(work)}", lambda work=work: self._trained(work, table))  # type: ignore[misc]

    def _trained(self, work: Any, table: list[tuple[str, ...]]) -> Iterator[Row]:
        import gpu_floor
        import gpu_train

        variants = gpu_train.variants_of(work, compiled=not self.quick)
        if "reason" in self.details["torch"]:
            variants = variants[:1]
        start = gpu_train.starter(self.own, self.peers)
        outcome = gpu_train.compared(work, variants, start, self._budget.of("training"))
        if "ceilings" in self.details:
            ceilings = gpu_floor.Ceilings(**self.details["ceilings"])
            outcome.floor = gpu_floor.floor_of(work, gpu_floor.touched_by(work), ceilings)
        table.extend(gpu_train.cells(outcome))
        self.details["training"].append(gpu_train.to_keep(outcome))
        yield from gpu_train.rows_of(outcome, goals=not self.quick)
        if not work.tf32:
            yield gpu_train.memory_row(outcome)

    @property
    def _has_tf32(self) -> bool:
        return bool(self.details["gpu"].get("tf32"))

    def to_json(self) -> dict[str, Any]:
        """Return the form in which results are kept, with everything that was measured."""
        kept = to_json(BENCH, self.rows)
        kept["machine"] = f"{self.details['gpu'].get('GPU', 'unknown GPU')}, {kept['machine']}"
        kept["versions"] |= {name: text for name, text in self.details["torch"].items() if name != "reason"}
        known = self.details["gpu"]
        kept["versions"] |= {name: known[name] for name in ("CUDA", "driver version") if name in known}
        return kept | self.details


def chosen(lines: Mapping[tuple[int, str], Any]) -> Iterator[Row]:
    """Return a few rows of `data[i] *= c`; a way that was not measured is nothing."""
    for n, way, peer in CHOSEN:
        ours, other = lines.get((n, way)), lines.get((n, peer))
        paces = [1 / line.times.host if line else None for line in (ours, other)]
        yield Row(f"data[i] *= c, arrays of {n // K}K floats: {way} (peer: {peer})", *paces, "calls/s", higher=True)
    own = lines.get((COPIED, "mul_c"))
    name = f"data[i] *= c, arrays of {COPIED // M}M floats: mul_c, bandwidth (peer: a copy)"
    yield Row(name, *((own.bandwidth / 1e9, own.copy / 1e9) if own else (None, None)), "GB/s", higher=True)


def table(lines: Sequence[tuple[str, ...]]) -> str:
    """Return lines of texts in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments: Namespace = options(BENCH, PARTS, argv)
    reason = missing()
    if reason:
        print(f"{BENCH}: {reason}", file=sys.stderr)
        return NO_GPU
    file = arguments.json
    if file is None and not arguments.quick and arguments.only is None:
        file = harness.RESULTS / f"{BENCH}.json"

    def keep(gpu: Gpu) -> None:
        if file is not None:
            file.write_text(json.dumps(gpu.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    gpu = Gpu(arguments.quick, keep)
    gpu.run(arguments.only)
    print(*(f"{name}: {fact}" for part in ("gpu", "torch") for name, fact in gpu.details[part].items()), sep="\n")
    print("", *map(table, gpu.tables), harness.table(gpu.rows), sep="\n\n")
    seconds = sum(part["seconds"] for part in gpu.details["parts"].values())
    print(f"\n{number(seconds, 's')}" + (f", kept in {file}" if file else ""))
    return int(any(row.met is False or row.ours is None for row in gpu.rows))


if __name__ == "__main__":
    sys.exit(main())
