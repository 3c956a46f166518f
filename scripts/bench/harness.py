"""What all benchmarks share: processes measured in turn, medians, the table, the JSON form and the command line."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
WORK = REPOSITORY / ".bench"  # ignored by git; not /tmp, which DAGMan refuses

HEADINGS = ("workload", "ours", "peer", "ratio", "goal", "met")
PACKAGES = (
    "regiondag",
    "htcondor",
    "jinja2",
    "scikit-optimize",
    "numpy",
    "scipy",
    "netCDF4",
    "cupy-cuda12x",
    "pandas",
    "pyarrow",
    "plotly",
)
MB = 1 << 20


class NotMeasuredError(Exception):
    """A row cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Row:
    """One line of the table; `ours` is None when it was not measured.

    Less is better, or more where `higher` says so. The goal is a limit of our figure, or of the ratio where
    `goal_is_ratio` says so; a ratio above one means better than the peer.
    """

    workload: str
    ours: float | None
    peer: float | None
    unit: str
    goal: float | None = None
    note: str = ""  # printed under the table, not kept
    higher: bool = False
    goal_is_ratio: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times as good as the peer: the peer's figure over ours, or ours over the peer's."""
        better, other = (self.ours, self.peer) if self.higher else (self.peer, self.ours)
        return better / other if other and better is not None else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal or a measurement."""
        if self.goal is None or self.ours is None:
            return None
        if self.goal_is_ratio:
            return self.ratio is not None and self.ratio >= self.goal
        return self.ours >= self.goal if self.higher else self.ours <= self.goal


@dataclass(frozen=True)
class Measured:
    """One process: how long it took, and the most memory that it or one of its children had."""

    seconds: float
    peak_mb: float
    output: str


Group = Callable[[], Iterable[Row]]  # measures one or more rows


def measure(
    argv: Sequence[str | Path],
    *,
    timeout: float = 600,
    env: Mapping[str, str] | None = None,
    codes: Sequence[int] = (0,),
) -> Measured:
    """Run a program in a process of its own; NotMeasuredError if it takes too long, or ends with none of `codes`."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [str(word) for word in argv], stdout=output, stderr=errors, env={**os.environ, **(env or {})}
        )
        usage = _wait(process, begin + timeout, argv)
        seconds = time.perf_counter() - begin
        texts = [_text(file) for file in (output, errors)]
    if process.returncode not in codes:
        raise NotMeasuredError(f"{_name(argv)} ended with {process.returncode}: {texts[1][-300:].strip()}")
    return Measured(seconds, usage.ru_maxrss / 1024, texts[0])


def _wait(process: subprocess.Popen[bytes], deadline: float, argv: Sequence[str | Path]) -> Any:
    """Wait for the process and return its resource usage; a pidfd wakes us at its end without polling."""
    import select

    end = os.pidfd_open(process.pid)
    try:
        ended = select.select([end], [], [], max(deadline - time.perf_counter(), 0))[0]
    except BaseException:  # Ctrl-C
        process.kill()
        process.wait()
        raise
    finally:
        os.close(end)
    if not ended:
        process.kill()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if not ended:
        raise NotMeasuredError(f"{_name(argv)} was stopped: it took too long")
    return usage


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace"))


def _name(argv: Sequence[str | Path]) -> str:
    return " ".join(Path(word).name for word in argv[:3])


def in_turn(sides: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Measure each side once, then each again, and so on; return the medians."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            values[name].append(side())
    return {name: statistics.median(found) for name, found in values.items()}


@contextmanager
def work_area() -> Iterator[Path]:
    """Give an empty folder of this process and remove it at the end."""
    WORK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=WORK, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def disk_mb(folder: Path) -> float:
    """Return what the files of a folder hold, in MB."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / MB


def number(value: float | None, unit: str = "") -> str:
    """Return three digits with the unit, or `-` for nothing.

    >>> number(0.0876, "s")
    '0.0876 s'
    """
    if value is None:
        return "-"
    digits = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{digits} {unit}".strip()


def cells(row: Row) -> tuple[str, ...]:
    """Return the row as texts, one for each of `HEADINGS`."""
    ours = "not measured" if row.ours is None else number(row.ours, row.unit)
    met = {None: "-", True: "yes", False: "NO"}[row.met]
    goal = f"ratio {number(row.goal)}" if row.goal_is_ratio else number(row.goal, row.unit)
    return row.workload, ours, number(row.peer, row.unit), number(row.ratio), goal, met


def table(rows: Sequence[Row]) -> str:
    """Return rows under headings, as plain text; the notes follow."""
    lines = [HEADINGS, *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    texts.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"{row.workload}:\n  " + row.note.replace("\n", "\n  ") for row in rows if row.note]
    return "\n".join([*texts, *([""] if notes else []), *notes])


def to_json(bench: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the form in which results are kept."""
    return {
        "bench": bench,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "versions": versions(),
        "rows": [_row_to_json(row) for row in rows],
    }


def _row_to_json(row: Row) -> dict[str, Any]:
    raw = asdict(row) | {"ratio": row.ratio, "met": row.met}
    keys = ["workload", "ours", "peer", "unit", "ratio", "goal", "met"]
    keys += [key for key in ("higher", "goal_is_ratio") if raw[key]]
    return {key: round(raw[key], 4) if isinstance(raw[key], float) else raw[key] for key in keys}


def row_from_json(raw: Mapping[str, Any]) -> Row:
    """Read a row back; what follows from the rest (ratio, met) is computed again."""
    kind = {key: bool(raw.get(key)) for key in ("higher", "goal_is_ratio")}
    return Row(raw["workload"], raw["ours"], raw["peer"], raw["unit"], raw["goal"], **kind)


def machine() -> str:
    """Describe this machine on one line."""
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.freedesktop_os_release().get('PRETTY_NAME')}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def versions() -> dict[str, str]:
    """Return the versions that the figures depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def measure_groups(groups: Mapping[str, Group], only: str | None) -> list[Row]:
    """Measure all rows; one that cannot be measured says why instead of ending the rest."""
    rows: list[Row] = []
    for name, group in groups.items():
        if only not in (None, name):
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            rows.extend(group())  # what is measured before an error stays
        except NotMeasuredError as error:
            rows.append(Row(name, None, None, "", note=str(error)))
        except Exception:
            rows.append(Row(name, None, None, "", note=traceback.format_exc()))
    return rows


def options(bench: str, groups: Iterable[str], argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line that all benchmarks have."""
    parser = argparse.ArgumentParser(prog=f"scripts/bench/{bench}.py", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute; nothing is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--only", choices=tuple(groups), help="measure only these rows; nothing is kept")
    return parser.parse_args(argv)


def finish(bench: str, rows: Sequence[Row], arguments: argparse.Namespace) -> int:
    """Print the table and keep the results; 1 if a goal is missed or a row is not measured."""
    print(table(rows))
    text = json.dumps(to_json(bench, rows), indent=1, ensure_ascii=False) + "\n"
    if arguments.json:
        arguments.json.write_text(text, encoding="utf-8")
    if not arguments.quick and arguments.only is None:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{bench}.json").write_text(text, encoding="utf-8")
    return int(any(row.met is False or row.ours is None for row in rows))
