"""Where a run stands, as the queue and DAGMan's log say it."""

from __future__ import annotations

import io
import re
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from nnlib.contract import Recipe, Status
from regiondag.commands import status as command
from regiondag.condor import classads, client
from regiondag.condor.client import QueuedJob
from regiondag.condor.submit import find_unfinished_job
from regiondag.errors import PoolError
from regiondag.monitor.status import Figure, RegionStatus, RunStatus, read_status
from regiondag.pool.pool import Pool
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
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


def test_sick_gpus_of_the_pool_are_named_while_the_dag_works(run, monkeypatch, capsys):
    sick = classads.parse_ad(
        'Requirements = true\nMachine = "w2"\nRegiondagSickGPUs = "GPU-a022: XID 79, \033[2Jfell off"\n'
    )
    asked = []
    monkeypatch.setattr(client, "query_queue", lambda *_: [job(5, log=dagman_file(run.study_dag, "dagman.log"))])
    monkeypatch.setattr(client, "query_some_slots", lambda _, *words: asked.append(words) or [sick])
    status = read_status(run, POOL)
    assert status.sick_gpus == {"w2": "GPU-a022: XID 79, ?[2Jfell off"}
    [(constraint, _)] = asked  # of the collector: a pool of thousands of machines sends those alone
    assert "RegiondagSickGPUs" in constraint
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda _: POOL)
    command.run(command_arguments(run, watch=False))
    assert "\nsick GPU: w2 does not offer GPU-a022: XID 79, ?[2Jfell off\n" in capsys.readouterr().out
    assert command._as_json(status)["sick_gpus"] == status.sick_gpus
    assert read_status(run, None).sick_gpus == {}  # nobody was asked
    dagman_file(run.study_dag, "dagman.log").write_text(SUBMITTED + STARTED + ENDED)
    assert read_status(run, POOL).sick_gpus == {}  # whatever is sick now, it is not this run's business


def test_reasons_of_holds_do_not_steer_the_terminal(capsys):
    held = QueuedJob("germany_t0000", "7.0", "held", "\x1b[2Jgone", time.time(), "")
    command._show_table(RunStatus("tiny", "run", "running", None, 0.0, (), (held,), ""))
    assert "?[2Jgone" in capsys.readouterr().out


def settle(run: RunFolder, trial: int | None, value: float, **more: object) -> None:
    journal = Journal(run.region("germany").journal)
    with journal.locked():
        journal.append("settled", **asdict(TrialOutcome(trial, Status.OK, value=value, **more)))  # type: ignore[arg-type]


def test_the_best_stands_with_its_interval_its_customers_and_recent_popularity(run):
    settle(run, 0, 0.10, stderr=0.003, customers=1119, recipe=Recipe("popularity"))
    settle(run, 1, 0.08, stderr=0.003, customers=1119, recipe=Recipe("popularity"))
    settle(run, 2, 0.15, stderr=0.005, customers=1119, recipe=Recipe("ease"))
    [_, germany] = read_status(run, None).regions
    assert germany.best == 0.15 and germany.test is None
    assert germany.validation == Figure(0.15, pytest.approx(0.005 * 1.9621, rel=1e-4), 1119, 0.10)
    settle(run, 3, 0.16, stderr=0.1, customers=12, compared={"floor": {"ndcg@5": 0.07}})  # a network brings its own
    [_, germany] = read_status(run, None).regions
    assert germany.validation == Figure(0.16, pytest.approx(0.2201, rel=1e-3), 12, 0.07)


@pytest.mark.parametrize("customers", [0, 7])
def test_recent_popularity_of_other_customers_is_not_beside_it(run, customers):
    settle(run, 0, 0.10, stderr=0.003, customers=1119, recipe=Recipe("popularity"))
    settle(run, 1, 0.15, customers=customers)
    assert read_status(run, None).regions[1].validation == Figure(0.15, None, customers, None)


