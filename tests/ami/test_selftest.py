"""The self-test at boot: a fake CuPy in a real process, fake /sys and /proc, and all that can be wrong with a GPU."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ami.gpu_fakes import LIBEXEC, RECORDED, load, pci_device, program
from tests.ami.smi_forms import UUIDS, answer, gpu

GOOD = {"sum": 6, "expected": 6, "multiplied": True, "launches_per_second": 90000.0, "wrong": 0, "kernels": []}
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
        self.number = _Device.current if number is None else number
    def __enter__(self):
        _Device.current = self.number
    def synchronize(self):
        if fault == "hang" and self.number == 1: time.sleep(600)
        if fault == "crash": os.abort()

class cuda:
    Device = _Device
    class runtime:
        @staticmethod
        def getDeviceCount():
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            return len(visible.split(",")) if visible else int(os.environ.get("GPUS", "1"))
    class compiler:
        class CompileException(Exception): pass

known = {}
def matmul(a, b, out=None):
    if out is None: product = known[id(a)] = numpy.matmul(a, b)
    else: product = out; out[...] = known[id(a)]
    if fault == "products" and out is not None and _Device.current == 0: out[3, 4] += 1
    if fault == "first product" and out is None: product[5, 6] += 1
    return product

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

BURN = '''"""nnlib's kernels as gpu-check.py sees them; test_gpu_burn.py runs the real ones."""
import os, cupy
from pathlib import Path
KERNELS = Path(__file__).parent
fault = os.environ.get("FAULT", "")

def make_work():
    if fault == "no compiler": raise cupy.cuda.compiler.CompileException("kern.cu(1): error: what?\\nand more")
    return []

class KernelBurn:
    def __init__(self, cupy, number, all_work): self.number, self.wrong, self.calls = number, set(), 0
    def launch(self): self.calls += 1
    def look(self):
        assert self.calls
        if fault == "kernels" and self.number == 0: self.wrong |= {"mul_c", "gather"}
