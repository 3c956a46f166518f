"""`regiondag report RUN`: write and show the summary of a run, finished or not."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from nnlib.contract import MODEL_FILE, PROGRAM_MODEL_FILE
from nnlib.util.columns import Narrow, print_folded
from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_run, number
from regiondag.errors import PoolError, RegiondagError
from regiondag.util.terminal import near_path, print_table

if TYPE_CHECKING:
    from regiondag.condor.events.attempts import Attempt
    from regiondag.report.summary import Summary
    from regiondag.run.layout import NodeName, RunFolder
    from regiondag.run.live import Live

HELP = "summarise a run: champions, how good they are for how many customers, and why they serve"
DESCRIPTION = """Write report/summary.md and report/summary.json from the regions' journals, print the table, and write
report/index.html: one page for any browser, offline, with every region, slot, trial and failure. The DAG's last node
does the same. With --watch all of it is written again and again until the DAG has ended, with what running trials say
of themselves; a page that is open takes over what is new. Exit code 1 when a region has no champion (yet)."""
EPILOG = """examples:
  regiondag report RUN
  regiondag report RUN --watch                 # open report/index.html meanwhile
  regiondag report RUN --json | jq '.regions[].test'"""

# The lines below the table say what serves, too, and summary.md has all of it.
NARROW = Narrow(
    ("hours", "trials run/failed/pruned", "bestsellers", "served by", "champion", "best simple", "95 %"),
    {"region": 11, "served by": 20, "champion": 20},
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="print summary.json instead of the table")
    parser.add_argument("--watch", action="store_true", help="write it again and again until the DAG has ended")
    parser.add_argument(
        "--interval",
        type=number(float, 1, 3600),
        default=10.0,
        metavar="SECONDS",
        help="from one to the next (default: 10)",
    )
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="table of prices (default: the one that is built in)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report and print it; with --watch write it again and again until the DAG has ended, then print it."""
    from regiondag.run.study_folder import find_run

    folder, told = find_run(arguments.run_directory), False
    while True:
        going, live = _look(folder, arguments)
        attempts, summary = _write(folder, arguments)
        page = _write_page(folder, summary, attempts, live, arguments.interval if going else None)
        if not going:
            break
        if not told:
            tell(f"Page: {page}, written again every {arguments.interval:g} s until the DAG has ended")
        told = True
        time.sleep(arguments.interval)
    if arguments.json:
        print((folder.report / "summary.json").read_text(encoding="utf-8"), end="")
    else:
        show_summary(folder, summary)
    if page is not None:
        _say_page(page, sys.stderr if arguments.json else sys.stdout)
    return 0 if summary.finished else 1


def _look(folder: RunFolder, arguments: argparse.Namespace) -> tuple[bool, Mapping[NodeName, Live]]:
    """Return whether the DAG goes on and is to be watched, and what running trials say, where a pool answers."""
    from regiondag.monitor.live import read_live
    from regiondag.monitor.status import read_status
    from regiondag.pool.pool import find_pool, why_absent

    pool = find_pool(arguments.pool)
    if arguments.watch:
        status = read_status(folder, pool, arguments.pool)
        if pool is None and not status.over:
            raise PoolError(f"nothing will change: {why_absent(arguments.pool)}")
        return not status.over, {one.node: one for one in status.live}
    try:
        return False, {} if pool is None else read_live(pool, folder)
    except RegiondagError:  # the report stands without
        return False, {}


def _write(folder: RunFolder, arguments: argparse.Namespace) -> tuple[Sequence[Attempt], Summary]:
    from regiondag.condor.events.log import read_attempts
    from regiondag.report.bill import read_bill
    from regiondag.report.write import write_report

    attempts = read_attempts(folder)
    return attempts, write_report(folder, read_bill(attempts, arguments.prices, time.time()))


def show_summary(folder: RunFolder, summary: Summary) -> None:
    """Print a summary that has been written: the table, why things are as they are, and where the files lie."""
    from regiondag.report.markdown import list_reasons, list_what_is_left, say_headline, short_table
    from regiondag.util.text import list_some, spell_out

    names, rows, more = short_table(summary)
    print_table(summary.study, names, rows, NARROW)
    cautions = (f"Caution: {text}" for text in summary.cautions)
    reasons = list_reasons(summary, list_some)
    for text in (*more, *say_headline(summary), *cautions, *reasons, *list_what_is_left(summary)):
        print_folded(spell_out(text))
    model = PROGRAM_MODEL_FILE if any(region.of_program for region in summary.regions) else MODEL_FILE
    print(f"Models: {near_path(folder.path, sys.stdout)}/regions/*/champion/{model}")
    print(f"Report: {near_path(folder.report, sys.stdout)}/summary.md")


def write_and_say_page(folder: RunFolder, summary: Summary, attempts: Sequence[Attempt], stream: TextIO) -> None:
    """Write the page and say where it is."""
    page = _write_page(folder, summary, attempts, {}, None)
    if page is not None:
        _say_page(page, stream)


def _say_page(page: Path, stream: TextIO) -> None:
    print(f"Page: {near_path(page, stream)}", file=stream)


def _write_page(
    folder: RunFolder,
    summary: Summary,
    attempts: Sequence[Attempt],
    live: Mapping[NodeName, Live],
    refresh: float | None,
) -> Path | None:
    """Write the page and return where it is, or say why there is none: the summary stands without it."""
    from regiondag.generate.bundle import archives_of
    from regiondag.report.page import NoPageError, shell_of, write_page
    from regiondag.report.page_shell import page_parts

    try:
        own = sorted(folder.path.glob("regiondag-*.pyz"))
        shell = shell_of(page_parts([*own, *archives_of(folder.path.parent)]))
        return write_page(folder, summary, shell, attempts=attempts, live=live, refresh=refresh)
    except NoPageError as error:
        print(f"The report has {error}", file=sys.stderr)
        return None
