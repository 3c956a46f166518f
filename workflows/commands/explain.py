"""`regiondag explain RUN [REGION|NODE]`: why is this idle, held, slow or failed?"""

from __future__ import annotations

import argparse
import dataclasses
import json

from regiondag.commands._verbs import add_run

HELP = "say why a run, a region or a node is idle, held, slow or failed"
DESCRIPTION = """Without a name: everything about a run that is not fine. With a region's name or slug: that region,
with each trial that failed. With a node, such as germany_t0007 or germany_final: that one, whatever its state.
It says which clause of a job's requirements no slot meets, what a hold means and which rule will end it, the last lines
of a job that failed, what a node waits for, and what became of DAGMan. Without a pool it says what it cannot know."""
EPILOG = """examples:
  regiondag explain RUN
  regiondag explain RUN germany_t0007"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("what", nargs="?", default="", metavar="REGION|NODE", help="a region or a node alone")
    parser.add_argument("--json", action="store_true", help="print a JSON list of explanations")
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Print the explanations."""
    from nnlib.util.columns import print_folded
    from regiondag.monitor.explain import explain
    from regiondag.pool.pool import find_pool
    from regiondag.run.study_folder import find_run
    from regiondag.util.text import make_printable

    folder = find_run(arguments.run_directory)
    found = explain(folder, find_pool(arguments.pool), arguments.what, arguments.pool)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(one) for one in found], ensure_ascii=False))
        return 0
    for one in found:
        print_folded(make_printable(f"{one.subject} [{one.state}] {one.why}", " "))
        for line in one.details:
            print_folded(f"    {make_printable(line, ' ')}", indent="      ")
        if one.advice:
            print_folded(f"  -> {make_printable(one.advice, ' ')}", indent="     ")
    if not found:
        print("Everything is fine: no job is held or idle, none has failed, and DAGMan is at work or done.")
    return 0
