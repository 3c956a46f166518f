"""Submitting again after a DAGMan that failed an assertion; the rest is tried on a real pool (test_study_on_pool)."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

from regiondag.condor import client
from regiondag.condor import submit as submission
from regiondag.condor.events.dag_log import DagState
from regiondag.errors import PoolError, RegiondagError
from regiondag.run.layout import DAGMAN_CRASHED, RunFolder, dagman_file

LOG = Path("study.dag.dagman.log")


@pytest.fixture
def crashed(tmp_path, monkeypatch):
    """Play a queue in which a DAGMan that has ended left two jobs; returns a way to submit again."""
    queue = ["7.0", "9.0"]
    called = []

    def run(argv, cwd=None, **_options):
        called.append(argv)
        if argv[0] == "condor_rm" and queue:
            queue.pop()
        return CompletedProcess(argv, 0)

    def submit(exit_code, status="ended"):
        state = DagState(LOG, 1, status, 1.0, 2.0, exit_code)
        monkeypatch.setattr(submission, "read_dag_log", lambda log: state if log.name.startswith("study") else None)
        monkeypatch.setattr(client, "query_status", lambda *_: None)
        monkeypatch.setattr(client, "query_dags", lambda *_: ([], queue))
        monkeypatch.setattr(client, "jobs_of", lambda ads: [SimpleNamespace(job=job) for job in ads])
        monkeypatch.setattr(submission.time, "sleep", lambda _: None)
        folder = RunFolder(tmp_path)
        monkeypatch.setattr(submission, "refuse_slash_tmp", lambda _: None)
        lock = dagman_file(folder.study_dag, "lock")
        lock.touch()
        submission.submit_dag(SimpleNamespace(run=run), folder, ["germany"])
        return called, lock.exists()

    return submit


@pytest.mark.parametrize("ending", [(DAGMAN_CRASHED,), (None, "removed")])
def test_jobs_that_a_crashed_or_removed_dagman_left_are_removed_and_its_log_is_not_read_again(crashed, ending):
    called, locked = crashed(*ending)
    assert called[0] == ["condor_rm", "-constraint", "DAGManJobId == 1"] and len(called) == 3
    assert called[-1][0] == "condor_submit_dag" and not locked


def test_jobs_of_a_dagman_that_ended_otherwise_stay(crashed):
    called, locked = crashed(1)
    assert [words[0] for words in called] == ["condor_submit_dag"] and locked


def test_jobs_that_another_dag_of_the_same_nodes_left_are_removed(crashed, monkeypatch, tmp_path):
    def of_the_region(log):
        return DagState(LOG, 3, "ended", 1.0, 2.0, DAGMAN_CRASHED) if log.name.startswith("region") else None

    patched = monkeypatch.setattr

    def keep(target, name, value):
        patched(target, name, of_the_region if name == "read_dag_log" else value)

    monkeypatch.setattr = keep
    called, _ = crashed(0)
    assert called[0] == ["condor_rm", "-constraint", "DAGManJobId == 3"] and called[-1][0] == "condor_submit_dag"


def test_jobs_that_do_not_go_are_named(crashed, monkeypatch):
    monkeypatch.setattr(submission, "LEAVING", -1.0)
    with pytest.raises(RegiondagError, match="condor_rm -constraint 'DAGManJobId == 1'"):
        crashed(DAGMAN_CRASHED)


def test_a_dag_in_the_queue_of_another_pool_is_not_submitted(tmp_path, monkeypatch):
    """This pool knows nothing of it, and its log has no end."""
    state = DagState(LOG, 5, "running", 1.0, None, None)
    monkeypatch.setattr(submission, "read_dag_log", lambda log: state if log.name.startswith("study") else None)
    monkeypatch.setattr(submission, "refuse_slash_tmp", lambda _: None)
    others = [SimpleNamespace(name=name, kind="embedded") for name in ("dead", "work")]
    monkeypatch.setattr(submission, "describe_other_pools", lambda _: others)

    def status(pool, cluster, log):
        assert cluster == 5
        if pool.name == "dead":
            raise PoolError("no schedd")
        return "running" if pool.name == "work" else None

    monkeypatch.setattr(client, "query_status", status)
    lock = dagman_file(RunFolder(tmp_path).study_dag, "lock")
    lock.touch()
    with pytest.raises(RegiondagError, match=r"is running in the queue of the pool 'work' \(--pool work\), not"):
        submission.submit_dag(SimpleNamespace(name="default"), RunFolder(tmp_path), ["germany"])
    assert lock.exists()
    with pytest.raises(RegiondagError, match="--pool work"):  # neither does any verb take it for gone
        submission.find_unfinished_job(
            SimpleNamespace(name="default"), dagman_file(RunFolder(tmp_path).study_dag, "log")
        )
