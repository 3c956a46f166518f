"""Single trials cancelled, run again and prioritised on a real pool, while their study runs and after it."""

from __future__ import annotations

import json

import pytest

from tests.workflows.conftest import STUDY
from tests.workflows.test_study_on_pool import finish, generate, slow_down, submit, wait
from workflows.cli import main
from workflows.condor import query_jobs, read_dag_log
from workflows.journal import Journal
from workflows.names import dagman_file

pytestmark = pytest.mark.condor

ONE = STUDY.replace("  - {name: United Kingdom, data: data/uk.nc}\n", "")
AT_ONCE = ONE.replace("method: bayes\n  rounds: 2\n  parallel: 2", "method: sobol\n  rounds: 1\n  parallel: 4")


def trial(verb, run, *words):
    return main(["trial", verb, str(run.path), "Germany", *map(str, words)])


def history(run):
    return Journal(run.region("germany").journal).read()


def jobs(pool, run):
    state = read_dag_log(pool, dagman_file(run.study_dag, "dagman.log"))
    return {job.node: job for job in query_jobs(pool, state.cluster)} if state else {}


def running(pool, run, *numbers):
    wanted = {f"germany_t{number:04d}" for number in numbers}
    wait(pool, run, lambda _: wanted <= {n for n, job in jobs(pool, run).items() if job.status == "running"}, "jobs")


def shown(run, capsys, *words):
    capsys.readouterr()
    assert main(["study", "show", str(run.path), "--json", *words]) == 0
    return {row["trial"]: row for row in json.loads(capsys.readouterr().out)["trials"]}


def test_cancel_prioritise_and_run_again_while_the_study_runs(pool, run_area, capsys):
    """Two jobs at a time of four: two run, two are prepared and wait for their turn in DAGMan."""
    run = generate(run_area, capsys, AT_ONCE)
    slow_down(run, 15)
    assert trial("cancel", run, 0) == 1
    assert "germany_t0000: is not proposed yet" in capsys.readouterr().err
    submit(run)
    running(pool, run, 0, 1)
    rows = shown(run, capsys, "--where", "job == running and priority == 0")
    assert set(rows) == {0, 1} and "slot1" in rows[0]["queued"]["machine"]
    assert main(["study", "show", str(run.path)]) == 0
    assert "priority" in capsys.readouterr().out
    assert trial("priority", run, 0, 3, "--priority", 7) == 1
    told = capsys.readouterr()
    assert "has priority 7, it had 0" in told.out and "germany_t0003: has no job in the queue" in told.err
    wait(pool, run, lambda _: jobs(pool, run)["germany_t0000"].priority == 7, "the new priority")
    assert trial("cancel", run, 1, 3) == 0
    told = capsys.readouterr().out
    assert "germany_t0001: removed, cancelled" in told and "germany_t0003: cancelled: it has no job" in told
    assert trial("cancel", run, 1) == 1
    assert "has ended already: removed, cancelled" in capsys.readouterr().err
    before = jobs(pool, run)["germany_t0000"]
    assert trial("rerun", run, 0) == 0
    assert f"job {before.job} leaves slot1" in capsys.readouterr().out
    assert finish(pool, run).exit_code == 0
    log = (run.path / "study.dag.nodes.log").read_text()
    cluster = int(before.job.split(".")[0])
    assert log.count(f"004 ({cluster:03d}.000.000)") == 1  # evicted, and started again
    assert log.count("Job was aborted") == 1
    settled = history(run).settled
    assert {n: s.status for n, s in settled.items()} == {0: "ok", 1: "removed", 2: "ok", 3: "removed"}
    assert settled[3].reason == settled[1].reason == "cancelled" and settled[3].seconds < 5
    assert history(run).final.ok


def test_trials_that_ended_run_again_when_the_dag_is_submitted_again(pool, run_area, capsys):
    """Once with DAGMan's rescue file, whose nodes are done, and once without one."""
    run = generate(run_area, capsys, ONE)
    submit(run)
    assert finish(pool, run).exit_code == 0
    first = history(run)
    assert trial("rerun", run, 0) == 1
    assert "ended well (ok); --force forgets that" in capsys.readouterr().err
    assert trial("rerun", run, "0", "--force") == 0
    assert "and then the final training" in capsys.readouterr().out
    assert history(run).reopened == {0, None}
    submit(run)
    assert finish(pool, run).exit_code == 0
    again = history(run)
    assert again.reopened == set() and again.final.ok
    assert again.settled[0].value == first.settled[0].value  # the same seed and point: the same bits
    assert again.settled_at[0] > first.settled_at[0]
    assert {n: again.settled_at[n] for n in (1, 2, 3)} == {n: first.settled_at[n] for n in (1, 2, 3)}

    script = run.path / "train.sh"
    good = script.read_text()
    assert trial("rerun", run, "final", "--force") == 0
    script.write_text(good.replace("#!/bin/sh\n", "#!/bin/sh\nexit 4\n", 1))
    submit(run)
    assert finish(pool, run).exit_code != 0
    rescue = run.path / "study.dag.rescue001"
    assert "DONE germany_t0000" in rescue.read_text()
    script.write_text(good)
    assert trial("rerun", run, 1, "--force") == 0
    assert "DONE germany_t0001" not in rescue.read_text() and "DONE germany_t0000" in rescue.read_text()
    submit(run)
    assert finish(pool, run).exit_code == 0
    last = history(run)
    assert last.reopened == set() and last.final.ok and last.settled_at[1] > again.settled_at[1]
    assert {n: last.settled_at[n] for n in (0, 2, 3)} == {n: again.settled_at[n] for n in (0, 2, 3)}


def test_a_held_job_is_released_and_one_of_a_dag_that_ended_is_cancelled(pool, run_area, capsys):
    run = generate(run_area, capsys, ONE)
    slow_down(run, 10)
    submit(run)
    running(pool, run, 0, 1)
    pool.run(["condor_hold", jobs(pool, run)["germany_t0001"].job], cwd=run.path, check=True, capture_output=True)
    wait(pool, run, lambda _: jobs(pool, run)["germany_t0001"].status == "held", "the hold")
    assert trial("rerun", run, "--where", "job == held") == 0
    assert "germany_t0001: job" in (told := capsys.readouterr().out) and "is released" in told
    cluster = read_dag_log(pool, dagman_file(run.study_dag, "dagman.log")).cluster
    pool.run(["condor_rm", str(cluster)], cwd=run.path, check=True, capture_output=True)
    finish(pool, run)
    assert trial("cancel", run, 0) == 0
    assert "is not run when the DAG is submitted again" in capsys.readouterr().out
    submit(run)
    assert finish(pool, run).exit_code == 0
    settled = history(run).settled
    assert (settled[0].status, settled[0].reason) == ("removed", "cancelled")
    assert [settled[n].status for n in (1, 2, 3)] == ["ok"] * 3
