"""What all running trials of a run say: read from HTCondor's queue, whoever wrote there."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

import pytest

from regiondag.commands import status as command
from regiondag.commands.status import MOST_LIVE
from regiondag.condor import classads, client
from regiondag.monitor.live import live_of, read_live, tabulate_live
from regiondag.monitor.status import RunStatus
from regiondag.pool.pool import Pool
from regiondag.run.layout import NodeName, dagman_file
from regiondag.run.live import Live
from tests.workflows.conftest import write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.monitor.test_status import BASE, STARTED, SUBMITTED, Terminal

POOL = Pool("default", "installed", (25, 14, 0))


def job(node: str, status: int = 2, *said: str) -> classads.ClassAd:
    lines = (
        f'DAGNodeName = "{node}"',
        f"JobStatus = {status}",
        "ClusterId = 7",
        "ProcId = 0",
        "DAGManJobId = 5",
        *said,
    )
    return classads.parse_ad("\n".join(("Requirements = true", *lines)))


def test_running_jobs_that_said_something():
    ads = [
        job(
            "germany_t0001",
            2,
            "ChirpAt = 100",
            "ChirpEpoch = 3",
            "ChirpEpochs = 9",
            "ChirpLoss = -0.5",
            'ChirpCurve = "1,2"',
        ),
        job("germany_t0002", 2),
        job("germany_t0003", 5, "ChirpAt = 100"),
        job("somebody's", 2, "ChirpAt = 100"),
        job(
            "germany_final", 2, "ChirpAt = 100", "ChirpLoss = undefined", "ChirpEpoch = error", 'ChirpDoing = "testing"'
        ),
    ]
    found = live_of(ads)
    assert [*found] == [NodeName("germany", 1), NodeName("germany", None)]
    first, last = found.values()
    assert (first.epoch, first.epochs, first.loss, first.curve) == (3, 9, -0.5, (1.0, 2.0))
    assert (last.epoch, last.loss, last.doing, last.at) == (0, None, "testing", 100)


@pytest.mark.parametrize("said", ["1/0", "strcat(1, 2)", "time()", "{1}", "[a = 1]", "MY.ChirpAt", "1e999", "true"])
def test_expressions_are_not_evaluated(said):
    found = live_of([job("germany_t0001", 2, "ChirpAt = 100", f"ChirpLoss = {said}", f"ChirpCurve = {said}")])
    live = found[NodeName("germany", 1)]
    assert live.loss is None and live.curve == ()


def test_one_query_for_all_jobs_of_a_run(tmp_path, monkeypatch):
    run, asked = create(write_study(tmp_path), tmp_path / "runs"), []
    log = dagman_file(run.study_dag, "dagman.log")
    log.write_text(SUBMITTED + STARTED)
    dagman = classads.parse_ad(
        f'Requirements = true\nClusterId = 5\nProcId = 0\nIwd = "{log.parent}"\nUserLog = "{log.name}"'
    )

    def query(_pool, constraint, projection):
        asked.append((constraint, projection))
        return [dagman, job("germany_t0001", 2, "ChirpAt = 100")]

    monkeypatch.setattr(client, "query_queue", query)
    assert [*read_live(POOL, run)] == [NodeName("germany", 1)]
    assert len(asked) == 1 and "ChirpCurve" in asked[0][1]


# --- what people see ---------------------------------------------------------------------------------------

NOW = 1_800_000_000.0
TRAINING = Live(NodeName("united-kingdom", 7), 12, 30, 6.51234, 0.12345, (0.1, 0.12345), 754.0, NOW - 6)
FAMILY = Live(NodeName("pooled", 3), 0, 0, None, None, (), None, NOW - 4, "asking customers: 512 of 1,119")
AGAIN = replace(TRAINING, node=NodeName("united-kingdom", None), doing="on all days", value=None, curve=(), at=NOW + 60)
REGIONS = {"united-kingdom": "United Kingdom", "pooled": "all regions"}


def test_a_row_for_each_running_trial():
    assert tabulate_live([TRAINING, FAMILY, AGAIN], REGIONS, NOW) == [
        ("United Kingdom t0007", "epoch 12 of 30", "6.512", "0.1235", "13 min", "6 s"),
        ("all regions t0003", "asking customers: 512 of 1,119", "-", "-", "-", "4 s"),
        ("United Kingdom final", "epoch 12 of 30, on all days", "6.512", "-", "13 min", "0 s"),
    ]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout", Terminal())
    many = [replace(TRAINING, node=NodeName("united-kingdom", n)) for n in range(MOST_LIVE - 2)]
    regions = tuple(replace(BASE, region=name, slug=slug) for slug, name in REGIONS.items())
    live = (FAMILY, AGAIN, *many, *many[:3])
    command._show_live(RunStatus("tiny", "run", "running", None, 0.0, regions, (), "", live))
    text = sys.stdout.getvalue()
    assert max(map(len, text.splitlines())) <= columns
    assert text.count("0.1235") == text.count("13 min") - 1 == MOST_LIVE - 2 and text.count("epoch 12 of 30") > 9
    assert text.endswith("and 3 more: --json has all\n")


def test_as_json(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: NOW)
    status = RunStatus("tiny", "run", "running", None, 0.0, (BASE,), (), "", (TRAINING,))
    [live] = json.loads(json.dumps(command._as_json(status)))["live"]
    assert live == {
        "node": "united-kingdom_t0007",
        "epoch": 12,
        "epochs": 30,
        "loss": 6.51234,
        "value": 0.12345,
        "curve": [0.1, 0.12345],
        "seconds_left": 754.0,
        "at": NOW - 6,
        "doing": "",
        "age": 6.0,
    }
