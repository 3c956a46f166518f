"""Processes with a GPU each train one network: over NCCL on two GPUs or more, else played in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nnlib.parallel.places import VISIBLE

ROOT = Path(__file__).parents[4]
PLAYED = "tests.kernels.played_cuda"
SITE = f"""
import {PLAYED}
from nnlib.gpu.backend import Gpu
Gpu.join = lambda self, host: host  # a played NCCL joins threads of one process
"""


def trained(plan: str, ranks: int, **variables: str) -> Any:
    command = [sys.executable, "-m", "tests.nnlib.gpu.shards.trained", plan, str(ranks)]
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def visible() -> int:
    from cupy.cuda import runtime

    return int(runtime.getDeviceCount())


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plan", ["items", "examples"])
def test_a_job_with_several_gpus_has_the_bits_of_one(tmp_path, plan):
    variables = {"PYTHONPATH": str(ROOT)}
    if PLAYED in sys.modules:
        (tmp_path / "sitecustomize.py").write_text(SITE, encoding="utf-8")  # which every Python runs as it starts
        variables = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", VISIBLE: "0,1"}
    elif visible() < 2:
        pytest.skip("two GPUs are needed: NCCL refuses two ranks on one")
    assert trained(plan, 2, **variables) == trained(plan, 1, **variables)
