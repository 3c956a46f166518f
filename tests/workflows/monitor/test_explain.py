"""`explain` and `stats` without a pool: what journals, graphs and event logs alone say."""

from __future__ import annotations

import doctest
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from regiondag.cli import main
from regiondag.condor import classads, client, holds
from regiondag.condor.events.dag_log import DagState
from regiondag.condor.holds import kind_of, removal_limit
from regiondag.monitor import explain_queue
from regiondag.monitor.explain import RunView, explain
from regiondag.monitor.explain_queue import Dag, QueueSnapshot, explain_dags, explain_held
from regiondag.pool.pool import Pool
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder, dagman_file
from regiondag.run.manifest import read_manifest
from regiondag.run.region_state import why_not_needed
from tests.workflows.conftest import STUDY, write_study

pytestmark = pytest.mark.slow

LOG = Path("study.dag.dagman.log")
RULE = "JobStatus == 5 && (HoldReasonCode =?= 47 || time() - EnteredCurrentStatus > 3600)"
RECORDED = Path(__file__).parents[1] / "condor/events/recordings/trixie"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> RunFolder:
    monkeypatch.setenv("REGIONDAG_POOL", "no-such-pool")
    assert main(["generate", str(write_study(tmp_path)), "--htcondor", "25.14"]) == 0
    folder = RunFolder(Path(capsys.readouterr().out.strip()))
    shutil.copytree(RECORDED / "regions", folder.path / "regions", dirs_exist_ok=True)
    return folder


def settle(run: RunFolder, slug: str, *outcomes: TrialOutcome) -> None:
    journal = Journal(run.region(slug).journal)
    with journal.locked():
        for one in outcomes:
            if one.trial is not None:
                journal.append("proposed", trial=one.trial, point={"hidden": 4, "learning_rate": 0.01})
            journal.append("settled", **asdict(one))


def works(run: RunFolder, *jobs: client.QueuedJob) -> RunView:
    """A run on which DAGMan works, with these jobs in the queue."""
    state = DagState(LOG, 1, "running", 0.0, None, None)
    queue = QueueSnapshot((Dag(run.study_dag, state, "running"),), jobs, by_node={job.node: job for job in jobs})
    return RunView(run, read_manifest(run).regions, queue, time.time())


def queued(node: str, status: str, **values) -> client.QueuedJob:
    return client.QueuedJob(node, "7.0", status, values.pop("hold_reason", ""), time.time() - 100, "slot1@a", **values)


@pytest.fixture
def anywhere(monkeypatch):
    """Let DAGMan work below /tmp, where the tests' folders lie."""
    monkeypatch.setattr("regiondag.condor.submit.SLASH_TMP", "/nowhere")


def test_a_run_that_was_never_submitted(run, anywhere):
    [found] = explain(run, None)
    assert found.state == "not submitted" and "regiondag submit" in found.advice


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [("germny", "did you mean 'germany'"), ("germany_t0099", "germany_t0000 to germany_t0003"), ("%", "regions are")],
)
def test_wrong_names_get_a_hint(run, wrong, hint, capsys):
    assert main(["explain", str(run.path), wrong]) == 2
    assert hint in capsys.readouterr().err


def test_a_failed_trial_with_its_machine_and_last_words(run):
    settle(
        run,
        "united-kingdom",
        TrialOutcome(1, "machine", "no GPU\x1b[2J found"),
        TrialOutcome(0, "ok", value=0.5, seconds=2.0),
    )
    (run.region("united-kingdom").trial(NodeName("united-kingdom", 1)) / "job.err").write_text(
        "a\n" * 99 + "no \x1b GPU\n"
    )
    [failed] = works(run).explain_node(NodeName("united-kingdom", 1))
    assert failed.state == "failed" and "no GPU" in failed.why and "when the DAG has ended" in failed.advice
    assert any("exit code 75" in line and "V100" in line for line in failed.details)
    assert failed.details[-1] == "job.err: no ? GPU" and len(failed.details) < 10


