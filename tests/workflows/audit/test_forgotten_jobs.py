"""What HTCondor knows of a run's jobs, beside what the run's own logs do; the pool's own answers are in `on_pool`."""

from __future__ import annotations

import json
import shutil

import pytest

from regiondag.audit import forgotten_jobs
from regiondag.audit.forgotten_jobs import KnownJob, ask_for_jobs, describe_forgotten, find_forgotten, read_known
from regiondag.audit.verify import verify
from regiondag.condor import client
from regiondag.errors import PoolError
from regiondag.run.layout import JOB_LOG, NodeName, RunFolder
from regiondag.run.manifest import read_manifest

pytestmark = pytest.mark.slow

NOW = 1_000_000.0
NODE = NodeName("germany", 1)
LOG = "000 (9.000.000) 2026-11-24 05:34:00 Job submitted from host: <1.2.3.4:9>\n    DAG Node: germany_t0001\n...\n"
END = "005 (9.000.000) 2026-11-24 05:35:00 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n"
POOL = object()


@pytest.fixture
def run(trained, tmp_path):
    run = RunFolder(shutil.copytree(trained.path, tmp_path / trained.path.name))
    run.manifest.write_text(json.dumps(json.loads(run.manifest.read_text()) | {"run": str(run.path)}))
    return run


def look(run, jobs=()):
    return verify(run, lambda *_: None, lambda _: None, lambda *_: list(jobs))


def test_jobs_that_the_run_does_not_know_and_ends_that_it_does_not_know():
    known = {"1.0": True, "2.0": False, "3.0": False}
    jobs = [
        KnownJob("1.0", 5.0, 6.0),
        KnownJob("2.0", 5.0, None),
        KnownJob("3.0", 5.0, 6.0),
        KnownJob("4.0", 5.0, None),
    ]
    assert [job.job for job in find_forgotten(jobs, known, NOW)] == ["3.0", "4.0"]


@pytest.mark.parametrize("job", [KnownJob("4.0", NOW - 1, None), KnownJob("2.0", 5.0, NOW - 1)])
def test_what_has_just_happened_may_not_be_in_the_logs_yet(job):
    assert not find_forgotten([job], {"2.0": False}, NOW)
    assert find_forgotten([job], {"2.0": False}, NOW + 2 * forgotten_jobs.SLACK)


def test_what_a_run_knows_is_in_its_logs_and_its_journals(run):
    log = run.region("germany").trial(NODE) / JOB_LOG
    log.write_text(LOG)
    assert read_known(run, ["7.0", ""]) == {"7.0": True, "9.0": False}
    log.write_text(LOG + END)
    assert read_known(run, []) == {"9.0": True}
    log.unlink()
    assert read_known(run, ["9.0"]) == {"9.0": True}, "a trial's folder that was removed makes no older copy"


def test_verify_says_it_in_a_sentence(run):
    assert look(run).findings == () == look(run).unchecked
    [finding] = look(run, [KnownJob("12.0", 5.0, 6.0)]).findings
    assert finding.path == run.path.name and finding.seen.startswith(
        "HTCondor knows a job of it (12.0), the last at 19"
    )
    assert f"type `regiondag submit {run.path}`" in finding.advice and "what serves is safe" in finding.advice
    assert "6 jobs of it (1.0, 2.0, 3.0, 4.0 and 2 more)" in describe_forgotten(
        [KnownJob(f"{number}.0", 5.0, None) for number in range(1, 7)]
    )


def test_a_check_that_was_not_made_is_said_and_is_no_finding(run):
    def refuse(*_):
        raise PoolError("nobody answers")

    found = verify(run, lambda *_: None, lambda _: None, refuse)
    assert found.findings == ()
    assert found.unchecked == ("whether HTCondor knows more of the run than it does itself: nobody answers",)


def test_htcondor_is_asked_for_jobs_below_the_run_since_it_was_made(run, monkeypatch):
    asked = []

    def query(_, folder, since):
        asked.append((folder, since))
        return [{"ClusterId": 3, "ProcId": 0}], [{"ClusterId": 2, "ProcId": 1}]

    monkeypatch.setattr(client, "query_jobs_below", query)
    monkeypatch.setattr(forgotten_jobs, "number_of", lambda _, name: {"QDate": 5, "EnteredCurrentStatus": 6}[name])
    manifest = read_manifest(run)
    assert ask_for_jobs(POOL, run, manifest) == [KnownJob("3.0", 5.0, None), KnownJob("2.1", 5.0, 6.0)]
    [(folder, since)] = asked
    assert folder == f"{run.path}/regions/" and 0 < since <= run.manifest.stat().st_mtime
    moved = RunFolder(run.path.rename(run.path.with_name("moved")))
    with pytest.raises(PoolError, match=f"made as {run.path}"):
        ask_for_jobs(POOL, moved, manifest)
