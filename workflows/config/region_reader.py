"""Reads one region of study.yaml after the other, and the one that stands for all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from nnlib.contract import slug_of
from nnlib.util.os_errors import reason_of
from regiondag.config import sections
from regiondag.config.init_section import InitReader
from regiondag.config.keys import NETWORK as NETWORK_KEY
from regiondag.config.keys import REGION, SEARCH, SECTIONS
from regiondag.config.program_section import read_program, refuse_others
from regiondag.study.families import NETWORK, first_points
from regiondag.study.init import merge_parts
from regiondag.study.model import NEEDED, PARTS, POOLED, TRAIN_SETTINGS, Purchases, Region
from regiondag.study.program import TRAINER
from regiondag.trainers.trainer import trainer_of
from regiondag.tuning.pruning import fewest_epochs
from regiondag.util import schema
from regiondag.util.schema import Layer, Section
from regiondag.util.yaml_file import KeyPath

T = TypeVar("T")
Raw = Mapping[str, object]  # a region as it stands in the file

FEW_SETS = 3
ALL_REGIONS = "all regions"
ASKED_FOR = {"valid": "chosen", "test": "tested"}
SPLIT_OTHERWISE = "import it with longer windows (data.split: validate, test) or a smaller min_history"
LEGAL_DATA = "the region's data, such as data/germany.nc"


class RegionReader:
    """Reads regions; sections that a region does not override are read once for all of them."""

    def __init__(self, study: Section, folder: Path, purchases: Purchases | None, families: tuple[str, ...]) -> None:
        self.study = study
        self.problems = study.problems
        self.folder = folder
        self.purchases = purchases
        self.families = families
        scope = study.section("search").value("scope", SEARCH)
        self.together = scope == "all" or (scope == "auto" and families != (NETWORK,))
        for key in ("init", "neighbour"):
            if self.together and key in study:
                text = (
                    "candidates are fitted once for all regions, from nothing; remove it, or: search: {scope: region}"
                )
                self.problems.add(study.where(key), text)
        self.several = False  # regions with searches of their own
        self.shared: dict[tuple[str, ...], Any] = {}
        self.checked: set[object] = set()  # what was, of regions that have it in common
        self.starts = InitReader(study, folder)

    def read(self, raw: Raw, path: KeyPath) -> Region:
        """Read a region that stands at `path`."""
        section = Section(self.problems, [Layer(raw, path), *self.study.layers])
        own = Section(self.problems, [Layer(raw, path)])
        name = own.value("name", REGION)
        if "name" not in own:
            self.problems.add((*path, "name"), "missing: the region's name")
        slug = slug_of(name) if name else ""
        region = self._region(name, slug, self._data(own, path, slug), raw, section)
        if self.together:
            self._refuse_own(own)
            region = replace(region, search=replace(region.search, sizes=(), blends=False), served_by=POOLED)
        trainer = trainer_of(region)
        if trainer.of_data_sets:
            self.starts.read(slug, section, own)
        own.finish(REGION)
        trainer.check(section, self.checked)
        return region

    def with_pooled(self, regions: list[tuple[Region, KeyPath]]) -> list[tuple[Region, KeyPath]]:
        """Add the region that is trained on the data of all others, if any is to start from its model."""
        own = self.study.section(POOLED)
        if not self.together and all(region.init.kind != "pooled" for region, _ in regions):
            if POOLED in self.study:
                self.problems.add((POOLED,), "no region has init: pooled, so that nothing is; remove this section")
            return regions
        for region, path in regions:
            if region.slug == POOLED:
                text = f"seen {region.name!r}, which is what all regions together are called; rename yours"
                self.problems.add((*path, "name"), text)
                return regions
        raw = {key: value for key, value in own.layers[0].value.items() if key in SECTIONS}
        section = Section(self.problems, [Layer(raw, (POOLED,)), *self.study.layers])
        pooled = self._region(ALL_REGIONS if self.together else POOLED, POOLED, {}, raw, section)
        pooled = self._with_first(pooled, alone=len(regions) == 1)
        own.finish(SECTIONS)
        trainer_of(pooled).check(section, self.checked)
        parts = PARTS if self.together else NEEDED
        ours = [region for region, _ in regions if trainer_of(region).of_data_sets]
        merged = merge_parts(ours, parts)
        for part, use in ASKED_FOR.items():
            if part not in merged and ours and all(region.data for region in ours):
                text = f"nobody of any region is asked in the {part} part, so that nothing can be {use}"
                self.problems.add(("data" if self.purchases else "regions",), f"{text}; {SPLIT_OTHERWISE}")
        found = replace(pooled, merged=merged), (POOLED,)
        return [found, *regions] if self.together else [*regions, found]

    def _refuse_own(self, own: Section) -> None:
        for key in ("network", "metric", "minimize", "train", "search", "update", "init", "neighbour"):
            if key in own:
                text = (
                    "a candidate is fitted once for all regions, so that none has its own; or: search: {scope: region}"
                )
                self.problems.add(own.where(key), text)

    def _region(self, name: str, slug: str, data: dict[str, Path], raw: Raw, section: Section) -> Region:
        program, metric, settings = None, None, TRAIN_SETTINGS
        if TRAINER in section:
            program, metric = read_program(section, self.folder, name)
            settings = frozenset()
            refuse_others(section)
        network = section.value("network", NETWORK_KEY) if NETWORK in self.families and program is None else None
        region = Region(
            name=name,
            slug=slug,
            data=data,
            network=None if network is None else self.folder / network,
            program=program,
            metric=metric or self._once(("metric", "minimize"), raw, section, sections.read_metric),
            train=self._once(("train",), raw, section, lambda s: sections.read_train(s.section("train"))),
            search=self._once(
                ("search",),
                raw,
                section,
                lambda s: sections.read_search(
                    s.section("search"), self.families, several=self.several, settings=settings
                ),
            ),
            job=self._once(("job",), raw, section, lambda s: sections.read_job(s.section("job"))),
            final=self._once(("job", "final"), raw, section, sections.read_final),
            update=self._once(
                ("search", "update"),
                raw,
                section,
                lambda s: sections.read_update(s, self.families, several=self.several, settings=settings),
            ),
        )
        self._check_pruning(section, region)
        if region.metric.minimize and region.search.of_families:
            text = "nothing but a network has a loss; with families: metric: ndcg@20"
            self.problems.add(section.where("minimize"), text)
        return self._with_first(region, alone=True)

    def _with_first(self, region: Region, alone: bool) -> Region:
        """Return a region with what is tried first; `alone`: fitted on one region's history."""
        if not region.search.of_families:
            return region
        return replace(region, first=first_points(self.families, region.search.space, alone))

    def _check_pruning(self, section: Section, region: Region) -> None:
        """Trainings must be long enough for the way of pruning."""
        for key, search in (("search", region.search), ("update", region.update)):
            if search is None or any(parameter.name == "epochs" for parameter in search.space):
                continue
            fewest, below = fewest_epochs(search.prune), section.section(key)
            if region.train.epochs < fewest and "prune" in below:
                text = (
                    f"{search.prune} ends no training of train.epochs: {region.train.epochs}, legal: at least {fewest}"
                )
                self.problems.add(below.where("prune"), text)

    def _once(self, keys: tuple[str, ...], raw: Raw, section: Section, read: Callable[[Section], T]) -> T:
        """Read what the region overrides anew, and what it does not only for the first region."""
        if any(key in raw for key in keys):
            return read(section)
        if keys not in self.shared:
            self.shared[keys] = read(Section(self.problems, self.study.layers))
        value: T = self.shared[keys]
        return value

    def _data(self, own: Section, path: KeyPath, slug: str) -> dict[str, Path]:
        if TRAINER in self.study or TRAINER in own:
            return {}
        stem = own.value("data", REGION)
        if not stem and self.purchases is not None:
            stem = os.path.relpath(self.purchases.folder / f"{slug}.nc", self.folder)
        if not stem:
            if "data" not in own:
                self.problems.add((*path, "data"), f"missing: {LEGAL_DATA}")
            return {}
        base = strip_part(self.folder / stem)
        files = {part: base.with_name(f"{base.name}.{part}.nc") for part in PARTS}
        try:
            found = {part: file for part, file in files.items() if file.is_file()}
        except OSError as error:  # a name that is too long
            self.problems.add(own.where("data"), f"seen {stem!r}: {reason_of(error)}; legal: {LEGAL_DATA}")
            return {}
        needed = ("train",) if self.together else NEEDED
        missing = [file for part, file in files.items() if part in needed and part not in found]
        if missing:
            several = "".join(f", .{file.name.removeprefix(base.name + '.')}" for file in missing[1:])
            self.problems.add(
                own.where("data"),
                f"seen {stem!r}, but there is no file {missing[0]}{several}; `nnlib import` writes such sets"
                f"{_nearest_set(base)}",
            )
        return found


def strip_part(path: Path) -> Path:
    """Return `data/germany` for `data/germany.nc` as for `data/germany.train.nc`."""
    path = path.with_suffix("") if path.suffix == ".nc" else path
    return path.with_suffix("") if path.suffix.removeprefix(".") in PARTS else path


def _nearest_set(base: Path) -> str:
    """Name the set beside a missing one that may be meant; of a few, all of them."""
    found = sorted(file.name.removesuffix(".train.nc") for file in base.parent.glob("*.train.nc"))
    if len(found) <= FEW_SETS and found:
        return f"; there is: {', '.join(str(base.with_name(f'{name}.nc')) for name in found)}"
    return schema.nearest(base.name, found)
