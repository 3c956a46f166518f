"""What DAGMan's memory will be, said before a run is submitted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from regiondag.condor import graph_size
from regiondag.condor.graph_size import GraphSize, check_memory, read_size
from regiondag.run.layout import RunFolder

RESULTS = Path(__file__).parents[3] / "scripts/bench/results"
DAG = """\
CONFIG /run/dagman.config
# berg: JOB and PARENT of one region
JOB berg_t0000 /run/regions/berg/train.sub
VARS berg_t0000 trial="JOB "
JOB berg_t0001 /run/regions/berg/train.sub
JOB berg_final /run/regions/berg/final.sub
PARENT berg_t0000 berg_t0001 CHILD berg_final
JOB tal_t0000 /run/regions/tal/train.sub
JOB tal_final /run/regions/tal/final.sub
PARENT tal_t0000 CHILD tal_final
PARENT berg_final CHILD tal_t0000 tal_final
SCRIPT PRE ALL_NODES pre
SCRIPT POST ALL_NODES post
FINAL report /run/report.sub NOOP
SCRIPT POST report post $JOB
"""
SIZE = GraphSize(nodes=6, edges=5, letters=len("SCRIPT PRE ALL_NODES pre\nSCRIPT POST ALL_NODES post\n"))


@pytest.fixture
def run(tmp_path):
    (tmp_path / "study.dag").write_text(DAG)
    return RunFolder(tmp_path)


def test_nodes_and_edges_count_and_the_lines_of_scripts(run):
    assert read_size(run.study_dag) == SIZE


def test_a_graph_that_fits_says_what_it_takes(run, monkeypatch):
    monkeypatch.setattr(graph_size, "available_bytes", lambda: 2 * SIZE.bytes)
    assert check_memory(run) == (True, "6 nodes, for which DAGMan takes about 18 MB of memory")


def test_one_that_does_not_says_the_way_out(run, monkeypatch):
    monkeypatch.setattr(graph_size, "available_bytes", lambda: 2 * SIZE.bytes - 2)
    good, text = check_memory(run)
    assert not good
    assert "more than half of the 36 MB that are free here" in text
    assert f"regiondag submit {run.path} --region REGION" in text


@pytest.mark.parametrize(
    ("bench", "edges_of_a_region", "regions"), [("orchestration", 9910, 1000), ("many", 6, 10_000)]
)
def test_the_prediction_is_what_was_measured(bench, edges_of_a_region, regions):
    rows = json.loads((RESULTS / f"{bench}.json").read_text())["rows"]
    measured = [row for row in rows if "condor_dagman" in row["workload"] and row["workload"].endswith("peak memory")]
    assert measured
    for row in measured:
        nodes = int(re.search(r"([\d,]+) nodes", row["workload"])[1].replace(",", ""))
        foretold = GraphSize(nodes, edges_of_a_region * regions, letters=330)  # as the benchmarks' folders make them
        assert foretold.bytes / (1 << 20) == pytest.approx(row["ours"], rel=0.08)
