"""`regiondag trial`: cancel single trials of a run, run them again, change their priority."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_run, add_verb, number, run_verb
from regiondag.errors import UsageError

if TYPE_CHECKING:
    from regiondag.run.layout import NodeName
    from regiondag.trials.control import Answer, RegionJobs

HELP = "cancel trials of a run, run them again, change their priority"
DESCRIPTION = """Trials are numbers, ranges, or `final`; `regiondag study show RUN` lists them, with what their jobs do.
The DAG goes on meanwhile. The exit code is 1 when one of the trials could not be dealt with."""
EPILOG = """examples:
  regiondag study show RUN Germany --where "job == held"
  regiondag trial cancel RUN Germany 7 9-12
  regiondag trial rerun RUN Germany --where "status == machine or status == removed"
  regiondag trial priority RUN Germany 3 --priority 10"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    cancel = _add_verb(verbs, "cancel", _cancel, "remove a trial's job for good; the trial counts as one that failed")
    cancel.description = (
        "Remove a trial's job from the queue. The trial is settled as removed, with the reason `cancelled`, and counts "
        "as one that failed; the study goes on, and does not run it when the DAG is submitted again. `rerun` undoes it."
    )
    rerun = _add_verb(verbs, "rerun", _rerun, "run a trial again: its job now, or when the DAG is submitted again")
    rerun.description = (
        "A trial whose job runs starts again (condor_vacate_job), one that is held is released. A trial that has ended "
        "is run again when the DAG is submitted again, and what it came to before is forgotten; so is the final "
        "training, since another trial may win then. Trials that were proposed after it keep their hyperparameters."
    )
    rerun.add_argument("--force", action="store_true", help="also trials that ended well or were pruned")
    priority = _add_verb(verbs, "priority", _priority, "change which of the jobs that wait are started first")
    priority.add_argument(
        "--priority",
        type=number(int),
        required=True,
        metavar="N",
        help="higher ones start first; jobs have 0 at first",
    )
    priority.description = (
        "Set the priority of a trial's job among all jobs of the same user. It is the job's: one that is tried again "
        "after a fault of the machine, as a new job, has 0 again."
    )


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, verb: object, text: str
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, verb, text)
    add_run(parser)
    parser.add_argument("region", metavar="REGION", help="its name, or its folder's")
    parser.add_argument("trials", nargs="*", metavar="TRIAL", help="7, 3-5 or final")
    parser.add_argument("--where", metavar="CONDITION", help="those for which this holds, as in `regiondag study show`")
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")
    return parser


run = run_verb


def _cancel(arguments: argparse.Namespace) -> int:
    from regiondag.trials.control import cancel

    queue, nodes = _choose_nodes(arguments)
    return _report(cancel(queue, node) for node in nodes) if nodes else 0


def _rerun(arguments: argparse.Namespace) -> int:
    from regiondag.trials.control import rerun

    queue, nodes = _choose_nodes(arguments)
    return _report(rerun(queue, node, force=arguments.force) for node in nodes) if nodes else 0


def _priority(arguments: argparse.Namespace) -> int:
    from regiondag.pool.pool import require_pool
    from regiondag.trials.control import prioritise

    require_pool(arguments.pool)
    queue, nodes = _choose_nodes(arguments)
    return _report(prioritise(queue, node, arguments.priority) for node in nodes) if nodes else 0


def _choose_nodes(arguments: argparse.Namespace) -> tuple[RegionJobs, list[NodeName]]:
    """Return the region's queue, and the nodes that are meant: those that are named and those that `--where` finds."""
    from regiondag.pool.pool import find_pool
    from regiondag.run.journal import Journal
    from regiondag.run.layout import NodeName
    from regiondag.run.lookup import find_region, find_trials
    from regiondag.run.manifest import read_manifest
    from regiondag.run.region_spec import read_spec
    from regiondag.run.study_folder import find_run
    from regiondag.trials.control import places_of, queue_of
    from regiondag.trials.query import parse_query
    from regiondag.trials.rows import trials_of

    if not arguments.trials and arguments.where is None:
        raise UsageError('no trial is named; give numbers, `final`, or --where "status == machine"')
    folder = find_run(arguments.run_directory)
    regions = read_manifest(folder).regions
    slug = find_region(regions, arguments.region)
    region = folder.region(slug)
    spec = read_spec(region.spec)
    numbers = find_trials(regions, slug, arguments.trials)
    beyond = [number for number in numbers if number is not None and number > spec.search.last]
    if beyond:
        legal = f"0 to {spec.search.last}, and `final`" if spec.search.nodes else "`final`"
        raise UsageError(f"{spec.name} has no trial {beyond[0]}, legal: {legal}")
    queue = queue_of(folder, [slug], find_pool(arguments.pool))
    if arguments.where is not None:
        rows = trials_of(spec, Journal(region.journal).read()).rows
        query, places = parse_query(arguments.where, rows), places_of(queue)
        numbers += [row.trial for row in rows if query.matches(row, places.get((slug, row.trial)))]
        if not numbers:
            tell(f"no trial of {arguments.region} meets --where {arguments.where!r}")
    return queue, [NodeName(slug, number) for number in dict.fromkeys(numbers)]


def _report(answers: Iterable[Answer]) -> int:
    """Say what became of each trial, as it does; the exit code is 1 when one could not be dealt with."""
    from regiondag.util.text import spell_out

    failed = 0
    for answer in answers:
        print(spell_out(f"{answer.node}: {answer.text}"), file=sys.stdout if answer.done else sys.stderr, flush=True)
        failed |= not answer.done
    return int(failed)
