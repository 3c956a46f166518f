"""`regiondag init EXAMPLE DIR`: write an example study to start from."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from nnlib.util.files import appearing
from regiondag.errors import UsageError
from regiondag.util.resources import resource_dir

HELP = "write an example study"
DESCRIPTION = """Write an example study into a new folder. Examples:
  retail   purchases of an online shop in 41 countries; a champion for each of them"""
EPILOG = """examples:
  regiondag init retail                                # the example, in ./retail"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("example", metavar="EXAMPLE", help="name of the example: retail")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder to write; must not exist or be empty")


def run(arguments: argparse.Namespace) -> int:
    """Copy the example."""
    examples = sorted(path.name for path in resource_dir("examples").iterdir() if path.is_dir())
    if arguments.example not in examples:
        raise UsageError(f"there is no example {arguments.example!r}; there is: {', '.join(examples)}")
    folder: Path = arguments.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder; name another one")
    _copy(resource_dir("examples") / arguments.example, folder)
    print(folder / "study.yaml")
    if not arguments.quiet:
        print(
            f"""Next:
  cd {shlex.quote(str(folder))}
  regiondag generate study.yaml{_elsewhere(folder)}     # makes data sets and a run, and says how to submit it""",
            file=sys.stderr,
        )
    return 0


def _elsewhere(folder: Path) -> str:
    """Return the option that `generate` needs where no run can lie beside the study."""
    from regiondag.condor.quoting import QuotingError, path
    from regiondag.condor.submit import find_slash_tmp

    try:
        path(folder.resolve())
    except QuotingError:
        return " --out ~/runs"
    return " --out ~/runs" if find_slash_tmp(folder) else ""


def _copy(example: Path, folder: Path) -> None:
    """Copy so that `folder` appears whole or not at all."""
    with appearing(folder) as part:
        for file in sorted(example.iterdir()):
            shutil.copyfile(file, part / file.name)
