"""`regiondag replay RUN REGION TRIAL`: train a trial once more, and compare."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_run
from regiondag.errors import UsageError

if TYPE_CHECKING:
    from regiondag.audit.compare import Verdict

HELP = "train a trial of a run once more, and compare"
DESCRIPTION = """Train a trial, or the final training, once more on this machine: from the run's own code and inputs,
whose digests are checked, in a folder of its own. What comes out is compared with what the run recorded: its journal,
result.json, the loss after each epoch and the final model. On the same kind of processor or GPU with the same NumPy and
SciPy every bit must be equal (a running embedded pool's Python is taken where that is the one with these versions).
Elsewhere losses within 0.5 % and ranking metrics within 0.01 pass. Trials that diverged must diverge again, and pruned
ones be pruned. Nothing is written into the run directory. Exit code 0: the same; 1: different, or nothing to compare
with."""
EPILOG = """examples:
  regiondag replay RUN"""
MOST_LINES = 20  # of what is different in a model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("region", metavar="REGION", help="its name, or its folder's")
    parser.add_argument("trial", metavar="TRIAL", help="a number, or final")
    parser.add_argument("--out", type=Path, metavar="DIR", help="an empty or new folder that keeps result and model")
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Train, compare, print."""
    from regiondag.audit.compare import compare
    from regiondag.audit.replay import choose_python, find_case, folder_for, model_differences, train_again
    from regiondag.pool.pool import find_pool
    from regiondag.run.lookup import find_region, find_trials
    from regiondag.run.manifest import read_manifest
    from regiondag.run.study_folder import find_run

    folder = find_run(arguments.run_directory)
    manifest = read_manifest(folder)
    regions = manifest.regions
    slug = find_region(regions, arguments.region)
    numbers = find_trials(regions, slug, [arguments.trial])
    if len(numbers) != 1:
        raise UsageError(f"{arguments.trial!r} is more than one trial; legal: one number, or final")
    case = find_case(folder, slug, numbers[0], manifest.sha256)
    python = choose_python(case.record, find_pool(arguments.pool), folder.path)
    with folder_for(case, python, arguments.out) as place:
        tell(f"{case.node} ({case.record.settled.status}): trained again by {case.archive.name} with {python}")
        again = train_again(case, python, place)
        verdict = compare(case.record, again, final=case.node.number is None)
        lines = model_differences(case, python, place) if case.record.model != again.model and again.model else []
    return _report(str(case.node), verdict, lines)


def _report(node: str, verdict: Verdict, lines: list[str]) -> int:
    from regiondag.util.terminal import print_table
    from regiondag.util.text import spell_out

    if verdict.differences:
        rows = [
            [spell_out(text) for text in (d.name, d.recorded, d.replayed, d.apart or "-", "yes" if d.within else "NO")]
            for d in verdict.differences
        ]
        print_table(f"{node}: what differs", ("figure", "recorded", "replayed", "apart", "may differ"), rows)
    for line in lines[:MOST_LINES]:
        print(spell_out(f"model: {line}"))
    if len(lines) > MOST_LINES:
        print(f"model: and {len(lines) - MOST_LINES} more")
    for kind in verdict.other_kind:
        print(spell_out(f"another kind of machine: {kind}"))
    if verdict.equal:
        print(f"{node}: the same, bit by bit ({verdict.figures} figures)")
    elif verdict.same:
        print(f"{node}: the same within the tolerance for another kind of machine ({verdict.figures} figures)")
    else:
        print(f"{node}: DIFFERENT from what the run recorded ({verdict.figures} figures)")
    sys.stdout.flush()
    return 0 if verdict.same else 1
