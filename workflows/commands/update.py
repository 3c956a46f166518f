"""`regiondag update study.yaml`: the next run of a study, from what is new since the last one."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import is_quiet, tell
from regiondag.commands import generate
from regiondag.commands._verbs import warn
from regiondag.errors import RegiondagError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regiondag.pool.pool import Pool
    from regiondag.run.layout import RunFolder

HELP = "make the study's next run from new data; or every night: --cron"
DESCRIPTION = """Make the next run of a study that has run before, and print its path: the regions whose data or network
are new, or all of them where one search is for all, each with its champion's recipe as the first trial. `update:` in
study.yaml says what is different from `search` in such runs. Data sets are made anew where the table of purchases has
changed. Nothing new: no run, exit code 0.

With --cron nothing is run: a job that does `update --submit` at the times of a crontab line is written beside
study.yaml, and its path printed. condor_submit starts it, condor_rm ends it."""
EPILOG = """examples:
  regiondag update study.yaml --submit                 # tonight, by hand
  regiondag update study.yaml --cron "30 3 * * *"       # every night at half past three"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    generate.add_common_arguments(parser)
    parser.add_argument("--all", action="store_true", help="take regions, too, whose data and network did not change")
    parser.add_argument("--submit", action="store_true", help="submit the run with condor_submit_dag")
    # The nightly job calls us with its times and its study's name, which study.yaml may not be able to say tonight.
    parser.add_argument("--night", nargs=2, metavar=("STUDY", "TIMES"), help=argparse.SUPPRESS)
    parser.add_argument("--cron", metavar="TIMES", help='write a job for these times: five fields, "30 3 * * *"')
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Make the run, or the job that makes one every night."""
    if arguments.cron is not None:
        return _write_job(arguments)
    return _update(arguments) if arguments.night is None else _run_night(arguments)


def _update(arguments: argparse.Namespace) -> int:
    from regiondag.pipeline.make_run import plan_update, read_inputs, write_planned

    inputs = read_inputs(generate.study_of(arguments))
    for note in inputs.notes:
        tell(note)
    runs = inputs.study.runs.resolve()
    pool = _pool(arguments, runs)
    if not inputs.earlier:
        tell(f"no earlier run of the study {inputs.config.name!r} in {runs}: this is the first")
    _check_ended(pool, inputs.earlier)
    planned = plan_update(inputs, tell, warn, whole=arguments.all)
    if planned is None:
        tell("nothing new: no run made (--all makes one)")
        return 0
    created = write_planned(inputs, planned, pool, arguments.htcondor)
    generate.say_where(created)
    if arguments.submit and pool is not None:
        from regiondag.condor.submit import submit_dag

        return submit_dag(pool, created, [one.slug for one in planned.config.regions], quietly=is_quiet())
    generate.say_what_is_next(created, generate.again(arguments, "update"))
    return 0


def _pool(arguments: argparse.Namespace, runs: Path) -> Pool | None:
    """Return the pool; where the run is to be submitted there must be one, and DAGMan must like the folder."""
    from regiondag.pool.pool import find_pool, require_pool

    if not arguments.submit:
        return find_pool(arguments.pool)
    from regiondag.condor.submit import refuse_slash_tmp

    refuse_slash_tmp(runs, f"{generate.again(arguments, 'update')} --submit")
    return require_pool(arguments.pool)


def _check_ended(pool: Pool | None, earlier: Sequence[RunFolder]) -> None:
    """Raise RegiondagError while the newest run that was submitted is in progress; say what was left undone."""
    from regiondag.condor.submit import refuse_while_in_progress, was_submitted
    from regiondag.run.manifest import read_manifest

    for run in earlier:
        slugs = read_manifest(run).regions
        if was_submitted(run, slugs):
            refuse_while_in_progress(pool, run, slugs)
            return
        tell(f"{run.path} was never submitted")


# --- every night -------------------------------------------------------------------------------------------


def _run_night(arguments: argparse.Namespace) -> int:
    """Update as the nightly job does: a night without a run is told to whom study.yaml names."""
    from functools import partial

    from regiondag.config.load import load_notify
    from regiondag.run.champions import earlier_runs
    from regiondag.update.nightly import nightly_folder
    from regiondag.update.nights import find_settings, run_night

    runs = generate.study_of(arguments).runs.resolve()
    name, times = arguments.night
    folder = nightly_folder(arguments.study, name)
    last = next(iter(earlier_runs(runs, name)), None)
    find = partial(find_settings, lambda: load_notify(arguments.study), last)
    return run_night(folder.nights, times, name, find, last, lambda: _update(arguments), tell)


def _write_job(arguments: argparse.Namespace) -> int:
    from regiondag.condor.submit import find_unfinished_job, refuse_slash_tmp
    from regiondag.config.load import load_config
    from regiondag.pool.pool import find_pool
    from regiondag.update.crontab import cron_commands
    from regiondag.update.nightly import job_environment, nightly_folder, write_nightly
    from regiondag.update.nights import Nights, write_nights

    try:
        schedule = cron_commands(arguments.cron)
    except ValueError as error:
        raise UsageError(f"--cron: {error}") from error
    config = load_config(arguments.study)
    runs = generate.study_of(arguments).runs.resolve()
    refuse_slash_tmp(runs, f"{generate.again(arguments, 'update')} --cron {shlex.quote(arguments.cron)}")
    folder = nightly_folder(arguments.study, config.name)
    pool = find_pool(arguments.pool)
    job = find_unfinished_job(pool, folder.event_log)
    if job is not None:
        raise RegiondagError(f"job {job} of {folder.submit_file} is still in the queue; first: condor_rm {job}")
    words = [str(arguments.study.resolve()), "--submit", "--out", str(runs)] + ["--all"] * arguments.all
    words += ["--night", config.name, arguments.cron]
    words += ["--htcondor", arguments.htcondor] if arguments.htcondor else []
    embedded = pool is not None and pool.kind == "embedded"
    write_nightly(folder, config.name, schedule, words, job_environment(embedded=embedded))
    write_nights(folder.nights, Nights(arguments.cron, time.time(), int(time.localtime().tm_gmtoff)))
    print(folder.submit_file)
    if not arguments.quiet:
        within = f"regiondag pool exec{f' --name {arguments.pool}' if arguments.pool else ''} -- " if embedded else ""
        tell(f"""Next:
  {within}condor_submit {folder.submit_file}
  {within}condor_q        # the job waits there; what each update said: {folder.log}
  {within}condor_rm JOB   # no more updates""")
    return 0
