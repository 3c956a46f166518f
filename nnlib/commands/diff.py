"""`nnlib diff`: what two model files, or two data files, have different."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnlib.commands._arguments import tolerance

HELP = "compare two model files, or two data files"
DESCRIPTION = """Compare two files by what they mean: settings, layers, weights and names of models; kinds, rows,
weights and names of data sets. Prints a line for each difference, the first file's value before the bar."""
EPILOG = """examples:
  nnlib diff old.nc new.nc
  nnlib diff a.nc b.nc --tolerance 1e-6

exit codes: 0 the same, 1 different, 4 wrong input"""
SAME, DIFFERENT = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("one", type=Path, metavar="A.nc")
    parser.add_argument("other", type=Path, metavar="B.nc")
    parser.add_argument(
        "--tolerance", type=tolerance, default=0.0, metavar="X", help="numbers this far apart are the same (default: 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; return the exit code."""
    from nnlib.inspection.diff import find_differences

    found = 0
    for line in find_differences(arguments.one, arguments.other, arguments.tolerance):
        print(line)
        found += 1
    return DIFFERENT if found else SAME
