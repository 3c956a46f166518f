"""What a run does not know of yet: study.yaml, data or networks that are others than those it was made from."""

from __future__ import annotations

from collections.abc import Sequence

from regiondag.errors import ConfigError
from regiondag.run.layout import STUDY_FILE, RunFolder
from regiondag.run.manifest import RunManifest, read_manifest
from regiondag.study.model import Config
from regiondag.update.changes import find_unchanged, is_unchanged
from regiondag.util.text import list_some
from regiondag.util.yaml_file import load_yaml

SHOWN = 3  # names of regions
STUDY_CHANGED = f"{STUDY_FILE} says something else than then"
MOVED = "its run directory was moved"


def find_news(config: Config, runs: Sequence[RunFolder]) -> str:
    """Return what the newest of a study's `runs` does not know of yet, in words; nothing where that is all."""
    if not runs:
        return ""
    run = runs[0]
    manifest = read_manifest(run)
    if manifest.run != str(run.path.resolve()):
        return MOVED
    if not _says_the_same(config, run):
        return STUDY_CHANGED
    new = _find_changed(config, runs, manifest)
    gone = [name for slug, name in manifest.regions.items() if slug not in {region.slug for region in config.regions}]
    said = [f"new data or network: {list_some(new, SHOWN)}"] if new else []
    return "; ".join(said + ([f"not there any more: {list_some(gone, SHOWN)}"] if gone else []))


def _says_the_same(config: Config, run: RunFolder) -> bool:
    """Whether a study says what it said when the run was made; comments are nothing new."""
    try:
        return bool(load_yaml(run.path / STUDY_FILE).value == load_yaml(config.file).value)
    except (ConfigError, OSError):
        return False


def _find_changed(config: Config, runs: Sequence[RunFolder], manifest: RunManifest) -> list[str]:
    """Return the regions whose inputs differ from the run's; one that it left out, from those of its last champion."""
    inside = [region for region in config.regions if region.slug in manifest.regions and not region.merged]
    outside = [region for region in config.regions if region.slug not in manifest.regions and not region.merged]
    known = find_unchanged(outside, runs[1:])
    new = [region.name for region in inside if not is_unchanged(region, manifest.sha256)]
    return new + [region.name for region in outside if region.slug not in known]
