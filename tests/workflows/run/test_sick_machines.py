"""Machines that fail jobs, the next try of a node, and the ends that rules bring about."""

from __future__ import annotations

import json
import re
import subprocess
import time

import pytest

from nnlib.contract import Result, Status, result_to_json
from regiondag.errors import TryAgainError
from regiondag.node import pre, trial_files
from regiondag.node.post import JobEnd, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.report.markdown import to_markdown
from regiondag.report.summary import summarise
from regiondag.run import sick_machines, start_time
from regiondag.run.history import Fault
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from regiondag.run.sick_machines import choose_avoided, note_end, read_failures, select_sick
from regiondag.run.start_time import read_start
from regiondag.study.job_rules import memory_after, memory_steps
from regiondag.study.model import JobRequest
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import END, finish

pytestmark = pytest.mark.slow

NODE = NodeName("germany", 0)
GB = 1 << 30
SUBMITTED = """\
000 ({0:03}.000.000) 2026-11-22 05:42:22 Job submitted from host: <127.0.0.1:42723>
    DAG Node: germany_t0000
...
"""
LOG = """\
001 ({0}.000.000) 2026-11-22 05:42:22 Job executing on host: <127.0.0.1:35629>
\tSlotName: slot1_2@{1}
...
"""


@pytest.fixture
def pool_of(monkeypatch):
    """Play the collector of a pool of these machines."""

    def play(*names):
        monkeypatch.setattr(trial_files, "query_machines", lambda gpus: list(names))

    play("bad", "good")
    return play


def fail(folder, node=NODE, cluster=1, host="bad", reason="no GPU", retry=0, seconds=3.0, code=75):
    """Play a job that its machine failed."""
    place = folder.trial(node)
    with (place / "job.log").open("a") as log:
        log.write(SUBMITTED.format(cluster) + LOG.format(cluster, host))
    result = Result(str(node), Status.MACHINE, reason=reason, seconds=seconds, host="its-own-name")
    (place / "result.json").write_text(result_to_json(result))
    with pytest.raises(TryAgainError):
        settle_trial(folder, node, JobEnd(code, retry, 2, job=f"{cluster}.0"))


def attempt_of(folder, node=NODE):
    lines = (folder.trial(node) / "attempt.sub").read_text().splitlines()
    return dict(line.split(" = ", 1) if " = " in line else (line.removesuffix(" ="), "") for line in lines)


def test_post_run_twice_notes_an_attempt_once(folder):
    prepare_trial(folder, NODE)
    fail(folder)
    fail(folder)
    history = Journal(folder.journal).read()
    [fault] = history.faults
    assert (fault.trial, fault.job, fault.host, fault.reason) == (0, "1.0", "bad", "no GPU")
    assert history.attempts == 1 and history.attempt_seconds == 3.0
    assert [each.job for each in read_failures(folder.run)["bad"]] == ["1.0"]
    fail(folder, cluster=2, retry=0)  # a DAG that was submitted again counts its tries anew
    assert Journal(folder.journal).read().attempts == 2


def test_the_journal_says_where_and_by_which_job(folder):
    prepare_trial(folder, NODE)
    finish(folder, NODE, host="worker-7")
    settle_trial(folder, NODE, JobEnd(0, 0, 2, job="12.0"))
    line = folder.journal.read_text().splitlines()[-1]
    record = json.loads(line)
    assert (record["host"], record["job"]) == ("worker-7", "12.0")  # there is no job.log
    assert line.endswith('"promoted": false}')  # what `read_outcomes` goes by
    fast, slow = Journal(folder.journal).read_outcomes(), Journal(folder.journal).read()
    assert fast.settled[0].value == slow.settled[0].value == 0.5
    assert slow.settled[0].host == "worker-7"


def test_what_later_versions_add_to_a_journal_is_passed_over(folder):
    prepare_trial(folder, NODE)
    journal = Journal(folder.journal)
    journal.append("settled", trial=0, status="ok", value=0.5, seconds=1.0, machine={"gpu": "H200"})
    journal.append("attempt", trial=1, reason="x", seconds=2.0, colour="red")
    journal.append("proposed", trial=9, point={}, by="somebody")
    for history in (journal.read(), journal.read_outcomes()):
        assert history.settled[0].value == 0.5 and history.attempts == 1
    assert 9 in journal.read().proposals


