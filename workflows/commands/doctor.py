"""`regiondag doctor [RUN]`: would this machine do, and would this run work on this pool?"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from regiondag.commands._verbs import add_run
from regiondag.errors import PoolError, PreflightError

if TYPE_CHECKING:
    from regiondag.pool.machine import Finding, Readiness
    from regiondag.pool.pool import Pool
    from regiondag.run.layout import RunFolder

HELP = "check this machine, or a run directory against the pool before submitting"
DESCRIPTION = """Without RUN: is all here that a pool on this machine needs? Everything that is missing is said at
once, with one line that brings it. With RUN: dry-run every distinct submit file through HTCondor, let DAGMan's
checker read the DAG where it exists, and match every kind of job against the pool's slots. Either way, machines of
the pool that keep a sick GPU from jobs are named. Exit code 6 when something is missing or would not work."""
EPILOG = """examples:
  regiondag doctor
  regiondag doctor runs/run-shop-20261124-033000
  regiondag doctor --json | jq -r .line"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser, without="this machine is looked at")
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(arguments: argparse.Namespace) -> int:
    """Print one line per check."""
    from regiondag.run.study_folder import find_run

    if arguments.run_directory is None:
        found = _look_at_machine(arguments.pool)
        good = _show(found.findings, arguments.json, found)
        if not good:
            raise PreflightError(f"this machine lacks something; see the lines marked BAD\n{found.advice()}".rstrip())
        return 0
    folder = find_run(arguments.run_directory)
    if not _show(_look_at_run(folder, arguments.pool), arguments.json):
        raise PreflightError(f"{folder.path} would not run on this pool as it is; see the lines marked BAD")
    return 0


def _show(findings: Iterable[Finding], as_json: bool, found: Readiness | None = None) -> bool:
    """Print findings as they come, or as one object; return whether all are good."""
    from nnlib.util.columns import print_folded

    seen = []
    for finding in findings:
        seen.append(finding)
        if not as_json:
            print_folded(f"{finding.state:<4} {finding.subject}: {finding.text}", indent="     ")
    good = all(finding.state != "BAD" for finding in seen)
    if as_json:
        advice = {"line": found.line if found else "", "options": found.options if found else ""}
        print(json.dumps({"good": good, "findings": [dataclasses.asdict(finding) for finding in seen], **advice}))
    return good


def _look_at_machine(name: str | None) -> Readiness:
    from regiondag.condor.versions import show_version
    from regiondag.pool.lifecycle import DEFAULT_SUITE
    from regiondag.pool.machine import Finding, check_machine
    from regiondag.pool.pool import find_pool, why_absent
    from regiondag.pool.rootfs import image_path

    built = image_path(DEFAULT_SUITE).is_dir()
    found = check_machine(["pool"] if built else ["pool", "build"])
    pool = find_pool(name)
    if pool:
        runs = Finding(f"pool {pool.name}", "ok", f"HTCondor {show_version(pool.version)} runs")
    else:
        runs = Finding("pool", "note", why_absent(name))
    return dataclasses.replace(found, findings=(*found.findings, runs, *(_find_sick_gpus(pool) if pool else ())))


def _look_at_run(folder: RunFolder, pool: str | None) -> Iterator[Finding]:
    from regiondag.condor.preflight import check_run
    from regiondag.condor.submit import find_slash_tmp
    from regiondag.pool.machine import Finding
    from regiondag.pool.pool import require_pool
    from regiondag.run.manifest import read_manifest

    manifest = read_manifest(folder)
    refused = find_slash_tmp(folder.path)
    if refused:  # before a pool is asked for: no pool would do
        raise PreflightError(refused)
    running = require_pool(pool)
    for seen in check_run(running, folder, list(manifest.regions)):
        yield Finding(seen.subject, "ok" if seen.good else "BAD", seen.text)
    yield from _find_sick_gpus(running)


def _find_sick_gpus(pool: Pool) -> Iterator[Finding]:
    """Yield a note for each machine that keeps a GPU from jobs: the others do their work."""
    from regiondag.condor.sick_gpus import describe_sick_gpus, query_sick_gpus
    from regiondag.pool.machine import Finding

    try:
        found = query_sick_gpus(pool)
    except PoolError as error:
        yield Finding("sick GPUs", "note", f"not known: {error}")
    else:
        yield from (Finding("sick GPUs", "note", text) for text in describe_sick_gpus(found))
