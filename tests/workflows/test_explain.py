"""`explain` and `stats` without a pool: what journals, graphs and event logs alone say."""

from __future__ import annotations

import doctest
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.workflows.conftest import STUDY, write_study
from workflows import condor, holds, whyqueue
from workflows.cli import main
from workflows.daglog import DagState
from workflows.explain import Run, explain, find
from workflows.holds import kind_of, removed_after
from workflows.journal import Journal, Settled
from workflows.names import NodeName, RunFolder
from workflows.report import read_manifest
from workflows.whyqueue import Dag, Queue, explain_dags, explain_held

RULE = "JobStatus == 5 && (HoldReasonCode =?= 47 || time() - EnteredCurrentStatus > 3600)"
RECORDED = Path(__file__).parent / "eventlogs" / "trixie"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> RunFolder:
    monkeypatch.setenv("REGIONDAG_POOL", "no-such-pool")
    assert main(["generate", str(write_study(tmp_path)), "--htcondor", "25.14"]) == 0
    folder = RunFolder(Path(capsys.readouterr().out.strip()))
    shutil.copytree(RECORDED / "regions", folder.path / "regions", dirs_exist_ok=True)
    return folder


def settle(run: RunFolder, slug: str, *outcomes: Settled) -> None:
    journal = Journal(run.region(slug).journal)
    with journal.locked():
        for one in outcomes:
            if one.trial is not None:
                journal.append("proposed", trial=one.trial, point={"hidden": 4, "learning_rate": 0.01})
            journal.append("settled", **asdict(one))


def works(run: RunFolder, *jobs: condor.QueuedJob) -> Run:
    """A run on which DAGMan works, with these jobs in the queue."""
    state = DagState(1, "running", 0.0, None, None)
    queue = Queue((Dag(run.study_dag, state, "running"),), jobs, by_node={job.node: job for job in jobs})
    return Run(run, read_manifest(run)["regions"], queue, time.time())


def queued(node: str, status: str, **values) -> condor.QueuedJob:
    return condor.QueuedJob(node, "7.0", status, values.pop("hold_reason", ""), time.time() - 100, "slot1@a", **values)


def test_a_run_that_was_never_submitted(run):
    [found] = explain(run, None)
    assert found.state == "not submitted" and "regiondag submit" in found.advice


def test_names_as_users_write_them(run):
    names = read_manifest(run)["regions"]
    assert find(run, names, "united kingdom") == find(run, names, "united-kingdom") == ("united-kingdom", None)
    assert find(run, names, "germany_final") == ("germany", NodeName("germany", None))
    assert find(run, names, "germany_t0003") == ("germany", NodeName("germany", 3))


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [("germny", "did you mean 'germany'"), ("germany_t0099", "germany_t0000 to germany_t0003"), ("%", "regions are")],
)
def test_wrong_names_get_a_hint(run, wrong, hint, capsys):
    assert main(["explain", str(run.path), wrong]) == 2
    assert hint in capsys.readouterr().err


def test_a_failed_trial_with_its_machine_and_last_words(run):
    settle(
        run, "united-kingdom", Settled(1, "machine", "no GPU\x1b[2J found"), Settled(0, "ok", value=0.5, seconds=2.0)
    )
    (run.region("united-kingdom").trial(NodeName("united-kingdom", 1)) / "job.err").write_text(
        "a\n" * 99 + "no \x1b GPU\n"
    )
    [failed] = works(run).node(NodeName("united-kingdom", 1))
    assert failed.state == "failed" and "no GPU" in failed.why and "submit the DAG again" in failed.advice
    assert any("exit code 75" in line and "V100" in line for line in failed.details)
    assert failed.details[-1] == "job.err: no ? GPU" and len(failed.details) < 10


