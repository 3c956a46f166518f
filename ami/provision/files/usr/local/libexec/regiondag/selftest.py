"""Test this machine's GPUs and publish what was found as ClassAd attributes of its slots.

Run once at boot by regiondag-selftest.service, before HTCondor, which reads the file that this writes. A GPU that is
sick (gpu_health.py) or computes wrongly is not offered, the others are; where none is left, or the machine as a whole
failed, that is published and logged, HTCondor starts all the same, and jobs keep away by an expression (ami/gpu.md).

`--again`, every few minutes, looks at health alone: what has become sick meanwhile is not offered to further jobs.

Exit code 0, unless the file cannot be written.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_common import nvidia_gpus, read, run_within
from gpu_health import Gpu, look, merge, read_gpus

CHECK = Path(__file__).with_name("gpu-check.py")
SECONDS = 180.0  # for all GPUs of a machine; less than the unit's TimeoutStartSec
BURN_SECONDS = 5.0
CONFIG = "regiondag/selftest.config"
STATE = "regiondag/selftest.json"  # the same, for `--again`
MOST_CHARACTERS = 200  # of a sentence in an ad

PASSED = "passed"
NO_GPU = "no GPU"
NONE = "none"
SICK, WARNINGS = "RegiondagSickGPUs", "RegiondagGPUWarnings"
OFFLINE = "OFFLINE_MACHINE_RESOURCE_GPUs"  # HTCondor: those of its GPUs that are given to no job; read at reconfig, too
Value = str | float | dict[str, str]  # a dict: GPUs that are not offered, and why
Attributes = dict[str, Value]
PCI_CHECK = {"0": "off", "1": "on"}  # as /proc/driver/nvidia/params tells it


@dataclass(frozen=True)
class Found:
    """What the GPU check found."""

    failure: str  # of the machine as a whole; empty: none
    launches_per_second: float | None = None  # of the slowest GPU
    faults: tuple[str, ...] = ()  # what is wrong with each GPU that was looked at, empty where nothing is
    under_load: str = ""  # nvidia-smi's XML of that time
    no_kernels: str = ""  # why nnlib's kernels did not burn; empty: they did


def judge(text: str, gpus: int) -> Found:
    """Return what the output of gpu-check.py says about a machine with so many GPUs."""
    try:
        values = json.loads(text)
        results = [_result(each) for each in values["gpus"]]
        under_load, no_kernels = str(values["under_load"]), str(values["no_kernels"])
    except (ValueError, TypeError, KeyError) as error:
        return Found(f"the GPU check printed what cannot be understood ({type(error).__name__}: {error})")
    slowest = min((rate for _, rate in results if rate is not None), default=None)
    failure = "" if len(results) == gpus else f"CUDA sees {len(results)} GPU(s), the PCI bus {gpus}"
    return Found(failure, slowest, tuple(problem for problem, _ in results), under_load, no_kernels)


def _result(values: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return what is wrong with a GPU, or nothing; and its launches a second."""
    rate, wrong = float(values["launches_per_second"]), int(values["wrong"])
    kernels = ", ".join(map(str, values["kernels"]))
    if not math.isfinite(rate) or rate <= 0:
        return f"its launches a second came out as {rate}", None
    if values["sum"] != values["expected"]:
        return f"a sum came out as {values['sum']}, not {values['expected']}", rate
    if values["multiplied"] is not True:
        return "multiplied numbers came out wrong", rate
    if wrong:
        return f"{wrong} numbers of matrix products came out wrong", rate
    return (f"nnlib's kernels compute wrongly: {kernels}" if kernels else ""), rate


@dataclass(frozen=True)
class Patience:
    """How long the GPU check may take, in seconds."""

    all: float = SECONDS
    burn: float = BURN_SECONDS


def check_gpus(gpus: int, python: str, patience: Patience, visible: str = "") -> Found:
    """Have a process of its own compute on all GPUs, or on those whose UUIDs are named."""
    # No folder of the system belongs to CuPy's cache of compiled kernels, and this boot is its only use.
    environment = {**os.environ, "CUPY_CACHE_IN_MEMORY": "1"}
    if visible:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    ended = run_within(patience.all, [python, "-s", str(CHECK), str(patience.burn)], environment)
    if ended.code is None:
        return Found(f"the GPU check did not end in {patience.all:g} s")
    return Found(f"the GPU check failed: {ended.failure}") if ended.failure else judge(ended.output, gpus)


