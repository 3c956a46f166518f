"""One study under its faults: submitted, hit, submitted again where needed, compared with the undisturbed one."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from regiondag.pool.pool import pool_folder
from scripts.bench.common.harness import WORK
from scripts.bench.common.processes import NotMeasuredError
from tests.campaign.checks import NOT_ENDED, Checked, Left, Studied, check_region
from tests.campaign.files import Inject
from tests.campaign.kinds import INJECT
from tests.campaign.running import Running, Seen, wait_until
from tests.campaign.schedule import Fault, cases_of, suite_of
from tests.campaign.setup import prepared
from tests.campaign.watch import recoveries, watched

PATIENCE = 300.0  # seconds for a study after its last fault; undisturbed it takes about 40 on a quiet machine
GRACE = 30.0  # seconds for processes to be gone after the end
DAEMONS = {"condor_master", "condor_collector", "condor_negotiator", "condor_schedd", "condor_startd",
           "condor_shared_port"}  # fmt: skip
OWN = {"condor_procd", "GPUs_MONITOR"}
KEPT = WORK / "faults-kept"  # logs of studies that deviate


def run_study(
    name: str, area: Path, study: int, faults: Sequence[Fault], undisturbed: Callable[[], Mapping[str, Left]]
) -> Studied:
    """Run one study to its end under its faults, and compare what it left."""
    begun = time.monotonic()
    with prepared(name, area, [fault.kind for fault in faults], suite_of(study)) as running:
        found = Campaign(running).studied(study, faults, undisturbed, begun)
        if found.deviates:
            keep(running, found)
    return found


class Campaign:
    """Submits one study, lets faults hit it, and submits it again when it has ended without its champions."""

    def __init__(self, running: Running, kinds: Mapping[str, Inject] = INJECT) -> None:
        self.running, self.kinds = running, kinds
        self.hit: list[tuple[str, str]] = []
        self.missed: list[str] = []
        self.problems: list[str] = []
        self.struck: list[tuple[str, float]] = []  # kind, and when the fault was over
        self.again = self.pairs = 0

    def studied(
        self, study: int, faults: Sequence[Fault], undisturbed: Callable[[], Mapping[str, Left]], begun: float
    ) -> Studied:
        """Run the study to its end under its faults, and compare what it left."""
        self.submit()
        cases = 0
        with watched(self.running) as watch:
            for case in cases_of(faults):
                if not self.hit_by(case):
                    break
                cases += 1
            self.finish()
        problems = [*self.problems, *after(self.running)]
        left = self.running.left()
        checked = sum((check_region(slug, left[slug], other) for slug, other in undisturbed().items()), Checked())
        hit = tuple(self.hit)
        missed = tuple(self.missed) + tuple(fault.kind for fault in faults[len(hit) + len(self.missed) :])
        seconds = round(time.monotonic() - begun, 1)
        return Studied(
            study, hit, missed, self.again, seconds, self.running.suite, self.pairs, cases,
            recoveries(self.struck, watch), tuple(problems), checked,
        )  # fmt: skip

    def submit(self) -> None:
        """Run `regiondag submit`; a refusal is tried again, as it may be another fault's doing."""
        for _ in range(3):
            done = self.running.regiondag("submit", self.running.run.path)
            if not done.returncode:
                return
            time.sleep(3)
        self.problems.append(f"submit refused: {(done.stderr + done.stdout).strip()[-300:]}")

    def hit_by(self, case: Sequence[Fault]) -> bool:
        """Wait for the moment of a fault, and let it hit, and what hits beside it; False when the study has ended."""
        wait_until(self.running.is_complete, case[0].gap, 0.2)
        if self.running.is_complete():
            return False
        if self._is_over():
            self.resubmit()
        before = len(self.hit)
        with ThreadPoolExecutor(len(case)) as threads:
            list(threads.map(self._strike, case))
        self.pairs += len(self.hit) - before == 2
        return True

    def _strike(self, fault: Fault) -> None:
        if fault.beside:
            time.sleep(fault.gap)
        try:
            what = self.kinds[fault.kind](self.running, fault)
        except Exception as error:  # a command that must work did not: a finding, not the end of the campaign
            what = f"{type(error).__name__}: {error}"
            self.problems.append(f"{fault.kind}: {what}")
        if what is None:
            self.missed.append(fault.kind)
        else:
            self.struck.append((fault.kind, time.monotonic()))
            self.hit.append((fault.kind, what))

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
        if state == "over" or self.running.dagmans():
            return state == "over" and not self.running.is_complete()
        done = self.running.condor("condor_q", self.running.cluster(), "-af", "JobStatus")
        gone = done.returncode == 0 and not done.stdout.strip() and bool(self.running.programs("condor_schedd"))
        return gone and self.running.dag_state() != "over"

    def _where(self) -> str:
        queue = self.running.condor("condor_q", "-nobatch", "-af:j", "JobUniverse", "JobStatus", "HoldReason").stdout
        return f"DAGMan's job is {self.running.dag_state()}; queue: {queue.strip()[:300] or 'empty'}"


def is_staging(seen: Seen) -> bool:
    """Return whether a process only keeps input files that HTCondor 25's jobs of a machine share.

    Its schedd ends them with the last job. Where schedd or shadow were killed it may forget them; they have a slot of
    their own without a CPU, and sleep for five minutes at a time.
    """
    slot = seen.program == "condor_starter" and any(re.match(r"data\d", word) for word in seen.words)
    return slot or "--cxfer=staging" in seen.words


def after(running: Running) -> list[str]:
    """Return what should not be there after the end: processes, jobs, a missing report."""

    def others() -> list[str]:
        return [
            " ".join(seen.words[:6])
            for seen in running.processes()
            if seen.program not in DAEMONS | OWN and not is_staging(seen)
        ]

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
    (place / "study.json").write_text(json.dumps(asdict(found), indent=1), encoding="utf-8")


def run_undisturbed(name: str, area: Path, suite: str) -> dict[str, Left]:
    """Run the study without a fault; NotMeasuredError when even that has no champions."""
    with prepared(name, area, (), suite) as running:
        alone = Campaign(running)
        alone.submit()
        alone.finish()
        if alone.problems or alone.again:
            keep(running, Studied(-1, (), (), alone.again, 0.0, problems=tuple(alone.problems)))
            raise NotMeasuredError(f"the undisturbed study: {alone.problems or 'submitted again'}")
        return running.left()
