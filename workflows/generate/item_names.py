"""Which table says what a study's items are called: the run keeps a copy, so that its recommendations have names."""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path

from regiondag.run.layout import ITEMS_FILE
from regiondag.study.model import Config

LOOKED_AT = 100_000  # rows; a table without a description among these has none worth the search


def find_items(config: Config) -> Path | None:
    """Return the table of the items: one with descriptions if there is any, else one that only lists them; or None.

    Looked for are `items.csv` beside the study and in the folders of its data, where an import writes it.
    """
    folders = [config.file.parent, *(path.parent for region in config.regions for path in region.data.values())]
    found = [path for folder in dict.fromkeys(folders) if (path := folder / ITEMS_FILE).is_file()]
    listing = [path for path in found if _describes(path) is not None]
    return next((path for path in listing if _describes(path)), next(iter(listing), None))


def _describes(path: Path) -> bool | None:
    """Return whether a table has descriptions of its items; None for one that is none of items."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if not {"item", "description"} <= set(rows.fieldnames or ()):
                return None
            return any((row["description"] or "").strip() for row in islice(rows, LOOKED_AT))
    except (OSError, UnicodeDecodeError, csv.Error):
        return None  # somebody else's file of this name
