"""`regiondag doctor RUN`: would this run work on this pool?"""

from __future__ import annotations

import argparse

from regiondag.commands._verbs import add_run
from regiondag.errors import PreflightError

HELP = "check a run directory against the pool before submitting"
DESCRIPTION = """Dry-run every distinct submit file through HTCondor, let DAGMan's checker read the DAG where it exists,
and match every kind of job against the pool's slots. Exit code 6 when something would not work."""
EPILOG = """examples:
  regiondag doctor runs/run-shop-20261124-033000"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Print one line per check."""
    from regiondag.condor.preflight import check_run
    from regiondag.condor.submit import find_slash_tmp
    from regiondag.pool.pool import require_pool
    from regiondag.run.manifest import read_manifest
    from regiondag.run.study_folder import find_run

    folder = find_run(arguments.run_directory)
    manifest = read_manifest(folder)
    refused = find_slash_tmp(folder.path)
    if refused:  # before a pool is asked for: no pool would do
        raise PreflightError(refused)
    good = True
    for finding in check_run(require_pool(arguments.pool), folder, list(manifest.regions)):
        good = good and finding.good
        print(f"{'ok  ' if finding.good else 'BAD '} {finding.subject}: {finding.text}", flush=True)
    if not good:
        raise PreflightError(f"{folder.path} would not run on this pool as it is; see the lines marked BAD")
    return 0