def test_escape_sequences_do_not_reach_the_terminal(run, capsys):
    settle(run, "germany", TrialOutcome(0, "diverged", "\x1b[2Jgone"))
    assert main(["explain", str(run.path), "germany_t0000"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_trial_that_succeeded_beside_the_others(run):
    settle(run, "germany", *(TrialOutcome(n, "ok", value=0.5, seconds=2.0) for n in range(4)))
    [done] = works(run).explain_node(NodeName("germany", 1))
    assert done.state == "ok" and any("median" in line for line in done.details)
    assert any("1 holds" in line for line in done.details) and any("held: a look" in line for line in done.details)


def test_a_trial_is_compared_with_those_that_succeeded_alone(run):
    bad = (TrialOutcome(0, "diverged"), TrialOutcome(2, "pruned", value=0.1))
    settle(run, "germany", *bad, TrialOutcome(1, "ok", value=0.5, seconds=2.0))
    [done] = works(run).explain_node(NodeName("germany", 1))
    assert done.details and not any("median" in line for line in done.details)


def test_what_a_node_waits_for(run):
    seen = works(run, queued("germany_t0000", "idle"))
    [waits] = seen.explain_node(NodeName("germany", 2))
    assert waits.state == "waiting" and waits.why == "for germany_t0000 (idle), germany_t0001"
    settle(run, "germany", *(TrialOutcome(n, "ok", value=0.5) for n in range(2)))
    [waits] = works(run, *(queued(f"germany_t000{n}", "running") for n in (7, 8))).explain_node(NodeName("germany", 2))
    assert "jobs_per_region" in waits.why
    [waits] = works(run, *(queued(f"uk_t000{n}", "running") for n in range(8))).explain_node(NodeName("germany", 2))
    assert "limits.jobs" in waits.why
    [waits] = works(run).explain_node(NodeName("germany", 2))
    assert "PRE" in waits.why
    settle(run, "germany", *(TrialOutcome(n, "ok", value=0.5) for n in (2, 3)))
    [final] = works(run).explain_node(NodeName("germany", None))
    assert final.state == "waiting" and "PRE" in final.why


@pytest.mark.parametrize("status", ["removed", "machine", "diverged"])
def test_nobody_waits_for_a_parent_that_ended_badly(run, status):
    settle(run, "germany", TrialOutcome(0, "ok", value=0.5), TrialOutcome(1, status))
    [found] = works(run).explain_node(NodeName("germany", 2))
    assert "all that it waits for has ended" in found.why
    [found] = works(run, queued("germany_t0001", "running")).explain_node(NodeName("germany", 2))  # it is run again
    assert found.why == "for germany_t0001 (running)"


def respec(run: RunFolder, slug: str, **changes) -> None:
    path = run.region(slug).spec
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_nodes_that_a_search_does_not_need(run):
    def state(number: int | None) -> tuple[str, str]:
        [found] = works(run).explain_node(NodeName("germany", number))
        return found.state, found.why

    search = json.loads(run.region("germany").spec.read_text())["search"]
    settle(run, "germany", *(TrialOutcome(n, "ok", value=0.5, seconds=4.0) for n in range(2)))
    assert state(2)[0] == "waiting"
    respec(run, "germany", search=search | {"budget": 7})
    assert state(2) == ("not needed", "the budget of its region's search is spent; this node does nothing")
    assert "all that it waits for has ended" in state(None)[1]
    respec(run, "germany", search=search)
    assert state(None) == ("waiting", "for germany_t0002, germany_t0003")
    settle(run, "germany", TrialOutcome(2, "removed"), TrialOutcome(3, "ok", value=0.5))
    germany = works(run).view("germany")  # lanes: a node beyond the last trial, of which one was removed
    assert "all its trials" in why_not_needed(germany.state, germany.history, 7)


def test_nodes_after_the_deadline_of_a_study(run):
    settle(run, "germany", *(TrialOutcome(n, "ok", value=0.5) for n in range(2)))
    respec(run, "germany", deadline=3600)
    [found] = works(run).explain_node(NodeName("germany", 2))
    assert found.state == "waiting"  # nobody knows when it began
    run.started.write_text(json.dumps({"started": time.time() - 4000}))
    [found] = works(run).explain_node(NodeName("germany", 2))
    assert found.state == "not needed" and "deadline" in found.why
    [final] = works(run).explain_node(NodeName("germany", None))
    assert "all that it waits for has ended" in final.why


def test_a_region_that_dagman_works_on_is_not_to_be_submitted_again(run):
    [region] = works(run).explain_region("germany", whole=True)
    assert region.why == "0 of 4 trials have ended, 0 of them failed"
    state = DagState(LOG, 1, "running", 0.0, None, None)
    other = QueueSnapshot((Dag(run.region("united-kingdom").dag, state, "running"),))
    [region] = RunView(run, read_manifest(run).regions, other, time.time()).explain_region("germany", whole=True)
    assert "none of its jobs has run; submit the DAG" in region.why


def test_jobs_that_neither_wait_run_nor_are_held(run):
    jobs = [
        queued("germany_t0000", "suspended"),
        queued("germany_t0001", "removed"),
        queued("germany_t0002", "unknown"),
    ]
    seen = works(run, *jobs)
    found = list(seen.explain_jobs(""))
    assert [one.state for one in found] == ["suspended", "removed", "unknown"]
    assert all("for 100 s (slot1@a)" in one.why for one in found)
    assert "condor_rm -forcex 7.0" in found[1].advice
    assert list(seen.explain_node(NodeName("germany", 1))) == [found[1]]


def test_a_region_that_stopped_says_why(run):
    settle(run, "germany", TrialOutcome(0, "bad_input", "data.train.nc is no data set"))
    [stopped] = works(run).explain_region("germany", whole=False)
    assert stopped.state == "stopped" and "data.train.nc" in stopped.why
    [not_run] = works(run).explain_node(NodeName("germany", 2))
    assert not_run.state == "not run" and "data.train.nc" in not_run.why


def test_a_running_job_is_slow_beside_its_region(run):
    settle(run, "germany", *(TrialOutcome(n, "ok", value=0.5, seconds=20.0) for n in range(2)))
    seen = works(run, queued("germany_t0002", "running", starts=2))
    [slow] = seen.explain_jobs("")
    assert slow.state == "slow" and "20 s (median)" in slow.why and slow.details == ("it was started 2 times",)
    settle(run, "germany", *(TrialOutcome(n, "ok", value=0.5, seconds=90.0) for n in (2, 3)))
    assert list(works(run, queued("germany_t0002", "running")).explain_jobs("")) == []


def held(
    code: int, rule: str = "", released: str = "", reason: str = "", subcode: int = 0
) -> explain_queue.Explanation:
    job = queued("germany_t0000", "held", hold_reason=reason)
    return explain_held(job, client.Held(code, rule, released, subcode), job.since + 600)


def test_holds_in_words():
    found = held(13, RULE, reason="no data.valid.nc")
    assert "could not be sent" in found.why and "no data.valid.nc (code 13)" in found.why
    assert "condor_release 7.0" in found.advice and "removed in 50 min" in found.advice
    assert "next look" in held(34, RULE, "now").advice and "after a while" in held(13, RULE, "later").advice
    assert "memory" in held(34).advice and "no rule of its own" in held(34).advice
    assert "memory_max" not in held(21).advice and held(26, subcode=1).advice == held(26).advice
    for code, subcode, what in ((21, 102, "memory"), (26, 104, "disk")):
        found = held(code, subcode=subcode)
        assert f"rules held it, for its {what}" in found.why and "memory_max" in found.advice
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
    text += "HoldReasonSubCode = 2\n"
    ad = classads.parse_ad(f"{text}PeriodicRelease = {release}\nPeriodicRemove = {RULE}")
    found = client.held_of(ad)
    assert (found.code, found.released, removal_limit(found.removal)) == (13, expected, 3600)
    assert found.subcode == 2 and ad["EnteredCurrentStatus"] >= time.time() - since - 60  # the ad is as it was


def test_the_limit_of_a_rule_for_holds():
    idle_too = f"(JobStatus == 1 && time() - EnteredCurrentStatus > 7) || ({RULE})"
    assert (removal_limit(RULE), removal_limit(idle_too), removal_limit("JobStatus == 5")) == (3600, 3600, None)
    assert removal_limit("(JobStatus == 5 && time() - EnteredCurrentStatus > 60) || JobStatus == 1 && x > 7") == 60
    assert removal_limit(idle_too, status=1) == 7 and removal_limit(RULE, status=1) is None
    assert doctest.testmod(holds).failed == 0
    assert all(kind.meaning and kind.advice for kind in (*holds.KINDS.values(), kind_of(-1)))


@pytest.mark.parametrize(
    ("state", "known", "expected"),
    [
        (DagState(LOG, 5, "running", 0.0, None, None), None, "crashed"),
        (DagState(LOG, 5, "running", 0.0, None, None), "held", "held"),
        (DagState(LOG, 5, "running", 0.0, None, None), "removed", "removed"),
        (DagState(LOG, 5, "idle", 0.0, None, None), "idle", "idle"),
        (DagState(LOG, 5, "removed", 0.0, 9.0, 0), None, ""),
        (DagState(LOG, 5, "removed", 0.0, 9.0, None), None, "removed"),
        (DagState(LOG, 5, "ended", 0.0, 9.0, 1), None, "ended"),
        (DagState(LOG, 5, "ended", 0.0, 9.0, None, 11), None, "ended"),
        (DagState(LOG, 5, "running", 0.0, None, None), "running", ""),
    ],
)
def test_what_became_of_dagman(run, state, known, expected):
    (run.path / "study.dag.lock").touch()
    (run.path / "study.dag.rescue002").touch()
    found = list(explain_dags(run, QueueSnapshot((Dag(run.study_dag, state, known, "lunch"),)), lambda _: True))
    assert [one.state for one in found] == ([expected] if expected else [])
    text = "".join(one.why + one.advice for one in found)
    assert ("lock" in text) == (expected == "crashed")
    assert ("rescue002" in text) == (state.ended is not None and bool(expected))
    assert ("wait until it has left" in text) == (known == "removed")
    assert ("signal 11" in text) == (state.signal == 11) and "None" not in text


def test_a_graph_that_failed_is_forgotten_when_a_later_one_finished_its_regions(run):
    region = run.region("germany").dag
    failed, good = DagState(LOG, 5, "ended", 1.0, 2.0, 1), DagState(LOG, 6, "ended", 3.0, 4.0, 0)
    seen = RunView(
        run,
        read_manifest(run).regions,
        QueueSnapshot((Dag(run.study_dag, good, None), Dag(region, failed, None))),
        9.0,
    )
    [found] = explain_dags(run, seen.queue, seen.is_finished)
    assert found.subject == "regions/germany/region.dag"
    settle(run, "germany", TrialOutcome(None, "ok"))
    seen = RunView(run, seen.names, seen.queue, 9.0)
    assert list(explain_dags(run, seen.queue, seen.is_finished)) == []
    # The study's last node makes the report, which no region is.
    alone = QueueSnapshot((Dag(run.study_dag, failed, None),))
    assert [one.state for one in explain_dags(run, alone, lambda _: True)] == ["ended"]


def test_without_a_pool_it_says_what_it_cannot_know(run):
    log = run.path / "study.dag.dagman.log"
    log.write_text("000 (005.000.000) 2026-11-22 05:00:00 Job submitted from host: <127.0.0.1:1>\n...\n")
    found = {one.subject: one for one in explain(run, None)}
    assert "regiondag pool up" in found["queue"].why and "is not known" in found["study.dag"].why


def test_a_pool_without_slots(run):
    ad = classads.parse_ad("Requirements = true")
    queue = QueueSnapshot((), (queued("germany_t0000", "idle"),), ((ad, ("germany_t0000",)),), by_node={})
    queue.by_node["germany_t0000"] = queue.jobs[0]
    [idle] = explain_queue.explain_idle(queue, ["germany_t0000"], time.time())
    assert "no slot at all" in idle.why


def slot(name: str, **values: object) -> classads.ClassAd:
    lines = [
        f"{key} = {json.dumps(value)}" for key, value in ({"Machine": name, "Name": f"slot1@{name}"} | values).items()
    ]
    return classads.parse_ad("\n".join(["Requirements = true", *lines]))


@pytest.mark.parametrize(
    ("until", "color", "why"),
    [(600, True, "gpu-1 failed a job and is avoided until "), (-600, True, "1 slots that match are free"),
     (600, False, "no slot meets TARGET.Color is \"red\"")],
)  # fmt: skip
def test_a_machine_that_is_avoided_for_a_while_is_no_reason_to_change_the_study(run, until, color, why):
    now = time.time()
    wants = f'(TARGET.Machine =!= "gpu-1" || time() > {int(now) + until}) && (TARGET.Color =?= "red")'
    ad = classads.parse_ad(f"Requirements = ({wants}) && TARGET.HasFileTransfer")
    slots = (slot("gpu-1", HasFileTransfer=True, Color="red" if color else ""), slot("cpu-1", HasFileTransfer=True))
    job = queued("germany_t0000", "idle")
    queue = QueueSnapshot((), (job,), ((ad, (job.node,)),), slots, slots, by_node={job.node: job})
    [idle] = explain_queue.explain_idle(queue, {job.node}, now)
    assert why in idle.why and ("passes by itself" in idle.advice) == ("avoided" in idle.why)
    assert "time()" not in idle.why and ("study.yaml" in idle.advice) == (not color)
    if "avoided" in idle.why:
        assert idle.why.endswith(time.strftime("%H:%M", time.localtime(int(now) + until)))


def ad_of(cluster: int, status: int, node: str = "", **values: object) -> classads.ClassAd:
    known = {"ClusterId": cluster, "ProcId": 0, "JobStatus": status, "EnteredCurrentStatus": int(time.time()) - 90}
    known |= {"DAGNodeName": node, "DAGManJobId": 5} if node else {}
    lines = [f"{key} = {json.dumps(value)}" for key, value in (known | values).items()]
    return classads.parse_ad("\n".join(["Requirements = true", *lines]))


def test_the_queue_and_the_slots_are_asked_once(run, monkeypatch):
    ads = [
        ad_of(5, 5, HoldReason="lunch", UserLog=str(dagman_file(run.study_dag, "dagman.log"))),
        ad_of(7, 1, "germany_t0000"),
        ad_of(8, 1, "germany_t0001"),
        ad_of(9, 5, "united-kingdom_t0000", HoldReason="no file", HoldReasonCode=13, PeriodicRelease=False),
        ad_of(10, 1, "united-kingdom_t0001", RequestCpus=8),
        ad_of(11, 2, "united-kingdom_t0002"),
    ]
    slots = [slot("a", State="Unclaimed", Cpus=1, TotalSlotCpus=4), slot("b", State="Claimed")]
    asked = []
    monkeypatch.setattr(client, "query_queue", lambda pool, constraint, projection: asked.append(constraint) or ads)
    monkeypatch.setattr(client, "_query_slots", lambda pool: asked.append("slots") or slots)
    for path, cluster in ((run.study_dag, 5), (run.region("germany").dag, 6)):
        log = f"000 ({cluster:03d}.000.000) 2026-11-22 05:00:00 Job submitted from host: <127.0.0.1:1>\n...\n"
        dagman_file(path, "dagman.log").write_text(log)
    queue = explain_queue.look(run, ["germany"], Pool("default", "installed", (25, 14, 0)))
    assert asked == ["ClusterId == 5 || DAGManJobId == 5 || ClusterId == 6 || DAGManJobId == 6", "slots"]
    assert [(dag.queued, dag.hold_reason) for dag in queue.dags] == [("held", "lunch"), (None, "")]
    assert [job.job for job in queue.jobs] == ["7.0", "8.0", "9.0", "10.0", "11.0"]
    assert [nodes for _, nodes in queue.idle] == [("germany_t0000", "germany_t0001"), ("united-kingdom_t0001",)]
    assert queue.holds == {"united-kingdom_t0000": client.Held(13)}
    assert [ad.get("Cpus") for ad in queue.slots] == [4, None] and [ad["Cpus"] for ad in queue.free] == [1]


def test_stats_of_a_recorded_run(run, capsys, tmp_path):
    settle(run, "germany", *(TrialOutcome(n, "ok", value=0.5, seconds=2.0) for n in range(4)))
    final = TrialOutcome(None, "ok", metrics={"ndcg@5": 0.5}, baseline={"ndcg@5": 0.4}, seconds=3.0)
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
    assert sum(stats["machines"].values()) == pytest.approx(stats["total"]["gpu_hours"])
    assert (tmp_path / "jobs.csv").read_text().count("\n") == 11
    assert main(["stats", str(run.path), "--trials"]) == 0
    shown = capsys.readouterr().out
    assert "united-kingdom_t0001" in shown and "job: {memory: " in shown and "g5.xlarge" in shown


def test_stats_of_a_run_that_was_never_submitted(run, anywhere, capsys):
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
    assert works(run).which_limit("germany") == ""
