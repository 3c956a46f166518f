"""`regiondag report --watch`: the page while a run goes on, with what its trials say, and after its end."""

from __future__ import annotations

import pytest

from regiondag.cli import main
from regiondag.commands import report as command
from regiondag.condor import client
from regiondag.pool.pool import Pool
from regiondag.run.layout import dagman_file
from tests.workflows.generate.test_write_run import create
from tests.workflows.monitor.test_live import job
from tests.workflows.monitor.test_status import ENDED, STARTED, SUBMITTED
from tests.workflows.monitor.test_status import job as queued
from tests.workflows.report.test_page import unpacked

POOL = Pool("default", "installed", (25, 14, 0))
SAID = ("ChirpAt = 1800000000", "ChirpEpoch = 2", "ChirpEpochs = 9", 'ChirpCurve = "0.1,0.2"')


@pytest.fixture
def run(study_file, tmp_path, monkeypatch):
    run = create(study_file, tmp_path / "runs")
    log = dagman_file(run.study_dag, "dagman.log")
    log.write_text(SUBMITTED + STARTED)
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda _: POOL)
    monkeypatch.setattr(client, "query_queue", lambda *_: [queued(5, log=log), job("germany_t0001", 2, *SAID)])
    return run


def test_written_again_and_again_until_the_dag_has_ended(run, monkeypatch, capsys):
    pages = []

    def wait(seconds: float) -> None:
        assert seconds == 7
        pages.append(unpacked(run.page))
        if len(pages) == 2:
            dagman_file(run.study_dag, "dagman.log").write_text(SUBMITTED + STARTED + ENDED)

    monkeypatch.setattr(command.time, "sleep", wait)
    assert main(["report", str(run.path), "--watch", "--interval", "7"]) == 1  # nothing was trained
    shown = capsys.readouterr()
    assert [page["refresh"] for page in pages] == [7, 7] and unpacked(run.page)["refresh"] is None
    [live] = pages[0]["live"]
    assert live["curve"] == [0.1, 0.2] and live["trial"] == 1
    assert shown.out.count("Page: ") == 1 and shown.err.count("every 7 s") == 1


def test_once_it_has_what_runs_now_and_does_without_a_pool_that_is_silent(run, monkeypatch):
    assert main(["report", str(run.path)]) == 1
    assert len(unpacked(run.page)["live"]) == 1 and unpacked(run.page)["refresh"] is None

    def fails(*_):
        raise command.PoolError("no schedd")

    monkeypatch.setattr(client, "query_queue", fails)
    assert main(["report", str(run.path)]) == 1
    assert unpacked(run.page)["live"] == []


def test_nothing_to_wait_for(run, monkeypatch, capsys):
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda _: None)
    assert main(["report", str(run.path), "--watch"]) == 5
    assert "nothing will change" in capsys.readouterr().err
