"""`regiondag verify RUN`: is everything in a run directory what it was?"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from regiondag.commands._verbs import add_run

if TYPE_CHECKING:
    from regiondag.audit.verify import Mismatch

HELP = "check a run directory against all of its checksums"
DESCRIPTION = """Compare inputs, scripts, code, champions, models, results and checkpoints with the SHA-256 that
manifest.json, region.json, metrics.json, the journals and the results have of them, and every outcome in a journal with
its trial's files; and what HTCondor's queue and history know of the run's jobs with what the run knows of them. Prints
what is wrong and what to do about it, a line for each, and what was not checked. Exit code 1 if anything is wrong."""
EPILOG = """examples:
  regiondag verify RUN"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout: what was checked and found")
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Check and print."""
    from nnlib.util.terminal import show_progress
    from regiondag.audit.forgotten_jobs import ask_for_jobs
    from regiondag.audit.verify import verify
    from regiondag.pool.pool import require_pool
    from regiondag.run.study_folder import find_run

    folder = find_run(arguments.run_directory)
    with show_progress("verifying") as progress:
        found = verify(
            folder,
            progress,
            check_checkpoint,
            lambda run, manifest: ask_for_jobs(require_pool(arguments.pool), run, manifest),
        )
    if arguments.json:
        print(json.dumps(dataclasses.asdict(found), ensure_ascii=False))
    else:
        show(found.findings)
    for text in found.unchecked:
        print(f"not checked: {text}", file=sys.stderr)
    told = f"{found.files} files and {found.outcomes} outcomes checked"
    wrong = len(found.findings)
    print(f"{told}: {f'{wrong} not as they were' if wrong else 'all as they were'}", file=sys.stderr)
    return 1 if wrong else 0


def show(findings: Iterable[Mismatch]) -> None:
    """Print a line for each."""
    from regiondag.util.text import spell_out

    for finding in findings:
        print(spell_out(f"{finding.path}: {finding.seen}. {finding.advice[:1].upper()}{finding.advice[1:]}"))


def check_checkpoint(path: Path) -> None:
    """Raise ValueError for a checkpoint that is damaged."""
    from nnlib.errors import NnlibError
    from nnlib.training.checkpoint import check_whole

    try:
        check_whole(path)
    except NnlibError as error:
        raise ValueError(str(error)) from error
