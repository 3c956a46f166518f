"""One run of the sharing benchmark, in a process of its own: `run AREA SHARE SEED TRIALS [SLUG ...]`; prints JSON.

All countries are tuned side by side: each batch of a country is proposed from what all of them had tried before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from regiondag.study.model import Region
from regiondag.study.space import Point, Value, seed_of
from regiondag.tuning.propose import propose, rank_trials
from regiondag.tuning.sharing import Neighbour, Observation, Shared
from scripts.bench.sharing.stats import BATCH
from scripts.bench.sharing.work import STUDY, Kept, regions

OFF = "off"
Histories = dict[str, list[Observation]]


def main() -> None:
    """Run what the command line says."""
    area, share, seed, trials, *only = sys.argv[1:]
    found = run(regions(Path(area) / STUDY, share, int(trials), only), Kept(Path(area)), int(seed))
    print(json.dumps(found))


def run(countries: Sequence[Region], kept: Kept, seed: int) -> dict[str, Any]:
    """Tune all countries, batch after batch; return all trials' values, what came of them, and seconds."""
    histories: Histories = {region.slug: [] for region in countries}
    worths: dict[str, dict[str, list[float]]] = {rule: {r.slug: [] for r in countries} for rule in rules(countries[0])}
    proposing = 0.0
    for done in range(0, countries[0].search.trials, BATCH):
        begin = time.process_time()
        batches = {r.slug: asked(countries, number, histories, seed) for number, r in enumerate(countries)}
        proposing += time.process_time() - begin
        for region in countries:
            for point in batches[region.slug]:
                found = kept.trained(region, point)
                loss = None if found.value is None else -found.value
                histories[region.slug].append(Observation(point, loss, found.seconds))
        for (number, region), rule in product(enumerate(countries), worths):
            best = winner(countries, number, histories, seed, rule)
            worths[rule][region.slug].append(0.0 if best is None else kept.worth(region, best))
        print(f"{countries[0].search.share} {seed}: {done + BATCH} trials", file=sys.stderr, flush=True)
    values = {slug: [None if o.loss is None else -o.loss for o in history] for slug, history in histories.items()}
    return {"values": values, "worths": worths, "proposing": round(proposing, 2)}


def rules(region: Region) -> tuple[str, ...]:
    """Return the ways of choosing the winner that are looked at: the usual one of the way of sharing first."""
    return {OFF: ("observed", "model"), "warm": ("observed",), "model": ("model", "observed")}[region.search.share]


def asked(countries: Sequence[Region], number: int, histories: Histories, seed: int) -> list[dict[str, Value]]:
    """Return the next batch of country `number`; alone, each has a seed of its own, as PRE scripts give it."""
    region = countries[number]
    alone = region.search.share == OFF
    mixed = seed_of(seed, region.slug) if alone else seed_of(seed)
    return propose(
        region.search, histories[region.slug], (), BATCH, mixed, None if alone else others(number, histories)
    )


def winner(countries: Sequence[Region], number: int, histories: Histories, seed: int, rule: str) -> Point | None:
    """Return the point with which country `number` would train its last model; None where all diverged."""
    region, history = countries[number], histories[countries[number].slug]
    order = rank_trials(
        replace(region.search, winner=rule), history, seed_of(seed, region.slug, "winner"), others(number, histories)
    )
    return history[order[0]].point if order else None


def others(number: int, histories: Histories) -> Shared:
    """Return what country `number` may know of the others."""
    found = [Neighbour(slug, history) for slug, history in histories.items()]
    return Shared(number, tuple(found[:number] + found[number + 1 :]))


if __name__ == "__main__":
    main()
