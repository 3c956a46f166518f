"""Trials of earlier runs, so that today's tuning starts from what yesterday's found: a file in the region's folder.

`generate` writes it, PRE reads it; one JSON object a line:
    {"run": "run-retail-20261121-033000", "point": {...}, "loss": 0.42, "seconds": 12.5}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence

from nnlib.contract import Metric
from regiondag.errors import RegiondagError
from regiondag.run.journal import Journal
from regiondag.run.layout import RegionFolder, RunFolder
from regiondag.run.observations import observe_trials
from regiondag.run.region_spec import read_spec
from regiondag.study.model import Region
from regiondag.tuning.sharing import Neighbour, Observation, select_best_and_first

RUNS = 3  # the newest ones that have trials of a region
MOST = 60  # trials of each: the best ones and the first ones, half and half


def find_earlier(runs: Sequence[RunFolder], regions: Iterable[Region]) -> dict[str, str]:
    """Return the text of each region's file, from `runs`, the newest first.

    Regions that do not share have none, and those without trials by the same metric: other values say nothing.
    """
    found = {}
    for region in regions:
        if region.search.share != "off":
            tried = ((run, _trials_of(run.region(region.slug), region.metric)) for run in runs)
            newest = itertools.islice(((run, told) for run, told in tried if told), RUNS)
            found[region.slug] = "".join(_line(run.path.name, observed) for run, told in newest for observed in told)
    return {slug: text for slug, text in found.items() if text}


def read_earlier(folder: RegionFolder) -> list[Neighbour]:
    """Return the earlier runs of a region, the newest first; RegiondagError when the file was damaged."""
    told: dict[str, list[Observation]] = {}
    try:
        text = folder.earlier.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    try:
        for raw in map(json.loads, text.splitlines()):
            told.setdefault(raw["run"], []).append(Observation(raw["point"], raw["loss"], raw["seconds"]))
    except (ValueError, KeyError, TypeError) as error:
        raise RegiondagError(
            f"{folder.earlier}: not what `regiondag generate` wrote ({error!r}); remove the file to go on without it"
        ) from error
    return [Neighbour(run, history, earlier=True) for run, history in told.items()]


def _trials_of(folder: RegionFolder, metric: Metric) -> list[Observation]:
    """Return the telling trials of an earlier run; none when there are none that can be read."""
    try:
        spec, history = read_spec(folder.spec), Journal(folder.journal).read()
    except RegiondagError:
        return []
    if spec.metric != metric:
        return []
    return select_best_and_first(list(observe_trials(history, metric, sorted(history.proposals)).values()), MOST)


def _line(run: str, observed: Observation) -> str:
    raw = {"run": run, "point": observed.point, "loss": observed.loss, "seconds": observed.seconds}
    return json.dumps(raw, ensure_ascii=False, allow_nan=False) + "\n"
