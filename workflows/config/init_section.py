"""Reads `init` and `neighbour`: what trainings start from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from regiondag.config.keys import START
from regiondag.config.values import MODEL
from regiondag.study.init import SHOWN
from regiondag.study.model import POOLED, Init, Region
from regiondag.util import schema
from regiondag.util.schema import Section
from regiondag.util.text import list_some
from regiondag.util.yaml_file import KeyPath


@dataclass(frozen=True, slots=True)
class _Wish:
    """What one region, or the study for it, says of its start."""

    kind: str
    neighbour: str  # a region's name; empty: the largest
    model: str  # a path
    section: Section
    own: Section  # what the region itself says

    @property
    def yields(self) -> bool:
        """Whether the region may become a neighbour all the same: starting from one is the study's wish, not its."""
        return self.kind == "random" or (self.kind == "neighbour" and "init" not in self.own)


class InitReader:
    """Reads the starts of all regions, and then finds the neighbours by their names."""

    def __init__(self, study: Section, folder: Path) -> None:
        self.study = study
        self.folder = folder  # where paths begin
        self.problems = study.problems
        self.wishes: dict[str, _Wish] = {}

    def read(self, slug: str, section: Section, own: Section) -> None:
        """Read `init` and `neighbour` of one region."""
        start = section.value("init", START)
        kind, model = (start, "") if isinstance(start, str) else start
        wish = _Wish(kind, section.value("neighbour", START), model, section, own)
        if "neighbour" in own and wish.kind != "neighbour":
            self.problems.add(own.where("neighbour"), f"is used by init: neighbour only, seen init: {wish.kind}")
        self.wishes[slug] = wish

    def settle(self, regions: Iterable[tuple[Region, KeyPath]]) -> list[tuple[Region, KeyPath]]:
        """Return the regions with their starts; the neighbour of some starts from random weights itself."""
        regions = list(regions)
        slugs = {region.name: region.slug for region, _ in regions}
        if "neighbour" in self.study and all(wish.kind != "neighbour" for wish in self.wishes.values()):
            self.problems.add(("neighbour",), "is used by init: neighbour only, and no region has that")
        named = {slugs.get(wish.neighbour) for wish in self.wishes.values() if wish.kind == "neighbour"}
        return [(replace(region, init=self._start(region, slugs, named)), path) for region, path in regions]

    def _start(self, region: Region, slugs: Mapping[str, str], named: Collection[str | None]) -> Init:
        wish = self.wishes.get(region.slug)
        if wish is None:
            return region.init
        if wish.kind == "pooled":
            return Init("pooled", POOLED)
        if wish.kind == MODEL:
            path = self.folder / wish.model
            if not path.is_file():
                self.problems.add(wish.section.where("init"), f"{path} is no file; legal: the path of a model file")
            return Init(MODEL, model=str(path.resolve()))
        if wish.kind != "neighbour":
            return Init(wish.kind)
        if wish.yields and region.slug in named:
            return Init()
        if wish.neighbour:
            self._check_neighbour(region, wish, slugs)
            return Init("neighbour", slugs.get(wish.neighbour, ""))
        if not any(other.yields for slug, other in self.wishes.items() if slug != region.slug):
            text = "there is no neighbour: no other region starts from random; give one init: random"
            self.problems.add(wish.section.where("init"), text)
        return Init("neighbour")

    def _check_neighbour(self, region: Region, wish: _Wish, slugs: Mapping[str, str]) -> None:
        where, seen = wish.section.where("neighbour"), wish.neighbour
        legal = [name for name, slug in slugs.items() if slug != region.slug and self._may_be_neighbour(slug)]
        said = f"legal: a region that starts from random: {list_some(legal, SHOWN) or 'there is none'}"
        if seen not in slugs:
            self.problems.add(where, f"seen {seen!r}, which is no region{schema.nearest(seen, slugs)}; {said}")
        elif slugs[seen] == region.slug:
            self.problems.add(where, f"seen {seen!r}, which is the region itself; {said}")
        elif seen not in legal:
            other = self.wishes.get(slugs[seen])
            text = f"does not start from random but from {other.kind}" if other else "a program trains"
            self.problems.add(where, f"seen {seen!r}, which {text}; {said}")

    def _may_be_neighbour(self, slug: str) -> bool:
        """Whether a region starts from random; those that a program trains have no model of ours."""
        return slug in self.wishes and self.wishes[slug].yields
