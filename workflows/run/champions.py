"""Find the champions that an earlier run of the same study left: what served until now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import PROGRAM_MODEL_FILE, Recipe, recipe_of
from regiondag.errors import RegiondagError
from regiondag.run.layout import MANIFEST_FILE, RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.study.families import NETWORK, PROGRAM
from regiondag.study.space import Value
from regiondag.util.digests import digest_of_shared


@dataclass(frozen=True, slots=True)
class Incumbent:
    """One region's champion: its model, what it reached, and its digest."""

    model: Path
    metrics: Path
    sha256: str


def find_incumbents(earlier: Sequence[RunFolder], slugs: Iterable[str]) -> dict[str, Incumbent]:
    """Return each region's champion of the first of the `earlier` runs that has a whole one."""
    found: dict[str, Incumbent] = {}
    for slug in slugs:
        for run in earlier:
            incumbent = champion_of(run, slug)
            if incumbent:
                found[slug] = incumbent
                break
    return found


def earlier_runs(runs: Path, study: str) -> list[RunFolder]:
    """Return the runs of a study below `runs`, the newest first."""
    found = [RunFolder(path.parent) for path in sorted(runs.glob(f"run-*/{MANIFEST_FILE}"), reverse=True)]
    return [run for run in found if _study_of(run) == study]


def hyperparameters_of(incumbent: Incumbent) -> Mapping[str, Value]:
    """Return the hyperparameters with which a champion was trained; none when its metrics do not say them."""
    found = json.loads(incumbent.metrics.read_text(encoding="utf-8")).get("hyperparameters")
    known = found.items() if isinstance(found, dict) else ()
    return {name: value for name, value in known if isinstance(value, str | int | float)}


def recipe_of_champion(incumbent: Incumbent) -> Recipe | None:
    """Return the recipe of a champion, of a network or a program its kind alone; None when its metrics say none."""
    if incumbent.model.name == PROGRAM_MODEL_FILE:
        return Recipe(PROGRAM)
    raw = json.loads(incumbent.metrics.read_text(encoding="utf-8"))
    try:
        return Recipe(NETWORK) if raw.get("recipe") is None else recipe_of(raw["recipe"])
    except ValueError:
        return None


def is_floor(incumbent: Incumbent) -> bool:
    """Whether a region is served by the floor, as what was best for all was not for it."""
    decision = json.loads(incumbent.metrics.read_text(encoding="utf-8")).get("decision")
    return isinstance(decision, dict) and decision.get("kind") == "floor"


def select_networks(incumbents: Mapping[str, Incumbent]) -> set[str]:
    """Return the slugs of the champions that are networks, from which others can start."""
    return {slug for slug, one in incumbents.items() if recipe_of_champion(one) == Recipe(NETWORK)}


def incumbents_of(run: RunFolder, slugs: Iterable[str]) -> dict[str, Incumbent]:
    """Return the champions of one run; RegiondagError when it has none at all."""
    found = {slug: incumbent for slug in slugs if (incumbent := champion_of(run, slug))}
    if not found:
        raise RegiondagError(
            f"{run.path} holds no champion of any region of this study; legal for --champions: a finished run of it, "
            "or none"
        )
    return found


def _study_of(run: RunFolder) -> str | None:
    try:
        return read_manifest(run).study
    except RegiondagError:
        return None


def champion_of(run: RunFolder, slug: str) -> Incumbent | None:
    """Return a region's champion in a run; None when there is none, or none that is whole."""
    folder = run.region(slug)
    try:
        digest = str(json.loads(folder.champion_metrics.read_text(encoding="utf-8"))["sha256"])
        if digest_of_shared(folder.champion_model) == digest:  # else: replaced half way, or damaged
            return Incumbent(folder.champion_model, folder.champion_metrics, digest)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None
