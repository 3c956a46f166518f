"""A small study of families on a real HTCondor pool: to the champion of every region, and a region alone."""

from __future__ import annotations

import json

import pytest

from nnlib.contract import sha256_of
from regiondag.cli import main
from regiondag.node.choice import read_decisions
from regiondag.run.champions import champion_of
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder
from tests.workflows.on_pool.test_study import finish, submit, summary
from tests.workflows.shop import POOLED, STUDY, write_shop

pytestmark = pytest.mark.condor

SMALL = STUDY.replace("rounds: 2, parallel: 4", "rounds: 1, parallel: 5")
SLUGS = ("avon", "berg", "cove")


def test_three_regions_get_their_champions(pool, run_area, capsys):
    study = write_shop(run_area, SMALL, regions={"Avon": 60, "Berg": 40, "Cove": 6})
    assert main(["generate", str(study), "--quiet"]) == 0
    run = RunFolder(run_area / "runs" / capsys.readouterr().out.strip().rpartition("/")[2])

    submit(run, "--region", "berg")  # before anything is chosen for all
    assert finish(pool, run).exit_code != 0
    row = next(row for row in summary(run)["regions"] if row["slug"] == "berg")
    assert "nothing is yet: submit" in row["reason"] and str(run.region(POOLED).dag) in row["reason"]

    submit(run)
    assert finish(pool, run).exit_code == 0
    decisions = read_decisions(run.region(POOLED))
    rows = {row["slug"]: row for row in summary(run)["regions"]}
    assert set(rows) == {*SLUGS, POOLED} and {row["status"] for row in rows.values()} == {"promoted"}
    for slug in SLUGS:
        assert champion_of(run, slug) is not None and rows[slug]["reason"] == decisions["regions"][slug]["reason"]
        if decisions["regions"][slug]["kind"] == "common":
            assert run.region(slug).champion_model.samefile(run.region(POOLED).champion_model)
    assert rows["avon"]["customers"] == 25 and len(rows["avon"]["intervals"]["ndcg@5"]) == 2
    history = Journal(run.region(POOLED).journal).read()
    assert sorted(history.settled) == list(range(6)) and history.proposals[5].point == {"family": "blend"}
    assert "| served by |" in (run.report / "summary.md").read_text()

    before = sha256_of(run.region("berg").champion_model)
    facts = json.loads(run.region("berg").champion_metrics.read_text())
    run.region("berg").champion_model.unlink()
    submit(run, "--region", "berg")  # after the choice: it is served again, without a job
    assert finish(pool, run).exit_code == 0
    assert sha256_of(run.region("berg").champion_model) == before == facts["sha256"]
    assert not (run.region("berg").path / "trials" / "final").exists()
