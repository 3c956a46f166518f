"""What is found of a machine's GPUs, from texts as nvidia-smi and the kernel print them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nnlib.inspection.gpu_machine import FIELDS, Run, look, run_program
from nnlib.inspection.gpu_report import describe

GOOD = {
    "index": "0",
    "name": "NVIDIA H100 PCIe",
    "uuid": "GPU-1",
    "pci.bus_id": "00000000:01:00.0",
    "compute_cap": "9.0",
    "driver_version": "550.54.15",
    "memory.total": "81559",
    "memory.used": "4",
    "pcie.link.gen.current": "5",
    "pcie.link.gen.max": "5",
    "pcie.link.width.current": "16",
    "pcie.link.width.max": "16",
    "ecc.mode.current": "Enabled",
    "ecc.errors.uncorrected.volatile.total": "0",
    "clocks.current.sm": "345",
    "clocks.max.sm": "1755",
    "power.limit": "350.00",
    "power.max_limit": "350.00",
    "temperature.gpu": "34",
    "mig.mode.current": "Disabled",
    "persistence_mode": "Enabled",
}
LOG = (
    "[1.0] usb 1-1: new device\n"
    "[2.0] NVRM: Xid (PCI:0000:01:00): 13, pid=7, name=python\n"
    "[3.0] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n"
    "[4.0] NVRM: Xid (PCI:0000:01:00): 13, pid=8, name=python\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("550.54.15\n")
    return tmp_path


TOPOLOGY = """\x1b[4m\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tSYS\tPIX\t0-31\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tNODE\t0-31\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\t X

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""
ALL_LINKED = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV18\tNV18\nGPU1\tNV18\t X \tNV18\nGPU2\tNV18\tNV18\t X\n"


def several(topology: str | OSError) -> Run:
    """Return what answers as nvidia-smi does on a machine of three GPUs."""
    one = machine_with()

    def run(argv: Sequence[str]) -> str:
        if argv[1:] == ["topo", "-m"]:
            if isinstance(topology, OSError):
                raise topology
            return topology
        return one(argv) * (3 if argv[0] == "nvidia-smi" else 1)

    return run


def test_what_links_gpus(root):
    found = look({}, several(TOPOLOGY), root)
    assert found.links == ["GPUs 0-1: NV12, 12 NVLinks", "GPUs 0-2, 1-2: SYS, PCI, between processors"]
    [advice] = found.advice
    assert advice.startswith("not all GPUs are linked by NVLink")
    found = look({}, several(ALL_LINKED), root)
    assert (found.links, found.advice) == (["all 3 pairs: NV18, 18 NVLinks"], [])
    assert look({}, machine_with(), root).links == []  # one GPU is linked to none


@pytest.mark.parametrize(
    ("topology", "why"), [(OSError("Not supported"), "topo -m: Not supported"), ("\tGPU0\nGPU0\t?\n", "names no link")]
)
def test_links_that_are_not_known(root, topology, why):
    found = look({}, several(topology), root)
    assert found.links == [] and len(found.advice) == 1
    assert found.advice[0].startswith("what links the GPUs is not known: nvidia-smi") and why in found.advice[0]
    assert "links between GPUs\n  not known\n" in describe(found, None, "none", 100)
    assert "  GPUs 0-1: NV12" in describe(look({}, several(TOPOLOGY), root), None, "none", 100)


def machine_with(log: str | None = "quiet\n", unknown: Sequence[str] = (), **other: str) -> Run:
    """Return what answers as nvidia-smi and dmesg do; some fields it does not know."""
    values = GOOD | {name.replace("__", "."): value for name, value in other.items()}

    def run(argv: Sequence[str]) -> str:
        if argv[0] == "nvidia-smi":
            asked = argv[1].removeprefix("--query-gpu=").split(",")
            for name in asked:
                if name in unknown:
                    raise OSError(f'Field "{name}" is not a valid field to query.')
            return ", ".join(values[name] for name in asked) + "\n"
        if log is None:
            raise OSError("dmesg: read kernel buffer failed: Operation not permitted")
        return log

    return run


def test_a_gpu_that_is_well(root):
    found = look({"HOME": "/"}, machine_with(), root)
    assert found.advice == []
    assert found.driver == "550.54.15"
    assert found.gpus == [{FIELDS[name]: value for name, value in GOOD.items()}]
    assert (found.environment, found.xids) == ({}, [])


def test_fields_that_a_driver_does_not_know_are_left_out(root):
    [gpu] = look({}, machine_with(unknown=("compute_cap", "mig.mode.current")), root).gpus
    assert set(FIELDS.values()) - set(gpu) == {"compute capability", "MIG"}
    [gpu] = look({}, machine_with(ecc__mode__current="[N/A]"), root).gpus
    assert "ECC" not in gpu


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"pcie__link__width__current": "8"}, "GPU 0: the PCI link is 8 wide of 16"),
        (
            {"pcie__link__gen__current": "1"},
            "GPU 0: the PCI link runs at generation 1 of 5: usual while the GPU is idle",
        ),
        ({"power__limit": "250.00"}, "GPU 0: power is capped at 250.00 W of 350.00"),
        ({"ecc__errors__uncorrected__volatile__total": "2"}, "GPU 0: memory errors were not corrected: restart"),
        ({"persistence_mode": "Disabled"}, "GPU 0: persistence mode is off"),
        ({"mig__mode__current": "Enabled"}, "GPU 0: MIG is on"),
        ({"memory__used": "40000"}, "GPU 0: 40000 MiB are in use"),
    ],
)
def test_what_is_not_as_it_should_be_is_said_with_what_to_do(root, seen, said):
    [advice] = look({}, machine_with(**seen), root).advice
    assert advice.startswith(said)


