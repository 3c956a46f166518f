"""Make the next run of a study: of all its regions, or of those that have something new."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnlib.data.file import DataSummary
from nnlib.util.terminal import show_progress
from regiondag.condor.versions import OLDEST, Version, parse_version
from regiondag.config.data_check import training_examples
from regiondag.config.load_checked import load_checked
from regiondag.errors import UsageError
from regiondag.generate.fresh_data import refresh_data
from regiondag.generate.provenance import describe_pool_image
from regiondag.generate.write_run import create_run
from regiondag.pool.pool import Pool
from regiondag.registry.incumbents import find_in_office
from regiondag.run.champions import Incumbent, earlier_runs, incumbents_of, select_networks
from regiondag.run.earlier_trials import find_earlier
from regiondag.run.layout import RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.run.study_folder import StudyFolder
from regiondag.study.init import choose_init, describe_init
from regiondag.study.model import Config, Region
from regiondag.trainers.trainer import trainer_of
from regiondag.update.changes import find_unchanged

Tell = Callable[[str], None]
NO_CHAMPIONS = "none"  # for those of earlier runs


@dataclass(frozen=True, slots=True)
class Inputs:
    """A study and its data, read and found good, and its runs so far, the newest first."""

    study: StudyFolder
    config: Config
    examples: Mapping[str, int]
    summaries: Mapping[Path, DataSummary]
    notes: tuple[str, ...]  # for who made the study
    earlier: tuple[RunFolder, ...]
    imported: bool  # just now, of the table of purchases


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """What a run is to be made of; `incumbents` are the champions that it has to beat."""

    config: Config
    incumbents: Mapping[str, Incumbent]
    notes: tuple[str, ...] = ()  # what was decided on the way


def read_inputs(study: StudyFolder) -> Inputs:
    """Import the study's table of purchases where that has changed, and read all that a run is made of."""
    imported = refresh_data(study.study)
    checked = load_checked(study.study)
    earlier = earlier_runs(study.runs, checked.config.name)
    examples = training_examples(checked.config, checked.summaries)
    return Inputs(study, checked.config, examples, checked.summaries, checked.notes, tuple(earlier), imported)


def plan_run(inputs: Inputs, warn: Tell, champions: str | None = None) -> PlannedRun:
    """Plan a run of all regions against the champions of the run `champions`, or `none`, or those in office."""
    incumbents = _choose_incumbents(champions, inputs, warn)
    config = choose_init(inputs.config, inputs.examples, select_networks(incumbents))
    return PlannedRun(config, incumbents, tuple(describe_init(inputs.config, config)))


def plan_update(inputs: Inputs, tell: Tell, warn: Tell, *, whole: bool = False) -> PlannedRun | None:
    """Plan a run of the regions that have something new, `whole`: of all; None where nothing is new.

    `update` of the study takes the place of `search` where there is a champion to start from.
    """
    incumbents = _find_in_office(inputs, warn)
    config = choose_init(inputs.config, inputs.examples, select_networks(incumbents))
    regions = config.regions if whole else _new_regions(config, inputs.earlier, tell)
    if not regions:
        return None
    taken = {region.slug: incumbents[region.slug] for region in regions if region.slug in incumbents}
    changed = (replace(r, search=r.update) if r.update and r.slug in taken else r for r in regions)
    return PlannedRun(replace(config, regions=tuple(changed)), taken)


def write_planned(inputs: Inputs, planned: PlannedRun, pool: Pool | None, htcondor: str | None = None) -> RunFolder:
    """Write the run directory, for the oldest HTCondor that is named, or that of the pool."""
    with show_progress("regions") as progress:
        return create_run(
            planned.config,
            inputs.study.runs,
            htcondor=choose_version(htcondor, pool),
            incumbents=planned.incumbents,
            progress=progress,
            earlier=find_earlier(inputs.earlier, planned.config.regions),
            image=describe_pool_image(pool),
            summaries=inputs.summaries,
        )


def choose_version(wanted: str | None, pool: Pool | None) -> Version:
    """Return the version to render for: what is wanted, or the pool's, or the oldest that is supported."""
    if wanted is None:
        return pool.version if pool else OLDEST
    try:
        version = parse_version(wanted)
    except ValueError as error:
        raise UsageError(f"--htcondor: {error}") from error
    if version < OLDEST:
        raise UsageError(f"--htcondor: {wanted} is older than {OLDEST[0]}.{OLDEST[1]}, the oldest that is supported")
    return version


def _find_in_office(inputs: Inputs, warn: Tell) -> dict[str, Incumbent]:
    slugs = [region.slug for region in inputs.config.regions]
    return find_in_office(inputs.study.runs, inputs.config.name, slugs, inputs.earlier, warn)


def _choose_incumbents(wanted: str | None, inputs: Inputs, warn: Tell) -> dict[str, Incumbent]:
    if wanted == NO_CHAMPIONS:
        return {}
    if wanted is None:
        return _find_in_office(inputs, warn)
    run = RunFolder(Path(wanted))
    if not run.path.is_dir():
        read_manifest(run)  # which says what is there instead
    return incumbents_of(run, [region.slug for region in inputs.config.regions])


def _new_regions(config: Config, earlier: Sequence[RunFolder], tell: Tell) -> tuple[Region, ...]:
    """Return the regions that have something new, and those from which they start; say which are left out."""
    unchanged = find_unchanged(config.regions, earlier)
    new = {region.slug for region in config.regions if not region.merged} - set(unchanged)
    if new and any(region.served_by for region in config.regions):
        return config.regions  # what serves them is fitted on the data of all
    sources = {region.init.source for region in config.regions if region.slug in new}
    for region in config.regions:
        if region.slug in unchanged and region.slug in sources:
            tell(f"{region.name}: nothing new, but others start from its champion of this run")
        elif region.slug in unchanged:
            last = unchanged[region.slug]
            what = trainer_of(region).made_of
            tell(f"{region.name}: left out, its {what} are those of {last.path} (--all takes it)")
    return tuple(region for region in config.regions if region.slug in new | sources)
