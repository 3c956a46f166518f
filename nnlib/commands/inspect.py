"""`nnlib inspect`: what a data or model file holds."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "say what a data or model file holds"
DESCRIPTION = "Read a whole data or model file, check it, and say what it holds."
EPILOG = """examples:
  nnlib inspect data.nc
  nnlib inspect model.nc"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Print what the file holds; return the exit code."""
    from nnlib.inspection import contents

    print(contents.describe_file(arguments.file))
    return 0