@dataclass(frozen=True)
class Health:
    """A machine's GPUs after all looks."""

    failure: str  # why none of them is offered; empty: some are
    sick: Mapping[str, str]  # HTCondor's name of a GPU that is not offered -> why
    warnings: tuple[str, ...]
    launches_per_second: float | None = None


def examine_gpus(count: int, python: str, patience: Patience) -> Health:
    """Look at the health of so many GPUs, and have those compute that are not sick."""
    try:
        gpus, silence = look(), ()
    except ValueError as error:
        gpus, silence = [], (f"health was not looked at: {error}",)
    well = [gpu for gpu in gpus if not gpu.sick]
    if gpus and not well:
        return _health("", gpus, silence)
    some_sick = len(well) < len(gpus)
    # CUDA's order is not nvidia-smi's, but for the GPUs that are named. One with MIG is seen by its parts.
    visible = ",".join(gpu.uuid for gpu in well) if gpus and not any(gpu.has_mig for gpu in gpus) else ""
    found = check_gpus(count - (len(gpus) - len(well)) if visible else count, python, patience, visible)
    if found.no_kernels:
        silence = (*silence, f"nnlib's kernels did not burn: {found.no_kernels}")
    if visible and len(found.faults) == len(well):
        computed = [
            Gpu(gpu.uuid, gpu.address, gpu.has_mig, (fault,) if fault else ())
            for gpu, fault in zip(well, found.faults, strict=True)
        ]
        gpus = merge(gpus, computed)
        fault = ""
    else:  # nobody knows whose they are
        fault = next((f"GPU {number}: {text}" for number, text in enumerate(found.faults) if text), "")
        fault = fault or ("a sick GPU cannot be told from others with MIG" if some_sick and not visible else "")
    try:
        gpus = merge(gpus, read_gpus(found.under_load, under_load=True)) if found.under_load else gpus
    except ValueError as error:
        silence = (*silence, f"health under load was not looked at: {error}")
    return _health(fault or found.failure, gpus, silence, found.launches_per_second)


def _health(failure: str, gpus: Sequence[Gpu], silence: Sequence[str], rate: float | None = None) -> Health:
    sick = {gpu.name: ", ".join(gpu.sick) for gpu in gpus if gpu.sick}
    if not failure and sick and len(sick) == len(gpus):
        failure = "every GPU is sick: " + "; ".join(f"{name}: {why}" for name, why in sick.items())
    warnings = (*silence, *(f"{gpu.name}: {', '.join(gpu.warnings)}" for gpu in gpus if gpu.warnings))
    return Health(failure, sick, warnings, rate)


def pci_check(params: str) -> str:
    """Return whether the driver checks PCI configuration space: off, on, or absent where it has no such option."""
    for line in params.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == "CheckPCIConfigSpace":
            return PCI_CHECK.get(value.strip(), value.strip())
    return "absent"


def gpu_firmware(information: Mapping[str, str]) -> str:
    """Return the firmware of the GPUs, from /proc/driver/nvidia/gpus/*/information: a version, "none", or nothing."""
    lines = [line for text in information.values() for line in text.splitlines()]
    versions = {value.strip() for name, _, value in (line.partition(":") for line in lines) if name == "GPU Firmware"}
    return ", ".join(sorted("none" if version == "N/A" else version for version in versions))


def attributes(sys_root: Path, proc_root: Path, python: str, patience: Patience) -> Attributes:
    """Return the ClassAd attributes of this machine."""
    gpus = nvidia_gpus(sys_root)
    if not gpus:
        return {"SelfTest": NO_GPU}
    driver = proc_root / "driver/nvidia"
    if not (driver / "version").exists():
        return {"SelfTest": "failed: the NVIDIA driver is not loaded; see regiondag-gpu's messages"}
    found = examine_gpus(len(gpus), python, patience)
    firmware = gpu_firmware({str(path): read(path) for path in sorted(driver.glob("gpus/*/information"))})
    values: Attributes = {"SelfTest": f"failed: {found.failure}" if found.failure else PASSED}
    if (driver / "params").exists():
        values["PCIConfigSpaceCheck"] = pci_check(read(driver / "params"))
    if found.launches_per_second is not None:
        values["MulCLaunchesPerSecond"] = round(found.launches_per_second, 1)
    if firmware:
        values["GpuFirmware"] = firmware
    values[SICK] = dict(found.sick)
    values[WARNINGS] = "; ".join(found.warnings) or NONE
    return values


