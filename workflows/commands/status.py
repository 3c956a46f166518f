"""`regiondag status RUN`: where every region stands."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regiondag.commands._verbs import add_run, number
from regiondag.errors import PoolError
from regiondag.util.intervals import show_figure
from regiondag.util.terminal import Narrow

if TYPE_CHECKING:
    from regiondag.monitor.status import Figure, RegionStatus, RunStatus

HELP = "show where a run stands, region by region"
DESCRIPTION = """Per region: trials done, running, failed and held, the best metric so far on the validation window, or,
once there is a champion, what it reaches on the test window, with half of its 95 % interval and its number of
customers, beside what has to be beaten; and the expected end. Then what each running trial said last: its epoch,
loss and metric, the time that is left at most, and how old that is. Held jobs are listed with HTCondor's reason,
and, while the DAG runs, machines of the pool that keep a sick GPU from jobs. Reads the journals, DAGMan's event log and
the queue."""
EPILOG = """examples:
  regiondag status RUN
  regiondag status RUN --watch
  regiondag status RUN --json | jq '.regions[] | {region, done, failed}'"""

JOBS = ("running", "idle", "failed", "held")
BAR_WIDTH = 20
MOST_LIVE = 12  # trials shown on the way
SHORTEST_NAME = 11  # of a region, to which it is folded
NARROW = Narrow(
    ("progress", "idle", "held", "running", "failed", "final", "expected end", "done"), {"region": SHORTEST_NAME}
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("--watch", action="store_true", help="show it again and again until the DAG has ended")
    parser.add_argument(
        "--interval",
        type=number(float, 0.5, 3600),
        default=5.0,
        metavar="SECONDS",
        help="between two looks (default: 5)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object a look")
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Show the status once, or until the DAG has ended."""
    from regiondag.condor.access_point import describe_intervals
    from regiondag.monitor.status import read_status
    from regiondag.pool.pool import find_pool, why_absent
    from regiondag.run.study_folder import find_run

    folder = find_run(arguments.run_directory)
    show, slow = _choose_view(arguments), None
    while True:
        pool = find_pool(arguments.pool)
        status = read_status(folder, pool, arguments.pool)
        if slow is None and pool is not None and any(region.running for region in status.regions):
            slow = describe_intervals(pool)  # once: it runs a program of the pool
        show(dataclasses.replace(status, note="; ".join(filter(None, (status.note, slow)))))
        if not arguments.watch or status.over:
            return 0
        if pool is None:
            raise PoolError(f"nothing will change: {why_absent(arguments.pool)}")
        time.sleep(arguments.interval)


def _choose_view(arguments: argparse.Namespace) -> Callable[[RunStatus], None]:
    if arguments.json:
        return lambda status: print(json.dumps(_as_json(status), ensure_ascii=False), flush=True)
    if not arguments.watch:
        return _show_table
    return _redraw if sys.stdout.isatty() else _Lines().show


def _as_json(status: RunStatus) -> dict[str, Any]:
    """Return a status as JSON can hold it; trials by the names of their nodes, with how old their words are."""
    now = time.time()
    live = [dataclasses.asdict(one) | {"node": str(one.node), "age": one.age(now)} for one in status.live]
    return dataclasses.asdict(status) | {"live": live}


def _redraw(status: RunStatus) -> None:
    print("\033[H\033[J", end="")  # home, clear
    _show_table(status)


class _Lines:
    """Where stdout is a file, watching prints one line whenever something changed, and the table at the end."""

    def __init__(self) -> None:
        self.last = ""

    def show(self, status: RunStatus) -> None:
        line = _line(status)
        if line != self.last:
            print(time.strftime("%H:%M:%S"), line, flush=True)
        self.last = line
        if status.over:
            _show_table(status)


def _line(status: RunStatus) -> str:
    from regiondag.run.region_state import FINISHED

    counts = ("done", "planned", "running", "failed")
    total = {key: sum(getattr(region, key) for region in status.regions) for key in counts}
    finals = sum(region.final in FINISHED for region in status.regions)
    return (
        f"{_dag(status)}: {total['done']}/{total['planned']} trials done, {total['running']} running, "
        f"{total['failed']} failed, {len(status.held)} held; {finals}/{len(status.regions)} regions finished"
    )


