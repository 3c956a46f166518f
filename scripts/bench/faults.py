#!/usr/bin/env python3
"""Faults of many kinds, at random moments, into small real studies: does each end with the undisturbed one's champions?

See README.md in this folder. Needs root for the small disks, and libfaketime for the clock.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from faults_checks import (
    KIND_HEADINGS,
    NOT_ENDED,
    Checked,
    Left,
    Studied,
    count_kinds,
    deviations,
    studied_from_json,
)
from faults_schedule import KINDS, PER_STUDY, schedule
from faults_setup import missing_for
from faults_study import run_study, run_undisturbed
from harness import RESULTS, Row, table, to_json, work_area

BENCH = "faults"
FAULTS, QUICK_FAULTS = 200, 3
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
            study = next((number for number in wanted if number not in self._taken), None)
            running = len(self._taken) - len(self.done)
            expected = sum(len(found.hit) for found in self.done.values()) + running * arguments.per_study
            late = arguments.until is not None and time.monotonic() - self._begun > arguments.until
            if study is None or late or self.stopped or (arguments.study is None and expected >= arguments.faults):
                return None
            self._taken.add(study)
            return study

    def work(self, pool: str, undisturbed: Callable[[], Mapping[str, Left]]) -> None:
        """Run one study after the other on pools of one name."""
        arguments = self._arguments
        while (study := self.next()) is not None:
            faults = schedule(arguments.seed, study, arguments.kinds, arguments.per_study)
            found = run_study(pool, self._area / f"study-{study}", study, faults, undisturbed)
            with self._lock:
                self.done[study] = found
                note(found, arguments.keep)


def campaign(arguments: argparse.Namespace, area: Path) -> list[Studied]:
    """Run all studies, some at a time, and one that nothing disturbs."""
    name = f"faults-{os.getpid()}"
    studies = Studies(arguments, area)
    with ThreadPoolExecutor(arguments.pools + 1) as threads:
        undisturbed = threads.submit(run_undisturbed, f"{name}-undisturbed", area / "undisturbed")
        works = [threads.submit(studies.work, f"{name}-{n}", undisturbed.result) for n in range(arguments.pools)]
        try:
            for work in works:
                work.result()
        except KeyboardInterrupt:
            print("faults: ends with the studies that run now, so that no pool and no disk is left", file=sys.stderr)
            raise
        finally:
            studies.stopped = True
    return [found for _, found in sorted(studies.done.items())]


def read_kept(path: Path | None) -> dict[int, Studied]:
    """Return the studies of an interrupted campaign."""
    if path is None or not path.exists():
        return {}
    found = [studied_from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return {study.study: study for study in found}


def note(found: Studied, path: Path | None) -> None:
    """Say how a study ended, and keep it."""
    how = "DEVIATES" if found.deviates else f"as undisturbed{', submitted again' * bool(found.resubmitted)}"
    print(f"study {found.study}: {len(found.hit)} faults, {found.seconds:.0f} s, {how}", file=sys.stderr, flush=True)
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found.to_json()) + "\n")


def rows(studies: Sequence[Studied], goals: bool) -> list[Row]:
    """Return the benchmark's rows."""
    if not studies:
        return [Row("faults", None, None, "faults", note="no study was run")]
    checked = sum((study.checked for study in studies), Checked())
    hit = [kind for study in studies for kind, _ in study.hit]
    failed = [study for study in studies if any(text.startswith(NOT_ENDED) for text in study.problems)]
    other = [study for study in studies if set(study.problems) - {t for t in study.problems if t.startswith(NOT_ENDED)}]
    trials = "trials and final trainings"
    least = (float(FAULTS), 12.0) if goals else (None, None)
    return [
        Row(f"faults injected into {len(studies)} studies", len(hit), None, "faults", least[0], higher=True),
        Row("kinds of faults", len(set(hit)), None, "kinds", least[1], higher=True),
        Row("studies that ended by themselves", sum(not s.resubmitted for s in studies) - len(failed), None, "studies"),
        Row(
            "studies that ended once submitted again",
            sum(s.resubmitted > 0 for s in studies if s not in failed),
            None,
            "studies",
        ),
        Row("studies that did not end", len(failed), None, "studies", 0.0),
        Row(f"{trials} lost", checked.lost, None, "trials", 0.0),
        Row(f"{trials} counted twice", checked.doubled, None, "trials", 0.0),
        Row("torn lines in journals", checked.torn, None, "lines", 0.0),
        Row("champions other than the undisturbed study's", checked.other_champions, None, "champions", 0.0),
        Row(
            "studies with something else wrong (processes or jobs left, no report, a command refused)",
            len(other),
            None,
            "studies",
            0.0,
        ),
    ]


def kind_table(studies: Sequence[Studied], kinds: Sequence[str] = tuple(KINDS)) -> str:
    """Return how the studies ended, by kind of fault."""
    lines = [KIND_HEADINGS, *(count.cells() for count in count_kinds(studies, kinds) if count.injected)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(KIND_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def result_text(bench: str, found: Sequence[Row], studies: Sequence[Studied], seed: int, kinds: Sequence[str]) -> str:
    """Return the rows in the form of results, with what each kind of fault did."""
    result = to_json(bench, found) | {
        "seed": seed,
        "kinds": [count.__dict__ for count in count_kinds(studies, kinds)],
        "deviations": deviations(studies, seed),
        "missed": sorted(kind for study in studies for kind in study.missed),
    }
    return json.dumps(result, indent=1, ensure_ascii=False) + "\n"


def finish(studies: Sequence[Studied], arguments: argparse.Namespace) -> int:
    """Print the tables and keep the results of a full campaign; 1 if a goal is missed."""
    whole = not arguments.quick and arguments.study is None and set(arguments.kinds) == set(KINDS)
    found = rows(studies, goals=whole and arguments.faults >= FAULTS)
    print(table(found), kind_table(studies), *deviations(studies, arguments.seed), sep="\n\n")
    text = result_text(BENCH, found, studies, arguments.seed, list(KINDS))
    if arguments.json:
        arguments.json.write_text(text, encoding="utf-8")
    if whole and arguments.faults >= FAULTS and sum(len(study.hit) for study in studies) >= FAULTS:
        (RESULTS / f"{BENCH}.json").write_text(text, encoding="utf-8")
    return int(any(row.met is False or row.ours is None for row in found))


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog=f"scripts/bench/{BENCH}.py", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a few faults in one study; nothing is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--seed", type=int, default=1, help="of all that is left to chance (default 1)")
    parser.add_argument("--faults", type=int, default=FAULTS, metavar="N", help=f"how many (default {FAULTS})")
    parser.add_argument("--per-study", type=int, default=PER_STUDY, metavar="N", help=f"(default {PER_STUDY})")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), metavar="KIND,KIND",
                        help=f"only these of: {', '.join(KINDS)}")  # fmt: skip
    parser.add_argument("--study", type=int, metavar="N", help="this study alone, with the same seed and kinds")
    parser.add_argument("--pools", type=int, default=3, metavar="N", help="studies at the same time (default 3)")
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
    return finish(studies, arguments)


if __name__ == "__main__":
    sys.exit(main())
