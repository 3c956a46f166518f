"""Daily updates on a real HTCondor pool: a second run from new data, and a job that HTCondor starts by itself."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from nnlib.contract import sha256_of, trial_from_json
from regiondag.cli import main
from regiondag.condor import client
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.run.champions import earlier_runs
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder
from regiondag.update.nightly import nightly_folder
from tests.workflows.conftest import STUDY, write_region, write_study
from tests.workflows.on_pool.test_study import finish, slow_down, submit, summary, wait

pytestmark = pytest.mark.condor

SHORT = STUDY + "update: {rounds: 1}\n"
TWO_MINUTES = 130  # seconds until a job for every minute has surely begun


def update(study: Path, capsys, *options: str) -> RunFolder | None:
    capsys.readouterr()
    assert main(["update", str(study), "--quiet", *options]) == 0
    path = capsys.readouterr().out.strip()
    return RunFolder(Path(path)) if path else None


def test_the_next_day(pool, run_area, capfd):
    study = write_study(run_area, SHORT)
    first = update(study, capfd)
    slow_down(first, 2)
    submit(first)
    assert main(["update", str(study)]) == 1
    assert f"{first.path} is still in progress" in capfd.readouterr().err
    assert finish(pool, first).exit_code == 0
    assert update(study, capfd) is None

    write_region(run_area / "data", "germany", users=10)
    assert main(["update", str(study), "--submit"]) == 0
    second = earlier_runs(run_area / "runs", "tiny")[0]
    assert finish(pool, second).exit_code == 0
    [row] = summary(second)["regions"]
    assert row["region"] == "Germany" and row["trials"]["run"] == 2
    check_promotion(first, second)
    assert update(study, capfd) is None


def check_promotion(first: RunFolder, second: RunFolder) -> None:
    """The champion was carried, tried again, measured on both parts, and replaced only by what is better on both."""
    before, now = first.region("germany"), second.region("germany")
    history = Journal(now.journal).read()
    champion = json.loads(before.champion_metrics.read_text())
    assert history.proposals[0].point == champion["hyperparameters"]
    trial = trial_from_json((now.path / "trials" / "0000" / "trial.json").read_text())
    assert trial.sha256[str(trial.champion)] == champion["sha256"]
    best, final = history.best(minimize=False), history.final
    assert best is not None and final is not None
    bars = history.settled[0].standing["ndcg@5"], final.standing["ndcg@5"]
    assert final.promoted == (best.value >= bars[0] and final.metrics["ndcg@5"] > bars[1])
    assert final.promoted or final.reason.startswith("kept: on the ")
    source = second.path / "regions/germany/trials/final/model.nc" if final.promoted else before.champion_model
    assert sha256_of(now.champion_model) == sha256_of(source)


def test_htcondor_updates_the_study_by_itself(pool, run_area, capfd):
    study = write_study(run_area, SHORT)
    job = update(study, capfd, "--cron", "* * * * *")
    assert job is not None
    pool.run(["condor_submit", str(job.path)], cwd=run_area, check=True, capture_output=True)
    folder = nightly_folder(study, "tiny")
    cluster = read_dag_log(folder.event_log).cluster
    try:
        deadline = time.monotonic() + TWO_MINUTES
        while not (runs := earlier_runs(run_area / "runs", "tiny")):
            assert time.monotonic() < deadline, said(folder.path)
            time.sleep(1)
        wait(pool, runs[0], lambda status: any(region.done for region in status.regions), "a trial of the nightly run")
        wait(pool, runs[0], lambda _: "exit code" in folder.log.read_text(), "the end of the update")
        assert "exit code 0" in folder.log.read_text()
        assert client.query_status(pool, cluster, folder.event_log) in ("idle", "running")  # waits for the next minute
        assert main(["update", str(study), "--cron", "30 3 * * *"]) == 1
        assert f"condor_rm {cluster}" in capfd.readouterr().err
    finally:
        pool.run(["condor_rm", str(cluster)], check=True, capture_output=True)
    assert finish(pool, runs[0]).exit_code == 0
    wait(
        pool,
        runs[0],
        lambda _: client.query_status(pool, cluster, folder.event_log) is None,
        "the nightly job to leave",
    )
    assert update(study, capfd, "--cron", "30 3 * * *") is not None


def said(folder: Path) -> str:
    return "\n".join(f"{file.name}: {file.read_text()}" for file in folder.iterdir())
