"""`regiondag status RUN`: where every region stands."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workflows.status import RegionStatus, RunStatus

HELP = "show where a run stands, region by region"
DESCRIPTION = """Per region: trials done, running, failed and held, the best metric so far and the expected end.
Held jobs are listed with HTCondor's reason. Reads the journals, DAGMan's event log and the queue."""

HEADINGS = ("region", "progress", "done", "running", "idle", "failed", "held", "best", "final", "expected end")
BAR_WIDTH = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run_directory", type=Path, metavar="RUN")
    parser.add_argument("--watch", action="store_true", help="show it again and again until the DAG has ended")
    parser.add_argument("--interval", type=float, default=5.0, metavar="SECONDS", help="between two looks (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a look")
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Show the status once, or until the DAG has ended."""
    from workflows.names import RunFolder
    from workflows.pool import find_pool
    from workflows.status import read_status

    folder = RunFolder(arguments.run_directory.absolute())
    while True:
        status = read_status(folder, find_pool(arguments.pool))
        if arguments.watch and sys.stdout.isatty() and not arguments.json:
            print("\033[H\033[J", end="")
        _show(status, arguments.json)
        if not arguments.watch or status.over:
            return 0
        time.sleep(max(arguments.interval, 0.5))


def _show(status: RunStatus, as_json: bool) -> None:
    if as_json:
        print(json.dumps(dataclasses.asdict(status), ensure_ascii=False), flush=True)
        return
    from workflows.terminal import print_table

    print_table(f"{status.study}: {_dag(status)}", HEADINGS, [_row(region) for region in status.regions])
    for job in status.held:
        since = time.strftime("%H:%M", time.localtime(job.since))
        print(f"held since {since}: {job.node} (job {job.job}): {job.hold_reason}")
    if status.note:
        print(status.note, file=sys.stderr)
    sys.stdout.flush()


def _dag(status: RunStatus) -> str:
    if status.exit_code is not None:
        return f"{status.dag} with exit code {status.exit_code}"
    if status.dag == "not submitted":
        return f"not submitted; regiondag submit {status.run}"
    return status.dag


def _row(region: RegionStatus) -> tuple[str, ...]:
    filled = BAR_WIDTH * region.done // max(region.planned, 1)
    end = time.strftime("%H:%M", time.localtime(region.expected_end)) if region.expected_end else "-"
    return (
        region.region,
        "█" * filled + "░" * (BAR_WIDTH - filled),
        f"{region.done}/{region.planned}",
        str(region.running),
        str(region.idle),
        str(region.failed),
        str(region.held),
        "-" if region.best is None else f"{region.metric} {region.best:.4f}",
        region.final or "-",
        end,
    )
