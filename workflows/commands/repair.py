"""`regiondag repair RUN`: make a run's records whole again from each other."""

from __future__ import annotations

import argparse
import sys

from regiondag.commands._verbs import add_run

HELP = "make damaged or lost records of a run anew from its other ones"
DESCRIPTION = """Say what `regiondag verify` found and what can be made whole: lines of a journal from the trials' files
and HTCondor's logs, a champion from the final training's files, inputs from the files that they were copied from.
Nothing is changed without --apply; a journal that is written anew is kept as it was beside the new one. What no other
record holds is said, with what to do. Exit code 1 if something is, or stays, not as it was."""
EPILOG = """examples:
  regiondag repair RUN           # what would be done
  regiondag repair RUN --apply"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("--apply", action="store_true", help="do it")
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Say what can be done, or do it and say what is left."""
    from nnlib.util.terminal import show_progress
    from regiondag.audit.verify import verify
    from regiondag.commands.verify import check_checkpoint, show
    from regiondag.node.repair import plan_repair
    from regiondag.pool.pool import find_pool
    from regiondag.run.manifest import read_manifest
    from regiondag.run.study_folder import find_run
    from regiondag.trials.control import check_idle
    from regiondag.util.text import spell_out

    folder = find_run(arguments.run_directory)
    manifest = read_manifest(folder)
    if arguments.apply:
        check_idle(folder, manifest.regions, find_pool(arguments.pool))
    done = 0
    for repair in plan_repair(folder, manifest):
        name = repair.path.relative_to(folder.path)
        print(spell_out(f"{name}: {'' if arguments.apply else 'would '}{repair.text}"), flush=True)
        if arguments.apply:
            repair.apply()
        done += 1
    if done and not arguments.apply:
        print(f"{done} can be repaired: regiondag repair {folder.path} --apply", file=sys.stderr)
        return 1
    with show_progress("verifying") as progress:
        found = verify(folder, progress, check_checkpoint)
    show(found.findings)
    left = len(found.findings)
    print(f"{done} repaired, {left} left" if done or left else "all as it was", file=sys.stderr)
    return 1 if left else 0
