"""Read study.yaml. `load_config` reports every mistake at once and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from nnlib.errors import DataError
from regiondag.config import sections
from regiondag.config.data_section import list_imported, read_purchases
from regiondag.config.keys import DATA, FILES, STUDY
from regiondag.config.notify_section import read_notify, read_track
from regiondag.config.region_reader import Raw, RegionReader, strip_part
from regiondag.errors import ConfigError
from regiondag.study.families import NETWORK
from regiondag.study.model import Config, Purchases, Region
from regiondag.study.notify import Notify
from regiondag.study.program import TRAINER
from regiondag.study.track import Track
from regiondag.trainers.networks.space import check_starts
from regiondag.util.schema import Layer, Problems, Section
from regiondag.util.yaml_file import Document, KeyPath, load_yaml

T = TypeVar("T")


def load_config(path: Path, too_large: Mapping[str, str] = MappingProxyType({})) -> Config:
    """Read study.yaml; ConfigError with every mistake: file, line, key path, value seen, what is legal.

    Families that are `too_large`, with the reason, are left out, and are a mistake where the file asks for them.
    """
    return read_config(load_yaml(path), path, too_large)


def read_config(document: Document, path: Path, too_large: Mapping[str, str] = MappingProxyType({})) -> Config:
    """Read a study as `load_config` does, of a document that is, or will be, in the file `path`."""
    if not isinstance(document.value, dict):
        kind = type(document.value).__name__
        raise ConfigError([f"{path}:1: a study is a mapping of keys to values, seen a {kind}"])
    problems = Problems(document)
    config = _read_study(document, problems, path, too_large)
    if problems.found:
        raise ConfigError(problems.texts())
    return config


def load_purchases(path: Path) -> Purchases | None:
    """Read what study.yaml says of the table that its data come from; None where it names none.

    Raises ConfigError for what is wrong in that section.
    """
    document = load_yaml(path)
    if not isinstance(document.value, dict):
        return None  # `load_config` says what is wrong with it
    problems = Problems(document)
    found = read_purchases(Section(problems, [Layer(document.value, ())]), path.parent)
    if problems.found:
        raise ConfigError(problems.texts())
    return found


def load_notify(path: Path) -> Notify:
    """Read whom study.yaml wants to be told how runs end, whatever else stands there; ConfigError for that section."""
    found = _read_alone(path, "notify", read_notify)
    return Notify() if found is None else found


def load_track(path: Path) -> Track | None:
    """Read where study.yaml wants trainings to be tracked, whatever else stands there; ConfigError for that section."""
    return _read_alone(path, "track", read_track)


def _read_alone(path: Path, name: str, read: Callable[[Section, Path], T]) -> T | None:
    document = load_yaml(path)
    if not isinstance(document.value, dict):
        return None
    problems = Problems(document)
    found = read(Section(problems, [Layer(document.value, ())]).section(name), path.parent)
    if problems.found:
        raise ConfigError(problems.texts())
    return found


def _read_study(document: Document, problems: Problems, path: Path, too_large: Mapping[str, str]) -> Config:
    study = Section(problems, [Layer(document.value, ())])
    name = study.value("study", STUDY) or path.stem
    limits = sections.read_limits(study.section("limits"))
    notify = read_notify(study.section("notify"), path.parent)
    track = read_track(study.section("track"), path.parent)
    purchases = read_purchases(study, path.parent)
    programs = TRAINER in study or _any_program(document.value.get("regions"))
    families = (NETWORK,) if programs else sections.read_families(study, purchases, too_large)
    regions = _read_regions(study, path.parent, purchases, families)
    study.finish(STUDY)
    _refuse_equal_names(problems, regions)
    least = sum(region.search.sizes[0] for region, _ in regions if region.search.sizes)
    if 0 < limits.trials < least:
        text = f"seen {limits.trials}, legal: 0, or at least {least}, the first rounds of all searches"
        problems.add(("limits", "trials"), text)
    few = study.section("data").value("min_customers", DATA)
    return Config(name, path, tuple(region for region, _ in regions), limits, purchases, few, notify, track)


def _any_program(regions: Any) -> bool:
    return isinstance(regions, list) and any(isinstance(one, dict) and TRAINER in one for one in regions)


def _read_regions(
    study: Section, folder: Path, purchases: Purchases | None, families: tuple[str, ...]
) -> list[tuple[Region, KeyPath]]:
    raw = study.value("regions", STUDY)
    problems, path = study.problems, ("regions",)
    reader = RegionReader(study, folder, purchases, families)
    if isinstance(raw, dict):
        entries = _regions_from_files(problems, raw, folder, reader.together, programs=TRAINER in study)
    else:
        entries = [(entry, (*path, index)) for index, entry in enumerate(raw)]
    if "regions" not in study and purchases is not None:
        entries = _regions_from_purchases(problems, purchases, folder, reader.together)
    elif "regions" not in study:
        problems.add(path, f"missing, legal: {STUDY['regions'].check.legal}")
    if not entries and "data" not in study:
        problems.add(path, "no region: a study needs at least one")
    reader.several = len(entries) > 1 and not reader.together
    found = [(reader.read(entry, place), place) for entry, place in entries if _is_region(problems, entry, place)]
    regions = reader.with_pooled(reader.starts.settle(found))
    check_starts(problems, regions)
    return regions


def _is_region(problems: Problems, entry: Any, place: KeyPath) -> bool:
    if isinstance(entry, dict):
        return True
    problems.add(place, f"seen {entry!r}, legal: a mapping with `name` and `data`")
    return False


def _regions_from_purchases(
    problems: Problems, purchases: Purchases, folder: Path, together: bool
) -> list[tuple[Raw, KeyPath]]:
    place: KeyPath = ("data",)
    try:
        found = list_imported(purchases)
    except DataError as error:
        problems.add(place, f"{error}; remove {purchases.folder}, so that it is imported again")
        return []
    if not found:
        problems.add(
            place,
            f"{purchases.folder} holds no data sets yet; `regiondag generate` makes them of {purchases.table.name}",
        )
    some = [(name, file) for name, file in found if together or not _is_unasked(file.with_suffix(""))]
    return [({"name": name, "data": os.path.relpath(file, folder)}, place) for name, file in some]


def _regions_from_files(
    problems: Problems, raw: Raw, folder: Path, together: bool, *, programs: bool
) -> list[tuple[Raw, KeyPath]]:
    """Return a region for each data set, or for each file where programs train, which say what they are."""
    section = Section(problems, [Layer(raw, ("regions",))])
    pattern = section.value("from", FILES)
    section.finish()
    if not pattern:
        problems.add(("regions", "from"), "missing: a pattern such as data/*.nc")
        return []
    try:
        stem_of = _strip_suffix if programs else strip_part
        stems = {stem for stem in map(stem_of, folder.glob(pattern)) if programs or together or not _is_unasked(stem)}
    except (ValueError, NotImplementedError) as error:  # `**x`, an absolute pattern
        problems.add(("regions", "from"), f"seen {pattern!r} ({error}), legal: a relative pattern such as data/*.nc")
        return []
    if not stems:
        problems.add(
            ("regions", "from"),
            f"no file matches {pattern!r} (relative to {folder}); `nnlib import` writes data/REGION.train.nc and so on",
        )
    place: KeyPath = ("regions", "from")
    if programs:
        return [({"name": stem.name}, place) for stem in sorted(stems)]
    return [({"name": stem.name, "data": f"{stem.relative_to(folder)}.nc"}, place) for stem in sorted(stems)]


def _strip_suffix(path: Path) -> Path:
    return path.with_suffix("")


def _is_unasked(stem: Path) -> bool:
    """Whether an import made a region without customers to validate or to test with, so that nothing can be tuned."""
    files = {part: stem.with_name(f"{stem.name}.{part}.nc").exists() for part in ("all", "valid", "test")}
    return files["all"] and not (files["valid"] and files["test"])


def _refuse_equal_names(problems: Problems, regions: list[tuple[Region, KeyPath]]) -> None:
    names: dict[str, Region] = {}
    for region, path in regions:
        if not region.name:
            continue  # said already
        other = names.setdefault(region.slug, region)
        if other is region:
            continue
        if other.name == region.name:
            problems.add((*path, "name"), f"the region {region.name!r} stands here a second time")
        else:
            problems.add(
                (*path, "name"),
                f"seen {region.name!r}, which becomes the folder {region.slug!r} as {other.name!r} does; rename one",
            )
