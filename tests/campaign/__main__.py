"""Faults of many kinds, at random moments, into small real studies: does each end with the undisturbed one's champions?

Needs root for the small disks, and libfaketime for the clock.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from scripts.bench.common.harness import work_area
from tests.campaign.checks import Left, Studied
from tests.campaign.results import FAULTS, finish, note, read_kept
from tests.campaign.schedule import KINDS, PER_STUDY, Fault, half_of, schedule, suite_of, together_of
from tests.campaign.setup import missing_for
from tests.campaign.study import run_study, run_undisturbed

BENCH = "faults"
QUICK_FAULTS = 3
QUICK_KINDS = ("trainer killed", "POST killed in mid-write", "schedd killed", "evicted")


class Studies:
    """Which studies have been run and which is next, for several threads; those that `--keep` has are not run again."""

    def __init__(self, arguments: argparse.Namespace, area: Path) -> None:
        self._arguments, self._area = arguments, area
        self.done = read_kept(arguments.keep)
        self._taken = set(self.done)
        self._begun = time.monotonic()
        self.stopped = False
        self._lock = Lock()

    def next(self) -> int | None:
        """Return the next study, None when those that have ended or still run have all the faults."""
        arguments = self._arguments
        with self._lock:
            wanted = itertools.count() if arguments.study is None else iter([arguments.study])
            study = next((number for number in wanted if number not in self._taken and self.faults_of(number)), None)
            running = len(self._taken) - len(self.done)
            expected = sum(len(found.hit) for found in self.done.values()) + running * arguments.per_study
            late = arguments.until is not None and time.monotonic() - self._begun > arguments.until
            if study is None or late or self.stopped or (arguments.study is None and expected >= arguments.faults):
                return None
            self._taken.add(study)
            return study

    def faults_of(self, study: int) -> list[Fault]:
        """Return a study's faults: of the kinds of its half that were asked for."""
        half, number = half_of(study)
        kinds = [kind for kind in half if kind in self._arguments.kinds]
        arguments = self._arguments
        return schedule(arguments.seed, number, kinds, arguments.per_study, together_of(study)) if kinds else []

    def work(self, pool: str, undisturbed: Callable[[str], Future[dict[str, Left]]]) -> None:
        """Run one study after the other on pools of one name."""
        keep = self._arguments.keep
        while (study := self.next()) is not None:
            alone = undisturbed(suite_of(study)).result
            found = run_study(pool, self._area / f"study-{study}", study, self.faults_of(study), alone)
            with self._lock:
                self.done[study] = found
                note(found, keep)


def campaign(arguments: argparse.Namespace, area: Path) -> list[Studied]:
    """Run all studies, some at a time, and one that nothing disturbs on each HTCondor."""
    name = f"faults-{os.getpid()}"
    studies = Studies(arguments, area)
    alone: dict[str, Future[dict[str, Left]]] = {}
    lock = Lock()
    with ThreadPoolExecutor(arguments.pools + 1) as threads:

        def undisturbed(suite: str) -> Future[dict[str, Left]]:
            with lock:
                if suite not in alone:
                    place = area / f"undisturbed-{suite}"
                    alone[suite] = threads.submit(run_undisturbed, f"{name}-{suite}", place, suite)
                return alone[suite]

        works = [threads.submit(studies.work, f"{name}-{n}", undisturbed) for n in range(arguments.pools)]
        try:
            for work in works:
                work.result()
        except KeyboardInterrupt:
            print("faults: ends with the studies that run now, so that no pool and no disk is left", file=sys.stderr)
            raise
        finally:
            studies.stopped = True
    return [found for _, found in sorted(studies.done.items())]


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a few faults in one study; nothing is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--seed", type=int, default=1, help="of all that is left to chance (default 1)")
    parser.add_argument("--faults", type=int, default=FAULTS, metavar="N", help=f"how many (default {FAULTS})")
    parser.add_argument("--per-study", type=int, default=PER_STUDY, metavar="N", help=f"(default {PER_STUDY})")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), metavar="KIND,KIND",
                        help=f"only these of: {', '.join(KINDS)}")  # fmt: skip
    parser.add_argument("--study", type=int, metavar="N", help="this study alone, with the same seed and kinds")
    parser.add_argument("--pools", type=int, default=2, metavar="N", help="studies at the same time (default 2)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add each study to FILE, and go on after those in it")
    parser.add_argument("--until", type=float, metavar="SECONDS", help="begin no study after that; see --keep")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(unknown)}: legal: {', '.join(KINDS)}")
    if arguments.quick:
        arguments.kinds, arguments.faults, arguments.per_study, arguments.pools = (
            list(QUICK_KINDS),
            QUICK_FAULTS,
            QUICK_FAULTS,
            1,
        )
    return arguments


def main() -> int:
    """Run the campaign and print what came of it."""
    arguments = read_options()
    if missing := missing_for(arguments.kinds):
        print(missing, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with work_area() as area:
        studies = campaign(arguments, area)
    whole = not arguments.quick and arguments.study is None and set(arguments.kinds) == set(KINDS)
    goals = whole and arguments.faults >= FAULTS
    enough = sum(len(study.hit) for study in studies) >= FAULTS or arguments.keep is not None
    return finish(BENCH, studies, KINDS, arguments.seed, goals and enough, goals, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