def test_escape_sequences_do_not_reach_the_terminal(run, capsys):
    settle(run, "germany", Settled(0, "diverged", "\x1b[2Jgone"))
    assert main(["explain", str(run.path), "germany_t0000"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_trial_that_succeeded_beside_the_others(run):
    settle(run, "germany", *(Settled(n, "ok", value=0.5, seconds=2.0) for n in range(4)))
    [done] = works(run).node(NodeName("germany", 1))
    assert done.state == "ok" and any("median" in line for line in done.details)
    assert any("1 holds" in line for line in done.details) and any("held: a look" in line for line in done.details)


def test_what_a_node_waits_for(run):
    seen = works(run, queued("germany_t0000", "idle"))
    [waits] = seen.node(NodeName("germany", 2))
    assert waits.state == "waiting" and waits.why == "for germany_t0000 (idle), germany_t0001"
    settle(run, "germany", *(Settled(n, "ok", value=0.5) for n in range(2)))
    [waits] = works(run, *(queued(f"germany_t000{n}", "running") for n in (7, 8))).node(NodeName("germany", 2))
    assert "jobs_per_region" in waits.why
    [waits] = works(run, *(queued(f"uk_t000{n}", "running") for n in range(8))).node(NodeName("germany", 2))
    assert "limits.jobs" in waits.why
    [waits] = works(run).node(NodeName("germany", 2))
    assert "PRE" in waits.why
    settle(run, "germany", *(Settled(n, "ok", value=0.5) for n in (2, 3)))
    [final] = works(run).node(NodeName("germany", None))
    assert final.state == "waiting" and "PRE" in final.why


def test_a_region_that_stopped_says_why(run):
    settle(run, "germany", Settled(0, "bad_input", "data.train.nc is no data set"))
    [stopped] = works(run).region("germany", whole=False)
    assert stopped.state == "stopped" and "data.train.nc" in stopped.why
    [not_run] = works(run).node(NodeName("germany", 2))
    assert not_run.state == "not run" and "data.train.nc" in not_run.why


def test_a_running_job_is_slow_beside_its_region(run):
    settle(run, "germany", *(Settled(n, "ok", value=0.5, seconds=20.0) for n in range(2)))
    seen = works(run, queued("germany_t0002", "running", starts=2))
    [slow] = seen.jobs("")
    assert slow.state == "slow" and "20 s (median)" in slow.why and slow.details == ("it was started 2 times",)
    settle(run, "germany", *(Settled(n, "ok", value=0.5, seconds=90.0) for n in (2, 3)))
    assert list(works(run, queued("germany_t0002", "running")).jobs("")) == []


def held(code: int, rule: str = "", released: str = "", reason: str = "") -> whyqueue.Explanation:
    job = queued("germany_t0000", "held", hold_reason=reason)
    return explain_held(job, condor.Held(code, rule, released), job.since + 600)


def test_holds_in_words():
    found = held(13, RULE, reason="no data.valid.nc")
    assert "could not be sent" in found.why and "no data.valid.nc (code 13)" in found.why
    assert "condor_release 7.0" in found.advice and "removed in 50 min" in found.advice
    assert "next look" in held(34, RULE, "now").advice and "after a while" in held(13, RULE, "later").advice
    assert "memory" in held(34).advice and "no rule of its own" in held(34).advice
    odd = held(999, "false")
    assert "HTCondor held it" in odd.why and "when this holds: false" in odd.advice
    assert (
        "no rule of its own" in held(1, RULE.replace("(HoldReasonCode =?= 47 ||", "HoldReasonCode =!= 1 && (")).advice
    )


@pytest.mark.parametrize(
    ("release", "since", "expected"),
    [("false", 10, ""), ("HoldReasonCode =?= 13", 10, "now"), ("time() - EnteredCurrentStatus > 60", 10, "later"),
     ("time() - EnteredCurrentStatus > 60", 90, "now"), ("NoSuchAttribute > 3", 10, "")],
)  # fmt: skip
def test_whether_a_rule_releases_is_tried_out(release, since, expected):
    text = f"Requirements = true\nHoldReasonCode = 13\nEnteredCurrentStatus = {int(time.time()) - since}\n"
    ad = condor.parse_ad(f"{text}PeriodicRelease = {release}\nPeriodicRemove = {RULE}")
    found = condor.held_of(ad)
    assert (found.code, found.released, removed_after(found.removal)) == (13, expected, 3600)


def test_the_limit_of_a_rule_for_holds():
    idle_too = f"(JobStatus == 1 && time() - EnteredCurrentStatus > 7) || ({RULE})"
    assert (removed_after(RULE), removed_after(idle_too), removed_after("JobStatus == 5")) == (3600, 3600, None)
    assert removed_after("(JobStatus == 5 && time() - EnteredCurrentStatus > 60) || JobStatus == 1 && x > 7") == 60
    assert removed_after(idle_too, status=1) == 7 and removed_after(RULE, status=1) is None
    assert doctest.testmod(holds).failed == 0
    assert all(kind.meaning and kind.advice for kind in (*holds.KINDS.values(), kind_of(-1)))


@pytest.mark.parametrize(
    ("state", "known", "expected"),
    [
        (DagState(5, "running", 0.0, None, None), None, "crashed"),
        (DagState(5, "running", 0.0, None, None), "held", "held"),
        (DagState(5, "idle", 0.0, None, None), "idle", "idle"),
        (DagState(5, "removed", 0.0, 9.0, 0), None, ""),
        (DagState(5, "removed", 0.0, 9.0, None), None, "removed"),
        (DagState(5, "ended", 0.0, 9.0, 1), None, "ended"),
        (DagState(5, "running", 0.0, None, None), "running", ""),
    ],
)
def test_what_became_of_dagman(run, state, known, expected):
    (run.path / "study.dag.lock").touch()
    (run.path / "study.dag.rescue002").touch()
    found = list(explain_dags(run, Queue((Dag(run.study_dag, state, known, "lunch"),))))
    assert [one.state for one in found] == ([expected] if expected else [])
    text = "".join(one.why + one.advice for one in found)
    assert ("lock" in text) == (expected == "crashed") and ("rescue002" in text) == (expected in ("removed", "ended"))


def test_without_a_pool_it_says_what_it_cannot_know(run):
    log = run.path / "study.dag.dagman.log"
    log.write_text("000 (005.000.000) 2026-11-22 05:00:00 Job submitted from host: <127.0.0.1:1>\n...\n")
    found = {one.subject: one for one in explain(run, None)}
    assert "regiondag pool up" in found["queue"].why and "is not known" in found["study.dag"].why


def test_a_pool_without_slots(run):
    ad = condor.parse_ad("Requirements = true")
    queue = Queue((), (queued("germany_t0000", "idle"),), ((ad, ("germany_t0000",)),), by_node={})
    queue.by_node["germany_t0000"] = queue.jobs[0]
    [idle] = whyqueue.explain_idle(queue, ["germany_t0000"], time.time())
    assert "no slot at all" in idle.why


def test_stats_of_a_recorded_run(run, capsys, tmp_path):
    settle(run, "germany", *(Settled(n, "ok", value=0.5, seconds=2.0) for n in range(4)))
    final = Settled(None, "ok", metrics={"ndcg@5": 0.5}, baseline={"ndcg@5": 0.4}, seconds=3.0)
    settle(run, "germany", final)
    assert main(["stats", str(run.path), "--json", "--csv", str(tmp_path / "jobs.csv")]) == 0
    stats = json.loads(capsys.readouterr().out)
    germany = next(one for one in stats["regions"] if one["slug"] == "germany")
    assert germany["gained"] == pytest.approx(0.1) and germany["over"] == "popularity"
    assert germany["cost_per_point"] == pytest.approx(germany["usage"]["cost"] / 10)
    assert germany["usage"]["cost"] == pytest.approx(germany["usage"]["gpu_hours"] * 0.402)  # spot
    assert stats["total"]["evictions"] == 2 and stats["total"]["holds"] == 1 and stats["total"]["tries"] == 11
    assert stats["total"]["lost_to_eviction"] > 0 and stats["machines"].keys() == {
        "g5.xlarge, spot, Tesla V100-PCIE-16GB"
    }
    assert (tmp_path / "jobs.csv").read_text().count("\n") == 11
    assert main(["stats", str(run.path), "--trials"]) == 0
    shown = capsys.readouterr().out
    assert "united-kingdom_t0001" in shown and "job: {memory: " in shown and "g5.xlarge" in shown


def test_stats_of_a_run_that_was_never_submitted(run, capsys):
    for log in run.path.glob("regions/*/trials/*/job.log"):
        log.unlink()
    assert main(["stats", str(run.path)]) == 0
    assert "regiondag submit" in capsys.readouterr().out


def test_a_machine_without_a_price_makes_the_cost_unknown(run, capsys, tmp_path):
    (tmp_path / "prices.yaml").write_text("instances: {a.large: {on_demand: 1}}\n")
    assert main(["stats", str(run.path), "--prices", str(tmp_path / "prices.yaml")]) == 0
    assert "no price of g5.xlarge" in capsys.readouterr().err


def test_limits_are_read_from_what_was_rendered(run):
    assert "jobs_per_region: 2" in STUDY
    assert works(run).limit("germany") == ""