def test_errors_in_the_kernels_log(root):
    found = look({}, machine_with(log=LOG), root)
    assert [line.split(":")[-1].split(",")[0].strip() for line in found.xids] == ["13", "79", "13"]
    assert [line.split(":")[0] for line in found.advice] == [
        "Xid 13 (2 in the kernel's log)",
        "Xid 79 (1 in the kernel's log)",
    ]


def test_a_log_that_may_not_be_read(root):
    [advice] = look({}, machine_with(log=None), root).advice
    assert "sudo dmesg | grep Xid" in advice


def test_variables_that_matter(root):
    found = look({"CUDA_LAUNCH_BLOCKING": "1", "CUDA_VISIBLE_DEVICES": "1", "HOME": "/"}, machine_with(), root)
    assert dict(found.environment) == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_LAUNCH_BLOCKING": "1"}
    [advice] = found.advice
    assert advice.startswith("CUDA_LAUNCH_BLOCKING=1: ")


def test_a_machine_without_anything(tmp_path):
    def nothing(argv: Sequence[str]) -> str:
        raise FileNotFoundError(argv[0])

    found = look({}, nothing, tmp_path)
    assert (found.gpus, found.driver) == ([], "")
    assert [text.split(" ", 3)[:3] for text in found.advice] == [
        ["no", "driver", "of"],
        ["there", "is", "no"],
        ["the", "kernel's", "log"],
    ]


def test_a_driver_that_does_not_answer(root):
    def run(argv: Sequence[str]) -> str:
        if argv[0] == "nvidia-smi":
            raise OSError("no answer in 10 s")
        return "quiet\n"

    assert look({}, run, root).advice == ["nvidia-smi: no answer in 10 s"]


@pytest.mark.parametrize(
    ("script", "said"), [("echo bad >&2; exit 3", "bad"), ("exit 3", "exit code 3"), ("sleep 9", "no answer in 0 s")]
)
def test_programs_that_fail(monkeypatch: Any, script: str, said: str) -> None:
    monkeypatch.setattr("nnlib.inspection.gpu_machine.SECONDS", 0.3)
    with pytest.raises(OSError, match=said):
        run_program(["sh", "-c", script])
    assert run_program(["echo", "good"]) == "good\n"
