"""One run of sharing.py, in a process of its own: `sharing_run.py AREA SHARE SEED TRIALS [SLUG ...]`; prints JSON.

All countries are tuned side by side: each batch of a country is proposed from what all of them had tried before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sharing_stats import BATCH, incumbents
from sharing_work import STUDY, Kept, regions

from workflows.space import Value, seed_of
from workflows.study import Region
from workflows.tuning import Neighbour, Observation, Shared, propose

OFF = "off"
Histories = dict[str, list[Observation]]


def main() -> None:
    """Run what the command line says."""
    area, share, seed, trials, *only = sys.argv[1:]
    found = run(regions(Path(area) / STUDY, share, int(trials), only), Kept(Path(area)), int(seed))
    print(json.dumps(found))


def run(countries: Sequence[Region], kept: Kept, seed: int) -> dict[str, Any]:
    """Tune all countries, batch after batch, and return the values of all trials and the seconds that it took."""
    histories: Histories = {region.slug: [] for region in countries}
    proposing = training = 0.0
    for done in range(0, countries[0].search.trials, BATCH):
        begin = time.process_time()
        batches = {r.slug: asked(countries, number, histories, seed) for number, r in enumerate(countries)}
        proposing += time.process_time() - begin
        for region in countries:
            for point in batches[region.slug]:
                found = kept.trained(region, point)
                training += found.seconds
                loss = None if found.value is None else -found.value
                histories[region.slug].append(Observation(point, loss, found.seconds))
        print(f"{countries[0].search.share} {seed}: {done + BATCH} trials", file=sys.stderr, flush=True)
    values = {slug: [None if o.loss is None else -o.loss for o in history] for slug, history in histories.items()}
    worths = {r.slug: curve(r, histories[r.slug], values[r.slug], kept) for r in countries}
    return {"values": values, "worths": worths, "proposing": round(proposing, 2), "training": round(training, 2)}


def curve(region: Region, history: Sequence[Observation], values: Sequence[float | None], kept: Kept) -> list[float]:
    """Return what the point with the best value is worth after each batch; 0 where all diverged."""
    return [0.0 if best is None else kept.worth(region, history[best].point) for best in incumbents(values)]


def asked(countries: Sequence[Region], number: int, histories: Histories, seed: int) -> list[dict[str, Value]]:
    """Return the next batch of country `number`; alone, each has a seed of its own, as PRE scripts give it."""
    region = countries[number]
    history = histories[region.slug]
    if region.search.share == OFF:
        return propose(region.search, history, (), BATCH, seed_of(seed, region.slug))
    others = tuple(Neighbour(slug, found) for slug, found in histories.items() if slug != region.slug)
    return propose(region.search, history, (), BATCH, seed_of(seed), Shared(number, others))


if __name__ == "__main__":
    main()
