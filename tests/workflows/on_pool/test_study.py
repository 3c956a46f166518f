"""Whole studies on a real HTCondor pool: to their champions, and through everything that goes wrong on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nnlib.cli import main as nnlib_main
from nnlib.contract import Exit, Result, result_from_json, sha256_of
from regiondag.cli import main
from regiondag.condor import client
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.monitor.status import RunStatus, read_status
from regiondag.pool.pool import Pool
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder, dagman_file
from tests.workflows.conftest import STUDY, WIDTH, write_region, write_study
from tests.workflows.generate.test_render import CASES
from tests.workflows.shop import write_shop

pytestmark = pytest.mark.condor

PATIENCE = 240  # seconds for a study that takes about 25
# A study is as large as what is looked at: every job is started, settled and waited for.
SHORT = STUDY.replace("rounds: 2", "rounds: 1")
ALONE = STUDY.replace("  - {name: United Kingdom, data: data/uk.nc}\n", "")


def generate(folder: Path, capsys, text: str = STUDY, *options: str) -> RunFolder:
    study = write_shop(folder, text) if "purchases:" in text else write_study(folder, text)
    assert main(["generate", str(study), *options]) == 0
    return RunFolder(Path(capsys.readouterr().out.strip()))


def wait(pool: Pool, run: RunFolder, until: Callable[[RunStatus], object], what: str) -> RunStatus:
    deadline = time.monotonic() + PATIENCE
    while True:
        status = read_status(run, pool)
        if until(status):
            return status
        log = run.path / "manager.log"
        tail = log.read_text()[-3000:] if log.exists() else ""
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}: {status}\n{tail}"
        time.sleep(0.5)


def finish(pool: Pool, run: RunFolder) -> RunStatus:
    return wait(pool, run, lambda status: status.over, "the DAG to end")


def submit(run: RunFolder, *options: str) -> None:
    assert main(["submit", str(run.path), *options]) == 0


def summary(run: RunFolder) -> dict:
    return json.loads((run.report / "summary.json").read_text())


def champions(run: RunFolder) -> dict[str, str]:
    return {row["slug"]: json.loads(run.region(row["slug"]).champion_metrics.read_text())["sha256"]
            for row in summary(run)["regions"]}  # fmt: skip


def result_of(place: Path) -> Result:
    return result_from_json((place / "result.json").read_text())


def settled_lines(run: RunFolder) -> list[tuple[str, int | None]]:
    return [
        (slug, record["trial"])
        for slug in json.loads(run.manifest.read_text())["regions"]
        for record in map(json.loads, run.region(slug).journal.read_text().splitlines())
        if record["event"] == "settled"
    ]


def slow_down(run: RunFolder, seconds: int, stubborn: bool = False) -> None:
    """Make every job take a while, so that there is time to disturb it; a stubborn one heeds no SIGTERM meanwhile."""
    script, wait = run.path / "train.sh", f"sleep {seconds}\n"
    wait = f"trap '' TERM\n{wait}trap - TERM\n" if stubborn else wait
    script.write_text(script.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{wait}", 1))


def machine_of(run: RunFolder, pool: Pool) -> set[str]:
    htcondor2 = client.bindings(pool)
    events = htcondor2.JobEventLog(str(run.path / "study.dag.nodes.log")).events(stop_after=0)
    return {event["SlotName"].split("@")[0] for event in events if event.type == htcondor2.JobEventType.EXECUTE}


def test_the_bindings_follow_the_pool(pool, monkeypatch):
    monkeypatch.setenv("CONDOR_CONFIG", "/dev/null")
    client.bindings(None).reload_config()  # as after a look at logs without a pool
    assert {slot["Name"].split("@")[0] for slot in client.query_slots(pool)} == {"slot1", "slot2"}


def test_a_study_to_its_champions(pool, run_area, capsys):
    run = generate(run_area, capsys)
    assert main(["doctor", str(run.path)]) == 0
    assert "matches 1 of 2 slots" in capsys.readouterr().out
    submit(run)
    status = finish(pool, run)
    assert status.exit_code == 0
    assert [(r.region, r.done, r.failed, r.final) for r in status.regions] == [
        ("United Kingdom", 4, 0, "promoted"), ("Germany", 4, 0, "promoted"),
    ]  # fmt: skip
    report = summary(run)
    assert report["finished"] and all(0 <= row["test"]["p@10"] <= 1 for row in report["regions"])
    assert "| Germany | 8 |" in (run.report / "summary.md").read_text()
    assert {slot.split("_")[0] for slot in machine_of(run, pool)} == {"slot1"}  # slot2 has no GPU
    for log in (dagman_file(run.study_dag, "dagman.log"), run.path / "study.dag.nodes.log"):  # whatever the zone here
        stamps = re.findall(r"^\d{3} \([\d.]+\) (\S+ \S+)", log.read_text(), re.MULTILINE)
        assert stamps and all(stamp.endswith("Z") for stamp in stamps), stamps
    assert main(["report", str(run.path)]) == 0
    assert "Germany" in capsys.readouterr().out
    assert main(["status", str(run.path), "--watch"]) == 0
    assert "4/4" in capsys.readouterr().out


def test_lanes_pruning_and_sharing(pool, run_area, capsys):
    text = STUDY.replace("method: bayes", "method: bayes\n  schedule: lanes\n  prune: asha\n  share: model")
    run = generate(run_area, capsys, text.replace("epochs: 2", "epochs: 4"))
    submit(run)
    assert finish(pool, run).exit_code == 0
    for row in summary(run)["regions"]:
        trials = row["trials"]
        assert row["status"] == "promoted" and trials["run"] == trials["ok"] + trials["pruned"] == 4
        history = Journal(run.region(row["slug"]).journal).read()
        assert len({tuple(proposal.point.values()) for proposal in history.proposals.values()}) == 4
        winner, of = history.won
        assert of == 4 and history.settled[winner].ok
        assert row["hyperparameters"] == history.proposals[winner].point


def test_small_regions_start_from_a_model_of_all(pool, run_area, capsys):
    """Alone a region says what has to run first; with all others it waits for that and ends with a champion."""
    text = SHORT.replace("limits:", "init: pooled\nlimits:").replace(
        "network:", "  - {name: Malta, data: data/malta.nc}\nnetwork:", 1
    ).replace("germany.nc}", "germany.nc, init: random}")  # fmt: skip
    study = write_study(run_area, text)
    for stem, users, shift in (("uk", 12, 0), ("germany", 8, 4), ("malta", 3, 6)):  # catalogues that overlap
        write_region(run_area / "data", stem, users, [f"item {n + shift}" for n in range(WIDTH)])
    assert main(["generate", str(study)]) == 0
    told = capsys.readouterr()
    run = RunFolder(Path(told.out.strip()))
    assert "trainings start from a model of all regions together: United Kingdom, Malta" in told.err
    assert main(["doctor", str(run.path)]) == 0
    submit(run, "--region", "Malta")
    assert finish(pool, run).exit_code != 0
    assert f"submit {run.region('pooled').dag} first" in (run.path / "manager.log").read_text()
    submit(run)
    assert finish(pool, run).exit_code == 0
    rows = {row["slug"]: row for row in summary(run)["regions"]}
    assert {slug: row["status"] for slug, row in rows.items()} == dict.fromkeys(
        ("united-kingdom", "germany", "malta", "pooled"), "promoted"
    )  # fmt: skip
    for slug in ("united-kingdom", "malta"):
        folder = run.region(slug)
        assert sha256_of(folder.init_model) == champions(run)["pooled"]
        assert rows[slug]["hyperparameters"]["hidden"] == rows["pooled"]["hyperparameters"]["hidden"]
        for place in folder.path.glob("trials/*"):
            assert f"{WIDTH:,} of {WIDTH:,} units of Input found by name" in result_of(place).init
    assert not run.region("germany").init_model.exists()


def test_every_region_starts_from_a_file(pool, run_area, capsys):
    """It travels with the jobs of a run that was made from it, whatever becomes of the file."""
    study = write_study(run_area, SHORT.replace("limits:", "init: {model: body.nc}\nlimits:"))
    for stem, users in (("uk", 12), ("germany", 8)):
        write_region(run_area / "data", stem, users)
    words = ["train", run_area / "network.json", run_area / "data/uk.train.nc", "--out", run_area / "body.nc"]
    assert nnlib_main([str(word) for word in [*words, "--set", "hidden=4", "--epochs", "1"]]) == 0
    digest = sha256_of(run_area / "body.nc")
    assert main(["generate", str(study)]) == 0
    told = capsys.readouterr()
    run = RunFolder(Path(told.out.strip()))
    assert "trainings start from the model body.nc: United Kingdom, Germany" in told.err
    (run_area / "body.nc").unlink()
    submit(run)
    assert finish(pool, run).exit_code == 0
    assert {row["status"] for row in summary(run)["regions"]} == {"promoted"}
    for slug in ("united-kingdom", "germany"):
        folder = run.region(slug)
        assert sha256_of(folder.init_model) == digest
        said = [result_of(place).init for place in folder.path.glob("trials/*")]
        assert said and all(f"{WIDTH:,} of {WIDTH:,} units of Input found by" in one for one in said), said
    assert main(["verify", str(run.path)]) == 0


def test_one_region_alone_and_then_the_others(pool, run_area, capsys):
    run = generate(run_area, capsys, SHORT)
    submit(run, "--region", "Germany")
    wait(pool, run, lambda status: status.over and status.regions[1].final == "promoted", "Germany alone")
    rows = {row["region"]: row["status"] for row in summary(run)["regions"]}
    assert rows == {"United Kingdom": "unfinished", "Germany": "promoted"}
    log = run.region("germany").path / "region.dag.dagman.log"
    assert read_dag_log(log).exit_code == 0  # it answers for its own region alone
    before = run.region("germany").journal.read_bytes()
    submit(run)
    assert main(["submit", str(run.path), "--region", "Germany"]) == 1  # two DAGMans over the same nodes
    assert "in the queue already" in capsys.readouterr().err
    assert finish(pool, run).exit_code == 0
    assert run.region("germany").journal.read_bytes() == before
    assert all(row["status"] == "promoted" for row in summary(run)["regions"])


def test_diverging_trials_cost_no_retry_and_the_study_goes_on(pool, run_area, capsys):
    text = ALONE.replace("{real: [1e-3, 1e-1], log: true}", "{choice: [0.01, 1e6]}").replace(
        "[2, 8], log: true", "[4, 5]"
    )
    text = text.replace("method: bayes\n  rounds: 2\n  parallel: 2", "method: grid")
    text = text.replace("epochs: 2", "optimizer: sgd, epochs: 4")
    run = generate(run_area, capsys, text)
    submit(run)
    assert finish(pool, run).exit_code == 0
    [row] = summary(run)["regions"]
    assert row["status"] == "promoted"
    assert row["trials"] == {"planned": 4, "run": 4, "ok": 2, "failed": 2, "pruned": 0}
    history = Journal(run.region("germany").journal).read()
    assert [s.status for s in history.settled.values() if not s.ok] == ["diverged"] * 2
    assert history.attempts == 0 and row["hyperparameters"]["learning_rate"] == 0.01


def test_a_fault_of_the_machine_is_tried_again(pool, run_area, capsys):
    run = generate(run_area, capsys, ALONE.replace("rounds: 2", "rounds: 1"))
    script = run.path / "train.sh"
    node = 'grep -o \'"node": "[^"]*"\' trial.json | tr -dc \'a-z0-9_\''
    fault = f'first={run_area}/tried-$({node})\n[ -e "$first" ] || {{ : >"$first"; exit {int(Exit.MACHINE)}; }}\n'
    script.write_text(script.read_text().replace("python=/usr", fault + "python=/usr", 1))
    submit(run)
    assert finish(pool, run).exit_code == 0
    history = Journal(run.region("germany").journal).read()
    assert history.attempts == 3  # both trials and the final training, once each
    assert [s.status for s in history.settled.values()] == ["ok", "ok"]


def test_dagman_killed_in_mid_round_ends_with_the_same_champions(pool, run_area, capsys):
    undisturbed = generate(run_area / "a", capsys, ALONE)
    killed = generate(run_area / "b", capsys, ALONE)
    slow_down(killed, 5)
    for run in (killed, undisturbed):
        submit(run)
    wait(pool, killed, lambda status: any(r.done for r in status.regions), "a trial before the end")
    before = dagmans_of(killed)
    for process in before:
        os.kill(process, signal.SIGKILL)
    again = wait(pool, killed, lambda status: status.over or dagmans_of(killed) - before, "the schedd to notice")
    if again.over:  # the schedd starts it again by itself; else the user does
        submit(killed)
    assert finish(pool, killed).exit_code == 0 and finish(pool, undisturbed).exit_code == 0
    lines = settled_lines(killed)
    assert len(lines) == len(set(lines)) == 4 + 1
    assert champions(killed) == champions(undisturbed)


def dagmans_of(run: RunFolder) -> set[int]:
    return {int(process.name) for process in Path("/proc").glob("[0-9]*") if is_dagman_of(process, run)}


def is_dagman_of(process: Path, run: RunFolder) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"condor_dagman") and str(run.study_dag).encode() in words


@pytest.mark.parametrize("stubborn", [False, True])  # then jobs are in the queue longer than their DAGMan
def test_a_dag_that_was_removed_goes_on_where_it_was(pool, run_area, capsys, stubborn):
    run = generate(run_area, capsys, ALONE)
    slow_down(run, 3, stubborn)
    submit(run)
    wait(pool, run, lambda status: any(r.done >= 2 for r in status.regions), "the first round")
    [cluster] = {read_dag_log(run.study_dag.with_name("study.dag.dagman.log")).cluster}
    pool.run(["condor_rm", str(cluster)], check=True, capture_output=True)
    wait(pool, run, lambda status: status.over, "the removal")
    before = settled_lines(run)
    submit(run)
    assert finish(pool, run).exit_code == 0
    lines = settled_lines(run)
    assert lines[: len(before)] == before
    assert len(lines) == len(set(lines)) == 4 + 1


def test_a_removed_job_is_a_failed_trial(pool, run_area, capsys):
    run = generate(run_area, capsys, ALONE.replace("rounds: 2", "rounds: 1"))
    slow_down(run, 3)
    submit(run)
    dag = run.study_dag.with_name("study.dag.dagman.log")
    wait(pool, run, lambda status: any(r.running + r.idle for r in status.regions), "a job")
    job = client.query_jobs(pool, read_dag_log(dag).cluster)[0]
    pool.run(["condor_rm", job.job], check=True, capture_output=True)
    assert finish(pool, run).exit_code == 0
    history = Journal(run.region(job.node.split("_")[0]).journal).read()
    assert sorted(s.status for s in history.settled.values()) == ["ok", "removed"]


def test_a_held_job_is_shown_with_its_reason(pool, run_area, capsys):
    run = generate(run_area, capsys, ALONE.replace("rounds: 2", "rounds: 1"))
    data = run.region("germany").data("valid")
    data.rename(data.with_suffix(".away"))
    submit(run)
    status = wait(pool, run, lambda status: len(status.held) == 2, "two held jobs")
    assert {job.node for job in status.held} == {"germany_t0000", "germany_t0001"}
    assert "data.valid.nc" in status.held[0].hold_reason
    assert main(["status", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "germany_t0000 (job" in shown and "data.valid.nc" in shown
    data.with_suffix(".away").rename(data)
    for job in status.held:
        pool.run(["condor_release", job.job], check=True, capture_output=True)
    assert finish(pool, run).exit_code == 0


def test_bad_data_fails_its_region_and_no_other(pool, run_area, capsys):
    run = generate(run_area, capsys, SHORT.replace("parallel: 2", "parallel: 1"))
    region = run.region("germany")
    spec = json.loads(region.spec.read_text())
    region.data("train").write_bytes(b"not a data set")
    spec["sha256"]["data.train.nc"] = sha256_of(region.data("train"))  # not a transfer error: it came like this
    region.spec.write_text(json.dumps(spec))
    submit(run)
    assert finish(pool, run).exit_code != 0
    rows = {row["region"]: row for row in summary(run)["regions"]}
    assert rows["United Kingdom"]["status"] == "promoted"
    assert rows["Germany"]["status"] == "failed" and "data.train.nc" in rows["Germany"]["reason"]


@pytest.mark.parametrize("case", CASES)
def test_htcondor_itself_reads_what_the_golden_files_show(pool, run_area, capsys, case):
    text, version = CASES[case]
    run = generate(run_area, capsys, text, "--htcondor", ".".join(map(str, version)))
    main(["doctor", str(run.path)])
    seen = [line for line in capsys.readouterr().out.splitlines() if ".sub of" in line]
    assert seen and all("slots" in line or "no slot meets" in line for line in seen), seen  # parsed, then matched
    # DAGMan parses the whole graph and finds every node done already.
    rescue = run.path / "study.dag.rescue001"
    nodes = [line.split()[1] for line in run.study_dag.read_text().splitlines() if line.startswith("JOB ")]
    rescue.write_text("".join(f"DONE {node}\n" for node in nodes))
    submit(run)
    finish(pool, run)
    log = run.study_dag.with_name("study.dag.dagman.out").read_text()
    assert f"Dag contains {len(nodes) + 1} total" in log or f"{len(nodes)} of {len(nodes)}" in log, log[-3000:]


def test_doctor_names_the_clause_that_no_slot_meets(pool, run_area, capsys):
    requirements = "requirements: 'TARGET.HAS_GPU =?= True && TARGET.Color == \"red\"'"
    run = generate(run_area, capsys, STUDY.replace("cpus: 1,", f"cpus: 1, {requirements},"))
    assert main(["doctor", str(run.path)]) == 6
    shown = capsys.readouterr().out
    assert "no slot meets" in shown and 'Color == "red"' in shown and "HAS_GPU" not in shown.split("no slot meets")[1]


def test_doctor_says_what_is_too_big_for_the_pool(pool, run_area, capsys):
    run = generate(run_area, capsys, STUDY.replace("cpus: 1, memory: 256MB", "cpus: 900, memory: 256MB"))
    assert main(["doctor", str(run.path)]) == 6
    assert "Cpus" in capsys.readouterr().out


def test_doctor_passes_on_what_condor_submit_says(pool, run_area, capsys):
    run = generate(run_area, capsys, STUDY.replace("cpus: 1,", 'cpus: 1, requirements: "((",'))
    assert main(["doctor", str(run.path)]) == 6
    assert "requirements" in capsys.readouterr().out.lower()