def test_the_next_try_avoids_the_machine_that_failed_the_last(folder, pool_of, capsys):
    prepare_trial(folder, NODE)
    assert attempt_of(folder) == {"memory": "256", "avoid": ""}
    fail(folder)
    prepare_trial(folder, NODE)
    avoid = attempt_of(folder)["avoid"]
    assert avoid.startswith('&& (TARGET.Machine =!= "bad" || time() > ')
    assert time.time() + 200 < int(avoid.split("> ")[1].split(")")[0]) <= time.time() + 300
    assert "germany_t0000: not on bad" in capsys.readouterr().out
    prepare_trial(folder, NodeName("germany", 1))
    assert attempt_of(folder, NodeName("germany", 1))["avoid"] == ""


def test_after_a_corrupt_transfer_a_job_shares_no_files(folder, pool_of, capsys):
    """HTCondor 25 would give it what the machine has: the same file, as corrupt as before."""
    reason = "data.train.nc: sha256 is 1f, the trial says 2e: corrupt transfer"
    submit = folder.path / "train.sub"
    prepare_trial(folder, NODE)
    fail(folder, reason=reason)
    prepare_trial(folder, NODE)
    assert "transfer_input_files" not in attempt_of(folder)  # each job brings its own
    text = re.sub("^(transfer_input_files = trial.json).*$", r"\1", submit.read_text(), flags=re.MULTILINE)
    shared = 'MY.CommonInputCatalogs = "a"\nMY._x_catalog_a = "/r/network.json,/r/data.train.nc"\n'
    submit.write_text(text + shared)
    prepare_trial(folder, NODE)
    found = attempt_of(folder)
    assert found["MY.CommonInputCatalogs"] == "undefined"
    assert found["transfer_input_files"] == "trial.json,/r/network.json,/r/data.train.nc"
    assert "germany_t0000: with input files of its own" in capsys.readouterr().out
    prepare_trial(folder, NodeName("germany", 1))
    assert "transfer_input_files" not in attempt_of(folder, NodeName("germany", 1))


def test_the_only_machine_is_not_avoided(folder, pool_of):
    pool_of("bad")
    prepare_trial(folder, NODE)
    fail(folder)
    prepare_trial(folder, NODE)
    assert attempt_of(folder)["avoid"] == ""


def test_a_machine_that_fails_three_jobs_in_a_row_gets_none_for_an_hour(folder, run, pool_of, capsys):
    other = NodeName("germany", 1)
    for node, cluster in ((NODE, 1), (NODE, 2), (other, 3)):
        prepare_trial(folder, node)
        prepare_trial(folder, other)
        assert '"bad"' not in attempt_of(folder, other)["avoid"]
        fail(folder, node, cluster, retry=cluster % 2)
    assert "bad: failed 3 jobs in a row, gets none of this run for an hour; no GPU" in capsys.readouterr().out
    third = NodeName("united-kingdom", 0)  # of another region of the run
    prepare_trial(run.region("united-kingdom"), third)
    until = attempt_of(run.region("united-kingdom"), third)["avoid"]
    assert int(until.split("> ")[1].split(")")[0]) > time.time() + 3500
    assert "- bad failed 3 jobs in a row, the last of them: no GPU" in to_markdown(summarise(run))


def test_a_success_resets_the_count(run):
    for number in range(5):
        note_end(run, "bad", f"{number}.0", "" if number == 2 else "no GPU", 100.0 + number)
    assert len(read_failures(run)["bad"]) == 2 and select_sick(read_failures(run)) == {}
    note_end(run, "bad", "9.0", "no GPU", 200.0)
    assert select_sick(read_failures(run))["bad"].when == 200.0
    assert choose_avoided(read_failures(run), [], 200.0 + 3599) == {"bad": 3800.0}
    assert choose_avoided(read_failures(run), [], 200.0 + 3601) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 3}', '{"a": [{"x": 1}]}', "\udcff"])
def test_a_list_of_machines_that_cannot_be_read_is_an_empty_one(run, text):
    run.machines.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_failures(run) == {}
    note_end(run, "bad", "1.0", "no GPU", 1.0)
    assert list(read_failures(run)) == ["bad"]


