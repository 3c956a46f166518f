#!/usr/bin/env python3
"""Faults of many kinds, at random moments, into small real studies: does each end with the undisturbed one's champions?

See README.md in this folder. Needs root for the small disks, and libfaketime for the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from faults_checks import (
    KIND_HEADINGS,
    NOT_ENDED,
    Checked,
    Left,
    Studied,
    check_region,
    count_kinds,
    deviations,
    studied_from_json,
)
from faults_kinds import INJECT
from faults_pool import Running, prepared, wait_until
from faults_schedule import KINDS, PER_STUDY, Fault, schedule, studies_for
from harness import RESULTS, WORK, NotMeasuredError, Row, table, to_json, work_area

from workflows.pool import pool_folder

BENCH = "faults"
FAULTS, QUICK_FAULTS = 200, 3
QUICK_KINDS = ("trainer killed", "POST killed in mid-write", "schedd killed", "evicted")
PATIENCE = 180.0  # seconds for a study after its last fault; undisturbed it takes about 40
GRACE = 15.0  # seconds for processes to be gone after the end
DAEMONS = {"condor_master", "condor_collector", "condor_negotiator", "condor_schedd", "condor_startd"}
OWN = {"condor_procd", "GPUS_MONITOR"}
KEPT = WORK / "faults-kept"  # logs of studies that deviate


def run_study(name: str, area: Path, study: int, faults: Sequence[Fault], undisturbed: Mapping[str, Left]) -> Studied:
    """Run one study to its end under its faults, and compare what it left."""
    begun = time.monotonic()
    with prepared(name, area, [fault.kind for fault in faults]) as running:
        campaign = Campaign(running)
        campaign.submit()
        for fault in faults:
            if not campaign.hit_by(fault):
                break
        campaign.finish()
        problems = [*campaign.problems, *after(running)]
        left = running.left()
        checked = sum((check_region(slug, left[slug], undisturbed[slug]) for slug in undisturbed), Checked())
        hit = tuple(campaign.hit)
        missed = tuple(campaign.missed) + tuple(fault.kind for fault in faults[len(hit) + len(campaign.missed) :])
        removed = sum(kind == "DAG removed" for kind, _ in hit)
        found = Studied(study, hit, missed, campaign.again, removed, round(time.monotonic() - begun, 1),
                        tuple(problems), checked)  # fmt: skip
        if found.deviates:
            keep(running, found)
    return found


class Campaign:
    """Submits one study, lets faults hit it, and submits it again when it has ended without its champions."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.hit: list[tuple[str, str]] = []
        self.missed: list[str] = []
        self.problems: list[str] = []
        self.again = 0

    def submit(self) -> None:
        """Run `regiondag submit`; a refusal is tried again, as it may be another fault's doing."""
        for _ in range(3):
            done = self.running.regiondag("submit", self.running.run.path)
            if not done.returncode:
                return
            time.sleep(3)
        self.problems.append(f"submit refused: {(done.stderr + done.stdout).strip()[-300:]}")

    def hit_by(self, fault: Fault) -> bool:
        """Wait for the fault's moment and let it hit; False when the study has ended before."""
        wait_until(self.running.is_complete, fault.gap, 0.2)
        if self.running.is_complete():
            return False
        if self._is_over():
            self.resubmit()
        try:
            what = INJECT[fault.kind](self.running, fault)
        except Exception as error:  # a command that must work did not: a finding, not the end of the campaign
            what = f"{type(error).__name__}: {error}"
            self.problems.append(f"{fault.kind}: {what}")
        if what is None:
            self.missed.append(fault.kind)
        else:
            self.hit.append((fault.kind, what))
        return True

    def resubmit(self) -> None:
        """Submit again, and note it."""
        if self.running.is_complete():
            return
        self.again += 1
        self.submit()

    def finish(self) -> None:
        """Wait for the end; once it is over without all champions, submit again."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.running.is_complete() and self.running.dag_state() == "over":
                break
            if self._is_over():
                if self.again >= 2:
                    break
                self.resubmit()
            time.sleep(0.5)
        if not self.running.is_complete():
            self.problems.append(f"{NOT_ENDED} within {PATIENCE:.0f} s: {self._where()}")
        elif self.running.dag_state() != "over":
            self.problems.append(f"{NOT_ENDED}: all is done, but DAGMan is still {self.running.dag_state()}")
        if self.again > 1:
            self.problems.append(f"submitted again {self.again} times")

    def _is_over(self) -> bool:
        """Return whether DAGMan's job has ended by its log, or is in the queue no more without having said so."""
        state = self.running.dag_state()
        if state == "over" and not self.running.is_complete():
            time.sleep(1)  # the report's last bytes
            return not self.running.is_complete() and self.running.dag_state() == "over"
        if state == "over" or self.running.programs("condor_dagman"):
            return state == "over" and not self.running.is_complete()
        done = self.running.condor("condor_q", self.running.cluster(), "-af", "JobStatus")
        gone = done.returncode == 0 and not done.stdout.strip() and bool(self.running.programs("condor_schedd"))
        return gone and self.running.dag_state() != "over"

    def _where(self) -> str:
        queue = self.running.condor("condor_q", "-nobatch", "-af:j", "JobUniverse", "JobStatus", "HoldReason").stdout
        return f"DAGMan's job is {self.running.dag_state()}; queue: {queue.strip()[:300] or 'empty'}"


