"""`regiondag report RUN`: write and show the summary of a run, finished or not."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from regiondag.commands._verbs import add_run
from regiondag.util.terminal import Narrow, print_table

if TYPE_CHECKING:
    from regiondag.condor.events.attempts import Attempt
    from regiondag.report.summary import Summary
    from regiondag.run.layout import RunFolder

HELP = "summarise a run: champions, how good they are for how many customers, and why they serve"
DESCRIPTION = """Write report/summary.md and report/summary.json from the regions' journals, print the table, and write
report/index.html: one page for any browser, offline, with every region, slot, trial and failure. The DAG's last node
does the same. Exit code 1 when a region has no champion (yet)."""
EPILOG = """examples:
  regiondag report RUN
  regiondag report RUN --json | jq '.regions[].test'"""

# The lines below the table say what serves, too, and summary.md has all of it.
NARROW = Narrow(
    ("hours", "trials run/failed/pruned", "bestsellers", "served by", "champion", "best simple"),
    {"region": 11, "served by": 20, "champion": 20},
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="print summary.json instead of the table")
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="table of prices (default: the one that is built in)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report and print it."""
    from regiondag.condor.events.log import read_attempts
    from regiondag.report.bill import read_bill
    from regiondag.report.write import write_report
    from regiondag.run.study_folder import find_run

    folder = find_run(arguments.run_directory)
    attempts = read_attempts(folder)
    summary = write_report(folder, read_bill(attempts, arguments.prices, time.time()))
    if arguments.json:
        print((folder.report / "summary.json").read_text(encoding="utf-8"), end="")
    else:
        show_summary(folder, summary)
    write_and_say_page(folder, summary, attempts, sys.stderr if arguments.json else sys.stdout)
    return 0 if summary.finished else 1


def show_summary(folder: RunFolder, summary: Summary) -> None:
    """Print a summary that has been written: the table, why things are as they are, and where the files lie."""
    from regiondag.report.markdown import headings, list_reasons, say_headline, table
    from regiondag.util.text import spell_out

    print_table(summary.study, headings(summary), table(summary), NARROW)
    for text in (*say_headline(summary), *(f"Caution: {text}" for text in summary.cautions), *list_reasons(summary)):
        print(spell_out(text))
    print(f"Models: {folder.path}/regions/*/champion/model.nc")
    print(f"Report: {folder.report}/summary.md")


def write_and_say_page(folder: RunFolder, summary: Summary, attempts: Sequence[Attempt], stream: TextIO) -> None:
    """Write the page and say where it is, or why there is none: the summary stands without it."""
    from regiondag.generate.bundle import archives_of
    from regiondag.report.page import NoPageError, shell_of, write_page
    from regiondag.report.page_shell import page_parts

    try:
        own = sorted(folder.path.glob("regiondag-*.pyz"))
        shell = shell_of(page_parts([*own, *archives_of(folder.path.parent)]))
        page = write_page(folder, summary, shell, attempts=attempts)
    except NoPageError as error:
        print(f"The report has {error}", file=sys.stderr)
        return
    print(f"Page: {page}", file=stream)