def test_the_longer_of_two_times_counts():
    faults = [Fault(0, host="a", when=10.0), Fault(0, host="a", when=50.0), Fault(0, host="", when=60.0)]
    assert choose_avoided({}, faults, 60.0) == {"a": 350.0}


def test_a_collector_that_does_not_answer_is_no_error(monkeypatch):
    def silent(*_args, **_more):
        raise subprocess.TimeoutExpired("condor_status", 5)

    for answer in (silent, lambda *_a, **_m: subprocess.CompletedProcess([], 1, "", "no"), None):
        if answer:
            monkeypatch.setattr(subprocess, "run", answer)
        else:
            monkeypatch.undo()
            monkeypatch.setenv("PATH", "/nowhere")
        assert sick_machines.query_machines(gpus=True) == []
    assert (
        sick_machines.leave_some({"a": 1.0}, []) == {}
    )  # nobody knows of another one, and a pool of one would stand still


def test_running_out_of_memory_asks_for_more_and_blames_no_machine(tmp_path, pool_of):
    pool_of("only", "other")
    study = write_study(tmp_path, STUDY.replace("memory: 256MB", "memory: 256MB, memory_max: 600MB"))
    folder = create(study, tmp_path / "runs").region("germany")
    prepare_trial(folder, NODE)
    assert attempt_of(folder) == {"memory": "256", "larger_memory": "512, 600", "avoid": ""}
    fail(folder, cluster=1, host="only", reason="out of memory: 3 GiB")
    fail(folder, cluster=2, host="", reason="a bug of nnlib", retry=1, code=1)
    pool_of("its-own-name")
    prepare_trial(folder, NODE)
    assert attempt_of(folder) == {"memory": "512", "larger_memory": "600", "avoid": ""}
    fail(folder, cluster=3, host="only", reason="out of memory: 3 GiB")
    fail(folder, cluster=4, host="only", reason="out of memory: 3 GiB")
    prepare_trial(folder, NODE)
    assert attempt_of(folder) == {"memory": "600", "larger_memory": "", "avoid": ""}


def test_after_a_fault_fewer_gpus_will_do(tmp_path, pool_of):
    pool_of("bad", "good")
    text = STUDY.replace("job: {", "final: {gpus: 2}\njob: {memory_max: 1GB, gpus: {min: 2, max: 8}, ")
    folder = create(write_study(tmp_path, text), tmp_path / "runs").region("germany")
    prepare_trial(folder, NODE)
    assert attempt_of(folder)["gpus"] == "8"
    fail(folder, cluster=1, reason="out of memory: 3 GiB")
    prepare_trial(folder, NODE)
    assert attempt_of(folder)["gpus"] == "8"  # fewer would each have more to keep
    for cluster, left in ((2, "4"), (3, "2"), (4, "2")):
        fail(folder, cluster=cluster, reason="rank 1: the GPU fell off the bus")
        prepare_trial(folder, NODE)
        assert attempt_of(folder)["gpus"] == left
    finish(folder, NODE)
    settle_trial(folder, NODE, END)
    final = NodeName("germany", None)
    prepare_final(folder, final)
    assert "gpus" not in attempt_of(folder, final)  # it has two, and no fewer


def test_memory_grows_to_its_bound_and_no_further():
    job = JobRequest(memory=2 * GB, memory_max=7 * GB)
    assert memory_steps(job, 2 * GB) == [4 * GB, 7 * GB] and memory_steps(job, 7 * GB) == []
    assert [memory_after(job, times) >> 30 for times in range(4)] == [2, 4, 7, 7]
    assert memory_after(JobRequest(memory=GB), 5) == GB


# --- the study's deadline


@pytest.fixture
def short(tmp_path):
    study = write_study(tmp_path, STUDY.replace("limits: {", "limits: {deadline: 1h, "))
    return create(study, tmp_path / "runs").region("germany")


