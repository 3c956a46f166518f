"""Begin a batch, or find the one that is to go on: a plan, and the files that its jobs read, which stay as they are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from nnlib.contract import sha256_of
from nnlib.util.files import appearing, link_or_copy
from regiondag.errors import RegiondagError
from regiondag.recommend.ask import Wish
from regiondag.recommend.batch import RECOMMENDATIONS, BatchFolder, BatchPlan, RegionBatch, list_batches
from regiondag.recommend.region import Served, Sources

MODEL, DATA, FLOOR, ONLY, NEVER = "model.nc", "data.nc", "floor.nc", "only.txt", "never.txt"
AIM = 300.0  # seconds of one processor that a chunk should take
SCORES = 1.5e7  # items scored in a second, a model between the quickest and the slowest (docs/guides/recommend.md)
LEAST = 1000  # customers of a chunk: fewer are not worth a start


def begin_batch(
    study: Path, served: Served, slugs: Sequence[str], wish: Wish, chunk: int | None = None
) -> tuple[BatchFolder, BatchPlan]:
    """Return the newest batch of the same plan that is not finished, or a new one in the study's folder.

    Champions, data, filters and chunks all count. RegiondagError where something of a region is missing.
    """
    sources = {slug: served.find(slug) for slug in slugs}
    regions = tuple(_plan(slug, found, chunk) for slug, found in sources.items())
    plan = BatchPlan(served.study, wish.k, wish.owned, wish.only, wish.never, regions)
    for batch in list_batches(study):
        if not batch.manifest.exists() and batch.read_plan() == plan:
            return batch, plan
    return _create(study, plan, sources), plan


def choose_chunk(items: int) -> int:
    """Return how many customers make some minutes of work.

    >>> choose_chunk(20_000)
    225000
    """
    return max(LEAST, int(AIM * SCORES / max(1, items)))


def _plan(slug: str, found: Sources, chunk: int | None) -> RegionBatch:
    from nnlib.errors import NnlibError
    from nnlib.prediction.recommender import measure_data

    champion = found.champion
    try:
        customers, items = measure_data(found.data)
    except NnlibError as error:
        raise RegiondagError(f"region {champion.region!r}: {error}") from error
    return RegionBatch(
        slug,
        champion.region,
        champion.version,
        champion.sha256,
        sha256_of(found.data),
        customers,
        items,
        chunk or choose_chunk(items),
        champion.floor is not None,
    )


def _create(study: Path, plan: BatchPlan, sources: dict[str, Sources]) -> BatchFolder:
    above = study / RECOMMENDATIONS
    above.mkdir(mode=0o700, exist_ok=True)  # what customers may want is the study's business
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (stamp, *(f"{stamp}-{n}" for n in range(2, 1000)))
    batch = BatchFolder(next(above / name for name in names if not (above / name).exists()))
    items = next((found.items for found in sources.values() if found.items), None)
    with appearing(batch.path, 0o700) as folder:
        part = BatchFolder(folder)
        part.work.mkdir()
        for slug, found in sources.items():
            (folder / slug).mkdir()
            part.inputs(slug).mkdir()
            copies = {MODEL: found.champion.model, DATA: found.data, FLOOR: found.champion.floor}
            for name, source in copies.items():
                if source is not None:
                    link_or_copy(source, part.inputs(slug) / name)
        if items is not None:
            link_or_copy(items, folder / items.name)
        for name, ids in ((ONLY, plan.only), (NEVER, plan.never)):
            if ids:
                (part.work / name).write_text("".join(f"{one}\n" for one in ids), encoding="utf-8")
        part.write_plan(plan)
    return batch
