"""Recommendations for all customers on a real pool: a chunk that fails costs itself, and is made up for."""

from __future__ import annotations

import json
import re

import duckdb
import pytest

from nnlib.contract import sha256_of
from regiondag.cli import main
from regiondag.recommend.ask import Wish
from regiondag.recommend.batch import list_batches
from regiondag.recommend.here import write_here
from regiondag.recommend.jobs import write_dag
from regiondag.recommend.make import begin_batch
from regiondag.recommend.region import Served
from tests.workflows.recommend.made_up import place_study

pytestmark = pytest.mark.condor

WORDS = ("--all", "-k", "4", "--chunk", "25")


def let_fail(batch, code: int, until: str) -> None:
    """Let the jobs of each region's second chunk end with `code` until there is a file; with 75 the first one alone."""
    script = batch.work / "recommend.sh"
    first = f"[ ! -e {until} ]" if code == 4 else f"mkdir {until} 2>/dev/null"
    lines = f'if [ "$2" = part-0001 ] && {first}; then\n'
    lines += f"    : >part-0001.parquet; : >part-0001.json; exit {code}\nfi\n"
    script.write_text(script.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{lines}", 1))


def rows_of(batch):
    sql = "SELECT region, customer, rank, item, score FROM read_parquet(?) ORDER BY region, customer, rank"
    return duckdb.connect().execute(sql, [str(batch.path / "*" / "*.parquet")]).fetchall()


def command(study, *words):
    return main(["recommend", str(study), *WORDS, *words])


def begin(study):
    served = Served(study / "runs", "shop")
    batch, plan = begin_batch(study, served, list(served.regions), Wish(4), 25)
    write_dag(batch, plan)
    return batch, plan


@pytest.mark.usefixtures("pool")
def test_a_chunk_that_fails_first_is_tried_again_alone(run_area, capsys):
    study = place_study(run_area)
    batch, plan = begin(study)
    let_fail(batch, 75, str(run_area / "failed"))
    assert command(study, "--submit", "--watch", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["finished"], status["files"], status["written"], status["done"]) == (True, 5, 5, 100)
    assert list_batches(study) == [batch]
    log = (batch.work / "manager.log").read_text()
    [slug] = re.findall(r"post (\S+)_c0001 75: exit 1: its job ended with 75; _work/\1/part-0001.err says why", log)
    nodes = [chunk.node for chunk in plan.chunks()]
    assert {node: log.count(f"pre {node} ") for node in nodes} == dict.fromkeys(nodes, 1) | {f"{slug}_c0001": 2}
    digests = [part["sha256"] for one in json.loads(batch.manifest.read_text())["regions"] for part in one["parts"]]
    assert [sha256_of(batch.part(chunk)) for chunk in plan.chunks()] == digests
    there = rows_of(batch)
    for chunk in plan.chunks():
        batch.discard(chunk)
    write_here(batch, plan, 1, lambda _: None)
    here = rows_of(batch)  # by other versions of NumPy
    assert [row[:4] for row in here] == [row[:4] for row in there]
    assert [row[4] for row in here] == pytest.approx([row[4] for row in there], rel=1e-4)


@pytest.mark.usefixtures("pool")
def test_a_chunk_that_fails_for_good_leaves_the_others_and_is_made_up_for(run_area, capsys):
    study = place_study(run_area)
    batch, plan = begin(study)
    let_fail(batch, 4, str(run_area / "repaired"))
    assert command(study, "--submit", "--watch") == 1
    said = capsys.readouterr().out
    assert "3 of 5 files, 60 of 100 customers; its DAG: ended; not whole" in said, (
        said + (batch.work / "manager.log").read_text()
    )
    assert not batch.manifest.exists()
    before = {path: path.stat().st_mtime_ns for path in batch.path.glob("*/*.parquet")}
    assert len(before) == 3
    (run_area / "repaired").touch()
    assert command(study, "--submit", "--watch") == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sum(one.customers for one in plan.chunks()) == json.loads(batch.manifest.read_text())["customers"]
    log = (batch.work / "manager.log").read_text()
    assert [log.count(f"pre berg_c000{n} 0: exit 77") for n in range(3)] == [1, 0, 1]
    assert command(study, "--status") == 0
    assert "whole, 5 files of 100 customers" in capsys.readouterr().out
