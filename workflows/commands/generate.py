"""`regiondag generate study.yaml`: render a run directory."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import warn

if TYPE_CHECKING:
    from regiondag.run.layout import RunFolder
    from regiondag.run.study_folder import StudyFolder

HELP = "make data sets and a run directory: one DAG, submit files, data, code"
DESCRIPTION = """Render a new run directory below --out and print its path. It holds everything the run needs;
`condor_submit_dag RUN/study.dag` runs all regions, `condor_submit_dag RUN/regions/NAME/region.dag` one alone. Where
study.yaml names a table of purchases, the regions' data sets are made of it first, if it has changed."""
EPILOG = """examples:
  regiondag generate study.yaml
  regiondag submit $(regiondag generate --quiet study.yaml)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_common_arguments(parser)
    parser.add_argument(
        "--champions",
        metavar="RUN",
        help="run directory whose champions have to be beaten, or `none` (default: what serves each region, as "
        "`regiondag champions list` says)",
    )


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every command that makes runs takes."""
    parser.add_argument("study", type=Path, metavar="study.yaml")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where run directories go (default: runs/ beside study.yaml)"
    )
    parser.add_argument(
        "--htcondor", metavar="VERSION", help="oldest HTCondor to render for (default: the running pool's, else 23.9)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the study, then write the run directory."""
    from regiondag.pipeline.make_run import plan_run, read_inputs, write_planned
    from regiondag.pool.pool import find_pool

    inputs = read_inputs(study_of(arguments))
    planned = plan_run(inputs, warn, arguments.champions)
    created = write_planned(inputs, planned, find_pool(), arguments.htcondor)
    say_where(created)
    for line in (*inputs.notes, *planned.notes):
        tell(line)
    say_what_is_next(created, again(arguments, "generate"))
    return 0


def study_of(arguments: argparse.Namespace) -> StudyFolder:
    """Return the study that is named, and where its runs go."""
    from regiondag.run.study_folder import RUNS, StudyFolder

    return StudyFolder(arguments.study, arguments.out or arguments.study.parent / RUNS)


def say_where(created: RunFolder) -> None:
    """Print the path of a new run, and whether its report will be without a page."""
    from nnlib.util.process import install_line
    from regiondag.generate.bundle import has_page

    print(created.path, flush=True)
    if not has_page(created.path):
        tell(
            "The report of this run will have no page, only text and CSV: plotly is missing here; run: "
            + install_line()
        )


def again(arguments: argparse.Namespace, command: str) -> str:
    """Return the call that was given, without the options that say where to."""
    return f"regiondag {command} {shlex.quote(str(arguments.study))}"


def say_what_is_next(created: RunFolder, call: str) -> None:
    """Print the commands that go on from here, or why none does, and how `call` has to be said then."""
    from regiondag.condor.submit import find_slash_tmp

    if refused := find_slash_tmp(created.path, call):
        tell(f"regiondag: this run can be looked at, `regiondag submit` refuses it: {refused}")
        return
    tell(
        f"""Next:
  regiondag doctor {created.path}     # would every job match a slot of the pool?
  regiondag submit {created.path}     # or, on an access point: condor_submit_dag {created.study_dag}
  regiondag status {created.path} --watch"""
    )
