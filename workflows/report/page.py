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
from regiondag.accounting.prices import read_prices
from regiondag.condor.events.attempts import Attempt
from regiondag.condor.events.log import read_attempts
from regiondag.errors import RegiondagError
from regiondag.report.page_data import bill_of, page_data
from regiondag.report.summary import Summary
from regiondag.run.journal import Journal
from regiondag.run.layout import PAGE_LIBRARY, PAGE_SHELL, RunFolder
from regiondag.run.region_spec import read_spec
from regiondag.trials.rows import trials_of

# Stand in the shell where these go. Base64 holds nothing that could end the element they stand in.
LIBRARY_PLACE, DATA_PLACE = "@@library@@", "@@data@@"
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
    prices: Path | None = None,
    attempts: Sequence[Attempt] | None = None,
) -> Path:
    """Write the page anew and return its path; `prices` is a table of prices other than the one that is built in.

    `attempts` are what became of the run's jobs, if it is known already; else the event logs are read.
    """
    now = time.time()
    tries = read_attempts(run) if attempts is None else attempts
    folders = [run.region(region.slug) for region in summary.regions]
    trials = [trials_of(read_spec(folder.spec), Journal(folder.journal).read()) for folder in folders]
    data = page_data(summary, trials, tries, bill_of(tries, read_prices(prices), now), now)
    run.report.mkdir(exist_ok=True)
    write_atomically(run.page, assemble(shell, data))
    return run.page


def assemble(shell: Shell, data: Mapping[str, object]) -> str:
    """Return the page as text: library and figures packed, so that no text of theirs is ever read as HTML."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for place, packed in ((LIBRARY_PLACE, shell.library), (DATA_PLACE, gzip.compress(text.encode(), LEVEL, mtime=0))):
        head, found, tail = shell.html.partition(place)
        if not found:
            raise NoPageError(f"no page: its template lacks {place}")
        shell = Shell(f"{head}{base64.b64encode(packed).decode()}{tail}", shell.library)
    return shell.html
