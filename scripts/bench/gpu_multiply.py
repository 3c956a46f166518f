#!/usr/bin/env python3
"""`data[i] *= c` on a GPU, as in 2014: 128 arrays, again and again, by our kernel, NPP, CuPy and PyTorch.

    python scripts/bench/gpu_multiply.py [--quick] [--only SIZE] [--json FILE]

For each size and way: calls a second by the host's clock, from the first call to the end of the last; the time of a
call between two events on the GPU, which for small arrays is the host's pace, too; and the bytes read and written in
that time, beside those of a copy on the GPU. Arrays that fit into the GPU's L2 cache together are marked. All this is
printed and goes to --json FILE; exit code 75 if there is no GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gpu_machine
import harness
import numpy as np
from gpu_multiply_ways import (
    COPY,
    ELEMENTWISE,
    FOREACH,
    GRAPH,
    MULTI,
    NPP,
    OWN,
    TORCH,
    UFUNC,
    WAYS,
    C,
    Set,
    Way,
    no_gpu,
)
from harness import NotMeasuredError, Row, number, options, to_json

NAME = "gpu_multiply"
NO_GPU = 75
K, M, GB = 1 << 10, 1 << 20, 1e9
ARRAYS = 128
MOST_BYTES = 4 << 30  # of all arrays; half of the GPU's memory, if that is less
START = np.float32(3)  # in all arrays
COMPARED = {OWN: (NPP, UFUNC, ELEMENTWISE, TORCH), GRAPH: (OWN,), MULTI: (OWN, FOREACH)}  # the rows: ours and its peers
HEADINGS = ("floats", "arrays", "way", "calls/s", "time on the GPU", "bandwidth", "of a copy")
harness.PACKAGES = (*harness.PACKAGES, "cupy-cuda13x", "nvidia-npp", "nvidia-npp-cu12", "torch")


@dataclass(frozen=True)
class Sizes:
    """Floats of an array, and how much is done with them."""

    floats: tuple[int, ...] = (K, 4 * K, 16 * K, 64 * K, 256 * K, M, 4 * M, 16 * M, 64 * M)
    passes: int = 200  # over all arrays, in one measurement; 1000 in 2014, but here rates are compared
    bytes: int = 200 << 30  # at most, read and written in one measurement
    rounds: int = 7


QUICK = Sizes(floats=(K, M, 16 * M), passes=20, bytes=20 << 30)


@dataclass(frozen=True)
class Times:
    """Seconds of a call: by the host's clock, and between events on the GPU."""

    host: float
    device: float


@dataclass(frozen=True)
class Line:
    """What was measured of a way on arrays of n floats."""

    way: str
    n: int
    arrays: int
    in_l2: bool
    times: Times
    copy: float  # bytes a second of a copy

    @property
    def label(self) -> str:
        """Return how the row begins."""
        return f"data[i] *= c, {self.arrays} arrays of {label(self.n)} floats" + (" (in L2)" if self.in_l2 else "")

    @property
    def bandwidth(self) -> float:
        """Return the bytes a second that a call reads and writes."""
        return bandwidth(self.n, self.times.device)


def label(n: int) -> str:
    """Return a number of floats in short.

    >>> label(64 * K)
    '64K'
    """
    return f"{n // M}M" if n % M == 0 else f"{n // K}K" if n % K == 0 else str(n)


def bandwidth(n: int, seconds: float) -> float:
    """Return the bytes a second of a call that reads and writes n floats."""
    return 8 * n / seconds


