"""A manager and two workers, each a machine of its own: a study to its champions, two people, a stranger.

The machines are network namespaces with root folders of their own (tests/support/several_machines.py), and run what the
recipe gives the roles manager and worker.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ami.gpu_fakes import load
from tests.support import several_machines
from tests.support.several_machines import Lab, Machine, until
from tests.workflows.conftest import STUDY, write_study

# One group: all of them share the machines.
pytestmark = [pytest.mark.condor, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("machines")]

OWN_WORDS = "what Alice alone may read"
STUDY_SECONDS = 240
JOB_SECONDS = 90
SCHEDD = "manager.pool.example"
# In nobody's job, queue or slots as somebody else may read them: with one of these a job or machine can be commanded.
PRIVATE = re.compile(r"^(ClaimIds?|Capability|ChildClaimIds|PairedClaimId|TransferKey|ClaimIdList) =", re.M)

# Alice's job waits with its file in its sandbox, Bob's looks around on the same machine.
WAITING = "id -u; sleep 600"
CURIOUS = "id -u; cd /var/lib/condor/execute; ls; cat */secret */.job.ad; touch */touched; cat /proc/[0-9]*/environ"
JOB = """\
executable = job.sh
transfer_input_files = secret
output = out
error = err
log = log
request_cpus = 1
request_memory = 16MB
request_disk = 1MB
requirements = TARGET.Machine == "{machine}.pool.example"
should_transfer_files = YES
queue {jobs}
"""

# A region for each worker: short trainings may all run where the first ones did.
ON = """job: {{requirements: 'TARGET.HAS_GPU =?= True && TARGET.Machine == "{}.pool.example"'}}"""
BY_REGION = STUDY.replace("uk.nc", f"uk.nc, {ON.format('worker1')}").replace(
    "germany.nc", f"germany.nc, {ON.format('worker2')}"
)


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    if why := several_machines.unusable():
        pytest.skip(why)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(workers=2) as lab:
        for user in ("alice", "bob"):
            lab.add_user(user)
        lab.wait_for_slots()
        yield lab


@pytest.fixture(scope="module")
def stranger(lab: Lab) -> Machine:
    """A machine on the same network, with HTCondor, that knows where the manager is."""
    machine = lab.add_machine("stranger")
    text = f"CONDOR_HOST = {lab.manager.address}\nUID_DOMAIN = pool.example\nTRUST_DOMAIN = pool.example\n"
    (machine.root / "etc/condor/config.d/90-pool.config").write_text(text)
    return machine


@pytest.fixture(scope="module")
def alices_job(lab: Lab) -> Iterator[str]:
    """The number of a job of Alice's that runs on worker1."""
    job = submit(lab, "alice", WAITING)
    until("Alice's job to run", lambda: attribute(lab, job, "JobStatus") == "2", JOB_SECONDS)
    yield job
    lab.run(lab.manager, ["condor_rm", job], user="alice")


@pytest.fixture
def bobs_jobs(lab: Lab) -> Iterator[str]:
    """The number of Bob's jobs, which take all of worker2."""
    jobs = submit(lab, "bob", WAITING, machine="worker2", jobs=several_machines.CPUS)
    running = ["2"] * several_machines.CPUS
    until("Bob's jobs to run", lambda: attribute(lab, jobs, "JobStatus").split() == running, JOB_SECONDS)
    yield jobs
    lab.run(lab.manager, ["condor_rm", jobs], user="bob")


def submit(lab: Lab, user: str, script: str, machine: str = "worker1", jobs: int = 1) -> str:
    """Submit jobs to one machine from a private folder; return their cluster's number."""
    folder = f"/home/{user}/{machine}"
    here = lab.manager.root / folder.lstrip("/")
    here.mkdir(mode=0o700)
    (here / "job.sh").write_text(f"#!/bin/sh\n{script}\n")
    (here / "job.sh").chmod(0o755)
    (here / "secret").write_text(OWN_WORDS if user == "alice" else "")
    (here / "job.sub").write_text(JOB.format(machine=machine, jobs=jobs))
    lab.run(lab.manager, ["chown", "--recursive", f"{user}:", folder], check=True)
    done = lab.run(lab.manager, ["condor_submit", "-terse", "job.sub"], user, folder, check=True)
    return done.stdout.partition(".")[0]


