"""The self-test at boot: a fake CuPy in a real process, fake /sys and /proc, and all that can be wrong with a GPU."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ami.gpu_fakes import LIBEXEC, RECORDED, load, pci_device

GOOD = {"sum": 6, "expected": 6, "multiplied": True, "launches_per_second": 90000.0}
INFORMATION = "Model: \t\t NVIDIA A10G\nGPU UUID: \t GPU-1\nGPU Firmware: \t {}\nGPU Excluded:\t No\n"

CUPY = '''"""As much of CuPy as gpu-check.py uses, by NumPy; FAULT plants one."""
import contextlib, os, time
import numpy
from numpy import *

fault = os.environ.get("FAULT", "")
if fault == "missing":
    raise ImportError("libcuda.so.1: cannot open shared object file")

class _Device(contextlib.nullcontext):
    current = 0
    def __init__(self, number=None):
        super().__init__()
        if number is not None: _Device.current = number
    def synchronize(self):
        if fault == "hang" and _Device.current == 1: time.sleep(600)
        if fault == "crash": os.abort()

class cuda:
    Device = _Device
    class runtime:
        @staticmethod
        def getDeviceCount(): return int(os.environ.get("GPUS", "1"))

def arange(*words, **more):
    array = numpy.arange(*words, **more)
    if fault == "sum": array[7] += 1
    return array

class RawKernel:
    def __init__(self, source, name): assert f"void {name}(" in source
    def __call__(self, grid, block, arguments):
        array, factor, n = arguments
        assert len(array) == n == grid[0] * block[0]
        if fault == "slow": time.sleep(0.02)
        array *= factor
        if fault == "nan": array[-1] = numpy.nan
'''


@pytest.fixture
def selftest() -> ModuleType:
    return load("selftest")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of files with one good GPU, its driver loaded, and a fake CuPy."""
    pci_device(tmp_path / "sys", "0000:00:1e.0")
    driver = tmp_path / "proc/driver/nvidia"
    (driver / "gpus/0000:00:1e.0").mkdir(parents=True)
    (driver / "gpus/0000:00:1e.0/information").write_text(INFORMATION.format("550.163.01"))
    (driver / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01\n")
    (driver / "params").write_text("ResmanDebugLevel: 4294967295\nEnableMSI: 1\n")
    (tmp_path / "python").mkdir()
    (tmp_path / "python/cupy.py").write_text(CUPY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))
    monkeypatch.delenv("FAULT", raising=False)
    return tmp_path


def run(selftest: ModuleType, machine: Path, *words: str) -> tuple[int, dict[str, str]]:
    """Run it; return its code and the lines that it wrote for HTCondor."""
    code = selftest.main([*(f"--{root}={machine / root}" for root in ("sys", "proc", "run")), *words])
    text = (machine / "run/regiondag/selftest.config").read_text()
    return code, dict(line.split(" = ", 1) for line in text.splitlines())


def test_a_good_gpu(selftest, machine, capsys):
    code, config = run(selftest, machine)
    assert code == 0
    rate = config.pop("MulCLaunchesPerSecond")
    assert float(rate) > 100
    assert config == {
        "SelfTest": '"passed"',
        "PCIConfigSpaceCheck": '"absent"',
        "GpuFirmware": '"550.163.01"',
        "STARTD_ATTRS": "$(STARTD_ATTRS) SelfTest PCIConfigSpaceCheck MulCLaunchesPerSecond GpuFirmware",
    }
    assert capsys.readouterr().out == (
        "regiondag-selftest: SelfTest: passed; PCIConfigSpaceCheck: absent; "
        f"MulCLaunchesPerSecond: {rate}; GpuFirmware: 550.163.01\n"
    )
    assert [path.name for path in (machine / "run/regiondag").iterdir()] == ["selftest.config"]


