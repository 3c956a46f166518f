"""`explain` and `stats` on a real pool: jobs that cannot match, that are held, that fail, and a DAGMan that is gone."""

from __future__ import annotations

import csv
import json

import pytest

from regiondag.cli import main
from regiondag.condor.events.dag_log import read_dag_log
from tests.workflows.conftest import STUDY
from tests.workflows.on_pool.test_study import ALONE, finish, generate, submit, wait

pytestmark = pytest.mark.condor

IMPOSSIBLE = "job: {requirements: 'TARGET.HAS_GPU =?= True && TARGET.Color == \"red\"'}"


@pytest.fixture
def explained(capsys):
    """Return a function that runs `explain` and returns what it printed, as {subject: explanation}, and as text."""

    def look(run, *words: str) -> tuple[dict[str, dict], str]:
        capsys.readouterr()
        assert main(["explain", str(run.path), *words]) == 0
        text = capsys.readouterr().out
        assert main(["explain", str(run.path), *words, "--json"]) == 0
        return {one["subject"]: one for one in json.loads(capsys.readouterr().out)}, text

    return look


def test_jobs_that_are_idle_or_held_and_a_dagman_that_is_held_or_gone(pool, run_area, capsys, explained):
    text = STUDY.replace("data: data/germany.nc}", f"data: data/germany.nc, {IMPOSSIBLE}}}")
    run = generate(run_area, capsys, text)
    assert explained(run)[0][run.path.name]["state"] == "not submitted"
    data = run.region("united-kingdom").data("valid")
    data.rename(data.with_suffix(".away"))
    submit(run)
    wait(pool, run, lambda status: len(status.held) == 2 and sum(r.idle for r in status.regions) == 2, "all jobs")
    found, shown = explained(run)
    idle = (
        found["germany_t0000, germany_t0001"]
        if "germany_t0000, germany_t0001" in found
        else found["germany_t0001, germany_t0000"]
    )
    assert idle["state"] == "idle" and "no slot meets" in idle["why"] and 'Color == "red"' in idle["why"]
    assert "HAS_GPU" not in idle["why"]
    held = found["united-kingdom_t0000"]
    assert held["state"] == "held" and "data.valid.nc" in held["why"] and "(code 13)" in held["why"]
    assert "condor_release" in held["advice"] and ("removed in" in held["advice"] or "releases" in held["advice"])
    assert "united-kingdom_t0001 [held]" in shown and "germany" not in explained(run, "United Kingdom")[1]
    assert explained(run, "germany_final")[0]["germany_final"]["why"].startswith("for germany_t0002")
    assert "germany_t0000 (idle)" in explained(run, "germany_t0002")[0]["germany_t0002"]["why"]
    assert "Color" in explained(run, "germany_t0000")[1] and main(["explain", str(run.path), "Grmany"]) == 2
    assert "did you mean" in capsys.readouterr().err
    dag = read_dag_log(run.path / "study.dag.dagman.log").cluster
    pool.run(["condor_hold", "-reason", "lunch", str(dag)], check=True, capture_output=True)
    wait(pool, run, lambda status: status.dag == "held", "the hold")
    dagman = explained(run)[0]["study.dag"]
    assert dagman["state"] == "held" and "lunch" in dagman["why"] and f"condor_release {dag}" in dagman["advice"]
    pool.run(["condor_rm", str(dag)], check=True, capture_output=True)
    wait(pool, run, lambda status: status.over, "the removal")
    assert explained(run)[0]["study.dag"]["state"] in ("removed", "crashed")
    assert explained(run, "germany_t0000")[0]["germany_t0000"]["state"] == "not run"


def test_trials_that_failed_and_what_the_run_took(pool, run_area, capsys, explained):
    text = ALONE.replace("{real: [1e-3, 1e-1], log: true}", "{choice: [0.01, 1e6]}").replace(
        "[2, 8], log: true", "[4, 5]"
    )
    text = text.replace("method: bayes\n  rounds: 2\n  parallel: 2", "method: grid")
    run = generate(run_area, capsys, text.replace("epochs: 2", "optimizer: sgd, epochs: 4"))
    submit(run)
    assert finish(pool, run).exit_code == 0
    found, _ = explained(run)
    assert found["Germany"]["state"] == "failed trials" and "diverged" in found["Germany"]["why"]
    found, _ = explained(run, "Germany")
    assert found["Germany"]["state"] == "promoted"
    failed = {subject: one for subject, one in found.items() if subject.startswith("germany_t")}
    assert len(failed) == 2
    for one in failed.values():
        assert one["state"] == "failed" and "diverged" in one["why"]
        assert any("slot1" in line and "V100" in line and "exit code 3" in line for line in one["details"])
        assert any(line.startswith("job.err: ") for line in one["details"])
    done = explained(run, "germany_final")[0]["germany_final"]
    assert done["state"] == "ok" and any("median" in line for line in done["details"])
    assert main(["stats", str(run.path), "--json", "--csv", str(run_area / "jobs.csv")]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert stats["total"]["trials"] == 5 and stats["total"]["gpu_hours"] == stats["total"]["slot_hours"] > 0
    assert stats["total"]["evictions"] == 0 == stats["total"]["cost"]
    assert 0 < stats["total"]["busy"] <= 1 and stats["total"]["overhead"] >= 0  # logs have whole seconds
    [kind] = stats["machines"]
    assert "V100" in kind and stats["yaml"][0].startswith("job: {memory: ")
    rows = list(csv.DictReader((run_area / "jobs.csv").read_text().splitlines()))
    lost = {row["node"]: float(row["lost_to_failure_s"]) for row in rows}  # 0 of a job within one second of the log
    assert len(rows) == 5 and stats["total"]["lost_to_failure"] == pytest.approx(sum(lost.values()) / 3600)
    for row in rows:
        assert lost[row["node"]] == (float(row["slot_s"]) if row["node"] in failed else 0)
    assert main(["stats", str(run.path), "--trials"]) == 0
    assert "germany_final" in capsys.readouterr().out
