"""Test this machine's GPUs and publish what was found as ClassAd attributes of its slots.

Run once at boot by regiondag-selftest.service, before HTCondor, which reads the file that this writes. A GPU that fails
is published and logged; HTCondor starts all the same, and jobs keep away by an expression (ami/gpu.md).

Exit code 0, unless the file cannot be written.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_common import nvidia_gpus, read, run_within

CHECK = Path(__file__).with_name("gpu-check.py")
SECONDS = 180.0  # for all GPUs of a machine; less than the unit's TimeoutStartSec
CONFIG = "regiondag/selftest.config"
MOST_CHARACTERS = 200  # of a sentence in an ad

PASSED = "passed"
NO_GPU = "no GPU"
PCI_CHECK = {"0": "off", "1": "on"}  # as /proc/driver/nvidia/params tells it


@dataclass(frozen=True)
class Found:
    """What the GPU check found."""

    failure: str  # empty: passed
    launches_per_second: float | None = None  # of the slowest GPU


def judge(text: str, gpus: int) -> Found:
    """Return what the output of gpu-check.py says about a machine with so many GPUs."""
    try:
        results = [_result(each) for each in json.loads(text)]
    except (ValueError, TypeError, KeyError) as error:
        return Found(f"the GPU check printed what cannot be understood ({type(error).__name__}: {error})")
    rates = [rate for _, rate in results if rate is not None]
    slowest = min(rates, default=None)
    for number, (problem, _) in enumerate(results):
        if problem:
            return Found(f"GPU {number}: {problem}", slowest)
    if len(results) != gpus:
        return Found(f"CUDA sees {len(results)} GPU(s), the PCI bus {gpus}", slowest)
    return Found("", slowest)


def _result(values: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return what is wrong with a GPU, or nothing; and its launches a second."""
    rate = float(values["launches_per_second"])
    if not math.isfinite(rate) or rate <= 0:
        return f"its launches a second came out as {rate}", None
    if values["sum"] != values["expected"]:
        return f"a sum came out as {values['sum']}, not {values['expected']}", rate
    if values["multiplied"] is not True:
        return "multiplied numbers came out wrong", rate
    return "", rate


def check_gpus(gpus: int, python: str, seconds: float) -> Found:
    """Have a process of its own compute on all GPUs."""
    # No folder of the system belongs to CuPy's cache of compiled kernels, and this boot is its only use.
    environment = {**os.environ, "CUPY_CACHE_IN_MEMORY": "1"}
    ended = run_within(seconds, [python, "-s", str(CHECK)], environment)
    if ended.code is None:
        return Found(f"the GPU check did not end in {seconds:g} s")
    return Found(f"the GPU check failed: {ended.failure}") if ended.failure else judge(ended.output, gpus)


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


def attributes(sys_root: Path, proc_root: Path, python: str, seconds: float) -> dict[str, str | float]:
    """Return the ClassAd attributes of this machine."""
    gpus = nvidia_gpus(sys_root)
    if not gpus:
        return {"SelfTest": NO_GPU}
    driver = proc_root / "driver/nvidia"
    if not (driver / "version").exists():
        return {"SelfTest": "failed: the NVIDIA driver is not loaded; see regiondag-gpu's messages"}
    found = check_gpus(len(gpus), python, seconds)
    firmware = gpu_firmware({str(path): read(path) for path in sorted(driver.glob("gpus/*/information"))})
    values: dict[str, str | float] = {"SelfTest": f"failed: {found.failure}" if found.failure else PASSED}
    if (driver / "params").exists():
        values["PCIConfigSpaceCheck"] = pci_check(read(driver / "params"))
    if found.launches_per_second is not None:
        values["MulCLaunchesPerSecond"] = round(found.launches_per_second, 1)
    if firmware:
        values["GpuFirmware"] = firmware
    return values


def condor_config(values: Mapping[str, str | float]) -> str:
    """Return the lines of HTCondor's configuration that put these attributes into the slots' ads.

    >>> print(condor_config({"SelfTest": "passed", "MulCLaunchesPerSecond": 90000.5}), end="")
    SelfTest = "passed"
    MulCLaunchesPerSecond = 90000.5
    STARTD_ATTRS = $(STARTD_ATTRS) SelfTest MulCLaunchesPerSecond
    """
    lines = [
        f"{name} = {quoted(value) if isinstance(value, str) else repr(float(value))}" for name, value in values.items()
    ]
    return "\n".join([*lines, f"STARTD_ATTRS = $(STARTD_ATTRS) {' '.join(values)}\n"])


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


def main(arguments: list[str] | None = None) -> int:
    """Test, tell, publish."""
    parser = argparse.ArgumentParser(prog="selftest", description="Test the GPUs, publish the result to HTCondor.")
    parser.add_argument("--sys", type=Path, default=Path("/sys"), help="where sysfs is (default: %(default)s)")
    parser.add_argument("--proc", type=Path, default=Path("/proc"), help="default: %(default)s")
    parser.add_argument("--run", type=Path, default=Path("/run"), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the GPU check (default: %(default)g)")
    options = parser.parse_args(arguments)
    try:
        values = attributes(options.sys, options.proc, sys.executable, options.seconds)
    except Exception as error:  # of whatever kind: it is published, not the end of the boot
        values = {"SelfTest": f"failed: the self-test itself: {type(error).__name__}: {error}"}
    is_bad = str(values["SelfTest"]).startswith("failed")
    described = "; ".join(f"{name}: {value}" for name, value in values.items())
    print(f"regiondag-selftest: {'ERROR: ' if is_bad else ''}{described}", flush=True)
    try:
        write_config(options.run / CONFIG, condor_config(values))
    except OSError as error:
        print(f"regiondag-selftest: ERROR: cannot publish this: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
