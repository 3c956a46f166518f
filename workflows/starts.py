"""What trainings start from: `init` and `neighbour` of study.yaml, and what they amount to once data and champions
are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from workflows import schema
from workflows.names import PARTS
from workflows.schema import Section
from workflows.study import POOLED, Config, Region, Start
from workflows.yamlfile import KeyPath

STARTS = ("random", "champion", "neighbour", "pooled")
SHOWN = 5  # names of regions in a message


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one region, or the study for it, says of its start."""

    kind: str
    neighbour: str  # a region's name; empty: the largest
    section: Section
    own: Section  # what the region itself says

    @property
    def yields(self) -> bool:
        """Whether the region may become a neighbour all the same: starting from one is the study's wish, not its."""
        return self.kind == "random" or (self.kind == "neighbour" and not self.own.has("init"))


class StartReader:
    """Reads the starts of all regions, and then finds the neighbours by their names."""

    def __init__(self, study: Section) -> None:
        self.study = study
        self.problems = study.problems
        self.wishes: dict[str, _Wish] = {}

    def read(self, slug: str, section: Section, own: Section) -> None:
        """Read `init` and `neighbour` of one region."""
        wish = _Wish(section.choice("init", "random", STARTS), section.text("neighbour", ""), section, own)
        if own.has("neighbour") and wish.kind != "neighbour":
            self.problems.add(own.where("neighbour"), f"is used by init: neighbour only, seen init: {wish.kind}")
        self.wishes[slug] = wish

    def settle(self, regions: Iterable[tuple[Region, KeyPath]]) -> list[tuple[Region, KeyPath]]:
        """Return the regions with their starts; the neighbour of some starts from random weights itself."""
        regions = [(region, path) for region, path in regions if region.slug in self.wishes]
        slugs = {region.name: region.slug for region, _ in regions}
        if self.study.has("neighbour") and all(wish.kind != "neighbour" for wish in self.wishes.values()):
            self.problems.add(("neighbour",), "is used by init: neighbour only, and no region has that")
        named = {slugs.get(wish.neighbour) for wish in self.wishes.values() if wish.kind == "neighbour"}
        return [(replace(region, start=self._start(region, slugs, named)), path) for region, path in regions]

    def _start(self, region: Region, slugs: Mapping[str, str], named: Collection[str | None]) -> Start:
        wish = self.wishes[region.slug]
        if wish.kind == "pooled":
            return Start("pooled", POOLED)
        if wish.kind != "neighbour":
            return Start(wish.kind)
        if wish.yields and region.slug in named:
            return Start()
        if wish.neighbour:
            self._check_neighbour(region, wish, slugs)
            return Start("neighbour", slugs.get(wish.neighbour, ""))
        if not any(other.yields for slug, other in self.wishes.items() if slug != region.slug):
            text = "there is no neighbour: no other region starts from random; give one init: random"
            self.problems.add(wish.section.where("init"), text)
        return Start("neighbour")

    def _check_neighbour(self, region: Region, wish: _Wish, slugs: Mapping[str, str]) -> None:
        where, seen = wish.section.where("neighbour"), wish.neighbour
        legal = [name for name, slug in slugs.items() if slug != region.slug and self.wishes[slug].yields]
        said = f"legal: a region that starts from random: {_some(legal)}"
        if seen not in slugs:
            self.problems.add(where, f"seen {seen!r}, which is no region{schema.nearest(seen, slugs)}; {said}")
        elif slugs[seen] == region.slug:
            self.problems.add(where, f"seen {seen!r}, which is the region itself; {said}")
        elif seen not in legal:
            kind = self.wishes[slugs[seen]].kind
            self.problems.add(where, f"seen {seen!r}, which does not start from random but from {kind}; {said}")


def merged_parts(regions: Iterable[Region]) -> dict[str, tuple[Path, ...]]:
    """Return the files of all regions, each once, that make up each part of the data of all; no `final` part."""
    regions = list(regions)
    wanted = [part for part in PARTS if part != "final" and all(part in region.data for region in regions)]
    return {part: tuple(dict.fromkeys(region.data[part] for region in regions)) for part in wanted}


def choose_neighbours(config: Config, examples: Mapping[str, int]) -> Config:
    """Give regions that name no neighbour the one with the most training `examples` (by slug).

    It is looked for among them and those that start from random; it does so itself.
    """
    open_ones = [region for region in config.regions if region.start == Start("neighbour")]
    if not open_ones:
        return config
    legal = [region for region in config.regions if not region.merged and (region in open_ones or region.start.random)]
    largest = max(legal, key=lambda region: examples.get(region.slug, 0))

    def chosen(region: Region) -> Region:
        if region.start != Start("neighbour"):
            return region
        return replace(region, start=Start() if region is largest else Start("neighbour", largest.slug))

    return replace(config, regions=tuple(map(chosen, config.regions)))


def without_champions(config: Config, standing: Collection[str]) -> Config:
    """Let regions that have no champion yet to start from (their slugs are not in `standing`) start from random."""
    regions = [
        replace(region, start=Start()) if region.start.kind == "champion" and region.slug not in standing else region
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