def test_no_gpu(selftest, machine, capsys):
    (machine / "sys/bus/pci/devices/0000:00:1e.0/vendor").write_text("0x1d0f\n")
    assert run(selftest, machine) == (0, {"SelfTest": '"no GPU"', "STARTD_ATTRS": "$(STARTD_ATTRS) SelfTest"})
    assert capsys.readouterr().out == "regiondag-selftest: SelfTest: no GPU\n"


def test_no_driver(selftest, machine, capsys):
    (machine / "proc/driver/nvidia/version").unlink()
    code, config = run(selftest, machine)
    assert code == 0
    assert config["SelfTest"].startswith('"failed: the NVIDIA driver is not loaded')
    assert capsys.readouterr().out.startswith("regiondag-selftest: ERROR: SelfTest: failed: the NVIDIA driver")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("missing", "the GPU check failed: exit code 1: ImportError: libcuda.so.1: cannot open shared object file"),
        ("crash", "the GPU check failed: ended by signal 6"),
        ("sum", "GPU 0: a sum came out as 549756338177, not 549756338176"),
        ("nan", "GPU 0: multiplied numbers came out wrong"),
    ],
)
def test_faults_are_published_and_logged(selftest, machine, capsys, monkeypatch, fault, sentence):
    monkeypatch.setenv("FAULT", fault)
    code, config = run(selftest, machine)
    assert code == 0
    assert config["SelfTest"] == f'"failed: {sentence}"'
    assert ("MulCLaunchesPerSecond" in config) == (fault in ("sum", "nan"))
    assert config["PCIConfigSpaceCheck"] == '"absent"'
    assert capsys.readouterr().out.startswith(f"regiondag-selftest: ERROR: SelfTest: failed: {sentence}")


def test_a_gpu_that_hangs_does_not_hang_the_boot(selftest, machine, monkeypatch):
    monkeypatch.setenv("FAULT", "hang")
    monkeypatch.setenv("GPUS", "2")
    begin = time.monotonic()
    code, config = run(selftest, machine, "--seconds=3")
    assert time.monotonic() - begin < 30
    assert (code, config["SelfTest"]) == (0, '"failed: the GPU check did not end in 3 s"')


def test_no_cupy_at_all(selftest, machine, monkeypatch):
    missing = "raise ModuleNotFoundError(\"No module named 'cupy'\")"  # and not one that this machine may have
    (machine / "python/cupy.py").write_text(missing, encoding="utf-8")
    code, config = run(selftest, machine)
    assert (code, config["SelfTest"]) == (
        0,
        "\"failed: the GPU check failed: exit code 1: ModuleNotFoundError: No module named 'cupy'\"",
    )


def test_a_gpu_that_cuda_does_not_see(selftest, machine):
    pci_device(machine / "sys", "0000:00:1f.0", kind="0x030000")
    assert run(selftest, machine)[1]["SelfTest"] == '"failed: CUDA sees 1 GPU(s), the PCI bus 2"'


def test_the_slowest_of_many_gpus_counts(selftest):
    text = json.dumps([GOOD, {**GOOD, "launches_per_second": 500.0}])
    assert selftest.judge(text, 2) == selftest.Found("", 500.0)


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0.0, -1.0])
def test_a_rate_that_is_none(selftest, rate):
    found = selftest.judge(json.dumps([GOOD, {**GOOD, "launches_per_second": rate}]), 2)
    assert found == selftest.Found(f"GPU 1: its launches a second came out as {rate}", 90000.0)


@pytest.mark.parametrize("text", ["", "{", "null", "[1]", "[{}]", '["x"]', '{"a": 1}', '[{"launches_per_second": []}]'])
def test_what_is_no_result(selftest, text):
    assert selftest.judge(text, 1).failure.startswith("the GPU check printed what cannot be understood (")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_no_output_breaks_the_judge(values):
    selftest = sys.modules.get("regiondag_selftest") or load("selftest")
    found = selftest.judge(json.dumps(values), 1)
    assert found.failure


