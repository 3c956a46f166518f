"""What shells are offered where Tab is pressed, as a user of bash meets it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regiondag.cli import COMMANDS, main
from tests.support.made_up_run import Shape, write_run

BASH = """
eval "$(regiondag completion bash)"
COMP_LINE={line} COMP_POINT={point} COMP_TYPE=9 COMP_KEY=9
_python_argcomplete regiondag
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with the study `shop`, which has a run of two regions."""
    shop = tmp_path / "shop"
    write_run(shop / "runs" / "run-1", Shape(regions=2, trials=3), ("United Kingdom", "Côte d'Ivoire; rm -rf x"))
    (shop / "study.yaml").write_text("study: made up\n")
    return tmp_path


def complete(line: str, cwd: Path) -> list[str]:
    """Press Tab behind `line` in bash."""
    script = BASH.format(line=shlex.quote(line), point=len(line.encode()))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=cwd, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return [text.rstrip() for text in done.stdout.splitlines() if text]


def test_commands_and_options(tmp_path):
    assert sorted(complete("regiondag sta", tmp_path)) == ["stats", "status"]
    assert set(COMMANDS) <= set(complete("regiondag ", tmp_path))
    assert "--watch" in complete("regiondag status --w", tmp_path)


def test_studies_and_runs(folder):
    assert complete("regiondag status sh", folder)[0] == "shop"
    [run] = (folder / "shop" / "runs").glob("run-*")
    assert str(run.relative_to(folder)) in complete("regiondag status shop/runs/", folder)
    assert complete("regiondag generate shop/st", folder) == ["shop/study.yaml"]


def test_regions_and_trials_of_the_run_that_was_named(folder):
    assert complete("regiondag study show shop United", folder) == ["United\\ Kingdom"]
    assert complete("regiondag study show shop region-0", folder) == ["region-0"]
    hostile = complete("regiondag submit shop --region C", folder)
    assert shlex.split(hostile[0]) == ["Côte d'Ivoire; rm -rf x"]
    offered = complete("regiondag trial cancel shop region-0 ", folder)
    assert {"0", "1", "2", "final"} <= set(offered) and "3" not in offered
    assert "region-0_t0001" in complete("regiondag explain shop region-0_t", folder)


def test_nothing_is_said_where_nothing_can_be_found(tmp_path):
    assert complete("regiondag study show nowhere Ger", tmp_path) == []
    (tmp_path / "study.yaml").write_text(": [")
    assert complete("regiondag study show . Ger", tmp_path) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_what_their_shells_read(shell, tmp_path, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "regiondag" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, cwd=tmp_path, timeout=60)