def attribute(lab: Lab, job: str, name: str) -> str:
    return lab.run(lab.manager, ["condor_q", "-allusers", job, "-af", name], check=True).stdout.strip()


def queue(lab: Lab) -> str:
    return lab.run(lab.manager, ["condor_q", "-allusers", "-af", "ClusterId"], check=True).stdout


def of_dags(lab: Lab) -> str:
    """Return the jobs that are DAGMans or theirs; other tests may have left jobs that wait."""
    constraint = "JobUniverse == 7 || DAGManJobId =!= undefined"
    return lab.run(
        lab.manager, ["condor_q", "-allusers", "-constraint", constraint, "-af", "ClusterId"], check=True
    ).stdout


def said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def started_study(lab: Lab, name: str, text: str = STUDY) -> str:
    """Have Alice submit a study in a folder of her own; return its run directory."""
    folder = f"/home/alice/{name}"
    write_study(lab.manager.root / folder.lstrip("/"), text)
    lab.run(lab.manager, ["chown", "--recursive", "alice:", folder], check=True)
    run = lab.regiondag(["generate", "study.yaml", "--quiet"], "alice", folder).stdout.strip()
    assert run.startswith(f"{folder}/")
    lab.regiondag(["doctor", run], "alice", "/home/alice")
    lab.regiondag(["submit", run], "alice", "/home/alice")
    explained = lab.regiondag(["explain", run], "alice", "/home/alice").stdout  # queue and slots, as who may only read
    assert explained and "[unknown]" not in explained
    return run


def wait_for_its_end(lab: Lab) -> None:
    until("the study to end", lambda: not of_dags(lab), STUDY_SECONDS)


@pytest.fixture(scope="module")
def run(lab: Lab) -> str:
    """The run directory of a study of Alice's that has ended."""
    run = started_study(lab, "study", BY_REGION)
    wait_for_its_end(lab)
    return run


def test_a_study_runs_to_its_champions_on_machines_that_share_no_files(lab, run):
    """Two regions, submitted by an ordinary user: both workers train, and see nothing of the run directory."""
    status = lab.regiondag(["status", run], "alice", "/home/alice", check=False)
    here = lab.manager.root / run.lstrip("/")
    for region in ("united-kingdom", "germany"):
        metrics = here / "regions" / region / "champion/metrics.json"
        assert metrics.exists(), said(status) + (here / "manager.log").read_text()[-3000:]
        assert json.loads(metrics.read_text())["sha256"]
    assert status.returncode == 0
    assert "Everything is fine" in lab.regiondag(["explain", run], "alice", "/home/alice").stdout
    columns = ["-af:t", "LastRemoteHost", "BytesRecvd", "BytesSent"]
    its_own = f'DAGManJobId =!= undefined && regexp("^{run}(/|$)", Iwd)'
    history = lab.run(lab.manager, ["condor_history", "-constraint", its_own, *columns], check=True)
    jobs = [line.split("\t") for line in history.stdout.splitlines()]
    assert {host.partition("@")[2].partition(".")[0] for host, *_ in jobs} == {"worker1", "worker2"}
    assert all(float(received) > 0 and float(sent) > 0 for _, received, sent in jobs)
    for machine in lab.workers:
        assert not (machine.root / "home/alice").exists()
        assert not lab.run(machine, ["find", "/", "-xdev", "-name", Path(run).name]).stdout


