"""The benchmark of looking at runs: its made-up event logs are text that the bindings and our own reader take."""

from __future__ import annotations

import json

from regiondag.cli import main
from regiondag.condor import client
from regiondag.condor.events.log import read_attempts
from regiondag.run.layout import JOB_LOG, RunFolder
from tests.workflows.conftest import write_study


def test_the_logs_are_htcondors_text(bench, tmp_path, capsys):
    assert main(["generate", str(write_study(tmp_path)), "--htcondor", "25.14"]) == 0
    run = RunFolder(next(tmp_path.glob("runs/run-*")))
    slugs = list(json.loads(run.manifest.read_text())["regions"])
    bench("looking").write_job_logs(run, slugs, settled=4, evicted_share=0.5)
    attempts = read_attempts(run)
    assert len(attempts) == 8 and all(one.exit_code == 0 and one.asked["gpus"] == 1 for one in attempts)
    evicted = [one for one in attempts if len(one.legs) == 2]
    assert 0 < len(evicted) < 8 and not any(one.legs[0].kept for one in evicted)
    assert {leg.facts["gpu"] for one in attempts for leg in one.legs} == {"NVIDIA A10G"}
    for log in run.path.glob(f"regions/*/trials/*/{JOB_LOG}"):
        events = client.bindings(None).JobEventLog(str(log)).events(stop_after=0)
        assert len(list(events)) in (8, 13)
    capsys.readouterr()
