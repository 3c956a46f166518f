"""Write `report/index.html`: one page that shows a run to a browser, without a network and without other files."""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from nnlib.util.files import write_atomically
from regiondag.condor.events.attempts import Attempt
from regiondag.errors import RegiondagError
from regiondag.report.page_data import page_data
from regiondag.report.summary import Summary
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import PAGE_LIBRARY, PAGE_SHELL, NodeName, RegionFolder, RunFolder
from regiondag.run.live import Live
from regiondag.run.region_spec import read_spec
from regiondag.trials.dependence import PartialDependence, find_dependence
from regiondag.trials.rows import RegionTrials, trials_of

# Stand in the shell where these go. Base64 holds nothing that could end the element they stand in.
LIBRARY_PLACE, DATA_PLACE, DETAILS_PLACE = "@@library@@", "@@data@@", "@@details@@"
MOST_MODELS = 8  # regions of which the page shows how the metric depends on hyperparameters
LEVEL = 6  # of gzip: the ninth takes twice as long and saves 2 %
MISSING = (
    "no page: plotly was missing where the run was generated; there, `python -m pip install plotly` in regiondag's "
    "environment and `regiondag report RUN` make it"
)


class NoPageError(RegiondagError):
    """The page cannot be made; the rest of the report can."""


@dataclass(frozen=True, slots=True)
class Shell:
    """The page without figures, and plotly.js as gzip has packed it."""

    html: str
    library: bytes


def shell_of(parts: Mapping[str, bytes]) -> Shell:
    """Return the shell from what `page_parts` found, or from what was packed of it; NoPageError for nothing."""
    try:
        return Shell(parts[PAGE_SHELL].decode(), parts[PAGE_LIBRARY])
    except KeyError as error:
        raise NoPageError(MISSING) from error


def read_packed_shell() -> Shell:
    """Return the shell that travels in the archive that this code runs from; NoPageError if it has none."""
    root = files("regiondag")
    try:
        return shell_of({name: (root / Path(name).name).read_bytes() for name in (PAGE_SHELL, PAGE_LIBRARY)})
    except OSError as error:
        raise NoPageError(MISSING) from error


def write_page(
    run: RunFolder,
    summary: Summary,
    shell: Shell,
    *,
    attempts: Sequence[Attempt],
    live: Mapping[NodeName, Live] | None = None,
    refresh: float | None = None,
) -> Path:
    """Write the page anew and return its path; `attempts` are what became of the run's jobs.

    `live` is what running trials said last. With `refresh`, a page that is open looks for a newer one after so many
    seconds.
    """
    now = time.time()
    trials = [_read_trials(run.region(region.slug)) for region in summary.regions]
    depends = {} if refresh else find_dependences(trials)  # which is not made anew every ten seconds
    first, details = page_data(summary, trials, attempts, now, live=live or {}, refresh=refresh, depends=depends)
    run.report.mkdir(exist_ok=True)
    write_atomically(run.page, assemble(shell, first, details))
    return run.page


def find_dependences(trials: Sequence[RegionTrials]) -> dict[str, tuple[PartialDependence, ...]]:
    """Return by region how its metric depends on hyperparameters; of the few with the most trials, as each is a fit."""
    most = sorted((one for one in trials if one.rows), key=lambda one: -len(one.rows))[:MOST_MODELS]
    try:
        return {one.spec.slug: find_dependence(one) for one in most}
    except ImportError:  # of a manager whose searches need no model
        return {}


def _read_trials(folder: RegionFolder) -> RegionTrials:
    """Return a region's trials; none of a damaged journal, of which the summary says what is wrong."""
    spec = read_spec(folder.spec)
    try:
        history = Journal(folder.journal).read()
    except RegiondagError:
        history = History()
    return trials_of(spec, history)


def assemble(shell: Shell, first: Mapping[str, object], details: Mapping[str, object]) -> str:
    """Return the page as text: library and figures packed, so that no text of theirs is ever read as HTML."""
    html = shell.html
    parts = ((LIBRARY_PLACE, shell.library), (DATA_PLACE, _pack(first)), (DETAILS_PLACE, _pack(details)))
    for place, packed in parts:
        head, found, tail = html.partition(place)
        if not found:
            raise NoPageError(f"no page: its template lacks {place}")
        html = f"{head}{base64.b64encode(packed).decode()}{tail}"
    return html


def _pack(data: Mapping[str, object]) -> bytes:
    return gzip.compress(json.dumps(data, separators=(",", ":"), allow_nan=False).encode(), LEVEL, mtime=0)
