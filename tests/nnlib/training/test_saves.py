"""Trainings that are killed by SIGKILL while they save; `python -m tests.campaign.saves` does so 200 times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)  # some thirty trainings, each a process of its own
def test_killed_while_they_save_they_end_with_the_same_bits(tmp_path):
    file = tmp_path / "saves.json"
    command = [sys.executable, "-m", "tests.campaign.saves", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {row["workload"]: row["ours"] for row in json.loads(file.read_text())["rows"]}
    assert found["kills at random moments"] >= 6
    assert found["kills in each step of a save"] >= 10
    wrong = ("models with other bits", "starts that did not go on", "files that killed trainings had begun")
    assert {name: value for name, value in found.items() if name.startswith(wrong) and value} == {}