def _show_table(status: RunStatus) -> None:
    from nnlib.util.columns import print_folded
    from regiondag.condor.sick_gpus import describe_sick_gpus
    from regiondag.run.region_state import list_left
    from regiondag.util.terminal import print_table
    from regiondag.util.text import make_printable

    print_table(f"{status.study}: {_dag(status)}", *_tabulate(status), NARROW)
    for line in list_left((region.region, region.left) for region in status.regions):
        print_folded(make_printable(line))
    for job in status.held:
        since = time.strftime("%H:%M", time.localtime(job.since))
        print_folded(make_printable(f"held since {since}: {job.node} (job {job.job}): {job.hold_reason}"))
    for line in describe_sick_gpus(status.sick_gpus):
        print_folded(f"sick GPU: {line}")
    _show_live(status)
    if status.note:
        print_folded(status.note, sys.stderr)
    sys.stdout.flush()


def _show_live(status: RunStatus) -> None:
    """Say what the running trials are doing; of many, some: the screen has to hold the regions, too."""
    from regiondag.monitor.live import HEADINGS, NARROW, tabulate_live
    from regiondag.util.terminal import print_table

    if status.live:
        some = status.live[:MOST_LIVE]
        rows = tabulate_live(some, {region.slug: region.region for region in status.regions}, time.time())
        print_table("running trials, as they said it last", HEADINGS, rows, NARROW, framed=False)
    if len(status.live) > MOST_LIVE:
        print(f"and {len(status.live) - MOST_LIVE} more: --json has all")


def _dag(status: RunStatus) -> str:
    if status.exit_code is not None:
        return f"{status.dag} with exit code {status.exit_code}"
    if status.dag == "not submitted":
        from regiondag.condor.submit import suggest_submit

        return f"not submitted; {suggest_submit(Path(status.run))}"
    if status.dag == "crashed":
        return f"DAGMan crashed, or its queue is gone; regiondag submit {status.run}"
    return status.dag


def _tabulate(status: RunStatus) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    from regiondag.study.families import name_floors

    heading = _figure_heading(status)
    floor = name_floors(region.floor_name for region in status.regions)
    return _headings(heading, floor, status.over), [_row(region, heading, status.over) for region in status.regions]


def _headings(heading: str, floor: str, over: bool) -> tuple[str, ...]:
    figures = (heading, floor, "final")
    if over:
        return "region", "done", "failed", *figures
    return "region", "progress", "done", *JOBS, *figures, "expected end"


def _figure_heading(status: RunStatus) -> str:
    """Name the metric and its window where all regions are alike; else the cells do."""
    metrics = {region.metric for region in status.regions}
    windows = {_window(region) for region in status.regions if _figure(region)}
    return " ".join([*(windows if len(windows) == 1 else ()), *(metrics if len(metrics) == 1 else ())]) or "metric"


def _window(region: RegionStatus) -> str:
    return "test" if region.test else "best"


def _figure(region: RegionStatus) -> Figure | None:
    return region.test or region.validation


def _row(region: RegionStatus, heading: str, over: bool) -> tuple[str, ...]:
    figure = _figure(region)
    floor = figure.floor if figure else None
    said = [word for word in (_window(region), region.metric) if figure and word not in heading.split()]
    shown = show_figure(figure.value, figure.half_width, figure.customers) if figure else "-"
    figures = (" ".join([*said, shown]), show_figure(floor), region.final or "-")
    done = f"by {region.served_by}" if region.served_by else f"{region.done}/{region.planned}"
    if over:
        return region.region, done, str(region.failed), *figures
    filled = BAR_WIDTH * region.done // max(region.planned, 1)
    bar = "" if region.served_by else "█" * filled + "░" * (BAR_WIDTH - filled)
    end = time.strftime("%H:%M", time.localtime(region.expected_end)) if region.expected_end else "-"
    return region.region, bar, done, *(str(getattr(region, count)) for count in JOBS), *figures, end
