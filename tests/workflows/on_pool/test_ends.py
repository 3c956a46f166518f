"""Ends that rules bring about, on a real HTCondor pool: memory, holds, deadlines, and machines that never come."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator

import pytest

from regiondag.pool.pool import Pool
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder
from tests.conftest import SUITE, started_pool
from tests.workflows.conftest import STUDY
from tests.workflows.on_pool.test_eviction import FINAL, TEXT, TRIAL, evict, job_of, place, train_slowly
from tests.workflows.on_pool.test_study import finish, generate, slow_down, submit, summary, wait

pytestmark = [pytest.mark.condor, pytest.mark.timeout(900)]

# What a job does on a machine that gives it less than 400 MB: trial 0 takes 400, trial 1 finds no more.
GREEDY = """
given=$(sed -n 's/^Memory = //p' "$_CONDOR_MACHINE_AD")
if [ "$given" -lt 400 ] && grep -q '"number": 0' trial.json; then
    exec "$python" -c 'import time; much = bytearray(b"x") * (400 << 20); time.sleep(120)'
fi
if [ "$given" -lt 400 ] && grep -q '"number": 1' trial.json; then
    set -- "$1" -c 'import sys; sys.path.insert(0, sys.argv[1]); from nnlib import cli
from nnlib.worker import main as worker
def none(*_): raise MemoryError("3 GiB")
worker._run = none
sys.exit(cli.main(sys.argv[2:]))'
    exec "$python" -c "$3" "$1" train --trial trial.json --device gpu
fi
"""


@pytest.fixture
def strict() -> Iterator[Pool]:
    """Return a pool that holds jobs which use more memory than they asked for."""
    policy = "use POLICY : HOLD_IF_MEMORY_EXCEEDED\n"
    with started_pool(f"pytest-{SUITE}-{os.getpid()}-strict", ("memory", policy)) as pool:
        yield pool


def memory_asked(run: RunFolder, node: NodeName) -> list[int]:
    """Return how much each leg of a node's jobs asked for; slots that are left over from others may have more."""
    text = (place(run, node) / "job.log").read_text()
    return [int(size) for size in re.findall(r"^\s+Memory \(MB\) +: +\d* +(\d+) +\d+", text, re.MULTILINE)]


def reasons(run: RunFolder) -> list[tuple[str, str]]:
    history = Journal(run.region("germany").journal).read()
    return [(settled.status, settled.reason) for settled in history.settled.values()]


def test_memory_grows_after_it_ran_out_and_not_after_an_eviction(strict, run_area, capsys):
    text = TEXT.replace("memory: 256MB", "memory: 256MB, memory_max: 1GB").replace("parallel: 1", "parallel: 2")
    text = text.replace("hidden: {int: [2, 8], log: true}", "hidden: {choice: [2, 8]}")
    run = generate(run_area, capsys, text)
    train_slowly(run)
    script = run.path / "train.sh"
    script.write_text(script.read_text().replace("# HTCondor signals", GREEDY + "# HTCondor signals"))
    submit(run)
    wait(strict, run, lambda status: status.regions[0].done == 2, "both trials")
    evict(strict, run, FINAL, 5)
    assert finish(strict, run).exit_code == 0
    assert [status for status, _ in reasons(run)] == ["ok", "ok"]
    assert memory_asked(run, TRIAL) == [256, 512]
    assert memory_asked(run, NodeName("germany", 1)) == [256, 512]
    assert memory_asked(run, FINAL) == [256, 256]
    [fault] = Journal(run.region("germany").journal).read().faults
    assert fault.trial == 1 and fault.reason == "out of memory: 3 GiB" and fault.host


def test_a_hold_that_lasts_ends_the_trial_with_its_reason(pool, run_area, capsys):
    run = generate(run_area, capsys, TEXT.replace("cpus: 1,", "cpus: 1, hold_limit: 15s,"))
    submit_file = run.region("germany").path / "train.sub"
    text = submit_file.read_text()
    assert "> 60 * " in text
    submit_file.write_text(text.replace("> 60 * ", "> 1 * "))
    run.region("germany").data("valid").unlink()
    submit(run)
    assert finish(pool, run).exit_code != 0
    [(status, reason)] = reasons(run)
    assert status == "removed" and "held for more than 15s: " in reason and "data.valid.nc" in reason
    assert len(re.findall(r"^013 ", (place(run, TRIAL) / "job.log").read_text(), re.MULTILINE)) == 3
    assert "data.valid.nc" in summary(run)["regions"][0]["reason"]


