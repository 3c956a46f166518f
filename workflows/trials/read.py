"""The trials of a run, read from the journals of its regions."""

from __future__ import annotations

from pathlib import Path

from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder
from regiondag.run.lookup import find_region
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import read_spec
from regiondag.trials.rows import RunTrials, trials_of


def read_trials(run: RunFolder, region: str | None = None) -> RunTrials:
    """Return the trials of all regions, or of the one that is meant; UsageError where there is none such."""
    manifest = read_manifest(run)
    slugs = list(manifest.regions) if region is None else [find_region(manifest.regions, region)]
    folders = (run.region(slug) for slug in slugs)
    read = tuple(trials_of(read_spec(folder.spec), Journal(folder.journal).read()) for folder in folders)
    return RunTrials(manifest.study, Path(manifest.run).name, read)
