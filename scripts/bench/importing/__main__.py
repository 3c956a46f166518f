"""How long `nnlib import` takes and how much memory, beside pandas and SciPy."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import Measured, NotMeasuredError, measure, middle, module

BENCH = "importing"
NEEDED = ("pandas", "pyarrow")
GROUPING = ("duckdb", "polars")
# Where the table that is printed has customers, pairs, and who is asked to validate and to test: names have blanks.
COUNTED = (-9, -7, -4, -3)


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    rows: int = 20_000_000
    repeats: int = 3
    many: int = 100_000_000  # once
    limit: float = 600  # seconds, of one side


QUICK = Sizes(rows=1_000_000, repeats=1, many=2_000_000, limit=60)


class Importing(Bench[Sizes]):
    """The rows."""

    def purchases(self) -> Iterator[Row]:
        """A table of purchases becomes the matrices of every region and part, written to disk."""
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise NotMeasuredError(f"the peer needs {', '.join(missing)}: pip install '.[bench]'")
        table = self.area / "purchases.csv"
        measure(module("importing.peer", "generate", table, str(self.sizes.rows)))
        sides: list[list[str | Path]] = [
            [sys.executable, "-m", "nnlib", "import", table, "--out"],
            module("importing.peer", "pandas", table),
        ]
        runs = [[self._run(argv) for argv in sides] for _ in range(self.sizes.repeats)]
        ours, peer = (middle(found) for found in zip(*runs, strict=True))
        _check_same(ours.output, peer.output)
        name = f"import of {self.sizes.rows:,} purchases"
        note = (
            "peer: pandas with PyArrow's reader, SciPy; it writes matrices alone, we also names of items and customers"
        )
        yield Row(name, ours.seconds, peer.seconds, "s", goal=peer.seconds / 2, note=note)
        yield Row(f"{name}: peak memory", ours.peak_mb, peer.peak_mb, "MB", goal=peer.peak_mb / 2)

    def looks(self) -> Iterator[Row]:
        """What init counts of a whole table, beside DuckDB and polars that read and group it and do no more."""
        if importlib.util.find_spec("polars") is None:
            raise NotMeasuredError("the peer needs polars: pip install '.[bench]'")
        for file in self._write(self.sizes.rows):
            yield from self._compare(file, self.sizes.rows, self.sizes.repeats)

    def many(self) -> Iterator[Row]:
        """The same of many more rows, and the import of them beside a peer that reads and groups them."""
        if importlib.util.find_spec("polars") is None:
            raise NotMeasuredError("the peer needs polars: pip install '.[bench]'")
        table, packed = self._write(self.sizes.many)
        for file in (table, packed):
            yield from self._compare(file, self.sizes.many, 1)
        ours = self._run([sys.executable, "-m", "nnlib", "import", table, "--out"])
        peer = measure(module("importing.peer", "duckdb", table, "-"), timeout=self.sizes.limit)
        name = f"import of {self.sizes.many:,} purchases"
        note = "peer: DuckDB reads and groups them, and writes nothing"
        yield Row(name, ours.seconds, peer.seconds, "s", note=note)
        yield Row(f"{name}: peak memory", ours.peak_mb, peer.peak_mb, "MB")

    def _write(self, rows: int) -> tuple[Path, Path]:
        """Return a table of purchases as CSV and as Parquet; it takes the place of the one before."""
        table, packed = self.area / "looked.csv", self.area / "looked.parquet"
        measure(module("importing.peer", "generate", table, str(rows)))
        measure(module("importing.peer", "parquet", table, packed))
        return table, packed

    def _compare(self, file: Path, rows: int, repeats: int) -> Iterator[Row]:
        look: list[str | Path] = [
            sys.executable,
            "-m",
            "regiondag",
            "init",
            "--data",
            file,
            "--count",
            "--dry-run",
            "--json",
            "-q",
        ]
        sides: dict[str, list[str | Path]] = {"ours": [*look, self.area / "study"]}
        sides |= {peer: module("importing.peer", peer, file, "-") for peer in GROUPING}
        runs: dict[str, list[Measured]] = {name: [] for name in sides}
        for _ in range(repeats):
            for name, argv in sides.items():
                runs[name].append(measure(argv, timeout=self.sizes.limit))
        found = {name: middle(measured) for name, measured in runs.items()}
        seen = json.loads(found["ours"].output)
        counts = [seen["rows"], seen["customers"], seen["items"]]
        for peer in GROUPING:
            if counts != [int(word) for word in found[peer].output.split()]:
                raise NotMeasuredError(f"the results differ: {counts}, {peer}'s {found[peer].output.strip()}")
        name = f"look at {rows:,} purchases, {file.suffix[1:]}"
        for peer in GROUPING:
            ours, other = found["ours"], found[peer]
            note = "ours also guesses the form, and checks every date and row"
            yield Row(f"{name}, {peer}", ours.seconds, other.seconds, "s", note=note)
            yield Row(f"{name}, {peer}: peak memory", ours.peak_mb, other.peak_mb, "MB")

    def _run(self, argv: list[str | Path]) -> Measured:
        out = self.area / "out"
        try:
            return measure([*argv, out], timeout=self.sizes.limit)
        finally:
            shutil.rmtree(out, ignore_errors=True)


def _check_same(ours: str, peer: str) -> None:
    """Raise NotMeasuredError unless both sides found as many customers and pairs."""
    words = (line.split() for line in ours.splitlines())
    lines = [line for line in words if line[-1].endswith(".nc")]  # a row of the table has its files last
    found = [sum(int(line[column]) for line in lines) for column in COUNTED]
    if found != [int(word) for word in peer.split()]:
        raise NotMeasuredError(f"the results differ: {found}, the peer's {peer.strip()}")


if __name__ == "__main__":
    sys.exit(main(BENCH, Importing, Sizes(), QUICK))