def condor_config(values: Mapping[str, Value]) -> str:
    """Return the lines of HTCondor's configuration that put these attributes into the slots' ads.

    >>> print(condor_config({"SelfTest": "passed", "MulCLaunchesPerSecond": 90000.5}), end="")
    SelfTest = "passed"
    MulCLaunchesPerSecond = 90000.5
    STARTD_ATTRS = $(STARTD_ATTRS) SelfTest MulCLaunchesPerSecond
    """
    lines = [f"{name} = {_shown(value)}" for name, value in values.items()]
    if isinstance(sick := values.get(SICK), dict) and sick:
        lines.append(f"{OFFLINE} = {' '.join(sick)}")
    return "\n".join([*lines, f"STARTD_ATTRS = $(STARTD_ATTRS) {' '.join(values)}\n"])


def _shown(value: Value) -> str:
    if isinstance(value, dict):
        return quoted("; ".join(f"{gpu}: {why}" for gpu, why in value.items()) or NONE)
    return quoted(value) if isinstance(value, str) else repr(float(value))


def quoted(text: str) -> str:
    """Return a ClassAd string that means the same to HTCondor's configuration and to ClassAds.

    What either would expand, escape or end a line at becomes a question mark; nobody computes with these sentences.
    """
    plain = re.sub(r"[^ -~]+", " ", text).strip()
    return '"' + re.sub(r'["\\$]', "?", plain)[:MOST_CHARACTERS] + '"'


def write_config(path: Path, text: str) -> None:
    """Write the file so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def publish(run_root: Path, values: Mapping[str, Value]) -> None:
    """Write what HTCondor reads, and what `--again` does."""
    write_config(run_root / STATE, json.dumps(values))
    write_config(run_root / CONFIG, condor_config(values))


def look_again(run_root: Path) -> int:
    """Add the GPUs that have become sick since, and tell HTCondor; one that was sick stays so until the next boot."""
    values = json.loads((run_root / STATE).read_text(encoding="utf-8"))
    known = values.get(SICK)
    if not isinstance(known, dict):
        return 0  # no GPU, or none that was tested
    try:
        gpus = look()
    except ValueError as error:  # jobs may keep nvidia-smi waiting; the next look is soon
        say(f"ERROR: {error}")
        return 0
    found = {gpu.name: ", ".join(gpu.sick) for gpu in gpus if gpu.sick and gpu.name not in known}
    if not found:
        return 0
    values[SICK] = {**known, **found}
    if len(values[SICK]) >= len(gpus) or any(gpu.has_mig and gpu.sick for gpu in gpus):
        values["SelfTest"] = f"failed: every GPU is sick: {'; '.join(found.values())}"
    say("ERROR: not offered any more: " + "; ".join(f"{name}: {why}" for name, why in found.items()))
    publish(run_root, values)
    return subprocess.run(["condor_reconfig"], check=False).returncode


def main(arguments: list[str] | None = None) -> int:
    """Test, tell, publish."""
    parser = argparse.ArgumentParser(prog="selftest", description="Test the GPUs, publish the result to HTCondor.")
    parser.add_argument("--sys", type=Path, default=Path("/sys"), help="where sysfs is (default: %(default)s)")
    parser.add_argument("--proc", type=Path, default=Path("/proc"), help="default: %(default)s")
    parser.add_argument("--run", type=Path, default=Path("/run"), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the GPU check (default: %(default)g)")
    parser.add_argument("--burn", type=float, default=BURN_SECONDS, help="of them under load (default: %(default)g)")
    parser.add_argument("--again", action="store_true", help="look at health alone, and add what is sick by now")
    options = parser.parse_args(arguments)
    if options.again:
        return look_again(options.run)
    try:
        values = attributes(options.sys, options.proc, sys.executable, Patience(options.seconds, options.burn))
    except Exception as error:  # of whatever kind: it is published, not the end of the boot
        values = {"SelfTest": f"failed: the self-test itself: {type(error).__name__}: {error}"}
    is_bad = str(values["SelfTest"]).startswith("failed") or bool(values.get(SICK))
    described = "; ".join(f"{name}: {_shown(v)[1:-1] if isinstance(v, dict) else v}" for name, v in values.items())
    say(f"{'ERROR: ' if is_bad else ''}{described}")
    try:
        publish(options.run, values)
    except OSError as error:
        say(f"ERROR: cannot publish this: {error}")
        return 1
    return 0


def say(text: str) -> None:
    """Tell the journal and the console."""
    print(f"regiondag-selftest: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