def after(running: Running) -> list[str]:
    """Return what should not be there after the end: processes, jobs, a missing report."""

    def others() -> list[str]:
        return [" ".join(seen.words[:6]) for seen in running.processes() if seen.program not in DAEMONS | OWN]

    problems = []
    wait_until(lambda: not others(), GRACE, 0.3)
    if left := others():
        problems.append(f"processes left: {', '.join(left)[:300]}")
    queue = running.condor("condor_q", "-af:j", "JobStatus", "HoldReason").stdout.strip()
    if queue and running.dag_state() == "over":
        problems.append(f"jobs left in the queue: {queue[:200]}")
    if not (running.run.report / "summary.md").exists() and running.is_complete():
        problems.append("no report")
    return problems


def keep(running: Running, found: Studied) -> None:
    """Copy the run directory and the pool's logs of a study that deviates."""
    place = KEPT / f"study-{found.study}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(running.run.path, place / "run", dirs_exist_ok=True)
    shutil.copytree(pool_folder(running.name) / "var/log/condor", place / "log", dirs_exist_ok=True)
    (place / "study.json").write_text(json.dumps(found.to_json(), indent=1), encoding="utf-8")


def campaign(arguments: argparse.Namespace, area: Path) -> list[Studied]:
    """Run all studies, some at a time; those that `--keep` has are not run again."""
    wanted = (
        [arguments.study]
        if arguments.study is not None
        else list(range(studies_for(arguments.faults, arguments.per_study)))
    )
    done = read_kept(arguments.keep)
    missing = [study for study in wanted if study not in done]
    lock = Lock()
    names = [f"faults-{os.getpid()}-{number}" for number in range(arguments.pools)]
    undisturbed = run_undisturbed(names[0], area / "undisturbed") if missing else {}

    def one(study: int) -> None:
        if arguments.until is not None and time.monotonic() - begun > arguments.until:
            return
        with lock:
            name = names.pop()
        try:
            faults = schedule(arguments.seed, study, arguments.kinds, arguments.per_study)
            found = run_study(name, area / f"study-{study}", study, faults, undisturbed)
        except NotMeasuredError as error:
            print(f"study {study}: {error}", file=sys.stderr, flush=True)
            return
        finally:
            with lock:
                names.append(name)
        with lock:
            done[study] = found
            note(found, arguments.keep)

    begun = time.monotonic()
    with ThreadPoolExecutor(arguments.pools) as pool:
        list(pool.map(one, missing))
    return [done[study] for study in wanted if study in done]


def run_undisturbed(name: str, area: Path) -> dict[str, Left]:
    """Run the study without a fault; NotMeasuredError when even that has no champions."""
    with prepared(name, area, ()) as running:
        alone = Campaign(running)
        alone.submit()
        alone.finish()
        if alone.problems or alone.again:
            keep(running, Studied(-1, (), (), alone.again, 0, 0.0, tuple(alone.problems)))
            raise NotMeasuredError(f"the undisturbed study: {alone.problems or 'submitted again'}")
        return running.left()


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


def kind_table(studies: Sequence[Studied]) -> str:
    """Return how the studies ended, by kind of fault."""
    lines = [KIND_HEADINGS, *(count.cells() for count in count_kinds(studies, list(KINDS)) if count.injected)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(KIND_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def finish(studies: Sequence[Studied], arguments: argparse.Namespace) -> int:
    """Print the tables and keep the results of a full campaign; 1 if a goal is missed."""
    whole = not arguments.quick and arguments.study is None and set(arguments.kinds) == set(KINDS)
    found = rows(studies, goals=whole and arguments.faults >= FAULTS)
    print(table(found), kind_table(studies), *deviations(studies, arguments.seed), sep="\n\n")
    result = to_json(BENCH, found) | {
        "seed": arguments.seed,
        "kinds": [count.__dict__ for count in count_kinds(studies, list(KINDS))],
        "deviations": deviations(studies, arguments.seed),
        "missed": sorted(kind for study in studies for kind in study.missed),
    }
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    if arguments.json:
        arguments.json.write_text(text, encoding="utf-8")
    if whole and arguments.faults >= FAULTS and len(studies) == studies_for(arguments.faults, arguments.per_study):
        (RESULTS / f"{BENCH}.json").write_text(text, encoding="utf-8")
    return int(any(row.met is False for row in found))


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
    with work_area() as area:
        studies = campaign(arguments, area)
    return finish(studies, arguments)


if __name__ == "__main__":
    sys.exit(main())
