"""A Parquet file of many customers' recommendations: a row for each, with the columns of COLUMNS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnlib.contract import sha256_of
from nnlib.data.blockwise import Watch
from nnlib.errors import DataError, NnlibError
from nnlib.ops.ranking import NO_ITEM
from nnlib.prediction.answering import Limits
from nnlib.prediction.recommender import NOTHING_KNOWN, Recommender
from nnlib.spec.json_section import show
from nnlib.util.arrays import Longs
from nnlib.util.parquet import Chosen, write_parquet
from nnlib.util.threads import Each, map_in_turn

# What each row says: `rank` counts from 1, `answered_by` is the model in words (SQL has the word `by` for itself).
COLUMNS = ("region", "customer", "rank", "item", "score", "answered_by")


@dataclass(frozen=True, slots=True)
class Written:
    """What a file holds."""

    customers: int
    by_popularity: int  # of the customers: those of whom the model knows no item
    rows: int
    sha256: str


def write_recommended(
    path: Path,
    region: str,
    recommender: Recommender,
    rows: Longs,
    limits: Limits,
    each: Each = map_in_turn,
    watch: Watch = lambda _: None,
) -> Written:
    """Write the best items of customers by their rows, in their order; the file is there whole or not at all.

    NnlibError where nothing is left to recommend to anybody: such a file would have no rows.
    """
    items, scores, alone = [], [], []
    for ranked, by_floor in recommender.rank(rows, limits, each):
        items.append(ranked.items.astype(np.int32))
        scores.append(ranked.scores.astype(np.float32, copy=False))
        alone.append(by_floor)
        watch(len(by_floor))
    item, score, floor = np.concatenate(items), np.concatenate(scores), np.concatenate(alone)
    there = item != NO_ITEM
    owner, place = np.nonzero(there)
    if not len(owner):
        raise NnlibError("nothing is left to recommend: customers have every item that may be; legal: --exclude none")
    with write_parquet(path) as file:
        file.add(
            {
                "region": Chosen([region], np.zeros(len(owner), np.int8)),
                "customer": Chosen(recommender.customers, rows[owner]),
                "rank": (place + 1).astype(np.int32),
                "item": Chosen(recommender.items, item[there]),
                "score": score[there],
                "answered_by": Chosen([recommender.model.by, NOTHING_KNOWN], floor[owner].astype(np.int8)),
            }
        )
    return Written(len(rows), int(floor.sum()), len(owner), sha256_of(path))


def read_ids(path: Path) -> list[str]:
    """Return the ids in a text file, one a line; DataError for one that is not UTF-8 or has none."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise DataError(f"{path}: no id in it, legal: one a line, such as {show('12583')}")
    return found
