"""Make a run directory: everything a study needs, in one folder that appears whole or not at all."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nnlib.contract import CONTAINER_FILE, ENVIRONMENT_FILE, INIT_FILE, Recipe, sha256_of
from nnlib.data.file import DataSummary
from nnlib.spec.network import read_json
from nnlib.util.files import appearing, link_or_copy, write_atomically
from nnlib.util.os_errors import describe
from nnlib.util.terminal import tell
from regiondag.condor.quoting import check_path, is_path
from regiondag.condor.versions import Version, show_version
from regiondag.errors import RegiondagError
from regiondag.generate.bundle import archives_of, pack_manager, pack_worker
from regiondag.generate.floor import find_floor
from regiondag.generate.item_names import find_items
from regiondag.generate.output_bound import Bounds
from regiondag.generate.plan import Plan, build_plan
from regiondag.generate.pooled_data import write_merged
from regiondag.generate.provenance import read_commits, read_library_versions
from regiondag.generate.render import Renderer
from regiondag.run import layout
from regiondag.run.champions import Incumbent, hyperparameters_of, is_floor, recipe_of_champion
from regiondag.run.layout import RunFolder
from regiondag.run.region_spec import make_run_id, spec_of, spec_to_json
from regiondag.study.families import FAMILY, INCUMBENT, NETWORK, PROGRAM, REGION, drop_repeated, point_of, recipe_at
from regiondag.study.init import ASKED
from regiondag.study.model import Config, Region
from regiondag.study.notify import notify_to_json
from regiondag.study.space import Choice, Point
from regiondag.study.track import track_to_json
from regiondag.trainers.environments import provide_all
from regiondag.trainers.python_bundle import Bundle, provide_pythons
from regiondag.trainers.trainer import trainer_of
from regiondag.tuning.champion_point import fit_champion_point
from regiondag.tuning.fixed_shape import find_shaping
from regiondag.util.resources import resource_dir

SCRIPTS = ("pre.sh", "post.sh", "train.sh")

Progress = Callable[[int, int], None]  # regions done, regions in all


def create_run(
    config: Config,
    runs: Path,
    *,
    htcondor: Version,
    incumbents: Mapping[str, Incumbent],
    progress: Progress,
    earlier: Mapping[str, str] | None = None,
    image: str = "",
    summaries: Mapping[Path, DataSummary] | None = None,
) -> RunFolder:
    """Write a new run directory below `runs` and return it; nothing is left of it when that fails.

    `incumbents` and `earlier` are what earlier runs left: champions, and the texts of `find_earlier`; both by slug.
    `image` is what is known of the pool's image, `summaries` what data files hold, which bounds what jobs bring back.
    """
    plan = build_plan(config)
    environments, bundles = provide_all(config.regions, tell), provide_pythons(config.regions, tell)
    runs = runs.resolve()
    check_path(runs, "give another folder: --out ~/runs")  # say so before anything is written
    try:
        runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegiondagError(
            f"the folder {runs} cannot be made: {describe(error).removeprefix(f'{runs}: ')}; choose another with --out"
        ) from error
    run = _free_name(runs, config.name)
    with _appearing_at(run.path) as part:
        _Writer(
            part, run, plan, htcondor, incumbents, earlier or {}, image, environments, bundles, summaries or {}
        ).write(progress)
    return run


def _free_name(runs: Path, study: str) -> RunFolder:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    candidates = (runs / f"run-{study}-{stamp}{suffix}" for suffix in ["", *(f"-{n}" for n in range(2, 1000))])
    return RunFolder(next(path for path in candidates if not path.exists()))


@contextmanager
def _appearing_at(path: Path) -> Iterator[Path]:
    """Give a folder to write into that becomes `path` when all went well, and is removed otherwise."""
    try:
        with appearing(path, 0o700) as part:  # a region's data and models are its owner's business
            yield part
    except OSError as error:
        said = describe(error).removeprefix(f"{path}: ")
        raise RegiondagError(f"{path} could not be written, nothing is left of it: {said}") from error


class _Writer:
    """Writes the parts of one run. `part` is where they go now, `run` where they will be."""

    def __init__(
        self,
        part: Path,
        run: RunFolder,
        plan: Plan,
        htcondor: Version,
        incumbents: Mapping[str, Incumbent],
        earlier: Mapping[str, str],
        image: str,
        environments: Mapping[str, Path],
        bundles: Mapping[str, Bundle],
        summaries: Mapping[Path, DataSummary],
    ) -> None:
        self.part = RunFolder(part)
        self.run = run
        self.plan = plan
        self.htcondor = htcondor
        self.incumbents = incumbents
        self.earlier = earlier
        self.image = image
        self.environments = environments
        self.bundles = bundles
        self.bounds = Bounds(summaries)
        self.archives = (pack_manager(archives_of(run.path.parent)), pack_worker())
        self.created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.digests: dict[str, str] = {}  # path in the run directory -> SHA-256
        self.models: dict[Path, Path] = {}  # model, image or environment, all large -> the run's first copy
        self.known: dict[Path, str] = {}  # input file -> SHA-256, as regions may share files
        self.sources: dict[str, str] = {}  # path in the run directory -> the file it was copied from

    def write(self, progress: Progress) -> None:
        for archive in self.archives:
            (self.part.path / archive.name).write_bytes(archive.content)
            self._note(archive.name)
        for script in SCRIPTS:
            shutil.copy(resource_dir("scripts") / "dag" / script, self.part.path / script)
            self._note(script)
        shutil.copyfile(self.plan.config.file, self.part.path / layout.STUDY_FILE)
        self._note(layout.STUDY_FILE)
        if self.plan.config.notify.channels:
            write_atomically(self.part.notify, notify_to_json(self.plan.config.notify))
        if self.plan.config.track:
            write_atomically(self.part.track, track_to_json(self.plan.config.track))
        items = find_items(self.plan.config)
        if items is not None:
            self._copy(items, self.part.items)
        regions = self.plan.config.regions
        bound = []
        for done, region in enumerate(regions):
            progress(done, len(regions))
            bound.append(self._write_region(region, done))
        self.plan = build_plan(replace(self.plan.config, regions=tuple(bound)))
        self._render()
        progress(len(regions), len(regions))
        _write_json(self.part.manifest, self._manifest())

    def _write_region(self, region: Region, position: int) -> Region:
        """Write what one region has of its own, and return it with what its jobs may bring back."""
        folder = self.part.region(region.slug)
        (folder.path / "trials").mkdir(parents=True)
        trainer = trainer_of(region)
        copies = trainer.copies(folder)
        incumbent = self.incumbents.get(region.slug)
        if incumbent and region.init.kind == "champion":
            copies[folder.incumbent_model] = incumbent.model
            self._copy(incumbent.metrics, folder.incumbent_metrics)
        if region.init.model:
            copies[folder.init_model] = Path(region.init.model)
        if region.slug in self.environments:
            copies[folder.environment] = self.environments[region.slug]
        if region.slug in self.bundles:
            self._copy(self.bundles[region.slug].file, folder.python_bundle)
        for copy, source in copies.items():
            self._copy(source, copy)
        rows, merged = write_merged(region, folder)
        made = [*map(folder.data, rows), *trainer.write(folder)]
        for file in made:
            self._note(self._inside(file))
        inside = {file.name: self.digests[self._inside(file)] for file in [*copies, *made]}
        bound = not (region.init.random or region.init.model)  # to the shape of a run's model
        shape = find_shaping(read_json(region.network)) if bound and region.network else ()
        recipe = recipe_of_champion(incumbent) if incumbent else None
        own = self._own_recipes(region, recipe)
        window = None if region.served_by else _first_day(folder.data("valid"))
        first = _first_points(region, incumbent, own)
        first = first if window is not None else drop_repeated(first)
        floor = find_floor(region, self.bounds.of(region, merged))
        region = self.bounds.bind(region, merged, first, [recipe, *own.values()], floor)
        spec = spec_of(self.plan.config.name, region, inside, position, first, shape, recipe, self.plan.config)
        spec = replace(
            spec,
            rows={part: self._by_region(rows[part]) for part in rows if part in ASKED},
            own=own,
            window=window,
            floor=floor,
            run_id=make_run_id(self.run.path, self.created, region.slug),
        )
        folder.spec.write_text(spec_to_json(spec), encoding="utf-8")
        self._note(self._inside(folder.spec))
        if region.slug in self.earlier:
            folder.earlier.write_text(self.earlier[region.slug], encoding="utf-8")
        return region

    def _own_recipes(self, region: Region, common: Recipe | None) -> dict[str, Recipe]:
        """Return the recipes that are in office in single regions that `region` serves.

        Each is its own choice, or what was the common choice before: the region was rolled back to it, or is pinned.
        """
        served = [one.slug for one in self.plan.config.regions if one.served_by == region.slug]
        known = {slug: self.incumbents[slug] for slug in served if slug in self.incumbents}
        found = {slug: recipe_of_champion(one) for slug, one in known.items() if not is_floor(one)}
        return {slug: one for slug, one in found.items() if one and one != common and one.family != NETWORK}

    def _by_region(self, rows: Mapping[Path, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        """Return by region what is known by file; an update may have left regions out."""
        slugs = {file: region.slug for region in self.plan.config.regions for file in region.data.values()}
        return {slugs[file]: ends for file, ends in rows.items() if file in slugs}

    def _copy(self, source: Path, copy: Path) -> None:
        """Copy an input and note the digest of the copy, which is what the jobs will get."""
        if source in self.models:  # it is large, and never written into
            link_or_copy(self.models[source], copy)
        else:
            shutil.copyfile(source, copy)
        if copy.name in (INIT_FILE, CONTAINER_FILE, ENVIRONMENT_FILE, layout.BUNDLE_FILE):
            self.models.setdefault(source, copy)
        if source not in self.known:
            self.known[source] = sha256_of(copy)
        self.digests[self._inside(copy)] = self.known[source]
        self.sources[self._inside(copy)] = str(source.resolve())

    def _render(self) -> None:
        manager, worker = self.archives
        renderer = Renderer(
            self.run,
            self.plan,
            htcondor=self.htcondor,
            python=self._python(),
            codes=(manager.name, worker.name),
            bundles=self.bundles,
        )
        written: set[str] = set()
        for name, pieces in renderer.files():
            with (self.part.path / name).open("a", encoding="utf-8") as file:
                file.writelines(pieces)
            written.add(name)
        for name in sorted(written):
            self._note(name)

    def _python(self) -> str:
        """Return the Python of PRE and POST; where a DAG cannot name it, as in a folder with spaces, what starts it."""
        if is_path(sys.executable):
            return sys.executable
        script = self.part.path / layout.PYTHON_FILE
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        self._note(layout.PYTHON_FILE)
        return str(self.run.path / layout.PYTHON_FILE)

    def _manifest(self) -> dict[str, Any]:
        config = self.plan.config
        metrics = {region.metric.name for region in config.regions}
        return {
            "study": config.name,
            "run": str(self.run.path),
            "created": self.created,
            "metric": metrics.pop() if len(metrics) == 1 else "metric of each region",
            "trials": self.plan.trials,
            "regions": {region.slug: region.name for region in config.regions},
            "seeds": {region.slug: region.train.seed for region in config.regions},
            "versions": {**read_library_versions(), "htcondor": show_version(self.htcondor)},
            "git": {what: asdict(commit) for what, commit in read_commits(config.file).items()},
            "image": self.image,
            "sources": self.sources,
            "sha256": self.digests,
        }

    def _note(self, name: str) -> None:
        self.digests[name] = sha256_of(self.part.path / name)

    def _inside(self, path: Path) -> str:
        return str(path.relative_to(self.part.path))


def _first_points(region: Region, incumbent: Incumbent | None, own: Mapping[str, Recipe]) -> tuple[Point, ...]:
    """Return the points that the region's first trials take: its champion's, on the new data, comes before all others.

    Those of single regions come next but for popularity, without which nothing could be compared; then what the blend
    in office is made of, so that tonight's may be made of it, too.
    """
    if region.served_by:
        return ()
    point: Point | None = fit_champion_point(region.search, hyperparameters_of(incumbent)) if incumbent else None
    if point is None and incumbent and region.search.of_families:
        recipe = recipe_of_champion(incumbent)
        if recipe is not None and recipe.family not in (NETWORK, PROGRAM):
            point = _point_of(region, recipe) or {FAMILY: INCUMBENT}
    of_regions = [
        _point_of(region, own[slug]) or {FAMILY: INCUMBENT, REGION: slug}
        for slug in {json.dumps(asdict(recipe)): slug for slug, recipe in own.items()}.values()  # each recipe once
    ]
    recipe = recipe_of_champion(incumbent) if incumbent and region.search.of_families else None
    members = [found for one in (recipe.members if recipe else ()) if (found := _point_of(region, one))]
    wanted = [*([] if point is None else [point]), *region.first[:1], *of_regions, *members, *region.first[1:]]
    return tuple(one for number, one in enumerate(wanted) if one not in wanted[:number])


def _point_of(region: Region, recipe: Recipe) -> Point | None:
    """Return the point of the region's space that is this very recipe; None where there is none, as for a blend."""
    from nnlib.families.legal import complete_recipe  # with NumPy

    if recipe.members:
        return None
    known = {p.name: p.options for p in region.search.space if isinstance(p, Choice)}
    # A recipe says 1.0 where the space offers 1.
    point = {name: next((o for o in known.get(name, ()) if o == v), v) for name, v in point_of(recipe).items()}
    found = fit_champion_point(region.search, point)
    return found if found and complete_recipe(recipe_at(found, region.train.seed)) == complete_recipe(recipe) else None


def _first_day(valid: Path) -> int | None:
    """Return the first day of the validation window, in days since 1970-01-01; None where data have no times."""
    from nnlib.data.file import read_first_day  # with NumPy and netCDF4

    return read_first_day(valid) if valid.exists() else None


def _write_json(path: Path, raw: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(raw, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
