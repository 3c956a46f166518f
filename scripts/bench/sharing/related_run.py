"""One run of `related`, in a process of its own: `related_run FAMILY KIND PART SHARE SEED TRIALS`; prints JSON.

All regions are tuned side by side: each batch of a region is proposed from what all of them had tried before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from regiondag.study.space import seed_of
from scripts.bench.sharing.related_tasks import make_regions
from scripts.bench.tuner.problem import Problem
from scripts.bench.tuner.tuners.face import BATCH
from scripts.bench.tuner.tuners.ours import Neighbour, Observation, Shared, propose, search

OFF, RANDOM = "off", "random"


def main() -> None:
    """Run what the command line says."""
    family, kind, part, share, seed, trials = sys.argv[1:]
    regions = make_regions(family, kind, int(part))
    print(json.dumps((draw if share == RANDOM else run)(regions, share, int(seed), int(trials))))


def run(regions: Sequence[Problem], share: str, seed: int, trials: int) -> dict[str, Any]:
    """Tune all regions, batch after batch; return all trials' values and the seconds that proposals took."""
    asked = search(regions[0].space, trials // BATCH, BATCH, share=share)
    histories: list[list[Observation]] = [[] for _ in regions]
    seconds = 0.0
    for _ in range(trials // BATCH):
        begin = time.process_time()
        batches = []
        for number, region in enumerate(regions):
            found = [Neighbour(r.name, h) for r, h in zip(regions, histories, strict=True) if r is not region]
            shared = None if share == OFF else Shared(number, tuple(found))
            alone = seed_of(seed, region.name) if share == OFF else seed_of(seed)
            batches.append(propose(asked, histories[number], (), BATCH, alone, shared))
        seconds += time.process_time() - begin
        for region, history, batch in zip(regions, histories, batches, strict=True):
            history.extend(Observation(point, region.true(point)) for point in batch)
    values = {r.name: [o.loss for o in history] for r, history in zip(regions, histories, strict=True)}
    return {"values": values, "proposing": round(seconds, 2)}


def draw(regions: Sequence[Problem], share: str, seed: int, trials: int) -> dict[str, Any]:  # noqa: ARG001
    """Return the same of uniform points."""
    values = {}
    for region in regions:
        chance = np.random.default_rng([seed, *region.name.encode()])
        values[region.name] = [region.true(region.random_point(chance)) for _ in range(trials)]
    return {"values": values, "proposing": 0.0}


if __name__ == "__main__":
    main()
