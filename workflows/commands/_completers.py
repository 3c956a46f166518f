"""What may stand for RUN, REGION, TRIAL and so on, for shells: each is found as the commands themselves find it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

from regiondag.util.completion import Completer

MOST = 2000  # names that a shell is given


def list_runs(prefix: str, _: argparse.Namespace) -> Iterator[str]:
    """Yield studies and runs in the folders that were typed so far, and folders on the way to others."""
    from regiondag.run.layout import MANIFEST_FILE

    yield from list_studies(prefix, _)
    above = _above(prefix)
    for pattern in (f"run-*/{MANIFEST_FILE}", f"runs/run-*/{MANIFEST_FILE}", f"*/runs/run-*/{MANIFEST_FILE}"):
        yield from sorted({str(found.parent) for found in above.glob(pattern)}, reverse=True)


def list_studies(prefix: str, _: argparse.Namespace) -> Iterator[str]:
    """Yield studies, by folder and by file, and folders on the way to others."""
    from regiondag.run.layout import STUDY_FILE

    for folder in sorted(path for path in _above(prefix).glob("*") if path.is_dir() and path.name[0] != "."):
        yield str(folder) if (folder / STUDY_FILE).exists() else f"{folder}/"
    yield from sorted(str(path) for path in _above(prefix).glob("*.yaml"))


def list_regions(prefix: str, before: argparse.Namespace) -> Iterator[str]:
    """Yield the names of the regions of the run, or of the study's newest one; folders' names where these fit."""
    regions = _regions(before)
    fitting = [name for name in regions.values() if name.startswith(prefix)]
    yield from (fitting or list(regions))[:MOST]


def list_trials(_: str, before: argparse.Namespace) -> Iterator[str]:
    """Yield the trials of the region that was named, and its final training."""
    from regiondag.run.journal import Journal
    from regiondag.run.lookup import find_region
    from regiondag.run.study_folder import find_run

    slug = find_region(_regions(before), before.region)
    history = Journal(find_run(before.run_directory).region(slug).journal).read()
    yield from (str(number) for number in sorted(history.proposals)[:MOST])
    yield "final"


def list_versions(_: str, before: argparse.Namespace) -> Iterator[str]:
    """Yield the versions of the region that was named, the newest first; of all regions where none was."""
    from regiondag.registry.read import open_registry, version_key
    from regiondag.run.lookup import find_region
    from regiondag.run.study_folder import find_study

    study = find_study(Path(before.study), getattr(before, "out", None))
    registry = open_registry(study.runs, study.name)
    named = getattr(before, "region", None)
    slugs = [find_region(registry.regions(), named)] if named else registry.slugs()
    yield from sorted({name for slug in slugs for name in registry.names(slug)}, key=version_key, reverse=True)[:MOST]


def list_nodes(prefix: str, before: argparse.Namespace) -> Iterator[str]:
    """Yield regions, and the nodes of one whose name was typed."""
    from regiondag.run.journal import Journal
    from regiondag.run.layout import NodeName
    from regiondag.run.study_folder import find_run

    yield from list_regions(prefix, before)
    run = find_run(before.run_directory)
    for slug in _regions(before):
        if prefix.startswith(slug):
            numbers = sorted(Journal(run.region(slug).journal).read().proposals)[:MOST]
            yield from (str(NodeName(slug, number)) for number in (*numbers, None))


def _regions(before: argparse.Namespace) -> Mapping[str, str]:
    from regiondag.run.manifest import read_manifest
    from regiondag.run.study_folder import find_run, find_study

    named = getattr(before, "run_directory", None) or getattr(before, "study", None)
    if named is None:  # `trainer test`, of a study that may have no run yet
        from regiondag.config.load import load_config
        from regiondag.trainers.trainer import programs_of

        config = load_config(find_study(Path(*(getattr(before, "words", None) or []))).study)
        return {slug: region.name for slug, (region, _) in programs_of(config.regions).items()}
    return read_manifest(find_run(Path(named))).regions


def _above(prefix: str) -> Path:
    """Return the folder in which what is typed lies."""
    return Path(prefix) if prefix.endswith("/") else Path(prefix).parent


COMPLETERS: Mapping[str, Completer] = {
    "RUN": list_runs,
    "STUDY": list_studies,
    "study.yaml": list_studies,
    "REGION": list_regions,
    "REGION|NODE": list_nodes,
    "TRIAL": list_trials,
    **dict.fromkeys(("VERSION", "OLD", "NEW"), list_versions),
}
