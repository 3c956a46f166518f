"""What trainings start from: `init` and `neighbour` of study.yaml, and what they amount to once data and champions
are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from regiondag.study.model import PARTS, POOLED, Config, Init, Region

SHOWN = 5  # names of regions in a message


def merged_parts(regions: Iterable[Region]) -> dict[str, tuple[Path, ...]]:
    """Return the files of all regions, each once, that make up each part of the data of all; no `final` part."""
    regions = list(regions)
    wanted = [part for part in PARTS if part != "final" and all(part in region.data for region in regions)]
    return {part: tuple(dict.fromkeys(region.data[part] for region in regions)) for part in wanted}


def choose_neighbours(config: Config, examples: Mapping[str, int]) -> Config:
    """Give regions that name no neighbour the one with the most training `examples` (by slug).

    It is looked for among them and those that start from random; it does so itself.
    """
    open_ones = [region for region in config.regions if region.start == Init("neighbour")]
    if not open_ones:
        return config
    legal = [region for region in config.regions if not region.merged and (region in open_ones or region.start.random)]
    largest = max(legal, key=lambda region: examples.get(region.slug, 0))

    def chosen(region: Region) -> Region:
        if region.start != Init("neighbour"):
            return region
        return replace(region, start=Init() if region is largest else Init("neighbour", largest.slug))

    return replace(config, regions=tuple(map(chosen, config.regions)))


def without_champions(config: Config, standing: Collection[str]) -> Config:
    """Let regions that have no champion yet to start from (their slugs are not in `standing`) start from random."""
    regions = [
        replace(region, start=Init()) if region.start.kind == "champion" and region.slug not in standing else region
        for region in config.regions
    ]
    return replace(config, regions=tuple(regions))


def describe_starts(config: Config, standing: Collection[str]) -> Iterator[str]:
    """Yield lines that say which regions start from what, and which would, had they a champion."""
    names = {region.slug: region.name for region in config.regions}
    groups: dict[str, list[str]] = {}
    for region in config.regions:
        if region.start.source == POOLED:
            text = "from a model of all regions together"
        elif region.start.source:
            text = f"from the champion of {names[region.start.source]}"
        elif region.start.kind == "champion":
            text = "from their own champions" if region.slug in standing else "from random: no champion yet"
        else:
            continue
        groups.setdefault(text, []).append(region.name)
    for text, regions in groups.items():
        yield f"trainings start {text}: {_some(regions)}"


def _some(names: list[str]) -> str:
    if not names:
        return "there is none"
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
