"""How long `nnlib import` takes and how much memory, beside pandas and SciPy."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import Measured, NotMeasuredError, measure, middle, module

BENCH = "importing"
NEEDED = ("pandas", "pyarrow")
# Where the table that is printed has customers, pairs, and who is asked to validate and to test: names have blanks.
COUNTED = (-9, -7, -4, -3)


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    rows: int = 20_000_000
    repeats: int = 3
    limit: float = 600  # seconds, of one side


QUICK = Sizes(rows=1_000_000, repeats=1, limit=60)


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

    def _run(self, argv: list[str | Path]) -> Measured:
        out = self.area / "out"
        try:
            return measure([*argv, out], timeout=self.sizes.limit)
        finally:
            shutil.rmtree(out, ignore_errors=True)


def _check_same(ours: str, peer: str) -> None:
    """Raise NotMeasuredError unless both sides found as many customers and pairs."""
    lines = [line.split() for line in ours.splitlines()[1:]]
    found = [sum(int(line[column]) for line in lines) for column in COUNTED]
    if found != [int(word) for word in peer.split()]:
        raise NotMeasuredError(f"the results differ: {found}, the peer's {peer.strip()}")


if __name__ == "__main__":
    sys.exit(main(BENCH, Importing, Sizes(), QUICK))