def test_a_sick_gpu_is_not_offered_and_the_pool_says_why(lab):
    """What the self-test writes, read by a real startd while it runs; its second simulated GPU is said to be sick."""
    worker, selftest = lab.workers[1], load("selftest")
    why = "XID 79, fell off the bus"
    values = {"SelfTest": "passed", selftest.SICK: {"GPU-b1223334": why}, selftest.WARNINGS: "none"}
    config = worker.root / "run/regiondag/selftest.config"
    config.parent.mkdir(parents=True, exist_ok=True)
    columns = ["-af:t", "GPUs", "TotalSlotGPUs", "HAS_GPU", "OfflineGPUs", selftest.SICK]

    def slot() -> str:
        where = 'Machine == "worker2.pool.example" && SlotType == "Partitionable"'
        argv = ["condor_status", "-constraint", where, *columns]
        return lab.run(lab.manager, argv, check=True).stdout.strip()

    # An earlier test's job may have left its claim for a moment.
    until("both GPUs to be free", lambda: slot().split("\t")[:3] == ["2", "2", "true"], JOB_SECONDS)
    config.write_text(selftest.condor_config(values))
    try:
        lab.run(worker, ["condor_reconfig"], check=True)
        until("the sick GPU to be taken away", lambda: why in slot(), JOB_SECONDS)
        assert slot().split("\t")[:4] == ["1", "2", "true", "GPU-b1223334"]
        found = lab.regiondag(["pool", "check"], "alice", "/home/alice").stdout
        assert why in found
        looked = lab.regiondag(["doctor"], "alice", "/home/alice").stdout
        assert "note sick GPUs: worker2.pool.example does not offer GPU-b1223334" in " ".join(looked.split())
    finally:
        config.unlink()
        lab.run(worker, ["condor_reconfig"], check=True)
        until("it to be there again", lambda: why not in slot(), JOB_SECONDS)


def test_a_machine_that_fails_jobs_gets_no_more_of_them(lab, bobs_jobs):
    """Each try after a fault goes to the other machine, and after three faults in a row everything does.

    The good machine has Bob's work until the bad one has had its three, whichever is asked first.
    """
    bad = lab.workers[0]
    python = bad.root / several_machines.PYTHON.lstrip("/")
    kept = python.with_name("python.kept")
    told = "worker1.pool.example: failed 3 jobs in a row, gets none of this run for an hour"
    python.rename(kept)
    try:
        python.write_text("#!/bin/sh\nexit 75\n")
        python.chmod(0o755)
        run = lab.manager.root / started_study(lab, "sick").lstrip("/")
        log = run / "manager.log"
        until("three faults", lambda: log.exists() and told in log.read_text(), JOB_SECONDS)
        lab.run(lab.manager, ["condor_rm", bobs_jobs], user="bob", check=True)
        wait_for_its_end(lab)
    finally:
        kept.replace(python)
    for region in ("united-kingdom", "germany"):
        records = map(json.loads, (run / "regions" / region / "trials.jsonl").read_text().splitlines())
        ended = [(r["event"], r["trial"], r.get("host")) for r in records if r["event"] in ("attempt", "settled")]
        faults = [trial for event, trial, _ in ended if event == "attempt"]
        assert len(faults) == len(set(faults)), log.read_text()  # no second try on the same machine
        assert {host for event, _, host in ended if event == "attempt"} <= {"worker1.pool.example"}
        assert {host for event, _, host in ended if event == "settled"} == {"worker2.pool.example"}
        assert (run / "regions" / region / "champion/model.nc").exists()
    assert "worker1.pool.example" in (run / "report/summary.md").read_text()


def test_nobody_else_reads_a_run(lab, run):
    # Home folders are private in Debian; the run is so by itself.
    lab.run(lab.manager, ["chmod", "755", "/home/alice", "/home/alice/study"], check=True)
    for command in (["ls", run], ["cat", f"{run}/study.yaml"], ["touch", f"{run}/touched"]):
        done = lab.run(lab.manager, command, user="bob")
        assert done.returncode != 0
        assert "Permission denied" in done.stderr
    for verb in ("status", "submit"):
        done = lab.regiondag([verb, run], "bob", "/home/bob", check=False)
        assert done.returncode == 1
        assert "its owner's alone" in done.stderr


