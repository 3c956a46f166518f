"""Which regions have something new: data or network that differ from those with which they were last finished."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from nnlib.contract import sha256_of
from workflows.errors import RegiondagError
from workflows.journal import Journal
from workflows.names import NETWORK_FILE, RunFolder, data_file
from workflows.study import Region


def last_finished(region: Region, earlier: Sequence[RunFolder]) -> RunFolder | None:
    """Return the newest of the runs (the newest first) in which the region came to its end with a champion."""
    return next((run for run in earlier if _is_finished(run, region.slug)), None)


def is_unchanged(region: Region, run: RunFolder) -> bool:
    """Return whether the region's data and network are, by SHA-256, those of `run`."""
    sources = {NETWORK_FILE: region.network, **{data_file(part): file for part, file in region.data.items()}}
    then = _digests(run, region.slug, known=sources)
    return set(then) == set(sources) and all(then[name] == sha256_of(file) for name, file in sources.items())


def _is_finished(run: RunFolder, slug: str) -> bool:
    try:
        final = Journal(run.region(slug).journal).read_outcomes().final
    except RegiondagError:  # a journal that somebody edited: the region is trained again
        return False
    return final is not None and final.ok


def _digests(run: RunFolder, slug: str, known: Mapping[str, object]) -> dict[str, str]:
    """Return the digests of the region's data and network in a run; of other inputs, such as a champion, none."""
    manifest = json.loads(run.manifest.read_text(encoding="utf-8"))
    start = f"regions/{slug}/"
    inside = {path.removeprefix(start): digest for path, digest in manifest["sha256"].items() if path.startswith(start)}
    return {name: digest for name, digest in inside.items() if name in known or name.startswith("data.")}
