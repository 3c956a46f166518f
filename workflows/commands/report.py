"""`regiondag report RUN`: write and show the summary of a run, finished or not."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "summarise a run: champions, test metrics, trials, hours"
DESCRIPTION = """Write report/summary.md and report/summary.json from the regions' journals and print the table.
The DAG's last node does the same. Exit code 1 when a region has no champion (yet)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run_directory", type=Path, metavar="RUN")
    parser.add_argument("--json", action="store_true", help="print summary.json instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Write the report and print it."""
    from workflows.names import RunFolder
    from workflows.report import headings, table, write_report
    from workflows.terminal import print_table

    folder = RunFolder(arguments.run_directory.resolve())
    summary = write_report(folder)
    if arguments.json:
        print((folder.report / "summary.json").read_text(encoding="utf-8"), end="")
    else:
        print_table(summary.study, headings(summary), table(summary))
        for region in summary.regions:
            if region.reason:
                print(f"{region.region}: {region.reason}")
        print(f"Models: {folder.path}/regions/*/champion/model.nc")
        print(f"Report: {folder.report}/summary.md")
    return 0 if summary.finished else 1