def test_the_users_own_hold_is_neither_released_nor_removed(pool, run_area, capsys):
    run = generate(run_area, capsys, TEXT.replace("cpus: 1,", "cpus: 1, hold_limit: 3s,"))
    slow_down(run, 3)
    submit(run)
    wait(pool, run, lambda status: job_of(pool, run, TRIAL) is not None, "the job")
    job = job_of(pool, run, TRIAL).job
    pool.run(["condor_hold", job], check=True, capture_output=True)
    wait(pool, run, lambda status: len(status.held) == 1, "the hold")
    time.sleep(20)  # rules are looked at every 5 to 10 s here
    assert job_of(pool, run, TRIAL).status == "held"
    pool.run(["condor_release", job], check=True, capture_output=True)
    assert finish(pool, run).exit_code == 0
    assert reasons(run) == [("ok", "")]


def test_a_deadline_holds_over_all_legs_of_a_job(pool, run_area, capsys):
    run = generate(run_area, capsys, TEXT.replace("cpus: 1,", "cpus: 1, deadline: 24s,"))
    script = run.path / "train.sh"
    train_slowly(run)
    script.write_text(script.read_text().replace("sleep(0.1)", "sleep(0.3)"))
    submit(run)
    evict(pool, run, TRIAL, 4)  # after some 5 s; then it would need 30 more
    assert finish(pool, run).exit_code != 0
    [(status, reason)] = reasons(run)
    assert status == "removed" and reason.endswith("it ran for longer than its deadline, 24s")
    text = (place(run, TRIAL) / "job.log").read_text()
    assert len(re.findall(r"^001 ", text, re.MULTILINE)) == 2
    assert all(int(seconds) < 24 for seconds in re.findall(r"TimeExecute \(s\) +: +(\d+)", text))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cpus: 1,", "cpus: 1, idle_limit: 8s,", "no machine took the job in 8s"),
        ("limits: {", "limits: {deadline: 8s, ", "no machine took the job before the study's deadline"),
    ],
)
def test_a_job_that_no_machine_takes_ends_too(pool, run_area, capsys, old, new, words):
    text = TEXT.replace(old, new).replace("cpus: 1,", "cpus: 1, requirements: 'TARGET.Color == \"red\"',")
    run = generate(run_area, capsys, text)
    submit(run)
    assert finish(pool, run).exit_code != 0
    assert words in (run.path / "manager.log").read_text()
    assert reasons(run) == []  # nothing is known of the hyperparameters
    events = [json.loads(line)["event"] for line in run.region("germany").journal.read_text().splitlines()]
    assert "attempt" not in events


# What these trials of a region do besides: the worker that trains them writes without end.
FLOODS = {
    "Germany": (
        "head -c 30000000 /dev/zero >log.jsonl",
        "head -c 30000000 /dev/zero >result.json",
        "head -c 30000000 /dev/urandom >scores.npy",
    ),
    "United Kingdom": (
        "yes | head -c 30000000",
        "yes 'no reason' | head -c 30000000 >&2",
        "head -c 3000000 /dev/urandom >checkpoint.nc",
    ),
}


def flood(region: str, number: int, what: str) -> str:
    return f"""if grep -q '"region": "{region}"' trial.json && grep -q '"number": {number}\\b' trial.json; then
    {what}
fi
"""


def test_what_a_worker_writes_without_end_fills_no_disk_and_stops_no_region(pool, run_area, capsys):
    """Its job is held by HTCondor (code 33), and its trial has failed and says why; the others go on."""
    text = STUDY.replace("disk: 100MB", "disk: 100MB, max_output: 2MB")
    run = generate(run_area, capsys, text.replace("rounds: 2\n  parallel: 2", "rounds: 1\n  parallel: 4"))
    script = run.path / "train.sh"
    own = script.read_text()
    assert 'exec "$python" "$1" train' in own
    floods = "".join(flood(name, number, what) for name, some in FLOODS.items() for number, what in enumerate(some))
    own = own.replace('exec "$python" "$1" train', '"$python" "$1" train')
    script.write_text(f"{own}code=$?\n{floods}exit $code\n")
    submit(run)
    assert finish(pool, run).exit_code == 0
    for slug in ("germany", "united-kingdom"):
        history = Journal(run.region(slug).journal).read()
        assert [history.settled[trial].status for trial in range(4)] == [*["removed"] * 3, "ok"]
        for trial in range(3):
            assert "it would bring back more than 2MB (job.max_output)" in history.settled[trial].reason
        assert history.final.ok
        files = run.region(slug).path.glob("trials/*/*")
        assert not any(path.stat().st_size > 2 << 20 for path in files if path.is_file())