def test_past_the_deadline_nothing_more_is_tried_and_the_final_training_runs(short, monkeypatch, capsys):
    now = time.time()
    for number in (0, 1):
        node = NodeName("germany", number)
        assert prepare_trial(short, node)
        assert int(attempt_of(short, node)["idle_until"]) == pytest.approx(now + 3600, abs=60)
        finish(short, node, 0.3)
        settle_trial(short, node, END)
    started = short.run.started.read_bytes()
    monkeypatch.setattr(pre.time, "time", lambda: now + 3700)  # a clock that was set
    assert read_start(short.run) == pytest.approx(now + 3700, abs=60)
    monkeypatch.setattr(start_time, "_since_boot", lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + 3700)
    assert not prepare_trial(short, NodeName("germany", 2))
    assert "germany_t0002: not tried: the study has had its 60 min (limits.deadline)" in capsys.readouterr().out
    assert short.run.started.read_bytes() == started
    assert list(Journal(short.journal).read().proposals) == [0, 1]
    final = NodeName("germany", None)
    assert prepare_final(short, final) and "idle_until" not in attempt_of(short, final)


def test_without_a_deadline_nothing_is_started(folder):
    prepare_trial(folder, NODE)
    assert not folder.run.started.exists()


# --- ends by rule


def aborted(folder, reason, cluster=5):
    with (folder.trial(NODE) / "job.log").open("a") as log:
        log.write(SUBMITTED.format(cluster))
        log.write(f"009 ({cluster:03}.000.000) 2026-11-22 05:42:35 Job was aborted.\n\t{reason}\n...\n")


def test_a_removed_trial_says_why_and_brings_its_seconds(folder):
    prepare_trial(folder, NODE)
    finish(folder, NODE)
    aborted(folder, "held for more than 1h: Transfer input files failure: no such file")
    settled = settle_trial(folder, NODE, JobEnd(-1002, 0, 2, job="5.0"))
    assert (settled.status, settled.seconds) == ("removed", 3.0)
    assert settled.reason.endswith("held for more than 1h: Transfer input files failure: no such file")


def test_a_trial_that_no_machine_took_stays_open(folder):
    for number in (0, 1):
        prepare_trial(folder, NodeName("germany", number))
    finish(folder, NodeName("germany", 1))
    settle_trial(folder, NodeName("germany", 1), END)
    aborted(folder, "no machine took the job in 7d")
    settled = settle_trial(
        folder, NODE, JobEnd(-1002, 0, 2, job="5.0")
    )  # it is not tried again, that would take as long
    assert (settled.status, settled.reason) == ("machine", "no machine took the job in 7d")
    assert prepare_trial(folder, NODE)  # when the DAG is submitted again


# --- checkpoints


@pytest.mark.parametrize(("code", "kept"), [(75, True), (-9, True), (143, True), (1, False), (-11, False)])
def test_a_checkpoint_outlives_faults_that_it_has_nothing_to_do_with(folder, code, kept):
    place = folder.trial(NODE)
    prepare_trial(folder, NODE)
    start = place / "start"
    assert (start / "checkpoint.nc").read_bytes() == (start / "log.jsonl").read_bytes() == b""
    (place / "checkpoint.nc").write_bytes(b"saved")
    (place / "log.jsonl").write_text('{"epoch": 1}\n')
    fail(folder, code=code)
    for _ in range(2):  # also if PRE runs again, or the job's outputs were lost
        prepare_trial(folder, NODE)
        assert (start / "checkpoint.nc").read_bytes() == (b"saved" if kept else b"")
        assert (start / "log.jsonl").read_text() == ('{"epoch": 1}\n' if kept else "")
        assert (start / "result.json").read_bytes() == b""
        assert not (place / "result.json").exists() and not (place / "checkpoint.nc").exists()


def test_nobody_goes_on_from_a_trial_that_has_ended(folder):
    prepare_trial(folder, NODE)
    finish(folder, NODE)
    settle_trial(folder, NODE, END)
    assert not (folder.trial(NODE) / "checkpoint.nc").exists()


@pytest.mark.parametrize("text", ["", "{", '{"version": 1}'])
def test_an_empty_or_torn_result_is_none(folder, text):
    prepare_trial(folder, NODE)
    (folder.trial(NODE) / "result.json").write_text(text)
    with pytest.raises(TryAgainError, match=r"no complete result\.json"):
        settle_trial(folder, NODE, END)
