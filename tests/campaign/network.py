"""Networks are cut and machines lost while studies run: does each end with the champions of one that nothing disturbed?

Needs root: each machine is a network namespace (`tests/support/several_machines.py`).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from regiondag.run.layout import RunFolder
from tests.campaign import names_and_tokens
from tests.campaign.checks import Left, Studied
from tests.campaign.results import finish, note, read_kept
from tests.campaign.running import Running, Seen, all_processes, process_space, wait_until
from tests.campaign.schedule import Fault, schedule
from tests.campaign.setup import CHANGES, HOOK, REGIONS, SHORT_LEASE, shorten_lease
from tests.campaign.study import Campaign
from tests.support import made_up_study
from tests.support.several_machines import Lab, LabError, Machine, entered, home, unusable

BENCH = "faults_network"
STUDIES, QUICK_STUDIES = 7, 1
PER_STUDY = 4
USER = "alice"
# A machine without power breaks no connection: the manager gives it up by TCP's own five probes, here 5 s apart, after
# 10 s of silence. By default that is six minutes of silence (HTCondor) and 75 s between two (the kernel).
SETTINGS = """TCP_KEEPALIVE_INTERVAL = 10
MASTER_BACKOFF_CONSTANT = 1
MASTER_BACKOFF_CEILING = 2
"""
PROBE = "echo 5 >/proc/sys/net/ipv4/tcp_keepalive_intvl"
KINDS = {
    "worker cut off": "a worker's cable is out of the switch for 1 to 15 s",
    "worker cut off past its lease": f"the same for {SHORT_LEASE + 10} to {SHORT_LEASE + 30} s",
    "manager cut off": "the manager's cable is out of the switch for 1 to 15 s: it reaches no worker",
    "machine lost": "a worker's power is cut, and another worker joins instead",
} | names_and_tokens.KINDS


class LabStudy(Running):
    """A study that an ordinary user runs on the lab's manager; `run` is its folder as root sees it from outside."""

    def __init__(self, lab: Lab, run: str) -> None:
        super().__init__("lab", lab.manager.root, RunFolder(lab.manager.root / run.lstrip("/")), {}, "trixie")
        self.lab, self.inside = lab, run

    def regiondag(self, *words: str | Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run our command on the manager."""
        inside = [str(word).replace(str(self.run.path), self.inside) for word in words]
        return self.lab.regiondag(inside, USER, home(USER), check=False, timeout=timeout)

    def condor(self, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run one of HTCondor's commands on the manager."""
        try:
            return self.lab.run(self.lab.manager, words, USER, timeout=timeout)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 1, "", "no answer")

    def processes(self) -> list[Seen]:
        """Return HTCondor's processes on the manager, and those that have to do with this run."""
        space = process_space(self.lab.manager.pid)
        found = [seen for seen in all_processes() if process_space(seen.pid) == space]
        return [s for s in found if s.program.startswith("condor_") or any(self.inside in word for word in s.words)]

    def dagmans(self) -> list[Seen]:
        """Return DAGMan."""
        return [seen for seen in self.processes() if f"{self.inside}/study.dag" in seen.words and "-Dag" in seen.words]


def generated(lab: Lab, name: str) -> LabStudy:
    """Have the user write a study and make its run directory; an epoch takes a while."""
    folder = f"{home(USER)}/{name}"
    here = lab.manager.root / folder.lstrip("/")
    here.mkdir()
    study = made_up_study.write_study(here, "cut", REGIONS, 2, 2)
    text = study.read_text(encoding="utf-8")
    for before, now in CHANGES.items():
        text = text.replace(before, now)
    study.write_text(text, encoding="utf-8")
    hook = here / "sitecustomize.py"
    shutil.copyfile(HOOK, hook)
    lab.run(lab.manager, ["chown", "--recursive", f"{USER}:", folder], check=True)
    run = lab.regiondag(["generate", study.name, "--champions", "none", "--quiet"], USER, folder).stdout.strip()
    running = LabStudy(lab, run)
    for submit in running.run.path.glob("regions/*/*.sub"):
        lines = shorten_lease(submit.read_text(encoding="utf-8"))
        lines = re.sub("^transfer_input_files = ", rf"\g<0>{folder}/{hook.name},", lines, flags=re.MULTILINE)
        submit.write_text(lines, encoding="utf-8")
    script = running.run.path / "train.sh"
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("#!/bin/sh\n", "#!/bin/sh\nexport PYTHONPATH=$PWD\n", 1), encoding="utf-8")
    return running


