"""`regiondag submit RUN`: hand a run directory to condor_submit_dag."""

from __future__ import annotations

import argparse

from nnlib.util.terminal import is_quiet
from regiondag.commands._verbs import add_run
from regiondag.errors import RegiondagError

HELP = "submit a run directory with condor_submit_dag"
DESCRIPTION = """Run condor_submit_dag on the run's DAG: on this machine where HTCondor is installed, else inside the
embedded pool. Submitting a run again after a failure runs only what is not done yet (DAGMan's rescue DAG)."""
EPILOG = """examples:
  regiondag submit RUN
  regiondag submit RUN --region Germany"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("--region", metavar="REGION", help="submit one region alone")
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Submit; the exit code is condor_submit_dag's."""
    from regiondag.condor.submit import refuse_slash_tmp, submit_dag
    from regiondag.pool.pool import require_pool
    from regiondag.run.lookup import find_region
    from regiondag.run.manifest import read_manifest
    from regiondag.run.study_folder import find_run

    folder = find_run(arguments.run_directory)
    manifest = read_manifest(folder)
    if manifest.run != str(folder.path):
        raise RegiondagError(
            f"{folder.path} was made as {manifest.run} and its DAG holds that path; move it back, or generate anew"
        )
    refuse_slash_tmp(folder.path)  # before a pool is asked for: no pool would do
    only = None if arguments.region is None else find_region(manifest.regions, arguments.region)
    return submit_dag(require_pool(arguments.pool), folder, manifest.regions, only, quietly=is_quiet())
