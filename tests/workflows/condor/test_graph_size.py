"""What DAGMan's memory will be, said before a run is submitted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from regiondag.condor import graph_size
from regiondag.condor.graph_size import check_memory, count_nodes, predict_bytes
from regiondag.run.layout import NODES_DAG, RunFolder

RESULTS = Path(__file__).parents[3] / "scripts/bench/results"


@pytest.fixture
def run(tmp_path):
    for slug, nodes in (("berg", 3), ("tal", 2)):
        folder = tmp_path / "regions" / slug
        folder.mkdir(parents=True)
        lines = [
            f'JOB {slug}_t{number:04d} train.sub\nVARS {slug}_t{number:04d} trial="JOB "' for number in range(nodes)
        ]
        (folder / NODES_DAG).write_text("# JOB of one region\n" + "\n".join(lines) + "\n")
    return RunFolder(tmp_path)


def test_all_nodes_count_and_the_last_one(run):
    assert count_nodes(run) == (6, 2)


def test_a_graph_that_fits_says_what_it_takes(run, monkeypatch):
    monkeypatch.setattr(graph_size, "available_bytes", lambda: 2 * predict_bytes(6, 2))
    assert check_memory(run) == (True, "6 nodes, for which DAGMan takes about 16 MB of memory")


def test_one_that_does_not_says_the_way_out(run, monkeypatch):
    monkeypatch.setattr(graph_size, "available_bytes", lambda: 2 * predict_bytes(6, 2) - 2)
    good, text = check_memory(run)
    assert not good
    assert "more than half of the 32 MB that are free here" in text or "31 MB" in text
    assert f"regiondag submit {run.path} --region REGION" in text


@pytest.mark.parametrize(("bench", "regions"), [("orchestration", 1000), ("many", 10_000)])
def test_the_prediction_is_what_was_measured(bench, regions):
    rows = json.loads((RESULTS / f"{bench}.json").read_text())["rows"]
    [row] = [row for row in rows if "condor_dagman" in row["workload"] and row["workload"].endswith("peak memory")]
    nodes = int(re.search(r"([\d,]+) nodes", row["workload"])[1].replace(",", ""))
    assert predict_bytes(nodes, regions) / (1 << 20) == pytest.approx(row["ours"], rel=0.05)
