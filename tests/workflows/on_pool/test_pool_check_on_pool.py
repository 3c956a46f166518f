"""`regiondag pool check` of a real pool, with and without a study."""

from __future__ import annotations

import json
from functools import partial

import pytest

from nnlib.util.terminal import measure
from regiondag.cli import main
from tests.support.pty_terminal import see

pytestmark = [pytest.mark.condor, pytest.mark.slow]


def test_a_pool_by_itself_and_with_studies_that_fit_or_not(pool, tmp_path, capsys):
    (tmp_path / "study.yaml").write_text(
        "regions: [{name: A}]\ntrainer: {command: [python, x.py], metric: {name: auc}}\n"
        "search: {rounds: 1, space: {a: {real: [0, 1]}}}\njob: {gpus: 0, memory: 100MB, disk: 100MB, cpus: 1}\n"
    )
    assert main(["pool", "check", "--name", pool.name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["survey"]["machines"] >= 1 and found["survey"]["plugins"]["https"] >= 1
    assert found["access"]["intervals"] == {"STARTER_UPDATE_INTERVAL": 5, "SHADOW_QUEUE_UPDATE_INTERVAL": 5}
    assert found["access"]["asked_worker"] and found["findings"] == []
    lines = see(80, partial(main, ["pool", "check", str(tmp_path), "--name", pool.name]))
    assert max(map(measure, lines)) <= 80
    assert any(line.startswith("ok   train.sub of a: matches") for line in lines)
    text = (tmp_path / "study.yaml").read_text().replace("100MB, disk", "900GB, disk")
    (tmp_path / "study.yaml").write_text(text)
    assert main(["pool", "check", str(tmp_path), "--name", pool.name]) == 6
    assert "write job: {memory: " in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]
