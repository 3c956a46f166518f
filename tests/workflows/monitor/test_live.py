"""What all running trials of a run say: read from HTCondor's queue, whoever wrote there."""

from __future__ import annotations

import pytest

from regiondag.condor import classads, client
from regiondag.monitor.live import live_of, read_live
from regiondag.pool.pool import Pool
from regiondag.run.layout import NodeName, dagman_file
from tests.workflows.conftest import write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.monitor.test_status import STARTED, SUBMITTED

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
