"""`nnlib inspect FOLDER`: what the data of all regions of an import are like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nnlib.data.overview import (
    FEW,
    HEADINGS,
    NARROW,
    AsOf,
    RegionOverview,
    Suspicions,
    describe_region,
    find_warnings,
    table_row,
)
from nnlib.data.read_events import read_events, read_window
from nnlib.data.rows import Ints
from nnlib.errors import DataError
from nnlib.util.columns import format_fitted
from nnlib.util.terminal import WHOLE_WIDTH

WHOLE = ".all.nc"


def describe_folder(folder: Path, today: int, room: int = WHOLE_WIDTH) -> tuple[str, list[str]]:
    """Return a table of the regions of a folder that `nnlib import` wrote, and warnings; `today` since 1970-01-01.

    The table is not wider than `room`.

    A region's parts are those that begin with the name of its part `all`. DataError when there is none, or when parts
    are of different items.
    """
    stems = [path.with_name(path.name.removesuffix(WHOLE)) for path in sorted(folder.glob(f"*{WHOLE}"))]
    if not stems:
        raise DataError(f"{folder}: no file *{WHOLE}; legal: a data or model file, or a folder of `nnlib import`")
    seen: set[str] = set()
    for stem in stems:
        history = read_events(part_of(stem, "final"))
        seen.update(history.items[unit] for unit in np.unique(history.bought.indices).tolist())
    found = [_describe(stem, seen) for stem in stems]
    regions = [one for one, _ in found]
    as_of = next((days for _, days in found if days is not None), None)
    cells = [table_row(one) for one in regions]
    right = [False, *(True,) * (len(HEADINGS) - 1)]
    table = format_fitted(HEADINGS, cells, right, NARROW, room)
    return table, find_warnings(regions, as_of, today, _suspicions(regions))


def _suspicions(regions: Sequence[RegionOverview]) -> Suspicions:
    large = [one for one in regions if one.customers >= FEW]
    if not large:
        return Suspicions()
    busiest = max(large, key=lambda one: one.most)
    share = busiest.most / max(1, sum(one.entries for one in regions))
    return Suspicions(busiest=f"a customer of {busiest.region!r}", share=share)


def part_of(stem: Path, part: str) -> Path:
    """Return the file of a region's part."""
    return stem.with_name(f"{stem.name}.{part}.nc")


def _describe(stem: Path, seen: set[str]) -> tuple[RegionOverview, AsOf | None]:
    """Return what is shown of a region, and its windows, None without times."""
    train, final, whole = (read_events(part_of(stem, part)) for part in ("train", "final", "all"))
    valid, test = (_asked(part_of(stem, part)) for part in ("valid", "test"))
    known = np.array([item in seen for item in whole.items], dtype=np.bool_)
    name = whole.regions[0] if len(whole.regions) == 1 else stem.name
    repeats = None if whole.counts is None else 1 - whole.bought.nonzeros / int(whole.counts.sum())
    one = describe_region(name, whole.bought, whole.days, (valid[0], test[0]), test[1], known, repeats)
    return one, None if whole.days is None else AsOf(train.as_of, final.as_of, whole.as_of)


def _asked(path: Path) -> tuple[int, Ints]:
    """Return how many customers have targets in a part, and these; none when there is no such part."""
    if not path.exists():
        return 0, np.empty(0, np.int32)
    window = read_window(path)
    return int(np.count_nonzero(np.diff(window.wanted.indptr))), window.wanted.indices
