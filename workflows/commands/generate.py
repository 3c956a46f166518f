"""`regiondag generate study.yaml`: render a run directory."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from regiondag.commands._verbs import warn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from regiondag.pool.pool import Pool
    from regiondag.run.champions import Incumbent
    from regiondag.run.layout import RunFolder
    from regiondag.study.model import Config

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
    from regiondag.config.data_check import training_examples
    from regiondag.config.load_checked import load_checked
    from regiondag.generate.fresh_data import refresh_data
    from regiondag.run.champions import earlier_runs, select_networks
    from regiondag.study.init import choose_init, describe_init

    refresh_data(arguments.study)
    checked = load_checked(arguments.study)
    asked, examples = checked.config, training_examples(checked.config, checked.summaries)
    slugs = [region.slug for region in asked.regions]
    runs = runs_folder(arguments)
    earlier = earlier_runs(runs, asked.name)
    incumbents = _choose_incumbents(arguments.champions, runs, asked.name, earlier, slugs)
    config = choose_init(asked, examples, select_networks(incumbents))
    created = make_run(config, arguments, earlier, incumbents)
    if not arguments.quiet:
        for line in (*checked.notes, *describe_init(asked, config)):
            print(line, file=sys.stderr)
        say_what_is_next(created, again(arguments, "generate"))
    return 0


def runs_folder(arguments: argparse.Namespace) -> Path:
    """Return the folder of the study's runs."""
    folder: Path = arguments.out or arguments.study.parent / "runs"
    return folder


def make_run(
    config: Config,
    arguments: argparse.Namespace,
    earlier: Sequence[RunFolder],
    incumbents: Mapping[str, Incumbent],
    pool: str | None = None,
) -> RunFolder:
    """Write the run directory of `config`, for the version of the pool called `pool`, and print its path.

    `earlier` are the study's runs so far, the newest first; `incumbents` the champions among them.
    """
    from nnlib.util.process import install_line
    from nnlib.util.terminal import show_progress
    from regiondag.generate.bundle import has_page
    from regiondag.generate.provenance import describe_pool_image
    from regiondag.generate.write_run import create_run
    from regiondag.pool.pool import find_pool
    from regiondag.run.earlier_trials import find_earlier

    found = find_pool(pool)
    version = _version(arguments.htcondor, found)
    with show_progress("regions") as progress:
        created = create_run(
            config,
            runs_folder(arguments),
            htcondor=version,
            incumbents=incumbents,
            progress=progress,
            earlier=find_earlier(earlier, config.regions),
            image=describe_pool_image(found),
        )
    print(created.path, flush=True)
    if not arguments.quiet and not has_page(created.path):
        print(
            "The report of this run will have no page, only text and CSV: plotly is missing here; run: "
            + install_line(),
            file=sys.stderr,
        )
    return created


def again(arguments: argparse.Namespace, command: str) -> str:
    """Return the call that was given, without the options that say where to."""
    return f"regiondag {command} {shlex.quote(str(arguments.study))}"


def say_what_is_next(created: RunFolder, call: str) -> None:
    """Print the commands that go on from here, or why none does, and how `call` has to be said then."""
    from regiondag.condor.submit import find_slash_tmp

    if refused := find_slash_tmp(created.path, call):
        print(f"regiondag: this run can be looked at, `regiondag submit` refuses it: {refused}", file=sys.stderr)
        return
    print(
        f"""Next:
  regiondag doctor {created.path}     # would every job match a slot of the pool?
  regiondag submit {created.path}     # or, on an access point: condor_submit_dag {created.study_dag}
  regiondag status {created.path} --watch""",
        file=sys.stderr,
    )


def _version(wanted: str | None, pool: Pool | None) -> tuple[int, int, int]:
    from regiondag.condor.versions import OLDEST, parse_version
    from regiondag.errors import UsageError

    if wanted is None:
        return pool.version if pool else OLDEST
    try:
        version = parse_version(wanted)
    except ValueError as error:
        raise UsageError(f"--htcondor: {error}") from error
    if version < OLDEST:
        raise UsageError(f"--htcondor: {wanted} is older than {OLDEST[0]}.{OLDEST[1]}, the oldest that is supported")
    return version


def _choose_incumbents(
    wanted: str | None, runs: Path, study: str, earlier: Sequence[RunFolder], slugs: list[str]
) -> dict[str, Incumbent]:
    from regiondag.registry.incumbents import find_in_office
    from regiondag.run.champions import incumbents_of
    from regiondag.run.layout import RunFolder
    from regiondag.run.manifest import read_manifest

    if wanted == "none":
        return {}
    if wanted is None:
        return find_in_office(runs, study, slugs, earlier, warn)
    run = RunFolder(Path(wanted))
    if not run.path.is_dir():
        read_manifest(run)  # which says what is there instead
    return incumbents_of(run, slugs)
