"""What fine-tuning costs by GPUs and batch, on demand and spot: `python -m scripts.bench.gpu.costs`.

What is predicted needs no GPU (cost_tables.py). Where there are GPUs, what nnlib does with them is measured: trainings
side by side, each on a GPU of its own. The two share neither a table nor a file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from docs._generate.markdown import table
from nnlib.parallel.places import VISIBLE, gpus_of
from nnlib.shards.tree import RANKS
from regiondag.accounting.prices import PriceTable, read_prices
from scripts.bench.common import harness
from scripts.bench.common.child import Child
from scripts.bench.common.harness import Row, to_json
from scripts.bench.common.pictures import RESNET_50
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.common.workload import STEP
from scripts.bench.gpu.__main__ import ask, missing
from scripts.bench.gpu.cost_tables import (
    EPOCHS,
    HEADINGS,
    IMAGES,
    PREDICTED,
    Job,
    Speed,
    about_of,
    cells,
    to_keep,
    works,
)
from scripts.bench.gpu.instances import cheapest_share, family_of
from scripts.bench.gpu.training import ANSWER, ROUNDS
from scripts.bench.gpu.work import GpuWork

BENCH = "costs"
FACT, READY = 60.0, 240.0  # seconds for a fact, and for all sides to be ready

Start = Callable[[GpuWork, int], Any]  # gives a context of what answers as Child does, on the GPU of a number


def start_on(work: GpuWork, gpu: int) -> Child:
    """Start our side on one of the GPUs that this process may use."""
    visible = gpus_of(gpu + 1, os.environ)[gpu]
    return Child(sys.executable, "gpu.ours", work.arguments(), env={VISIBLE: visible})


def measured_rate(work: GpuWork, gpus: int, start: Start) -> float:
    """Return the images a second of trainings side by side, all together: the median of some rounds."""
    with ExitStack() as stack:
        sides = [stack.enter_context(start(work, gpu)) for gpu in range(gpus)]
        for side in sides:
            side.answer(READY)
        rates: list[float] = []
        for _ in range(ROUNDS):
            for side in sides:
                side.tell(STEP)
            rates.append(sum(1e3 * work.batch / side.answer(ANSWER)["ms"] for side in sides))
    return statistics.median(rates)


def measured_speeds(gpu: str, count: int, some: Sequence[GpuWork], start: Start = start_on) -> Iterator[Speed]:
    """Yield what is measured of 1, 2, 4 and 8 GPUs of this machine, each with a training of its own."""
    for work in some:
        alone = measured_rate(work, 1, start)
        for gpus in (ranks for ranks in RANKS if ranks <= count):
            rate = alone if gpus == 1 else measured_rate(work, gpus, start)
            yield Speed(family_of(gpu), gpu, gpus, work.batch, rate, alone)


def measure(gpu: str, speeds: Iterable[Speed], prices: PriceTable, job: Job) -> dict[str, Any]:
    """Return the form in which what is measured is kept; what was measured before a failure stays."""
    found: list[Speed] = []
    reason = ""
    try:
        for speed in speeds:
            found.append(speed)
    except NotMeasuredError as error:
        reason = str(error)
    name = f"{RESNET_50} side by side, {gpu}"
    rows = [Row(f"{name} x {one.gpus}, batch {one.batch}", one.rate, None, "images/s", higher=True) for one in found]
    rows += [Row(name, None, None, "images/s")] if reason else []
    lines = [cells(one, cheapest_share(prices, one.family or "", one.gpus), job, one.gpus) for one in found]
    kept = to_json(BENCH, rows)
    kept["machine"] = f"{gpu}, {kept['machine']}"
    about = about_of(prices, job)
    return kept | {"about": about, "reason": reason, "headings": HEADINGS, "measured": lines}


def main(argv: Sequence[str] | None = None) -> int:
    """Print what is predicted, measure where there is a GPU, and keep both; 1 if something could not be measured."""
    arguments = _options(argv)
    prices, job = read_prices(arguments.prices), Job(arguments.images, arguments.epochs)
    keeps = not arguments.quick and arguments.prices is None and job == Job()
    made = to_keep(prices, job)
    for title, one in made.items():
        if isinstance(one, Mapping):
            print(f"{title}: {one['about']}\n\n{table(one['headings'], one['rows'])}\n")
    if keeps:
        _write(harness.RESULTS / f"{PREDICTED}.json", made)
    if reason := missing():
        print(f"measured: nothing, {reason}", file=sys.stderr)
        return 0
    gpu, count = str(ask(sys.executable, "gpu", FACT)["GPU"]), int(ask(sys.executable, "device", FACT)["count"])
    measured = measure(gpu, measured_speeds(gpu, count, works(arguments.quick)), prices, job)
    print(f"measured, trainings side by side: {measured['about']}\n\n{table(HEADINGS, measured['measured'])}")
    print(measured["reason"], file=sys.stderr)
    name = re.sub("[^a-z0-9]+", "-", gpu.lower()).strip("-")
    if file := arguments.json or (harness.RESULTS / f"{BENCH}-{name}.json" if keeps else None):
        _write(file, measured)
    return int(bool(measured["reason"]))


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What fine-tuning costs.", allow_abbrev=False)
    parser.add_argument("--images", type=int, default=IMAGES, help=f"of an epoch (default: {IMAGES:,})")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"of the training (default: {EPOCHS})")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="your own prices, as for regiondag stats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what is measured to FILE")
    parser.add_argument("--quick", action="store_true", help="measure a small network only; nothing is kept")
    return parser.parse_args(argv)


def _write(file: Path, kept: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