def arrays_of(n: int, memory: int) -> int:
    """Return how many arrays of n floats are measured on a GPU with so many bytes of memory; a copy needs two."""
    return max(2, min(ARRAYS, min(MOST_BYTES, memory // 2) // (4 * n)))


def passes_of(n: int, arrays: int, sizes: Sizes) -> int:
    """Return how often all arrays are multiplied in one measurement."""
    return max(1, min(sizes.passes, sizes.bytes // (8 * n * arrays)))


def medians(ways: Mapping[str, Way], rounds: int, sample: Callable[[Way], Times]) -> dict[str, Times]:
    """Measure the ways in turn, again and again; return the medians."""
    found: dict[str, list[Times]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(sample(way))
    middle = statistics.median
    return {name: Times(middle(t.host for t in all_), middle(t.device for t in all_)) for name, all_ in found.items()}


def measure(sizes: Sizes, only: str | None = None) -> tuple[list[Line], dict[str, str]]:
    """Return what was measured, and why which ways were not."""
    absent: dict[str, str] = {}
    lines: list[Line] = []
    for n in sizes.floats:
        if only in (None, label(n)):
            print(f"{label(n)} ...", file=sys.stderr, flush=True)
            lines += _measured(n, sizes, absent)
    return lines, absent


def _measured(n: int, sizes: Sizes, absent: dict[str, str]) -> Iterator[Line]:
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()  # those of the size before
    l2 = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["l2CacheSize"]
    count = arrays_of(n, cupy.cuda.runtime.memGetInfo()[0])
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        data = Set([cupy.full(n, START) for _ in range(count)], n, stream)
        ways = dict(_prepared(data, absent))
        passes = passes_of(n, count, sizes)
        times = medians(ways, sizes.rounds, lambda way: _sample(way, data, passes))
    copied = bandwidth(n, times[COPY].device)
    for way in ways:
        yield Line(way, n, count, 4 * n * count <= l2, times[way], copied)


def _prepared(data: Set, absent: dict[str, str]) -> Iterator[tuple[str, Way]]:
    """Give the ways that can be used here and multiply as NumPy does; they are warm then."""
    for name, make in WAYS.items():
        try:
            way = make(data)
            _check(name, way, data)
        except NotMeasuredError as error:
            absent[name] = str(error)
        except Exception as error:  # a library that does not fit the driver fails in its own way
            absent[name] = f"{type(error).__name__}: {error}"
        else:
            yield name, way


def _check(name: str, way: Way, data: Set) -> None:
    wanted = START if name == COPY else START * C
    for _ in range(2):
        for array in data.arrays:
            array.fill(START)
        way()
        for array in data.arrays:
            if not bool((array == wanted).all()):
                raise NotMeasuredError("gives other numbers than NumPy")


def _sample(way: Way, data: Set, passes: int) -> Times:
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    data.stream.synchronize()
    started = time.perf_counter()
    begin.record(data.stream)
    for _ in range(passes):
        way()
    end.record(data.stream)
    data.stream.synchronize()
    host = time.perf_counter() - started
    calls = passes * len(data.arrays)
    return Times(host / calls, cupy.cuda.get_elapsed_time(begin, end) / 1000 / calls)


def rows_of(lines: Sequence[Line]) -> list[Row]:
    """Return our ways beside their peers, in calls a second, and our kernel's bandwidth beside that of a copy."""
    rows: list[Row] = []
    for n in dict.fromkeys(line.n for line in lines):
        rows += _rows({line.way: line for line in lines if line.n == n})
    return rows


def _rows(by_way: Mapping[str, Line]) -> Iterator[Row]:
    for way, peers in COMPARED.items():
        for peer in peers:
            if way in by_way and peer in by_way:
                ours, its = by_way[way], by_way[peer]
                name = f"{ours.label}: {way} (peer: {peer})"
                yield Row(name, 1 / ours.times.host, 1 / its.times.host, "calls/s", higher=True)
    if OWN in by_way:
        own = by_way[OWN]
        name = f"{own.label}: {OWN}, bandwidth (peer: a copy)"
        yield Row(name, own.bandwidth / GB, own.copy / GB, "GB/s", higher=True)


def rows(quick: bool) -> list[Row]:
    """Measure and return the rows; there must be a GPU."""
    return rows_of(measure(QUICK if quick else Sizes())[0])


def cells(line: Line) -> tuple[str, ...]:
    """Return a line as texts, one for each of `HEADINGS`."""
    size = label(line.n) + (" in L2" if line.in_l2 else "")
    return (
        size,
        str(line.arrays),
        line.way,
        number(1 / line.times.host),
        number(line.times.device * 1e6, "us"),
        number(line.bandwidth / GB, "GB/s"),
        number(line.bandwidth / line.copy),
    )


def table(lines: Sequence[Line]) -> str:
    """Return everything that was measured, as plain text."""
    texts = [HEADINGS, *map(cells, lines)]
    widths = [max(len(text[column]) for text in texts) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(text, widths, strict=True)).rstrip() for text in texts
    )


def facts() -> dict[str, str]:
    """Return what is known of the GPU and of what may slow it down."""
    import cupy

    runtime = cupy.cuda.runtime
    has = runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "GPU": has["name"].decode(),
        "memory": number(has["totalGlobalMem"] / GB, "GB"),
        "L2 cache": number(has["l2CacheSize"] / M, "MB"),
        "CUDA": f"{runtime.runtimeGetVersion()}, driver's {runtime.driverGetVersion()}",
        gpu_machine.PARAMETER: gpu_machine.pci_check(),
        "hypervisor": gpu_machine.hypervisor(),
    }


def to_keep(lines: Sequence[Line], absent: Mapping[str, str], known: Mapping[str, str]) -> dict[str, Any]:
    """Return the form in which results are kept, with everything that was measured."""
    return to_json(NAME, rows_of(lines)) | {
        "gpu": dict(known),
        "lines": [asdict(line) for line in lines],
        "not measured": dict(absent),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments = options(NAME, map(label, Sizes().floats), argv)
    missing = no_gpu()
    if missing:
        print(f"{NAME}: {missing}", file=sys.stderr)
        return NO_GPU
    known = facts()
    lines, absent = measure(QUICK if arguments.quick else Sizes(), arguments.only)
    print("\n".join(f"{name}: {fact}" for name, fact in known.items()), table(lines), sep="\n\n")
    print(*(f"not measured: {name}, {reason}" for name, reason in absent.items()), sep="\n")
    if arguments.json:
        text = json.dumps(to_keep(lines, absent, known), indent=1, ensure_ascii=False) + "\n"
        arguments.json.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