'''


@pytest.fixture
def selftest(machine: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with the others of its folder beside it."""
    shutil.copytree(LIBEXEC, machine / "libexec")
    (machine / "libexec/gpu_burn.py").write_text(BURN)
    loaded = load("selftest")
    monkeypatch.setattr(loaded, "CHECK", machine / "libexec/gpu-check.py")
    return loaded


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
    smi(tmp_path, gpu(), monkeypatch=monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))
    monkeypatch.delenv("FAULT", raising=False)
    return tmp_path


def smi(machine: Path, *gpus: str, script: str = "", log: str = "", monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the machine an nvidia-smi that lists these GPUs, or runs a script; and a kernel's log."""
    (machine / "smi.xml").write_text(answer(*gpus))
    (machine / "kernel.log").write_text(log)
    program(machine / "bin", "nvidia-smi", script or f"cat {machine}/smi.xml")
    program(machine / "bin", "journalctl", f"cat {machine}/kernel.log")
    program(machine / "bin", "condor_reconfig", f"echo reconfig >>{machine}/calls")
    monkeypatch.setenv("PATH", f"{machine}/bin:{os.environ['PATH']}")


def run(selftest: ModuleType, machine: Path, *words: str) -> tuple[int, dict[str, str]]:
    """Run it; return its code and the lines that it wrote for HTCondor."""
    roots = [f"--{root}={machine / root}" for root in ("sys", "proc", "run")]
    code = selftest.main([*roots, "--burn=0.1", *words])
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
        "RegiondagSickGPUs": '"none"',
        "RegiondagGPUWarnings": '"none"',
        "STARTD_ATTRS": "$(STARTD_ATTRS) SelfTest PCIConfigSpaceCheck MulCLaunchesPerSecond GpuFirmware "
        "RegiondagSickGPUs RegiondagGPUWarnings",
    }
    assert capsys.readouterr().out == (
        "regiondag-selftest: SelfTest: passed; PCIConfigSpaceCheck: absent; "
        f"MulCLaunchesPerSecond: {rate}; GpuFirmware: 550.163.01; RegiondagSickGPUs: none; RegiondagGPUWarnings: none\n"
    )
    assert {path.name for path in (machine / "run/regiondag").iterdir()} == {"selftest.config", "selftest.json"}


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
        ("sum", "every GPU is sick: GPU-a0223334: a sum came out as 549756338177, not 549756338176"),
        ("nan", "every GPU is sick: GPU-a0223334: multiplied numbers came out wrong"),
    ],
)
def test_faults_are_published_and_logged(selftest, machine, capsys, monkeypatch, fault, sentence):
    monkeypatch.setenv("FAULT", fault)
    code, config = run(selftest, machine)
    assert code == 0
    assert config["SelfTest"] == f'"failed: {sentence}"'
    assert ("MulCLaunchesPerSecond" in config) == (fault in ("sum", "nan"))
    assert (config["RegiondagSickGPUs"] != '"none"') == (fault in ("sum", "nan"))
    assert config["PCIConfigSpaceCheck"] == '"absent"'
    assert capsys.readouterr().out.startswith(f"regiondag-selftest: ERROR: SelfTest: failed: {sentence}")


def test_a_gpu_that_hangs_does_not_hang_the_boot(selftest, two, monkeypatch):
    monkeypatch.setenv("FAULT", "hang")
    begin = time.monotonic()
    code, config = run(selftest, two, "--seconds=3")
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


def said(*gpus: dict[str, object]) -> str:
    return json.dumps({"gpus": gpus, "under_load": "", "no_kernels": ""})


def test_the_slowest_of_many_gpus_counts(selftest):
    text = said(GOOD, {**GOOD, "launches_per_second": 500.0})
    assert selftest.judge(text, 2) == selftest.Found("", 500.0, ("", ""))


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0.0, -1.0])
def test_a_rate_that_is_none(selftest, rate):
    found = selftest.judge(said(GOOD, {**GOOD, "launches_per_second": rate}), 2)
    assert found == selftest.Found("", 90000.0, ("", f"its launches a second came out as {rate}"))


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[1]", "[{}]", '["x"]', '{"a": 1}', '{"gpus": [{"launches_per_second": []}]}']
)
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
        f"import importlib.util, json, sys; sys.path.append({str(LIBEXEC)!r});"
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
    monkeypatch.setattr(selftest, "examine_gpus", lambda *_: 1 / 0)
    code, config = run(selftest, machine)
    assert code == 0
    assert config["SelfTest"] == '"failed: the self-test itself: ZeroDivisionError: division by zero"'


TWO = (gpu(), gpu(number=1))


@pytest.fixture
def two(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine with a second good GPU."""
    pci_device(machine / "sys", "0000:00:1f.0")
    monkeypatch.setenv("GPUS", "2")
    smi(machine, *TWO, monkeypatch=monkeypatch)
    return machine


def test_a_sick_gpu_is_not_offered_and_the_other_one_is(selftest, two, monkeypatch, capsys):
    smi(two, gpu(pending="Yes"), gpu(number=1, width="8x"), monkeypatch=monkeypatch)
    code, config = run(selftest, two)
    assert (code, config["SelfTest"]) == (0, '"passed"')
    assert config["RegiondagSickGPUs"] == '"GPU-a0223334: rows of its memory wait for a reset to be replaced"'
    assert config["RegiondagGPUWarnings"] == '"GPU-b1223334: 8 of 16 PCI lanes"'
    assert config["OFFLINE_MACHINE_RESOURCE_GPUs"] == "GPU-a0223334"
    assert "MulCLaunchesPerSecond" in config, "the good one was tested alone"
    assert capsys.readouterr().out.startswith("regiondag-selftest: ERROR: SelfTest: passed; ")


@pytest.mark.parametrize("fault", ["products", "first product"])
def test_a_gpu_that_computes_wrongly_under_load_is_not_offered(selftest, two, monkeypatch, fault):
    monkeypatch.setenv("FAULT", fault)
    code, config = run(selftest, two)
    assert code == 0
    assert "numbers of matrix products came out wrong" in config["RegiondagSickGPUs"]
    if fault == "first product":  # of both
        assert config["SelfTest"].startswith('"failed: every GPU is sick: ')


def test_a_gpu_that_runs_nnlibs_kernels_wrongly_is_not_offered(selftest, two, monkeypatch):
    monkeypatch.setenv("FAULT", "kernels")
    code, config = run(selftest, two)
    assert (code, config["SelfTest"], config["OFFLINE_MACHINE_RESOURCE_GPUs"]) == (0, '"passed"', "GPU-a0223334")
    assert config["RegiondagSickGPUs"] == '"GPU-a0223334: nnlib\'s kernels compute wrongly: gather, mul_c"'


def test_kernels_that_are_missing_or_do_not_compile_are_said_and_refuse_nothing(selftest, two, monkeypatch):
    monkeypatch.setenv("FAULT", "no compiler")
    _, config = run(selftest, two)
    said = "nnlib's kernels did not burn: CompileException: kern.cu(1): error: what? and more"
    assert (config["SelfTest"], config["RegiondagGPUWarnings"]) == ('"passed"', f'"{said}"')
    shutil.copy(LIBEXEC / "gpu_burn.py", two / "libexec")
    _, config = run(selftest, two)
    said = "nnlib's kernels did not burn: this image has none"
    assert (config["SelfTest"], config["RegiondagGPUWarnings"]) == ('"passed"', f'"{said}"')


def test_what_nvidia_smi_says_under_load_counts(selftest, two, monkeypatch):
    """It is asked twice: before, and while all GPUs compute."""
    hot = answer(gpu(gen="3"), gpu(number=1, hw_thermal="Active"))
    (two / "hot.xml").write_text(hot)
    script = f"if [ -e {two}/asked ]; then cat {two}/hot.xml; else touch {two}/asked; cat {two}/smi.xml; fi"
    smi(two, *TWO, script=script, monkeypatch=monkeypatch)
    _, config = run(selftest, two)
    assert config["RegiondagSickGPUs"] == '"GPU-b1223334: slows itself down after seconds, for it is hot"'
    assert config["RegiondagGPUWarnings"] == '"GPU-a0223334: PCI generation 3 of 5 under load"'
    assert config["SelfTest"] == '"passed"'


def test_a_machine_of_sick_gpus_alone_computes_nothing(selftest, two, monkeypatch):
    smi(two, gpu(errors="1"), gpu(number=1, failed="Yes"), monkeypatch=monkeypatch)
    _, config = run(selftest, two)
    assert config["SelfTest"].startswith('"failed: every GPU is sick: GPU-a0223334: 2 uncorrectable memory errors')
    assert config["OFFLINE_MACHINE_RESOURCE_GPUs"] == "GPU-a0223334 GPU-b1223334"
    assert "MulCLaunchesPerSecond" not in config


def test_parts_of_a_sick_gpu_are_not_told_from_others(selftest, two, monkeypatch):
    smi(two, gpu(pending="Yes", mig="Enabled"), gpu(number=1), monkeypatch=monkeypatch)
    _, config = run(selftest, two)
    assert config["SelfTest"] == '"failed: a sick GPU cannot be told from others with MIG"'


def test_an_nvidia_smi_that_does_not_answer_is_said_and_refuses_nothing(selftest, machine, monkeypatch):
    smi(machine, script="echo broken; exit 9", monkeypatch=monkeypatch)
    _, config = run(selftest, machine)
    assert config["SelfTest"] == '"passed"'
    assert config["RegiondagGPUWarnings"] == '"health was not looked at: nvidia-smi: exit code 9"'


def test_a_gpu_that_becomes_sick_later_is_taken_away(selftest, two, monkeypatch, capsys):
    run(selftest, two)
    assert run(selftest, two, "--again")[0] == 0
    assert not (two / "calls").exists(), "nothing has changed"
    smi(two, *TWO, log="NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n", monkeypatch=monkeypatch)
    capsys.readouterr()
    code, config = run(selftest, two, "--again")
    assert (code, config["SelfTest"]) == (0, '"passed"')
    assert config["OFFLINE_MACHINE_RESOURCE_GPUs"] == "GPU-b1223334"
    assert config["RegiondagSickGPUs"] == '"GPU-b1223334: XID 79, fell off the bus"'
    assert capsys.readouterr().out == (
        "regiondag-selftest: ERROR: not offered any more: GPU-b1223334: XID 79, fell off the bus\n"
    )
    smi(two, gpu(errors="1"), gpu(number=1), monkeypatch=monkeypatch)
    _, config = run(selftest, two, "--again")
    assert config["OFFLINE_MACHINE_RESOURCE_GPUs"] == "GPU-b1223334 GPU-a0223334", "what was sick stays so"
    assert config["SelfTest"].startswith('"failed: every GPU is sick')
    assert (two / "calls").read_text() == "reconfig\n" * 2
    smi(two, script="sleep 0; exit 3", monkeypatch=monkeypatch)
    assert run(selftest, two, "--again") == (0, config)


def test_looking_again_where_no_gpu_was_tested(selftest, machine):
    (machine / "proc/driver/nvidia/version").unlink()
    _, before = run(selftest, machine)
    assert run(selftest, machine, "--again") == (0, before)


def test_htcondor_knows_gpus_by_the_first_digits_of_their_uuids():
    assert [uuid[:12] for uuid in UUIDS] == ["GPU-a0223334", "GPU-b1223334"], "as condor_gpu_discovery -simulate says"


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
