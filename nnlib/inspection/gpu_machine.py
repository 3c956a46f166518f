"""What is known of a machine's GPUs from outside of CUDA: nvidia-smi, the kernel's log, devices, the environment.

Standard library only, and nothing here fails: what cannot be found out is said, with what to do about it.
"""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlib.inspection.gpu_links import describe_links, has_nvlink, parse_topology
from nnlib.util.machine import driver_version

SECONDS = 10.0  # that a program may take: one that asks a broken GPU may never answer
# What nvidia-smi is asked, and what a report calls it.
FIELDS = {
    "index": "GPU",
    "name": "name",
    "uuid": "uuid",
    "pci.bus_id": "PCI address",
    "compute_cap": "compute capability",
    "driver_version": "driver",
    "memory.total": "memory, MiB",
    "memory.used": "memory in use, MiB",
    "pcie.link.gen.current": "PCI generation now",
    "pcie.link.gen.max": "PCI generation, most",
    "pcie.link.width.current": "PCI width now",
    "pcie.link.width.max": "PCI width, most",
    "ecc.mode.current": "ECC",
    "ecc.errors.uncorrected.volatile.total": "memory errors, not corrected",
    "clocks.current.sm": "clock now, MHz",
    "clocks.max.sm": "clock, most, MHz",
    "power.limit": "power cap, W",
    "power.max_limit": "power cap, most, W",
    "temperature.gpu": "temperature, C",
    "mig.mode.current": "MIG",
    "persistence_mode": "persistence mode",
}
VARIABLES = {
    "CUDA_VISIBLE_DEVICES": "",
    "CUDA_DEVICE_ORDER": "",
    "NVIDIA_VISIBLE_DEVICES": "",
    "CUDA_PATH": "",
    "CUDA_HOME": "",
    "LD_LIBRARY_PATH": "its libraries are found before those of CuPy's wheels; unset it if CuPy finds a wrong one",
    "LD_PRELOAD": "",
    "CUPY_CACHE_DIR": "",
    "CUDA_LAUNCH_BLOCKING": "every launch is waited for, which is slow; unset it unless you look for a fault",
    "CUDA_MODULE_LOADING": "",
    "NVIDIA_TF32_OVERRIDE": "0 forbids what --precision tf32 asks for; unset it",
    "CUDA_CACHE_DISABLE": "",
    "NNLIB_DEVICE": "",
    "NNLIB_CONVOLUTIONS": "",
}
# What NVIDIA's driver means, and what to do next (docs.nvidia.com/deploy/xid-errors).
XIDS = {
    13: "a program's access went wrong; update regiondag and report it if it comes again",
    31: "a program's access went wrong; update regiondag and report it if it comes again",
    43: "a program was stopped after an error of its own",
    45: "work was cut off after an error before, which is the one to look at",
    48: "memory error that was not corrected: restart the machine; if it comes again, replace the GPU",
    61: "the GPU's own controller failed: restart the machine, update driver and firmware",
    62: "the GPU's own controller failed: restart the machine, update driver and firmware",
    63: "a row of memory is to be replaced by a spare one: restart the machine",
    64: "a row of memory could not be replaced: replace the GPU",
    74: "NVLink failed: check its bridges, restart the machine",
    79: "the GPU fell off the bus: check its power, seat and temperature, restart the machine",
    92: "many memory errors were corrected: watch it",
    94: "memory error that was contained: start what ran again; restart the machine when it is idle",
    95: "memory error that was not contained: restart the machine",
    119: "the GPU's system processor did not answer: restart the machine, update the driver",
    120: "the GPU's system processor failed: restart the machine, update the driver",
}
XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d+)")
LATEST = 5  # lines of the log that are shown

Run = Callable[[Sequence[str]], str]  # what a program printed; OSError where it did not end well


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """What was found: of each GPU by the names of FIELDS, and advice, a sentence each."""

    gpus: Sequence[Mapping[str, str]]
    driver: str
    environment: Mapping[str, str]
    xids: Sequence[str]  # lines of the kernel's log, the latest last
    advice: Sequence[str]
    links: Sequence[str] = ()  # between GPUs, a line each kind


def run_program(argv: Sequence[str]) -> str:
    """Return what a program printed; OSError with the reason where it failed or did not end in time."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer in {SECONDS:.0f} s") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise OSError(said[-1] if said else f"exit code {done.returncode}")
    return done.stdout


def look(environment: Mapping[str, str], run: Run = run_program, root: Path = Path("/")) -> GpuMachine:
    """Return what is known of this machine's GPUs."""
    driver = driver_version(root)
    gpus, missing = _ask(run)
    links, unlinked = _read_links(run) if len(gpus) > 1 else ([], [])
    xids, unread = _read_xids(run)
    named = {name: value for name, value in sorted(environment.items()) if name in VARIABLES and value}
    advice = [*_of_driver(driver, missing, root), *unlinked, *unread, *_of_xids(xids), *_of_environment(named)]
    advice += [f"GPU {gpu.get('GPU', n)}: {text}" for n, gpu in enumerate(gpus) for text in _of_gpu(gpu)]
    return GpuMachine(gpus, driver, named, xids[-LATEST:], advice, links)