def test_a_second_user_can_do_nothing_to_the_first_ones_jobs(lab, alices_job):
    commands = (
        ["condor_rm", alices_job],
        ["condor_rm", "-all"],
        ["condor_hold", alices_job],
        ["condor_vacate_job", alices_job],
        ["condor_prio", "-p", "20", alices_job],
        ["condor_qedit", alices_job, "Touched", "True"],
        ["condor_ssh_to_job", alices_job, "cat", "secret"],
        ["condor_tail", alices_job],
        ["condor_off", "-all"],
        ["condor_drain", "worker1.pool.example"],
    )
    for command in commands:
        assert OWN_WORDS not in said(lab.run(lab.manager, command, user="bob")), command
    seen = lab.run(lab.manager, ["condor_q", "-allusers", "-long", alices_job], user="bob").stdout
    slots = lab.run(lab.manager, ["condor_status", "-long"], user="bob").stdout
    history = lab.run(lab.manager, ["condor_history", "-long"], user="bob").stdout
    assert not [found[0] for text in (seen, slots, history) for found in PRIVATE.finditer(text)]
    time.sleep(3)
    wanted = {"JobStatus": "2", "Touched": "undefined", "JobPrio": "0", "NumShadowStarts": "1"}
    assert {name: attribute(lab, alices_job, name) for name in wanted} == wanted
    # The same commands work for whom the job belongs to.
    lab.run(lab.manager, ["condor_qedit", alices_job, "Noted", "True"], user="alice", check=True)
    assert attribute(lab, alices_job, "Noted") == "true"


def test_jobs_of_two_people_on_one_machine_do_not_meet(lab, alices_job):
    job = submit(lab, "bob", CURIOUS)
    until("Bob's job to end", lambda: job not in queue(lab).split(), JOB_SECONDS)
    out = (lab.manager.root / "home/bob/worker1/out").read_text()
    sandboxes = [path for path in (lab.workers[0].root / "var/lib/condor/execute").iterdir() if path.is_dir()]
    assert any((path / "secret").read_text() == OWN_WORDS for path in sandboxes)
    assert out.count("dir_") >= 2, "Bob's job was to run beside Alice's"
    assert OWN_WORDS not in out
    assert "alice" not in out.lower()
    accounts = {path.stat().st_uid for path in sandboxes} | {int(out.split()[0])}
    assert len(accounts) == len(sandboxes) + 1
    assert not accounts & {0, 65534}
    assert not [path for path in sandboxes if (path / "touched").exists()]


QUESTIONS = (
    ["condor_status", "-any"],
    ["condor_status", "-schedd"],
    ["condor_status", "-direct", "slot1@worker1.pool.example", "-pool", "10.77.0.11"],
    ["condor_q", "-allusers", "-name", SCHEDD],
    ["condor_userprio", "-all"],
    ["condor_who", "-daemons"],
)


def test_a_stranger_gets_nothing(lab, stranger, alices_job):
    assert reaches(stranger, lab.manager)  # or this test would show nothing
    learns_nothing(lab, stranger)
    refused_to_do_anything(lab, stranger, alices_job)


def test_a_token_of_another_key_is_worth_nothing(lab, stranger, alices_job):
    for line in (
        "install -d -m 700 /etc/condor/passwords.d /etc/condor/tokens.d",
        "umask 077; head -c 64 /dev/urandom >/etc/condor/passwords.d/POOL",
        "umask 077; condor_token_create -identity condor@pool.example >/etc/condor/tokens.d/own",
    ):
        lab.run(stranger, ["sh", "-c", line], check=True)
    learns_nothing(lab, stranger)
    refused_to_do_anything(lab, stranger, alices_job)


def test_with_a_workers_token_one_neither_submits_nor_removes(lab, alices_job):
    """Also when it was made without its limits: the manager's settings know what a worker may do."""
    worker = lab.workers[0]
    assert "slot1@worker2.pool.example" in said(lab.run(worker, ["condor_status"]))
    refused_to_do_anything(lab, worker, alices_job, offers=True)
    token = lab.run(lab.manager, ["condor_token_create", "-identity", "worker@pool.example"], check=True).stdout
    path = worker.root / "etc/condor/tokens.d/regiondag"
    kept = path.read_text()
    path.write_text(token)
    try:
        refused_to_do_anything(lab, worker, alices_job, offers=True)
    finally:
        path.write_text(kept)


