"""Which families the data are too large for: those whose training may take more memory than a job may have. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from nnlib.data.file import DataSummary
from nnlib.families.family import Size
from nnlib.families.fit import bytes_needed
from nnlib.families.legal import complete_recipe
from nnlib.util.memory import show_bytes
from regiondag.study.families import FAMILY, NETWORK, POPULARITY, recipe_at
from regiondag.study.model import Region
from regiondag.study.space import Point, Space, largest_value

PYTHON = 160 << 20  # what a job takes before it fits anything: Python and its libraries,
ENTRY = 16  # and for each purchase its item, days and count
GB = 1 << 30


def find_too_large(regions: Sequence[Region], summaries: Mapping[Path, DataSummary]) -> dict[str, str]:
    """Return by family why not even what is tried first of it can be fitted; popularity always can."""
    found: dict[str, str] = {}
    for region in _searching(regions):
        size = _size_of(region, summaries)
        for family, points in _first_by_family(region).items():
            count = min(_bytes(point, size) for point in points)
            if count > _most(region) and family != POPULARITY:
                found.setdefault(family, f"{_describe(count, size, region)}; give job: {{memory: {_ask(count)}}}")
    return found


def find_large(regions: Sequence[Region], summaries: Mapping[Path, DataSummary]) -> list[str]:
    """Return what may run out of memory: the largest settings of a space, and blends, as a job holds all members."""
    found = []
    for region in _searching(regions):
        size = _size_of(region, summaries)
        first = {
            family: max(_bytes(one, size) for one in points) for family, points in _first_by_family(region).items()
        }
        most = {family: _bytes(largest_point(region.search.space, family), size) for family in first}
        blend = sum(first.values()) - (len(first) - 1) * before(size)
        large = {family: count for family, count in most.items() if count > _most(region)}
        if region.search.blends and len(first) > 1 and blend > _most(region):
            large["a blend of all families"] = blend
        if large:
            name = max(large, key=lambda one: large[one])
            ask = f"that it may ask for more: job: {{memory_max: {_ask(large[name])}}}"
            found.append(f"{region.name}: {name}: {_describe(large[name], size, region)}; {ask}")
    return found


def _searching(regions: Sequence[Region]) -> Iterator[Region]:
    """Yield the regions with a search of their own."""
    return (region for region in regions if region.search.of_families and region.search.trials)


def _size_of(region: Region, summaries: Mapping[Path, DataSummary]) -> Size:
    """Return the size of what a region's families are fitted on."""
    return size_of(summaries[file] for file in region.learned_from)


def size_of(summaries: Iterable[DataSummary]) -> Size:
    """Return the size of some files together for families; those of several imports may share all items."""
    summaries = list(summaries)
    sets = [next((one for one in summary.sets if "sparse" in one.kind), summary.sets[0]) for summary in summaries]
    inputs = max((one.width for summary in summaries for one in summary.sets if "dense" in one.kind), default=0)
    return Size(
        sum(one.examples for one in sets), max(one.width for one in sets), sum(one.nonzeros for one in sets), inputs
    )


def _first_by_family(region: Region) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in region.first:
        if point[FAMILY] != NETWORK:
            found.setdefault(str(point[FAMILY]), []).append(point)
    return found


def largest_point(space: Space, family: str) -> Point:
    """Return where a family takes most: what has a number takes the more, the larger it is."""
    mine = [one for one in space if (FAMILY, family) in ((name, value) for name, of in one.when for value in of)]
    return {FAMILY: family, **{one.name: largest_value(one) for one in mine}}


def _bytes(point: Point, size: Size) -> int:
    [needed] = bytes_needed(complete_recipe(recipe_at(point, 0)), size)
    return before(size) + needed


def before(size: Size) -> int:
    """Return what a job takes before it fits anything."""
    return PYTHON + ENTRY * size.entries


def _describe(count: int, size: Size, region: Region) -> str:
    return (
        f"of {size.items:,} items and {size.customers:,} customers it may take {show_bytes(count)}, a job has "
        f"{show_bytes(_most(region))}"
    )


def _most(region: Region) -> int:
    return region.job.memory_max or region.job.memory


def _ask(count: int) -> str:
    return f"{math.ceil(count / GB)}GB"