def _ask(run: Run) -> tuple[list[dict[str, str]], str]:
    """Return what nvidia-smi says of each GPU, and why it says nothing; fields that it does not know are left out."""
    fields = list(FIELDS)
    while fields:
        try:
            text = run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])
        except FileNotFoundError:
            return [], "there is no nvidia-smi, which comes with the driver; install it"
        except OSError as error:
            unknown = [name for name in fields if f'"{name}"' in str(error)]
            if not unknown:
                return [], f"nvidia-smi: {error}"
            fields.remove(unknown[0])
            continue
        lines = csv.reader(text.splitlines(), skipinitialspace=True)
        return [_known(dict(zip(fields, line, strict=False))) for line in lines if line], ""
    return [], "nvidia-smi knows none of the questions; update the driver"


def _known(gpu: Mapping[str, str]) -> dict[str, str]:
    return {FIELDS[name]: value for name, value in gpu.items() if not value.startswith(("[", "N/A"))}


def _read_links(run: Run) -> tuple[list[str], list[str]]:
    """Return how GPUs reach each other, and what to do where that is slow or not known."""
    try:
        links = parse_topology(run(["nvidia-smi", "topo", "-m"]))
    except OSError as error:
        return [], [f"what links the GPUs is not known: nvidia-smi topo -m: {error}"]
    if not links:
        return [], ["what links the GPUs is not known: nvidia-smi topo -m names no link; see docs/concepts/level3.md"]
    slow = "not all GPUs are linked by NVLink: a training on several of them pays off for wide layers alone"
    return list(describe_links(links)), [] if has_nvlink(links) else [slow]


def _read_xids(run: Run) -> tuple[list[str], list[str]]:
    """Return the driver's errors in the kernel's log, and what to do where nobody may read it."""
    for argv in (["dmesg"], ["journalctl", "--dmesg", "--no-pager", "--quiet"]):
        try:
            text = run(argv)
        except OSError:
            continue
        if text:
            return [line.strip() for line in text.splitlines() if XID.search(line)], []
    return [], ["the kernel's log may not be read, so errors of the GPU are not seen: sudo dmesg | grep Xid"]


def _of_driver(driver: str, missing: str, root: Path) -> Iterator[str]:
    if not driver:
        yield "no driver of NVIDIA is loaded: install it, or load it with: sudo modprobe nvidia"
    elif not list((root / "dev").glob("nvidia[0-9]*")):
        yield "there is no /dev/nvidia0: sudo nvidia-smi makes it; a container needs --gpus all"
    if missing:
        yield missing


def _of_xids(lines: Sequence[str]) -> Iterator[str]:
    numbers = [int(found[2]) for line in lines if (found := XID.search(line))]
    for number in sorted(set(numbers)):
        times = numbers.count(number)
        meaning = XIDS.get(number, "see NVIDIA's list of Xid errors")
        yield f"Xid {number} ({times} in the kernel's log): {meaning}"


def _of_environment(named: Mapping[str, str]) -> Iterator[str]:
    for name, value in named.items():
        if VARIABLES[name]:
            yield f"{name}={value}: {VARIABLES[name]}"


def _of_gpu(gpu: Mapping[str, str]) -> Iterator[str]:
    def less(one: str, other: str) -> bool:
        return one in gpu and other in gpu and _number(gpu[one]) < _number(gpu[other])

    if less("PCI width now", "PCI width, most"):
        yield (
            f"the PCI link is {gpu['PCI width now']} wide of {gpu['PCI width, most']}: data come slower; check the "
            "slot and how the card sits"
        )
    if less("PCI generation now", "PCI generation, most"):
        yield (
            f"the PCI link runs at generation {gpu['PCI generation now']} of {gpu['PCI generation, most']}: usual "
            "while the GPU is idle, else a slower slot"
        )
    if less("power cap, W", "power cap, most, W"):
        yield f"power is capped at {gpu['power cap, W']} W of {gpu['power cap, most, W']}: nvidia-smi -pl WATTS"
    if _number(gpu.get("memory errors, not corrected", "0")) > 0:
        yield "memory errors were not corrected: restart the machine; if they come again, replace the GPU"
    if gpu.get("persistence mode") == "Disabled":
        yield "persistence mode is off: each program waits until the driver is up: sudo nvidia-smi -pm 1"
    if gpu.get("MIG") == "Enabled":
        yield "MIG is on: a program sees one part of it, which CUDA_VISIBLE_DEVICES=MIG-... names (nvidia-smi -L)"
    if 10 * _number(gpu.get("memory in use, MiB", "0")) > _number(gpu.get("memory, MiB", "inf")):
        yield f"{gpu['memory in use, MiB']} MiB are in use: nvidia-smi shows by whom"


def _number(text: str) -> float:
    found = re.match(r"[0-9.]+", text)
    return float(found[0]) if found else 0.0
