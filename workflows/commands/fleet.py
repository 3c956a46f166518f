"""`regiondag fleet`: EC2 workers for an HTCondor pool."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_verb, number, run_verb
from regiondag.errors import UsageError

if TYPE_CHECKING:
    from regiondag.fleet.config import Fleet
    from regiondag.fleet.verbs import Outlet, PoolView
    from regiondag.pool.pool import Pool

HELP = "start, grow, shrink and look at GPU workers on EC2"

DESCRIPTION = """\
GPU workers on EC2 that join an HTCondor pool. A fleet is described by one file; what belongs to it is found by its
tag (regiondag:fleet), so that any machine with the same file can go on where another one stopped.
Workers power off by themselves when they are idle; no command but `down --now` ends a running job."""

EPILOG = """examples:
  regiondag fleet up --dry-run
  regiondag fleet up
  regiondag fleet scale --watch
  regiondag fleet scale --workers 4
  regiondag fleet status
  regiondag fleet down"""

DEFAULT_FILE = "fleet.yaml"
WATCH_SECONDS = 60.0
LEAST_SECONDS = 15.0  # what EC2 started shows in its listings after some seconds
TIMEOUT = "2h"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    up = _add_verb(verbs, "up", _up, "make the launch templates and start as many workers as workers.min says")
    scale = _add_verb(verbs, "scale", _scale, "start the workers that the idle jobs in the queue ask for")
    scale.add_argument("--workers", type=number(int), metavar="N", help="have N workers, whatever the queue asks for")
    scale.add_argument(
        "--watch",
        type=number(float),
        nargs="?",
        const=WATCH_SECONDS,
        metavar="SECONDS",
        help=f"look again and again until Ctrl-C (default: every {WATCH_SECONDS:g} seconds)",
    )
    down = _add_verb(verbs, "down", _down, "let the workers finish, end them, and remove what is left")
    down.add_argument("--now", action="store_true", help="end the workers at once, with the jobs they run")
    down.add_argument("--timeout", default=TIMEOUT, metavar="TIME", help=f"wait so long at most (default: {TIMEOUT})")
    for verb in (up, scale, down):
        verb.add_argument("--dry-run", action="store_true", help="say what would be done and what an hour of it costs")

    clean = _add_verb(
        verbs, "clean", _clean, "show what serves nobody any more, also snapshots without their image; --yes removes it"
    )
    clean.add_argument("--yes", action="store_true", help="remove it; without it nothing is changed")

    status = _add_verb(verbs, "status", _status, "show the workers: what they do and what they cost")
    status.add_argument("--json", action="store_true", help="one JSON object on stdout")


run = run_verb


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, verb: object, text: str
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, verb, text)
    parser.add_argument(
        "--file", type=Path, default=Path(DEFAULT_FILE), help=f"what the fleet is (default: {DEFAULT_FILE})"
    )
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")
    return parser


def _say(text: str) -> None:
    print(text, flush=True)


def _outlet() -> Outlet:
    from regiondag.fleet.verbs import Outlet
    from regiondag.util.terminal import print_table

    return Outlet(tell, _say, print_table)


def _client(fleet: Fleet) -> object:
    from regiondag.util import aws

    return aws.client("ec2", fleet.region)


def _view(pool: Pool, fleet: Fleet) -> PoolView:
    from regiondag.fleet import queue
    from regiondag.fleet.verbs import PoolView

    return PoolView(
        pool.name,
        pool.version,
        lambda: queue.query_gpu_requests(pool, fleet.name),
        lambda: queue.query_workers(pool, fleet.name),
    )


def _view_if_any(name: str | None, fleet: Fleet) -> PoolView | None:
    from regiondag.pool.pool import find_pool

    pool = find_pool(name)
    return _view(pool, fleet) if pool else None


def _up(arguments: argparse.Namespace) -> int:
    from regiondag.fleet import verbs
    from regiondag.fleet.config import load_fleet

    fleet = load_fleet(arguments.file)
    verbs.up(_client(fleet), fleet, _outlet(), _view_if_any(arguments.pool, fleet), arguments.dry_run)
    return 0


def _scale(arguments: argparse.Namespace) -> int:
    from regiondag.fleet import verbs, watch
    from regiondag.fleet.config import load_fleet
    from regiondag.pool.pool import require_pool

    if arguments.workers is not None and arguments.watch is not None:
        raise UsageError("--workers sets the number once, --watch follows the queue; give one of the two")
    if arguments.workers is not None and arguments.workers < 0:
        raise UsageError(f"--workers {arguments.workers}: the number of workers cannot be negative")
    if arguments.watch is not None and not LEAST_SECONDS <= arguments.watch <= 86400:
        raise UsageError(f"--watch {arguments.watch:g}: legal are {LEAST_SECONDS:g} to 86400 seconds")
    if arguments.watch is not None and arguments.dry_run:
        raise UsageError("--dry-run says what one look would start; leave out --watch")
    fleet = load_fleet(arguments.file)
    client, out = _client(fleet), _outlet()
    if arguments.workers is not None:
        view = _view_if_any(arguments.pool, fleet)
        verbs.set_number(client, fleet, out, view, arguments.workers, arguments.dry_run)
        return 0

    if arguments.watch is None:
        verbs.scale(client, fleet, out, _view(require_pool(arguments.pool), fleet), arguments.dry_run)
        return 0
    news, next_round = watch.select_news(tell)
    out, recall = replace(out, tell=news), watch.recall_looks()

    def step() -> None:
        next_round()
        verbs.scale(client, fleet, out, _view(require_pool(arguments.pool), fleet), dry_run=False, recall=recall)

    watch.watch(step, arguments.watch, news)
    return 0


def _down(arguments: argparse.Namespace) -> int:
    from regiondag.fleet import verbs
    from regiondag.fleet.config import load_fleet
    from regiondag.util.schema import DURATION

    try:
        timeout = DURATION.of(arguments.timeout)
    except ValueError:
        raise UsageError(f"--timeout {arguments.timeout}: legal is a duration such as 30m, 2h or 1d") from None
    fleet = load_fleet(arguments.file)
    view = _view_if_any(arguments.pool, fleet)
    verbs.down(_client(fleet), fleet, _outlet(), view, now=arguments.now, timeout=timeout, dry_run=arguments.dry_run)
    return 0


def _clean(arguments: argparse.Namespace) -> int:
    import time

    from regiondag.fleet import orphans
    from regiondag.fleet.config import load_fleet
    from regiondag.util.terminal import print_table

    fleet = load_fleet(arguments.file)
    client = _client(fleet)
    found = orphans.find_orphans(client, fleet, time.time())
    if not found:
        tell(f"nothing that carries the tag of fleet {fleet.name} is left over")
        return 0
    rows = [(one.kind, one.id, one.why) for one in found]
    print_table(f"left over of fleet {fleet.name} in {fleet.region}", orphans.HEADINGS, rows)
    if not arguments.yes:
        tell("nothing was removed; --yes removes what is listed")
        return 0
    left = orphans.remove(client, found, tell)
    tell(f"{len(found) - len(left)} of {len(found)} removed")
    return 1 if left else 0


def _status(arguments: argparse.Namespace) -> int:
    from regiondag.fleet import scale, status, verbs
    from regiondag.fleet.config import load_fleet
    from regiondag.util.terminal import print_table

    fleet = load_fleet(arguments.file)
    seen = verbs.look(_client(fleet), fleet, _outlet(), _view_if_any(arguments.pool, fleet))
    if arguments.json:
        print(status.as_json(seen))
        return 0
    if seen.rows:
        print_table(f"fleet {seen.fleet} in {seen.region}", status.HEADINGS, status.table_rows(seen), status.NARROW)
    print(status.show_total(seen))
    if seen.spending:
        print(seen.spending.words)
    for one in seen.orphans:
        tell(f"{one} runs but has not joined the pool {seen.pool}; {scale.console(seen.region, one)}")
    if seen.pool is None:
        tell("no pool answers here, so jobs and slots are not known (--pool NAME)")
    return 0
