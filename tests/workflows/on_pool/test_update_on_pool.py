"""Daily updates on a real HTCondor pool: a second run from new data, and a job that HTCondor starts by itself."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from nnlib.contract import sha256_of
from regiondag.cli import main
from regiondag.condor import client
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.node.choice import read_decisions
from regiondag.run.champions import earlier_runs
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder
from regiondag.update.nightly import nightly_folder
from tests.workflows.conftest import STUDY, write_region, write_study
from tests.workflows.on_pool.test_study import finish, slow_down, submit, summary, wait

pytestmark = pytest.mark.condor

SHORT = STUDY.replace("rounds: 2", "rounds: 1") + "update: {rounds: 1}\n"
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
    check_champion(first, second)
    assert update(study, capfd) is None


def check_champion(first: RunFolder, second: RunFolder) -> None:
    """The recipe in office was fitted again, and what was decided serves, fitted by this run."""
    before, now = first.region("germany"), second.region("germany")
    history, decision = Journal(now.journal).read(), read_decisions(now)["common"]
    champion = json.loads(before.champion_metrics.read_text())
    assert history.proposals[0].point == champion["hyperparameters"]
    final = history.final
    assert final is not None and final.reason == decision["reason"]
    floor = decision["kind"] == "floor"
    assert final.promoted == (floor or decision["trial"] != 0)
    source = second.path / "regions/germany/trials/final" / ("floor.nc" if floor else "model.nc")
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
