"""What a study's champions recommend: to one customer, to some, or to all as a DAG of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnlib.prediction.recommender import Recommender


def open_region(runs: Path, study: str, slug: str) -> Recommender:
    """Return what recommends in a region of a study, whose runs lie in `runs`: its current champion.

    RegiondagError where there is none, or where something of it is missing or damaged.
    """
    from regiondag.recommend.region import Served  # DAGMan's scripts start without it

    return Served(runs, study).open(slug)
