"""An index of a region's journal, so that other regions' PRE scripts look through its last lines alone.

It says nothing that the journal does not: where it is missing, torn or of another file, all lines are looked through,
to the same values. A region's own PRE makes it anew when much was appended since. It may be thrown away.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nnlib.contract import Metric
from nnlib.util.files import write_atomically
from regiondag.run.journal import Journal
from regiondag.run.layout import RegionFolder
from regiondag.run.observations import observe_best_and_first
from regiondag.run.values import Values, read_values
from regiondag.tuning.sharing import EACH

RENEWED = 1 << 16  # bytes of the journal after the index
MARK = 80  # bytes of the last line, its time among them, that tell whether the index is of this journal


def read_indexed(folder: RegionFolder) -> Values:
    """Return what `read_values` does, with the index's help."""
    return read_values(Journal(folder.journal), values=_read(folder))


def renew_index(folder: RegionFolder, metric: Metric) -> None:
    """Make the index anew where it is far behind. Call it under the journal's lock."""
    known = _read(folder)
    size = folder.journal.stat().st_size if folder.journal.exists() else 0
    if size - (known.folded if known else 0) < RENEWED:
        return
    values = read_values(Journal(folder.journal), values=known)
    values.parsed.clear()
    observe_best_and_first(values, metric, EACH, lambda _: True)  # parses the points that others ask for
    raw = {
        "journal": _identify(folder.journal, values.last),
        "lines": values.lines,
        "last": values.last,
        "folded": values.folded,
        "places": [list(values.places), list(values.places.values())],
        "told": [list(values.told), list(values.told.values())],
        "open": sorted(values.open),
        "parsed": [list(values.parsed), list(values.parsed.values())],
    }
    write_atomically(folder.journal_index, json.dumps(raw, allow_nan=False) + "\n")


def _read(folder: RegionFolder) -> Values | None:
    """Return what the index says; None where it is of no use."""
    try:
        raw: dict[str, Any] = json.loads(folder.journal_index.read_bytes())
        values = Values(
            folder.journal,
            places=dict(zip(*raw["places"], strict=True)),
            told=dict(zip(*raw["told"], strict=True)),
            open=set(raw["open"]),
            lines=raw["lines"],
            last=raw["last"],
            folded=raw["folded"],
            parsed=dict(zip(*raw["parsed"], strict=True)),
        )
        whole = folder.journal.stat().st_size >= values.folded
        return values if whole and raw["journal"] == _identify(folder.journal, values.last) else None
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _identify(journal: Path, last: int) -> list[Any]:
    """Return what tells a journal from another one: its file, and how a line of it begins."""
    with journal.open("rb", MARK) as file:
        file.seek(last)
        return [os.fstat(file.fileno()).st_ino, file.read(MARK).decode("latin-1")]
