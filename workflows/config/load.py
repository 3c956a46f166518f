"""Read study.yaml. `load_config` reports every mistake at once and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from nnlib.contract import slug_of
from nnlib.spec import network as spec
from nnlib.util.os_errors import reason_of
from regiondag.config import sections
from regiondag.config.init_section import InitReader
from regiondag.config.keys import FILES, NETWORK, REGION, SECTIONS, STUDY
from regiondag.errors import ConfigError
from regiondag.study.init import merge_parts
from regiondag.study.model import PARTS, POOLED, TRAIN_SETTINGS, Config, Region
from regiondag.study.space import list_extreme_values
from regiondag.tuning.pruning import fewest_epochs
from regiondag.util import schema
from regiondag.util.schema import Layer, Problems, Section
from regiondag.util.yaml_file import Document, KeyPath, load_yaml

T = TypeVar("T")
Raw = Mapping[str, object]  # a region as it stands in the file

FEW_SETS = 3
LEGAL_DATA = "the region's data, such as data/germany.nc"


def load_config(path: Path) -> Config:
    """Read study.yaml; ConfigError with every mistake: file, line, key path, value seen, what is legal."""
    document = load_yaml(path)
    if not isinstance(document.value, dict):
        kind = type(document.value).__name__
        raise ConfigError([f"{path}:1: a study is a mapping of keys to values, seen a {kind}"])
    problems = Problems(document)
    config = _read_study(document, problems, path)
    if problems.found:
        raise ConfigError(problems.texts())
    return config


def _read_study(document: Document, problems: Problems, path: Path) -> Config:
    study = Section(problems, [Layer(document.value, ())])
    name = study.value("study", STUDY) or path.stem
    limits = sections.read_limits(study.section("limits"))
    regions = _read_regions(study, path.parent)
    study.finish(STUDY)
    if "network" not in study:
        problems.add(("network",), "missing: the path of a network file (DSSTNE's JSON)")
    _refuse_equal_names(problems, regions)
    return Config(name, path, tuple(region for region, _ in regions), limits)


def _read_regions(study: Section, folder: Path) -> list[tuple[Region, KeyPath]]:
    raw = study.value("regions", STUDY)
    problems, path = study.problems, ("regions",)
    if isinstance(raw, dict):
        entries = _regions_from_files(problems, raw, folder)
    else:
        entries = [(entry, (*path, index)) for index, entry in enumerate(raw)]
    if "regions" not in study:
        problems.add(path, f"missing, legal: {STUDY['regions'].check.legal}")
    if not entries:
        problems.add(path, "no region: a study needs at least one")
    reader = _RegionReader(study, folder)
    found = [(reader.read(entry, place), place) for entry, place in entries if _is_region(problems, entry, place)]
    return reader.with_pooled(reader.starts.settle(found))


def _is_region(problems: Problems, entry: Any, place: KeyPath) -> bool:
    if isinstance(entry, dict):
        return True
    problems.add(place, f"seen {entry!r}, legal: a mapping with `name` and `data`")
    return False


def _regions_from_files(problems: Problems, raw: Raw, folder: Path) -> list[tuple[Raw, KeyPath]]:
    section = Section(problems, [Layer(raw, ("regions",))])
    pattern = section.value("from", FILES)
    section.finish()
    if not pattern:
        problems.add(("regions", "from"), "missing: a pattern such as data/*.nc")
        return []
    try:
        stems = {_stem(path) for path in folder.glob(pattern)}
    except (ValueError, NotImplementedError) as error:  # `**x`, an absolute pattern
        problems.add(("regions", "from"), f"seen {pattern!r} ({error}), legal: a relative pattern such as data/*.nc")
        return []
    if not stems:
        problems.add(
            ("regions", "from"),
            f"no file matches {pattern!r} (relative to {folder}); `nnlib import` writes data/REGION.train.nc and so on",
        )
    place: KeyPath = ("regions", "from")
    return [({"name": stem.name, "data": f"{stem.relative_to(folder)}.nc"}, place) for stem in sorted(stems)]


def _stem(path: Path) -> Path:
    """Return `data/germany` for `data/germany.nc` as for `data/germany.train.nc`."""
    path = path.with_suffix("") if path.suffix == ".nc" else path
    return path.with_suffix("") if path.suffix.removeprefix(".") in PARTS else path


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


class _RegionReader:
    """Reads regions; sections that a region does not override are read once for all of them."""

    def __init__(self, study: Section, folder: Path) -> None:
        self.study = study
        self.problems = study.problems
        self.folder = folder
        self.shared: dict[tuple[Any, ...], Any] = {}
        self.starts = InitReader(study)

    def read(self, raw: Raw, path: KeyPath) -> Region:
        section = Section(self.problems, [Layer(raw, path), *self.study.layers])
        own = Section(self.problems, [Layer(raw, path)])
        name = own.value("name", REGION)
        if "name" not in own:
            self.problems.add((*path, "name"), "missing: the region's name")
        slug = slug_of(name) if name else ""
        region = self._region(name, slug, self._data(own, path), raw, section)
        self.starts.read(slug, section, own)
        own.finish(REGION)
        self._check_network(section, region)
        return region

    def with_pooled(self, regions: list[tuple[Region, KeyPath]]) -> list[tuple[Region, KeyPath]]:
        """Add the region that is trained on the data of all others, if any is to start from its model."""
        own = self.study.section(POOLED)
        if all(region.init.kind != "pooled" for region, _ in regions):
            if POOLED in self.study:
                self.problems.add((POOLED,), "no region has init: pooled, so that nothing is; remove this section")
            return regions
        for region, path in regions:
            if region.slug == POOLED:
                text = f"seen {region.name!r}, which names the region that init: pooled adds; rename yours"
                self.problems.add((*path, "name"), text)
                return regions
        raw = {key: value for key, value in own.layers[0].value.items() if key in SECTIONS}
        section = Section(self.problems, [Layer(raw, (POOLED,)), *self.study.layers])
        pooled = self._region(POOLED, POOLED, {}, raw, section)
        own.finish(SECTIONS)
        self._check_network(section, pooled)
        return [*regions, (replace(pooled, merged=merge_parts(region for region, _ in regions)), (POOLED,))]

    def _region(self, name: str, slug: str, data: dict[str, Path], raw: Raw, section: Section) -> Region:
        region = Region(
            name=name,
            slug=slug,
            data=data,
            network=self.folder / section.value("network", NETWORK),
            metric=self._once(("metric", "minimize"), raw, section, sections.read_metric),
            train=self._once(("train",), raw, section, lambda s: sections.read_train(s.section("train"))),
            search=self._once(("search",), raw, section, lambda s: sections.read_search(s.section("search"))),
            job=self._once(("job",), raw, section, lambda s: sections.read_job(s.section("job"))),
            update=self._once(("search", "update"), raw, section, sections.read_update),
        )
        self._check_pruning(section, region)
        return region

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

    def _data(self, own: Section, path: KeyPath) -> dict[str, Path]:
        stem = own.value("data", REGION)
        if not stem:
            if "data" not in own:
                self.problems.add((*path, "data"), f"missing: {LEGAL_DATA}")
            return {}
        base = _stem(self.folder / stem)
        files = {part: base.with_name(f"{base.name}.{part}.nc") for part in PARTS}
        try:
            found = {part: file for part, file in files.items() if file.is_file()}
        except OSError as error:  # a name that is too long
            self.problems.add(own.where("data"), f"seen {stem!r}: {reason_of(error)}; legal: {LEGAL_DATA}")
            return {}
        missing = [file for part, file in files.items() if part != "final" and part not in found]
        if missing:
            several = "".join(f", .{file.name.removeprefix(base.name + '.')}" for file in missing[1:])
            self.problems.add(
                own.where("data"),
                f"seen {stem!r}, but there is no file {missing[0]}{several}; `nnlib import` writes such sets"
                f"{_nearest_set(base)}",
            )
        return found

    def _check_network(self, section: Section, region: Region) -> None:
        """Every `$name` of the network must be a hyperparameter, and every hyperparameter must be used."""
        key = (region.network, region.search.space)
        if "network" not in section or key in self.shared:
            return
        self.shared[key] = None
        where = section.where("network")
        try:
            raw_network = spec.read_json(region.network)
        except OSError as error:
            self.problems.add(where, f"seen {str(region.network)!r}: {reason_of(error)}; legal: DSSTNE's JSON")
            return
        except spec.SpecError as error:
            for problem in error.problems:
                self.problems.add(where, problem)
            return
        used = spec.placeholders(raw_network)
        space = section.section("search").section("space")
        names = {name for layer in space.layers for name in layer.value}
        settings = TRAIN_SETTINGS
        for name in sorted(set(used) - names):
            hint = schema.nearest(name, names)
            self.problems.add(where, f"{region.network}: {used[name]}: ${name} is not in search.space{hint}")
        for name in sorted(names - set(used) - settings):
            hint = schema.nearest(name, settings | set(used))
            self.problems.add(
                space.where(name),
                f'nothing uses {name!r}: write "${name}" into {region.network.name}, or name a training setting '
                f"({', '.join(sorted(settings))}){hint}",
            )
        if set(used) <= {parameter.name for parameter in region.search.space}:
            self._parse_network(where, space, region, raw_network)

    def _parse_network(self, where: KeyPath, space: Section, region: Region, raw_network: Any) -> None:
        """Check the network with the ends of every hyperparameter, one varied at a time."""
        tried = {parameter.name: list_extreme_values(parameter) for parameter in region.search.space}
        first = {name: values[0] for name, values in tried.items()}
        said: set[str] = set()
        for problem in _network_problems(raw_network, first, region):
            said.add(problem)
            self.problems.add(where, problem)
        for name, values in tried.items():
            for value in values[1:]:
                for problem in _network_problems(raw_network, {**first, name: value}, region):
                    if problem not in said:
                        self.problems.add(space.where(name), f"{name} = {value!r}: {problem}")


def _network_problems(raw_network: Any, values: dict[str, Any], region: Region) -> list[str]:
    file = region.network.name
    try:
        network = spec.parse_network(spec.substitute(raw_network, values), file, region.train.compat == "dsstne")
        spec.check_runnable(network, file)
    except spec.SpecError as error:
        return error.problems
    return []


def _nearest_set(base: Path) -> str:
    """Name the set beside a missing one that may be meant; of a few, all of them."""
    found = sorted(file.name.removesuffix(".train.nc") for file in base.parent.glob("*.train.nc"))
    if len(found) <= FEW_SETS and found:
        return f"; there is: {', '.join(str(base.with_name(f'{name}.nc')) for name in found)}"
    return schema.nearest(base.name, found)