def test_a_slow_machine_is_measured_by_fewer_calls(machine):
    code = (
        "import importlib.util, json;"
        f"spec = importlib.util.spec_from_file_location('check', {str(LIBEXEC / 'gpu-check.py')!r});"
        "check = importlib.util.module_from_spec(spec); spec.loader.exec_module(check);"
        "print(json.dumps(check.launches_per_second(0.1)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "FAULT": "slow"}
    )
    rate, right = json.loads(done.stdout)
    assert right
    assert 5 < rate < 50


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("CheckPCIConfigSpace: 0", "off"),
        ("CheckPCIConfigSpace: 1", "on"),
        ("CheckPCIConfigSpace: 4294967295", "4294967295"),
        ("  CheckPCIConfigSpace:1  ", "on"),
        ("CheckPCIConfigSpaceMore: 1", "absent"),
        ("CheckPCIConfigSpace", "absent"),
        ("", "absent"),
    ],
)
def test_what_the_driver_says_of_pci_configuration_space(selftest, line, wanted):
    assert selftest.pci_check(f"Mobile: 1\n{line}\nEnableMSI: 1\n") == wanted


@given(st.text())
def test_any_params_have_an_answer(text):
    selftest = sys.modules.get("regiondag_selftest") or load("selftest")
    assert isinstance(selftest.pci_check(text), str)


def test_firmware(selftest):
    assert selftest.gpu_firmware({}) == ""
    assert selftest.gpu_firmware({"a": INFORMATION.format("N/A"), "b": INFORMATION.format("N/A")}) == "none"
    assert selftest.gpu_firmware({"a": INFORMATION.format("550.1"), "b": "garbage"}) == "550.1"


@given(st.text())
def test_a_quoted_string_is_one_for_htcondor_and_for_classads(text):
    selftest = sys.modules.get("regiondag_selftest") or load("selftest")
    assert re.fullmatch(r'"[ !#%-\[\]-~]{0,200}"', selftest.quoted(text))


def test_a_hostile_sentence_stays_one_attribute(selftest):
    text = selftest.condor_config({"SelfTest": 'failed: "\nSTARTD_ATTRS = $(X) \\\n# x'})
    assert text == 'SelfTest = "failed: ? STARTD_ATTRS = ?(X) ? # x"\nSTARTD_ATTRS = $(STARTD_ATTRS) SelfTest\n'


def test_the_self_tests_own_fault_is_published(selftest, machine, monkeypatch):
    monkeypatch.setattr(selftest, "check_gpus", lambda *_: 1 / 0)
    code, config = run(selftest, machine)
    assert code == 0
    assert config["SelfTest"] == '"failed: the self-test itself: ZeroDivisionError: division by zero"'


def test_a_file_that_cannot_be_written_is_an_error(selftest, machine, capsys):
    (machine / "run").write_text("a file")
    with pytest.raises(NotADirectoryError):
        run(selftest, machine)  # main has ended; what it wrote cannot be read
    assert "regiondag-selftest: ERROR: cannot publish this: [Errno 20]" in capsys.readouterr().out


def test_an_older_result_is_replaced_as_a_whole(selftest, machine):
    folder = machine / "run/regiondag"
    folder.mkdir(parents=True)
    (folder / "selftest.config").write_text('SelfTest = "failed: long ago"\nOther = 1\n' * 100)
    assert run(selftest, machine)[1]["SelfTest"] == '"passed"'
    assert "Other" not in (folder / "selftest.config").read_text()


def test_parameters_of_old_drivers_are_where_the_attribute_comes_from():
    assert "NVreg_CheckPCIConfigSpace: (int)" in (RECORDED / "340.108.txt").read_text().splitlines()


def test_nvidias_compiler_takes_the_kernel():
    from tests.kernels import nvrtc

    text = re.search(r'SOURCE = """(.*?)"""', (LIBEXEC / "gpu-check.py").read_text(), re.DOTALL)
    assert text
    targets = [(12, 70), (13, 75), (13, 90), (13, 120)]
    assert set(nvrtc.figures(text[1], (), targets)) == set(targets)
    assert np.float32(3) * np.float32(-1) == -3
