"""Look at a table as `regiondag init --data` does: with progress, in a scratch folder that goes away."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from nnlib.importing.sniffing.look import Look, Wishes, look_at
from nnlib.importing.table_source import TableFormat, find_source
from nnlib.util.terminal import show_reading

SHARE = 0.8  # of this machine's memory, which a job may have at most


def look_at_table(table: Path, wishes: Wishes) -> Look:
    """Guess what `wishes` leave open of a table, and count what it holds; DataError and AmbiguousError of `look_at`."""
    size = find_source(table, TableFormat(encoding=wishes.encoding or "utf-8")).size
    with tempfile.TemporaryDirectory(prefix="regiondag-") as scratch, show_reading(size, "rows") as report:
        return look_at(table, wishes, Path(scratch), report)


def find_memory() -> int:
    """Return how many bytes a job may have at most, if it runs on a machine like this one."""
    return int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