def test_a_user_of_the_manager_cannot_offer_a_machine(lab):
    assert not advertised(lab, lab.manager, "bob")
    for command in (["condor_token_create", "-identity", "worker@pool.example"], ["regiondag-worker-token"]):
        done = lab.run(lab.manager, command, user="bob")
        assert "eyJ" not in done.stdout


def refused_to_do_anything(lab: Lab, machine: Machine, job: str, offers: bool = False) -> None:
    """Try to submit, to touch a job, to command daemons and to offer a slot; nothing of it may have an effect."""
    before = queue(lab)
    (machine.root / "root/job.sub").write_text("executable = /bin/true\nqueue\n")
    for command in (
        ["condor_submit", "-remote", SCHEDD, "job.sub"],
        ["condor_submit", "-name", SCHEDD, "job.sub"],
        ["condor_rm", "-name", SCHEDD, job],
        ["condor_hold", "-name", SCHEDD, job],
        ["condor_qedit", "-name", SCHEDD, job, "Touched", "True"],
        ["condor_off", "-name", SCHEDD],
    ):
        done = lab.run(machine, command, cwd="/root", timeout=120)
        assert done.returncode != 0, (command, said(done))
    assert queue(lab) == before
    assert attribute(lab, job, "JobStatus") == "2"
    assert attribute(lab, job, "Touched") == "undefined"
    assert advertised(lab, machine) is offers


def advertised(lab: Lab, machine: Machine, user: str = "root") -> bool:
    """Say whether the collector takes a slot's ad from there."""
    name = f"made-up@{machine.name}-{user}"
    ad = f'MyType = "Machine"\nName = "{name}"\nMachine = "{machine.name}"\nMyAddress = "<{machine.address}:1>"\n'
    lab.run(machine, ["condor_advertise", "UPDATE_STARTD_AD", "-"], user=user, text=ad, timeout=120)
    there = name in lab.slots()
    if there:
        ad = f'MyType = "Query"\nTargetType = "Machine"\nRequirements = Name == "{name}"\n'
        lab.run(lab.manager, ["condor_advertise", "INVALIDATE_STARTD_ADS", "-"], text=ad)
    return there


def learns_nothing(lab: Lab, machine: Machine) -> None:
    """Ask manager and workers; no answer may hold a name that was not in the question."""
    for command in QUESTIONS:
        text = said(lab.run(machine, command, timeout=120))
        for word in command:
            text = text.replace(word, "")
        assert not re.search("alice|worker[12]|slot1", text), command


def reaches(machine: Machine, other: Machine) -> bool:
    """Say whether a connection to HTCondor's port of `other` can be made."""
    program = f"import socket; socket.create_connection(('{other.address}', {9618}), 2)"
    argv = [*several_machines.entered(machine.pid, "--net"), sys.executable, "-c", program]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def test_a_link_can_be_cut_and_mended(lab):
    one, other = lab.workers
    lab.cut(one)
    try:
        assert not reaches(one, lab.manager)
        assert reaches(other, lab.manager)
    finally:
        lab.mend(one)
    until("the link to be mended", lambda: reaches(one, lab.manager), 20)


PROGRAM = """
import sys, time
from tests.support.several_machines import Lab
with Lab(workers=1) as lab:
    print(*(machine.pid for machine in lab.machines), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(end):
    argv = [sys.executable, "-c", PROGRAM]
    root = Path(__file__).resolve().parents[2]
    links, mounts = set(Path("/sys/class/net").iterdir()), Path("/proc/self/mounts").read_text()
    with subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        pids = process.stdout.readline().split()
        networks = {Path(f"/proc/{pid}/ns/net").readlink() for pid in pids}
        assert len(networks) == 2
        assert networks <= set(in_use())
        process.send_signal(end)
    until("the machines to be gone", lambda: not networks & set(in_use()), 30)
    # A process has left its network a moment before it is gone itself.
    until("their processes to be gone", lambda: not any(Path("/proc", pid).exists() for pid in pids), 30)
    assert set(Path("/sys/class/net").iterdir()) == links
    assert Path("/proc/self/mounts").read_text() == mounts


def in_use() -> Iterator[Path]:
    """Yield the network namespaces of all processes."""
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            yield path.readlink()