def test_a_champion_stands_with_its_test(run):
    settle(run, 0, 0.15, stderr=0.005, customers=1119)
    figures = {"metrics": {"ndcg@5": 0.14}, "intervals": {"ndcg@5": (0.13, 0.15)}, "customers": 90}
    settle(run, None, 0.2, **figures, compared={"floor": {"ndcg@5": 0.11}, "simple": {"ndcg@5": 0.12}})
    [_, germany] = read_status(run, None).regions
    assert germany.test == Figure(0.14, pytest.approx(0.01), 90, 0.11) and germany.best == 0.15


BASE = RegionStatus("Germany", "germany", 17, 12, 0, 1, 0, 0, 0.147, "ndcg@20", "", None)
BEST, TEST = Figure(0.147, 0.0123, 1119, 0.09), Figure(0.152, 0.0093, 1248, 0.102)
SERVED = replace(BASE, region="Spain", planned=0, done=0, running=0, best=None, served_by="all regions")


def table(dag: str, *regions: RegionStatus) -> list[list[str]]:
    status = RunStatus("tiny", "run", dag, None, 0.0, regions, (), "")
    headings, rows = command._tabulate(status)
    return [list(headings), *map(list, rows)]


def test_while_it_runs_there_is_no_bar_of_what_is_not_searched():
    heads, germany, spain = table("running", replace(BASE, validation=BEST), SERVED)
    assert heads[-4:] == ["best ndcg@20", "recent popularity", "final", "expected end"]
    assert germany[1:3] == ["█" * 14 + "░" * 6, "12/17"]
    assert germany[-4:-1] == ["0.147 ± .012 (1,119)", "0.090", "-"]
    assert spain[1:3] == ["", "by all regions"] and spain[-4:] == ["-"] * 4


def test_at_the_end_the_test_stands_there():
    heads, *rows = table("ended", replace(BASE, validation=BEST, test=TEST, final="kept"), replace(SERVED, test=TEST))
    assert heads == ["region", "done", "failed", "test ndcg@20", "recent popularity", "final"]
    assert rows[0] == ["Germany", "12/17", "0", "0.152 ± .009 (1,248)", "0.102", "kept"]
    assert rows[1] == ["Spain", "by all regions", "0", "0.152 ± .009 (1,248)", "0.102", "-"]


def test_the_column_of_the_floor_has_its_name():
    of_pictures = replace(BASE, test=TEST, floor_name="logistic regression")
    assert table("ended", of_pictures)[0][4] == "logistic regression"
    assert table("ended", of_pictures, replace(BASE, test=TEST))[0][4] == "the floor"


def test_figures_of_two_windows_or_metrics_say_what_they_are():
    regions = (replace(BASE, validation=BEST), replace(BASE, test=TEST), replace(BASE, region="Peru"))
    heads, *rows = table("running", *regions)
    assert heads[7] == "ndcg@20"
    assert [row[7] for row in rows] == ["best 0.147 ± .012 (1,119)", "test 0.152 ± .009 (1,248)", "-"]
    loss = replace(BASE, validation=Figure(7.25, None, 0, None), metric="loss")
    heads, *rows = table("running", replace(BASE, validation=BEST), loss)
    assert heads[7] == "best" and [row[7] for row in rows] == ["ndcg@20 0.147 ± .012 (1,119)", "loss 7.250"]


def test_twice_the_regions_are_twice_the_work():
    def count(regions: int) -> int:
        calls = []
        sys.setprofile(lambda _frame, event, _about: calls.append(event))
        try:
            table("running", *[replace(BASE, validation=BEST)] * regions)
        finally:
            sys.setprofile(None)
        return len(calls)

    assert count(200) < 2.1 * count(100)


@pytest.mark.parametrize("dag", ["running", "ended"])
def test_eighty_columns_cut_no_figure(monkeypatch, dag):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout", Terminal())
    long = replace(SERVED, region="United Arab Emirates", test=TEST, final="promoted")
    command._show_table(RunStatus("tiny", "run", dag, None, 0.0, (replace(long, served_by=""), long), (), ""))
    text = re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.getvalue())
    assert max(map(len, text.splitlines())) <= 80
    assert all(words in text for words in ("0.152 ± .009 (1,248)", "0.102", "by all regions", "no room for: "))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def command_arguments(run: RunFolder, *, watch: bool):
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(run.path), "--watch"] if watch else [str(run.path)])
