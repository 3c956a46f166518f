"""`nnlib inspect`: what a data or model file holds, or the data of all regions."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "say what a data or model file holds, or the data of all regions"
DESCRIPTION = """Read a whole data or model file, check it, and say what it holds.

Of a folder that `nnlib import` wrote, say for each region from when to when its purchases are, how many customers,
items and pairs of both there are, and how many customers are asked to validate and to test; warn of what makes figures
doubtful."""
EPILOG = """examples:
  nnlib inspect data
  nnlib inspect data/germany.test.nc
  nnlib inspect model.nc"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="PATH")


def run(arguments: argparse.Namespace) -> int:
    """Print what the file or the folder holds; return the exit code."""
    if arguments.file.is_dir():
        return _folder(arguments.file)
    from nnlib.inspection import contents

    print(contents.describe_file(arguments.file))
    return 0


def _folder(path: Path) -> int:
    import datetime
    import sys

    from nnlib.inspection.folder import describe_folder
    from nnlib.util.columns import print_folded
    from nnlib.util.days import day_of
    from nnlib.util.terminal import width_of

    table, warnings = describe_folder(path, day_of(datetime.datetime.now(datetime.UTC).date()), width_of(sys.stdout))
    print(table)
    for line in warnings:
        print_folded(f"warning: {line}", sys.stderr)
    return 0
