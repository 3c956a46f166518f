"""What trainings start from: `init` and `neighbour` of study.yaml, and what they amount to once data and champions
are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from regiondag.study.model import PARTS, POOLED, Config, Init, Region
from regiondag.util.text import list_some

SHOWN = 5  # names of regions in a message
ASKED = ("valid", "test")


def merge_parts(regions: Iterable[Region], parts: Iterable[str] = PARTS) -> dict[str, tuple[Path, ...]]:
    """Return the files of all regions, each once, that make up each part of the data of all.

    A part that not every region has is left out, but for those with customers to ask: some regions have none.
    """
    regions = list(regions)
    files = {part: dict.fromkeys(r.data[part] for r in regions if part in r.data) for part in parts}
    whole = [part for part in files if all(part in region.data for region in regions)]
    return {part: tuple(files[part]) for part in files if files[part] and (part in whole or part in ASKED)}


def choose_init(config: Config, examples: Mapping[str, int], incumbents: Collection[str]) -> Config:
    """Settle what trainings start from, once data and champions are known.

    Regions that name no neighbour get the one with the most training `examples` (by slug), which starts from random
    itself; it is looked for among them and those that do so anyway. Regions whose slugs are not in `incumbents`, the
    champions that are networks, have none to start from yet, and start from random.
    """
    any_neighbour = Init("neighbour")
    ours = [region for region in config.regions if region.data]
    legal = [region for region in ours if region.init.random or region.init == any_neighbour]
    largest = max(legal, key=lambda region: examples.get(region.slug, 0), default=None)

    def choose(region: Region) -> Init:
        if region.init == any_neighbour and largest is not None:
            return Init() if region is largest else Init("neighbour", largest.slug)
        return Init() if region.init.kind == "champion" and region.slug not in incumbents else region.init

    return replace(config, regions=tuple(replace(region, init=choose(region)) for region in config.regions))


def describe_init(asked: Config, chosen: Config) -> Iterator[str]:
    """Yield lines that say which regions start from what, and which would, had they a champion."""
    names = {region.slug: region.name for region in chosen.regions}
    groups: dict[str, list[str]] = {}
    for wish, region in zip(asked.regions, chosen.regions, strict=True):
        if region.init.model:
            text = f"from the model {Path(region.init.model).name}"
        elif region.init.source == POOLED:
            text = "from a model of all regions together"
        elif region.init.source:
            text = f"from the champion of {names[region.init.source]}"
        elif wish.init.kind == "champion":
            text = "from random: no champion yet" if region.init.random else "from their own champions"
        else:
            continue
        groups.setdefault(text, []).append(region.name)
    for text, regions in groups.items():
        yield f"trainings start {text}: {list_some(regions, SHOWN)}"
