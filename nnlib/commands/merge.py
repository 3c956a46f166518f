"""`nnlib merge`: several data files as one."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnlib.commands._arguments import check_out
from nnlib.util.terminal import tell

HELP = "put data files together, units by their names"
DESCRIPTION = """Put the examples of data files into one file, one file after the other.

Units are matched by their names: those of the first file, then what the others have besides. Files that are to be used
together, such as those to learn from and those to measure on, need the same units: give all of them to --units-of."""
EPILOG = """examples:
  nnlib merge france.train.nc spain.train.nc --out all.train.nc
  nnlib merge a.test.nc b.test.nc --out all.test.nc --units-of a.train.nc b.train.nc a.test.nc b.test.nc"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", type=Path, nargs="+", metavar="DATA.nc", help="files with the same data sets")
    parser.add_argument("--out", type=Path, required=True, metavar="ALL.nc", help="the data file to write")
    parser.add_argument(
        "--units-of",
        type=Path,
        nargs="+",
        default=[],
        metavar="DATA.nc",
        help="take the units from these files instead",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the file; return the exit code."""
    check_out(arguments.out, (*arguments.data, *arguments.units_of))
    from nnlib.data.merge import merge

    merged = merge(arguments.data, arguments.out, arguments.units_of)
    sizes = ", ".join(f"{one.empty.name} {one.empty.width:,} units" for one in merged)
    tell(f"{arguments.out}: {merged[0].examples[-1]:,} examples of {len(arguments.data)} files; {sizes}")
    return 0
