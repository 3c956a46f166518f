"""What all benchmarks share: rows, the table, the JSON form, and the command line."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from inspect import isfunction
from pathlib import Path
from typing import Any, Generic, TypeVar

from scripts.bench.common.processes import REPOSITORY, NotMeasuredError
from scripts.bench.common.processor import describe_processor

RESULTS = REPOSITORY / "scripts/bench/results"
WORK = REPOSITORY / ".bench"  # ignored by git; not /tmp, which DAGMan refuses

HEADINGS = ("workload", "ours", "peer", "ratio", "goal", "met")
PACKAGES = (
    *("regiondag", "htcondor", "jinja2", "scikit-optimize", "scikit-learn", "numpy", "scipy", "netCDF4", "numba"),
    *("cupy-cuda12x", "cupy-cuda13x", "cuda-toolkit", "nvidia-npp", "nvidia-npp-cu12", "pandas", "pyarrow", "plotly"),
    *("starlette", "uvicorn", "httptools", "uvloop", "fastapi", "implicit", "onnx", "onnxruntime"),
)
MB = 1 << 20


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


Sizes = TypeVar("Sizes")  # how much is measured: in a full run, in a quick one
Group = Callable[[], Iterable[Row]]  # measures one or more rows


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


def columns(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as plain text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def table(rows: Sequence[Row]) -> str:
    """Return rows under headings, as plain text; the notes follow."""
    head, *lines = columns([HEADINGS, *map(cells, rows)]).splitlines()
    rule = "-" * max(map(len, [head, *lines]))
    notes = [f"{row.workload}:\n  " + row.note.replace("\n", "\n  ") for row in rows if row.note]
    return "\n".join([head, rule, *lines, *([""] if notes else []), *notes])


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


def machine() -> str:
    """Describe this machine on one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = platform.freedesktop_os_release().get("PRETTY_NAME")
    return f"{describe_processor()}, {os.cpu_count()} cores, {memory:.0f} GB, {system}"


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
    parser = argparse.ArgumentParser(description=f"The benchmark {bench}.", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute, no goals; nothing is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--only", choices=tuple(groups), help="measure only these rows; nothing is kept")
    return parser.parse_args(argv)


def finish(
    bench: str,
    rows: Sequence[Row],
    arguments: argparse.Namespace,
    more: Mapping[str, object] | None = None,
    *,
    merged: bool = False,
) -> int:
    """Print the table and keep the results, with `more` besides; 1 if a goal is missed or a row is not measured.

    Results that are `merged` are kept, too, where only some rows were measured.
    """
    if arguments.quick:  # goals are for the full sizes
        rows = [replace(row, goal=None, goal_is_ratio=False) for row in rows]
    print(table(rows))
    made, kept = {**to_json(bench, rows), **(more or {})}, RESULTS / f"{bench}.json"
    if arguments.json:
        arguments.json.write_text(as_text(made), encoding="utf-8")
    if not arguments.quick and (merged or arguments.only is None):
        if merged and arguments.only is not None and kept.exists():
            made = merge(json.loads(kept.read_text(encoding="utf-8")), made)
        kept.write_text(as_text(made), encoding="utf-8")
    return int(any(row.met is False or row.ours is None for row in rows))


def as_text(made: Mapping[str, Any]) -> str:
    """Return results as they are kept; curves take a line each."""
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    return re.sub(r"\[\s+([-\d.e,\s]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def merge(kept: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return results with the rows that were kept before and not made anew, whichever form of the peer they name.

    Rows of another machine, or with other versions, are not kept, nor groups made anew that could not be measured.
    """
    apart = ("date", "rows")
    same = all(kept.get(key) == made.get(key) for key in {*kept, *made}.difference(apart))
    measured = [row for row in made["rows"] if row["ours"] is not None]
    rows = {_name_row(row): row for row in (*(kept["rows"] if same else ()), *measured)}
    return {**made, "rows": list(rows.values())}


def _name_row(row: Mapping[str, Any]) -> str:
    return re.sub(r" \(peer: [^)]*\)", "", row["workload"])


class Bench(Generic[Sizes]):
    """A benchmark in a folder of its own: each public method measures a group of rows."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        self.area, self.sizes = area, sizes

    @classmethod
    def group_names(cls) -> list[str]:
        """Return the names of the groups, in the order in which they are measured."""
        found = [name for name, value in vars(cls).items() if isfunction(value) and not hasattr(Bench, name)]
        return [name for name in found if not name.startswith("_")]

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return what is kept besides the rows."""
        return {}


def main(
    name: str,
    made: type[Bench[Sizes]],
    full: Sizes,
    quick: Sizes,
    *,
    kept: bool = False,
    merged: bool = False,
    argv: Sequence[str] | None = None,
) -> int:
    """Measure and print, in an empty folder; in one that stays where runs are `kept`, unless they are quick ones.

    Where results are `merged`, those of some rows take their places among those of the others.
    """
    arguments = options(name, made.group_names(), argv)
    with work_area() as scratch:
        area = WORK / name if kept and not arguments.quick else scratch
        bench = made(area, quick if arguments.quick else full)
        rows = measure_groups({group: getattr(bench, group) for group in made.group_names()}, arguments.only)
        return finish(name, rows, arguments, bench.details(rows), merged=merged)
