"""Where a run stands, as the queue and DAGMan's log say it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from regiondag.commands import status as command
from regiondag.condor import classads, client
from regiondag.condor.client import QueuedJob
from regiondag.condor.submit import find_unfinished_job
from regiondag.errors import PoolError
from regiondag.monitor.status import RunStatus, read_status
from regiondag.pool.pool import Pool
from regiondag.run.layout import RunFolder, dagman_file
from tests.workflows.conftest import write_study
from tests.workflows.generate.test_write_run import create

POOL = Pool("default", "installed", (25, 14, 0))
SUBMITTED = "000 (005.000.000) 2026-11-22 05:00:00 Job submitted from host: <127.0.0.1:1>\n...\n"
STARTED = "001 (005.000.000) 2026-11-22 05:00:01 Job executing on host: <127.0.0.1:1>\n...\n"
ENDED = "005 (005.000.000) 2026-11-22 06:00:00 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n"


@pytest.fixture
def run(tmp_path) -> RunFolder:
    run = create(write_study(tmp_path), tmp_path / "runs")
    dagman_file(run.study_dag, "dagman.log").write_text(SUBMITTED + STARTED)
    return run


def job(cluster: int, node: str = "", log: Path = Path("job.log")) -> classads.ClassAd:
    name = f'\nDAGNodeName = "{node}"\nDAGManJobId = 5' if node else ""
    where = f'\nIwd = "{log.parent}"\nUserLog = "{log.name}"'
    return classads.parse_ad(f"Requirements = true\nClusterId = {cluster}\nProcId = 0\nJobStatus = 2{name}{where}")


def test_a_dagman_that_works(run, monkeypatch):
    ads = [job(5, log=dagman_file(run.study_dag, "dagman.log")), job(7, "germany_t0000")]
    monkeypatch.setattr(client, "query_queue", lambda *_: ads)
    status = read_status(run, POOL)
    assert status.dag == "running" and not status.over
    assert [region.running for region in status.regions] == [0, 1]
    assert read_status(run, None).dag == "running"  # by its log: nobody else can be asked


def test_a_dagman_of_the_same_number_that_works_for_others(run, monkeypatch):
    """A queue that was made anew, or another pool's, counts from 1 again."""
    ads = [job(5, log=run.path.parent / "other/study.dag.dagman.log"), job(7, "germany_t0000")]
    monkeypatch.setattr(client, "query_queue", lambda *_: ads)
    status = read_status(run, POOL)
    assert status.dag == "crashed" and [region.running for region in status.regions] == [0, 0]
    log = dagman_file(run.study_dag, "dagman.log")
    assert find_unfinished_job(POOL, log) is None
    ads[0] = job(5, log=log)
    assert find_unfinished_job(POOL, log) == 5


def test_a_dagman_that_is_gone_without_a_word_has_crashed(run, monkeypatch, capsys):
    monkeypatch.setattr(client, "query_queue", lambda *_: [])
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda _: POOL)
    status = read_status(run, POOL)
    assert status.dag == "crashed" and status.over and status.exit_code is None
    assert command.run(command_arguments(run, watch=True)) == 0  # it would look for ever
    assert "regiondag submit" in capsys.readouterr().out


def test_a_dagman_that_ends_while_the_queue_is_asked_has_not_crashed(run, monkeypatch):
    def ends(*_: object) -> list[classads.ClassAd]:
        dagman_file(run.study_dag, "dagman.log").write_text(SUBMITTED + STARTED + ENDED)
        return []

    monkeypatch.setattr(client, "query_queue", ends)
    assert (read_status(run, POOL).dag, read_status(run, POOL).exit_code) == ("ended", 0)


def test_a_queue_that_does_not_answer(run, monkeypatch):
    def fails(*_: object) -> list[classads.ClassAd]:
        raise PoolError("no schedd")

    monkeypatch.setattr(client, "query_queue", fails)
    status = read_status(run, POOL)
    assert status.dag == "running" and "no schedd" in status.note


def test_reasons_of_holds_do_not_steer_the_terminal(capsys):
    held = QueuedJob("germany_t0000", "7.0", "held", "\x1b[2Jgone", time.time(), "")
    command._show_table(RunStatus("tiny", "run", "running", None, 0.0, (), (held,), ""))
    assert "?[2Jgone" in capsys.readouterr().out


def command_arguments(run: RunFolder, *, watch: bool):
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(run.path), "--watch"] if watch else [str(run.path)])
