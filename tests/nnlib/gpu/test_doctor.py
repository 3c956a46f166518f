"""`nnlib doctor-gpu` as a whole: on a GPU or its stand-in, with a broken kernel, a GPU that fails, and none."""

from __future__ import annotations

import json

import pytest

from nnlib import cli, devices
from nnlib.errors import MachineError
from nnlib.gpu import kernels
from nnlib.gpu.kernels import read_signatures
from nnlib.gpu.runtime import Runtime
from nnlib.gpu.selfcheck import run
from nnlib.gpu.selfcheck.run import check_kernels
from nnlib.inspection import gpu_machine
from tests.kernels.standin import Cupy

COUNT = len(read_signatures())


@pytest.fixture(autouse=True)
def _no_other_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(argv: object) -> str:
        raise FileNotFoundError(argv)

    monkeypatch.setattr(gpu_machine.look, "__defaults__", (nobody, *gpu_machine.look.__defaults__[1:]))


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch, cupy: Cupy) -> Cupy:
    monkeypatch.setattr(Runtime, "open", cupy.runtime)
    return cupy


def replace_in(monkeypatch: pytest.MonkeyPatch, family: str, old: str, new: str) -> None:
    text = kernels.source(family)
    assert text.count(old) == 1
    original = kernels.source
    monkeypatch.setattr(kernels, "source", lambda name: text.replace(old, new) if name == family else original(name))


def test_all_kernels_agree(standin, capsys):
    assert cli.main(["doctor-gpu"]) == 0
    out = capsys.readouterr().out
    assert f"{COUNT} of {COUNT} agree with NumPy" in out
    assert "cupy: stand-in" in out
    assert set(standin.launched) == set(read_signatures())


@pytest.mark.gpu
def test_all_kernels_agree_on_a_gpu():
    check = devices.check_gpu(45)
    assert (check.differ, check.left_out, check.failure) == ({}, [], "")


def test_a_broken_kernel_is_named(standin, monkeypatch, capsys, tmp_path):
    replace_in(monkeypatch, "limits", "factor > 1 ? 1 : factor", "factor > 1 ? 1 : factor * 1.0001f")
    assert cli.main(["doctor-gpu", "--json", str(tmp_path / "gpu.json")]) == 1
    lines = capsys.readouterr().out.splitlines()
    named = sorted(line.split()[0] for line in lines if "DIFFERS" in line)
    assert named == ["limit_columns", "limit_delta", "limit_rows"]
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["exit_code"] == 1
    assert sorted(found["kernels"]["differ"]) == named
    assert len(found["kernels"]["agree"]) == COUNT - 3
    [difference] = found["kernels"]["differ"]["limit_rows"]
    assert difference["found"] / difference["wanted"] == pytest.approx(1.0001, rel=1e-5)


def test_a_kernel_that_fails_is_named_and_ends_it(standin, monkeypatch, capsys):
    launch = run.launch

    def failing(runtime, case):
        if case.kernel == "softmax":
            raise MachineError("the GPU failed: CUDARuntimeError: cudaErrorIllegalAddress")
        return launch(runtime, case)

    monkeypatch.setattr(run, "launch", failing)
    assert cli.main(["doctor-gpu"]) == 75
    out = capsys.readouterr().out
    assert "the GPU failed at softmax: the GPU failed: CUDARuntimeError: cudaErrorIllegalAddress" in out
    assert "were not run after it had failed: " in out
    assert "update" in out.split("were not run")[1]


def test_when_the_time_is_over_the_rest_is_left_out(cupy):
    check = check_kernels(cupy.runtime(), 0.0)
    assert (check.agree, check.differ, check.failure) == ([], {}, "")
    assert check.left_out == list(read_signatures())


def test_no_gpu(monkeypatch, capsys, tmp_path):
    def nothing() -> Runtime:
        raise MachineError("no GPU can be used: CUDA counts 0 GPUs")

    monkeypatch.setattr(Runtime, "open", nothing)
    assert cli.main(["doctor-gpu", "--json", str(tmp_path / "gpu.json")]) == 75
    out, err = capsys.readouterr()
    assert "none was run: no GPU can be used: CUDA counts 0 GPUs" in out
    assert "there is no nvidia-smi, which comes with the driver; install it" in out
    assert err == ""
    assert json.loads((tmp_path / "gpu.json").read_text())["kernels"] == {
        "missing": "no GPU can be used: CUDA counts 0 GPUs"
    }
