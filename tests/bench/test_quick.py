"""Each benchmark runs in its smallest sizes and measures every row; what a row needs and is missing is said."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from docs._generate.performance import benchmarks
from nnlib.cpu.products import has_amx, obstacle
from regiondag.bake.image import ImageWishes, image_path
from scripts.bench.arm import EMULATION
from scripts.bench.common.environments import IMAGES_FOLDER, IMPLICIT_FOLDER, OPTUNA_FOLDER, TORCH_FOLDER
from scripts.bench.common.processes import REPOSITORY
from scripts.bench.tuner.problems import yahpo
from tests.support.fresh_machine import why_not


def lacks_pandas() -> str:
    found = all(map(importlib.util.find_spec, ("pandas", "pyarrow", "polars")))
    return "" if found else "pandas, PyArrow or polars is missing: pip install '.[bench]'"


def lacks_services() -> str:
    found = all(map(importlib.util.find_spec, ("fastapi", "implicit"))) and shutil.which("wrk")
    return "" if found else "FastAPI, implicit or wrk are missing: pip install '.[bench]'; apt-get install wrk"


def lacks_yahpo() -> str:
    return "" if yahpo.names() else f"{yahpo.VARIABLE} names no copy of slds-lmu/yahpo_data, or onnxruntime is missing"


def lacks(folder: Path) -> Callable[[], str]:
    return lambda: "" if folder.is_dir() else f"the peer's environment is missing, the benchmark makes it: {folder}"


def lacks_image() -> str:
    return "" if image_path(ImageWishes()).is_dir() else "no image in the cache: regiondag bake image"


def lacks_arm64() -> str:
    return "" if EMULATION.exists() else "this host runs no programs of arm64: apt-get install qemu-user-static"


def lacks_bf16() -> str:
    return lacks(TORCH_FOLDER)() or (obstacle() if has_amx() else "")


POOL = pytest.mark.condor
RUNS = [
    pytest.param("cpu", lacks(TORCH_FOLDER), id="train_cpu"),
    pytest.param("tuner", lacks(OPTUNA_FOLDER), id="tuner_public"),
    pytest.param("tuner.noise", str, id="tuner_noise"),
    pytest.param("tuner.fidelity", lacks_yahpo, id="tuner_fidelity"),
    pytest.param("sharing", str, id="sharing"),
    pytest.param("sharing.related", lacks_yahpo, id="sharing_related"),
    pytest.param("cpu.precisions --only one_images", lacks_bf16, id="train_bf16"),
    pytest.param("cpu.steps --only small", str, id="steps"),
    pytest.param("quality.rules", str, id="rules"),
    pytest.param("quality.precision", str, id="precision"),
    pytest.param("importing", lacks_pandas, id="importing"),
    pytest.param("images", lacks(IMAGES_FOLDER), id="images"),
    pytest.param("images.logistic", str, id="images_logistic"),
    pytest.param("serve", lacks_services, id="serve"),
    pytest.param("onnx", str, id="onnx"),
    pytest.param("recommend", lacks(IMPLICIT_FOLDER), id="recommend"),
    pytest.param("report", str, marks=pytest.mark.browser, id="report"),
    pytest.param("bake --only size", lacks_image, id="bake"),
    pytest.param("arm", lacks_arm64, id="arm"),
    pytest.param("environment", str, id="environment"),
    pytest.param("python_bundle", str, id="python_bundle"),
    pytest.param("first_hour --only look", why_not, id="first_hour"),
    pytest.param("starting", lacks(TORCH_FOLDER), id="starting"),
    pytest.param("wide", lacks(TORCH_FOLDER), id="wide"),
    pytest.param("layers", lacks(TORCH_FOLDER), id="layers"),
    pytest.param("convolution", lacks(TORCH_FOLDER), id="convolution"),
    pytest.param("sequences", lacks(TORCH_FOLDER), id="sequences"),
    pytest.param("level3", str, id="level3"),
    pytest.param("level3.examples", str, id="level3_examples"),
    pytest.param("level3.quality", str, id="level3_quality"),
    pytest.param("inspecting --only one_thread", str, id="inspecting"),
    pytest.param("manager.looking", str, id="looking"),
    pytest.param("manager.proposing", str, id="proposing"),
    pytest.param("manager.orchestration", str, marks=POOL, id="orchestration"),
    pytest.param("manager.throughput", str, marks=POOL, id="throughput"),
    pytest.param("manager.busy", str, marks=POOL, id="busy"),
    pytest.param("manager.many", str, marks=POOL, id="many"),
    pytest.param("manager.live", str, marks=POOL, id="live"),
    pytest.param("manager.lanes", str, marks=POOL, id="lanes"),
    pytest.param("quality.study", str, marks=POOL, id="study"),
    pytest.param("quality.nights", str, marks=POOL, id="nights"),
]


def run_quick(words: str, file: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", *f"scripts.bench.{words} --quick --json".split(), file]
    return subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.parametrize(("words", "missing"), RUNS)
def test_a_quick_run_measures_every_row(words, missing, tmp_path):
    if reason := missing():
        pytest.skip(reason)
    done = run_quick(words, tmp_path / "result.json")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = json.loads((tmp_path / "result.json").read_text())
    assert kept["rows"] and all(row["ours"] is not None for row in kept["rows"])


def test_costs_are_predicted_and_measured_where_a_gpu_is(tmp_path):
    done = run_quick("gpu.costs", tmp_path / "costs.json")
    assert done.returncode == 0, done.stderr
    assert "predicted, not measured: resnet-50" in done.stdout
    if "measured: nothing" in done.stderr:
        assert not (tmp_path / "costs.json").exists()
    else:
        assert all(row["ours"] for row in json.loads((tmp_path / "costs.json").read_text())["rows"])


def test_a_quick_run_on_a_gpu(tmp_path):
    done = run_quick("gpu", tmp_path / "gpu.json")
    if done.returncode == 75:
        pytest.skip(done.stderr.strip())
    assert all(part["reason"] == "" for part in json.loads((tmp_path / "gpu.json").read_text())["parts"].values())


def test_every_benchmark_is_run_here_or_on_a_gpu():
    names = {run.id for run in RUNS} | {"gpu", "costs"}
    assert set(benchmarks()) == names