def _cut(lab: Lab, machine: Machine, seconds: float) -> str:
    lab.cut(machine)
    try:
        time.sleep(seconds)
    finally:
        lab.mend(machine)
    return f"{machine.name} for {seconds:.1f} s"


def _training_worker(study: LabStudy, fault: Fault) -> Machine | None:
    """Return a worker on which a job runs, once there is one."""
    columns = ("condor_q", "-constraint", "JobUniverse == 5 && JobStatus == 2", "-af", "RemoteHost")

    def busy() -> list[Machine]:
        hosts = study.condor(*columns).stdout
        return [machine for machine in study.lab.workers if f"@{machine.name}." in hosts]

    found = wait_until(busy, 20, 0.5)
    return found[int(fault.target * len(found))] if isinstance(found, list) and found else None


def inject(study: Running, fault: Fault) -> str | None:
    """Do what the fault's kind says; None where no job runs that it could hit."""
    if not isinstance(study, LabStudy):
        raise TypeError("a study of a lab, please")
    lab, short = study.lab, 1 + 14 * fault.amount
    worker = _training_worker(study, fault)
    if worker is None:
        return None
    if fault.kind == "machine lost":
        lab.crash(worker)
        other = lab.add_worker(f"{worker.name.partition('-')[0]}-{len(lab.machines)}-{int(time.monotonic())}")
        return f"{worker.name}, then came {other.name}"
    if fault.kind == "manager cut off":
        return _cut(lab, lab.manager, short)
    if fault.kind == "worker cut off":
        return _cut(lab, worker, short)
    if fault.kind in names_and_tokens.KINDS:
        return names_and_tokens.INJECT[fault.kind](lab, worker, 5 + 15 * fault.amount)
    return _cut(lab, worker, SHORT_LEASE + 10 + 20 * fault.amount)


def undisturbed(lab: Lab) -> Mapping[str, Left]:
    """Return what a study leaves that no fault hits."""
    running = generated(lab, "undisturbed")
    alone = Campaign(running)
    alone.submit()
    alone.finish()
    if alone.problems or alone.again:
        raise LabError(f"the undisturbed study: {alone.problems or 'submitted again'}")
    return running.left()


def run_study(lab: Lab, study: int, faults: Sequence[Fault], others: Mapping[str, Left]) -> Studied:
    """Run one study under its faults, and compare what it left."""
    begun = time.monotonic()
    running = generated(lab, f"study-{study}")
    return Campaign(running, dict.fromkeys(KINDS, inject)).studied(study, faults, lambda: others, begun)


def campaign(arguments: argparse.Namespace) -> list[Studied]:
    """Run the studies one after the other on one lab."""
    found = read_kept(arguments.keep)
    wanted = [number for number in range(arguments.studies) if number not in found]
    with Lab(workers=2, settings=SETTINGS, named=True) as lab:
        subprocess.run([*entered(lab.manager.pid, "--net"), "sh", "-c", PROBE], check=True)
        lab.add_user(USER)
        lab.wait_for_slots()
        others = undisturbed(lab)
        for study in wanted:
            faults = schedule(arguments.seed, study, list(KINDS), PER_STUDY, together=0)
            found[study] = run_study(lab, study, faults, others)
            note(found[study], arguments.keep)
            if found[study].deviates and arguments.logs:
                lab.save(arguments.logs / f"study-{study}")
    return [studied for _, studied in sorted(found.items())]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign and print what came of it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="one study; nothing is kept")
    parser.add_argument("--seed", type=int, default=1, help="of all that is left to chance (default 1)")
    parser.add_argument("--studies", type=int, default=STUDIES, metavar="N", help=f"how many (default {STUDIES})")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add each study to FILE, and go on after those in it")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="HTCondor's logs after studies that deviate")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.studies = QUICK_STUDIES
    if why := unusable():
        print(f"{BENCH}: {why}", file=sys.stderr)
        return 1
    studies = campaign(arguments)
    return finish(BENCH, studies, KINDS, arguments.seed, len(studies) >= STUDIES, goals=False, file=None)


if __name__ == "__main__":
    sys.exit(main())
