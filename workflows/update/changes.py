"""Which regions have something new: data or network that differ from those with which they were last finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from regiondag.errors import RegiondagError
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.study.model import Region
from regiondag.trainers.trainer import trainer_of


def find_unchanged(regions: Iterable[Region], earlier: Sequence[RunFolder]) -> dict[str, RunFolder]:
    """Return the regions whose data and network are, by SHA-256, those with which they were last finished, and where.

    `earlier` are the study's runs, the newest first. A region of merged data is never among them: it has none of its
    own.
    """
    manifest = cache(read_manifest)  # of a run, for all its regions
    found = {}
    for region in regions:
        last = None if region.merged else _find_last_finished(region, earlier)
        if last is not None and is_unchanged(region, manifest(last).sha256):
            found[region.slug] = last
    return found


def _find_last_finished(region: Region, earlier: Sequence[RunFolder]) -> RunFolder | None:
    """Return the newest of the runs in which the region came to its end with a champion."""
    return next((run for run in earlier if is_finished(run, region.slug)), None)


def is_finished(run: RunFolder, slug: str) -> bool:
    """Return whether a region came to its end in a run."""
    try:
        return Journal(run.region(slug).journal).read_outcomes().outcome(None) is not None
    except RegiondagError:  # a journal that somebody edited: the region is trained again
        return False


def is_unchanged(region: Region, digests: Mapping[str, str]) -> bool:
    """Return whether the region's data, network and model file to start from, no other input, have a run's digests.

    Of a program, whether that and all its files have.
    """
    start = f"regions/{region.slug}/"
    inside = {path.removeprefix(start): digest for path, digest in digests.items() if path.startswith(start)}
    return trainer_of(region).is_unchanged(inside)
