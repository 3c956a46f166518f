"""Write a batch on this machine: the same files as its jobs would, on all cores."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict

from nnlib.util.files import write_atomically
from regiondag.errors import RegiondagError
from regiondag.recommend.batch import BatchFolder, BatchPlan, Chunk, PartError
from regiondag.recommend.make import DATA, FLOOR, MODEL

Watch = Callable[[int], None]


def write_here(batch: BatchFolder, plan: BatchPlan, threads: int, watch: Watch) -> None:
    """Write every file of a batch that is not there yet, then its manifest; `watch` takes how many customers are done.

    What was written stays when this is interrupted.
    """
    from nnlib.errors import NnlibError

    for region in plan.regions:
        missing = []
        for chunk in region.chunks():
            try:
                batch.read_part(plan, chunk)
                watch(chunk.customers)
            except PartError:
                missing.append(chunk)
        try:
            if missing:
                _write_region(batch, plan, missing, threads, watch)
        except NnlibError as error:
            raise RegiondagError(f"region {region.name!r}: {error}") from error
    batch.finish(plan)


def _write_region(batch: BatchFolder, plan: BatchPlan, chunks: list[Chunk], threads: int, watch: Watch) -> None:
    import numpy as np

    from nnlib.prediction.recommended_file import write_recommended
    from nnlib.prediction.recommender import open_recommender
    from nnlib.util.threads import workers

    region = plan.region(chunks[0].slug)
    inputs = batch.inputs(region.slug)
    floor = inputs / FLOOR if region.floor else None
    recommender = open_recommender(inputs / MODEL, inputs / DATA, floor)
    limits = recommender.limit(plan.k, plan.owned, plan.only, plan.never)
    with workers(threads) as each:
        for chunk in chunks:
            started = time.time()
            rows = np.arange(chunk.first, chunk.last + 1)
            written = write_recommended(batch.part(chunk), region.name, recommender, rows, limits, each, watch)
            facts = asdict(written) | {"seconds": time.time() - started}
            write_atomically(batch.report(chunk), json.dumps(facts, indent=1) + "\n")
