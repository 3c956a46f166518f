"""Single trials cancelled, run again and prioritised on a real pool, while their study runs and after it."""

from __future__ import annotations

import json

import pytest

from regiondag.cli import main
from regiondag.condor.client import query_jobs
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.run.journal import Journal
from regiondag.run.layout import dagman_file
from tests.workflows.conftest import STUDY
from tests.workflows.on_pool.test_study import finish, generate, slow_down, submit, wait

pytestmark = pytest.mark.condor

ONE = STUDY.replace("  - {name: United Kingdom, data: data/uk.nc}\n", "")
AT_ONCE = ONE.replace("method: bayes\n  rounds: 2\n  parallel: 2", "method: sobol\n  rounds: 1\n  parallel: 4")


def trial(verb, run, *words):
    return main(["trial", verb, str(run.path), "Germany", *map(str, words)])


def history(run):
    return Journal(run.region("germany").journal).read()


def jobs(pool, run):
    state = read_dag_log(dagman_file(run.study_dag, "dagman.log"))
    return {job.node: job for job in query_jobs(pool, state.cluster)} if state else {}


def running(pool, run, count):
    """Wait until some jobs run; return the numbers of their trials."""

    def found():
        return sorted(int(node[-4:]) for node, job in jobs(pool, run).items() if job.status == "running")

    wait(pool, run, lambda _: len(found()) == count, "jobs that run")
    return found()


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
    moved, ended = running(pool, run, 2)
    cancelled, left = sorted({0, 1, 2, 3} - {moved, ended})
    rows = shown(run, capsys, "--where", "job == running and priority == 0")
    assert set(rows) == {moved, ended} and "slot1" in rows[moved]["queued"]["machine"]
    assert main(["study", "show", str(run.path)]) == 0
    assert "priority" in capsys.readouterr().out
    assert trial("priority", run, moved, cancelled, "--priority", 7) == 1
    told = capsys.readouterr()
    assert "has priority 7, it had 0" in told.out
    assert f"germany_t000{cancelled}: has no job in the queue" in told.err
    wait(pool, run, lambda _: jobs(pool, run)[f"germany_t000{moved}"].priority == 7, "the new priority")
    assert trial("cancel", run, cancelled, ended) == 0  # in this order: who ends makes room
    told = capsys.readouterr().out
    assert f"germany_t000{ended}: removed, cancelled" in told
    assert f"germany_t000{cancelled}: cancelled: it has no job" in told
    assert trial("cancel", run, ended) == 1
    assert "has ended already: removed, cancelled" in capsys.readouterr().err
    before = jobs(pool, run)[f"germany_t000{moved}"]
    assert trial("rerun", run, moved) == 0
    assert f"job {before.job} leaves slot1" in capsys.readouterr().out
    assert finish(pool, run).exit_code == 0
    log = (run.path / "study.dag.nodes.log").read_text()
    cluster = int(before.job.split(".")[0])
    assert log.count(f"004 ({cluster:03d}.000.000)") == 1  # evicted, and started again
    assert log.count("Job was aborted") == 1
    settled = history(run).settled
    assert {number: settled[number].status for number in sorted(settled)} == {
        number: "removed" if number in (ended, cancelled) else "ok" for number in range(4)
    }
    assert settled[ended].reason == settled[cancelled].reason == "cancelled"
    assert settled[cancelled].seconds < 5 and settled[left].ok  # its job left as soon as it had started
    assert history(run).final.ok


def check_provenance(run, capsys):
    """What ran in the pool says where; trained again by the pool's Python it gives the same bits."""
    folder = run.region("germany")
    result = json.loads((folder.path / "trials/0000/result.json").read_text())
    [code] = [sha for name, sha in json.loads(run.manifest.read_text())["sha256"].items() if name.startswith("nnlib-")]
    assert result["code"] == code and result["machine"]["slot"].startswith("slot1_")
    assert "SUITE=" in result["machine"]["image"] and "SUITE=" in json.loads(run.manifest.read_text())["image"]
    assert main(["verify", str(run.path)]) == 0
    for number in ("0", "final"):
        assert main(["replay", str(run.path), "Germany", number]) == 0
        told = capsys.readouterr()
        assert "inside the pool" in told.err and "the same, bit by bit" in told.out
    there = {path.name for path in run.path.parent.iterdir()}
    assert there == {"champions", run.path.name}  # no folder of a replay is left


def test_trials_that_ended_run_again_when_the_dag_is_submitted_again(pool, run_area, capsys):
    """Once with DAGMan's rescue file, whose nodes are done, and once without one."""
    run = generate(run_area, capsys, ONE)
    submit(run)
    assert finish(pool, run).exit_code == 0
    first = history(run)
    check_provenance(run, capsys)
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
    script.write_text(good.replace('exec "$python" "$1" train', "exit 4 #"))
    assert "exit 4 #" in script.read_text()
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
    assert main(["verify", str(run.path)]) == 0


def test_a_held_job_is_released_and_one_of_a_dag_that_ended_is_cancelled(pool, run_area, capsys):
    run = generate(run_area, capsys, ONE)
    slow_down(run, 10)
    submit(run)
    assert running(pool, run, 2) == [0, 1]
    pool.run(["condor_hold", jobs(pool, run)["germany_t0001"].job], cwd=run.path, check=True, capture_output=True)
    wait(pool, run, lambda _: jobs(pool, run)["germany_t0001"].status == "held", "the hold")
    assert trial("rerun", run, "--where", "job == held") == 0
    assert "germany_t0001: job" in (told := capsys.readouterr().out) and "is released" in told
    cluster = read_dag_log(dagman_file(run.study_dag, "dagman.log")).cluster
    pool.run(["condor_rm", str(cluster)], cwd=run.path, check=True, capture_output=True)
    finish(pool, run)
    assert trial("cancel", run, 0) == 0
    assert "is not run when the DAG is submitted again" in capsys.readouterr().out
    submit(run)
    assert finish(pool, run).exit_code == 0
    settled = history(run).settled
    assert (settled[0].status, settled[0].reason) == ("removed", "cancelled")
    assert [settled[n].status for n in (1, 2, 3)] == ["ok"] * 3
