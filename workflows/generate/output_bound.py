"""How much a region's jobs may bring back where study.yaml does not say: what its models and checkpoints can be.

Of a program nothing is known. Of networks it is what they are with the largest layers that are searched; where a
hyperparameter shapes them otherwise, such as a kernel, or a model decides on their shape, it is not known either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nnlib.contract import LONGEST_RESULT, Recipe, scored_metrics
from nnlib.data.file import DataSummary, SetSummary
from nnlib.epoch_log import LONGEST_LOG
from nnlib.inspection.output_bound import bound_network, bound_recipe
from nnlib.spec.network import SpecError, parse_network, read_json, substitute
from regiondag.config.memory_check import largest_point, size_of
from regiondag.generate.floor import find_floor
from regiondag.run.trial_recipes import USUAL_FLOOR
from regiondag.study.families import FAMILY, NETWORK, PROGRAM, recipe_at
from regiondag.study.model import Config, JobRequest, Region
from regiondag.study.space import Choice, Point, largest_value
from regiondag.trainers.trainer import trainer_of
from regiondag.tuning.fixed_shape import find_shaping
from regiondag.util.schema import size

SIZE = size()
MB = 1 << 20  # as HTCondor counts it
SAFETY = 2  # times what is counted
SAID = LONGEST_RESULT + 2 * LONGEST_LOG  # result.json, log.jsonl, standard output and error
MODELS = 8  # whose figures scores.npy has of each customer at most
UNITS = frozenset(("n", "activation", "errorfunction"))  # keys that shape a network the more, the larger, or not at all


def bound_region(
    region: Region,
    data: Mapping[Path, DataSummary],
    first: Sequence[Point] = (),
    office: Iterable[Recipe] = (),
    floor: Recipe | None = None,
) -> int | None:
    """Return the most bytes that a job of a region brings back, in whole MB; None where that is not known.

    `data` are the files that it learns from and is asked about, `first` the points of its first trials, and `office`
    the recipes in office, which are tried whatever the space is. `floor` is what `find_floor` returns.
    """
    if not data or not trainer_of(region).of_data_sets:
        return None
    whole = size_of(data.values())
    recipes = [*_recipes(region, [*region.first, *first]), *office]
    bounds = [bound_recipe(one, whole) for one in recipes if one.family not in (NETWORK, PROGRAM)]
    models: list[int | None] = [bound_recipe(floor or USUAL_FLOOR, whole), *bounds]  # a blend has all others
    if region.network is not None:
        found = _bound_network(region.network, region, data)
        models += [None] if found is None else found
    known = [one for one in models if one is not None]
    if len(known) < len(models):
        return None
    names = 3 * max(file.stat().st_size for file in data)  # of a network's inputs and outputs, and the floor's
    scores = 2 * 4 * MODELS * len(scored_metrics(region.metric)) * whole.customers  # the checkpoint has them, too
    return math.ceil((SAFETY * (sum(known) + names + scores) + SAID) / MB) * MB


@dataclass(frozen=True, slots=True)
class Bounds:
    """What jobs of a run's regions bring back at most, region by region as they are looked at."""

    summaries: Mapping[Path, DataSummary]
    found: dict[str, int | None] = field(default_factory=dict)  # by slug

    def of(self, region: Region, merged: Mapping[Path, DataSummary]) -> Mapping[Path, DataSummary]:
        """Return what a region's files hold, as far as that is known."""
        return merged or {file: self.summaries[file] for file in region.data.values() if file in self.summaries}

    def bind(
        self,
        region: Region,
        merged: Mapping[Path, DataSummary],
        first: Sequence[Point],
        office: Iterable[Recipe | None],
        floor: Recipe | None,
    ) -> Region:
        """Return a region whose jobs may bring so much, or what they ask of the disk, unless study.yaml says it.

        `merged` are files that were made of those of other regions. A region that is served learns from what that
        learns from which serves it, and comes after it.
        """
        data = self.of(region, merged)
        if region.served_by:
            self.found[region.slug] = self.found.get(region.served_by)
        elif not merged and len(data) < len(set(region.data.values())):
            self.found[region.slug] = None
        else:
            self.found[region.slug] = bound_region(region, data, first, filter(None, office), floor)
        most = self.found[region.slug]
        if most is None:
            return region
        return replace(region, job=_bounded(region.job, most), final=region.final and _bounded(region.final, most))


def describe_bounds(config: Config, summaries: Mapping[Path, DataSummary]) -> str:
    """Return in words what jobs may bring back by default, of regions with data of their own."""
    found = []
    for region in config.regions:
        data = {file: summaries[file] for file in region.data.values()}
        if region.job.max_output is None and not region.served_by:
            most = bound_region(region, data, floor=find_floor(region, data))
            found += [most] if most is not None and most < region.job.disk else []
    if not found:
        return "job.max_output: by default as job.disk: models and checkpoints may be as large, or it is not known"
    ends = dict.fromkeys(str(SIZE.write(one)) for one in (min(found), max(found)))
    what = f"twice what models and checkpoints can be, and {SIZE.write(SAID)} for logs"
    return f"job.max_output: by default {' to '.join(ends)}: {what}"


def _bounded(job: JobRequest, most: int) -> JobRequest:
    return job if job.max_output or most >= job.disk else replace(job, max_output=most)


def _recipes(region: Region, first: Sequence[Point]) -> Iterator[Recipe]:
    """Yield the largest recipe of each family that is searched, and those that are tried first."""
    space = region.search.space
    offered = (one.options for one in space if isinstance(one, Choice) and one.name == FAMILY)
    families = [str(family) for family in next(offered, ()) if family != NETWORK]
    yield from (recipe_at(largest_point(space, family), 0) for family in families)
    yield from (recipe_at(point, 0) for point in first if point.get(FAMILY) in families)


def _bound_network(network: Path, region: Region, data: Mapping[Path, DataSummary]) -> list[int] | None:
    """Return the bytes of the model and of the checkpoint of a region's largest network; None: not known."""
    raw, largest = read_json(network), {one.name: largest_value(one) for one in region.search.space}
    shaping = find_shaping(raw)
    if (shaping and not region.init.random) or not _only_widens(raw, shaping):
        return None
    sets = _unite(data.values())
    try:
        spec = parse_network(substitute(raw, largest), network.name)
    except SpecError:
        return None
    found = bound_network(spec, sets) if sets else None
    return None if found is None else list(found)


def _only_widens(raw: Any, shaping: Sequence[str], key: str = "") -> bool:
    """Return whether hyperparameters that shape a network only say how many units layers have."""
    if isinstance(raw, dict):
        return all(_only_widens(value, shaping, name.lower()) for name, value in raw.items())
    if isinstance(raw, list):
        return all(_only_widens(value, shaping, key) for value in raw)
    return not (isinstance(raw, str) and raw.removeprefix("$") in shaping and raw.startswith("$")) or key in UNITS


def _unite(summaries: Iterable[DataSummary]) -> list[SetSummary]:
    """Return each data set of some files once; none where files do not agree on its width."""
    found: dict[str, SetSummary] = {}
    for one in (one for summary in summaries for one in summary.sets):
        before = found.setdefault(one.name, one)
        if (before.width, before.dimensions) != (one.width, one.dimensions):
            return []
    return list(found.values())
