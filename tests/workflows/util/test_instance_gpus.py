"""Which driver drives which instance type; the families are compared with what moto recorded of EC2."""

from __future__ import annotations

import gzip
import importlib.resources
import json

import pytest

from regiondag.errors import UsageError
from regiondag.util.instance_gpus import GPUS, DriverChoice, choose_driver, gpu_of, has_nvswitch, why_not_driven

CLOSED, OPEN, NEW = "closed 550.163.01", "open 550.163.01", "open 580.95.05"


def test_the_table_says_what_ec2_says():
    path = importlib.resources.files("moto.ec2") / "resources/instance_types.json.gz"
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    kinds = recorded.values() if isinstance(recorded, dict) else recorded
    seen = {
        (kind["InstanceType"].partition(".")[0], gpu["Name"])
        for kind in kinds
        for gpu in kind.get("GpuInfo", {}).get("Gpus", [])
        if gpu["Manufacturer"] == "NVIDIA"
    }
    assert len(seen) > 10
    assert seen <= {(family, gpu.name) for family, gpu in GPUS.items()}


@pytest.mark.parametrize(
    ("types", "choice"),
    [
        (["g4dn.xlarge", "g5.xlarge", "g6.xlarge"], DriverChoice("open")),
        (["p3.2xlarge", "g5.xlarge"], DriverChoice("closed")),
        (["p4d.24xlarge"], DriverChoice("open", fabric_manager=True)),
        (["p5.4xlarge"], DriverChoice("open")),
        (["p5.48xlarge"], DriverChoice("open", fabric_manager=True)),
        (["p6-b200.48xlarge", "g6.xlarge"], DriverChoice("open", 570, fabric_manager=True)),
        (["g7e.2xlarge"], DriverChoice("open", 570)),
    ],
)
def test_the_driver_follows_the_machines(types, choice):
    assert choose_driver(types) == choice
    assert choose_driver(reversed([*types, *types])) == choice


def test_where_debian_has_no_open_module_the_closed_one_drives_what_it_can():
    assert choose_driver(["g5.xlarge"], open_is_there=False).driver == "closed"
    assert choose_driver(["g7e.2xlarge"], open_is_there=False).driver == "open"


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (["g99.xlarge", "g5.xlarge"], r"seen g99\.xlarge, and the table has no such .*give --driver open or closed"),
        (["trn1.2xlarge"], "no such instance type"),
        ([], "seen none"),
        (
            ["g5.xlarge", "g5g.xlarge"],
            r"^--for g5g\.xlarge: its processor is arm64, .* amd64 alone; families: p2, .*g7e$",
        ),
        (["p3.2xlarge", "p6-b200.48xlarge"], r"no driver drives both p3\.2xlarge .* and p6-b200\.48xlarge .*Blackwell"),
    ],
)
def test_what_no_image_drives(types, message):
    with pytest.raises(UsageError, match=message):
        choose_driver(types)


@pytest.mark.parametrize(
    ("kind", "driver", "fabric", "reason"),
    [
        ("g5.xlarge", CLOSED, False, ""),
        ("g5.xlarge", OPEN, None, ""),
        ("p5.48xlarge", OPEN, True, ""),
        ("p5.4xlarge", OPEN, False, ""),
        ("p5.48xlarge", OPEN, None, ""),  # an image of old does not say
        ("p5.48xlarge", CLOSED, False, "no fabric manager"),
        ("p3.2xlarge", OPEN, False, "by the closed kernel module only, the image has the open one"),
        ("p3.2xlarge", "closed 590.44.01", False, "known to drivers up to 580"),
        ("p2.xlarge", CLOSED, False, "known to drivers up to 470"),
        ("p6-b200.48xlarge", CLOSED, True, "by the open kernel module only"),
        ("p6-b200.48xlarge", OPEN, True, "needs driver 570 or newer"),
        ("p6-b200.48xlarge", NEW, True, ""),
        ("g7e.2xlarge", NEW, False, ""),
        ("x1.large", CLOSED, False, ""),
        ("g5.xlarge", "none", None, ""),
        ("g5.xlarge", "", None, ""),
        ("g7e.2xlarge", "open", None, ""),
    ],
)
def test_why_an_image_does_not_drive_a_machine(kind, driver, fabric, reason):
    text = why_not_driven(kind, driver, fabric)
    assert bool(text) == bool(reason)
    assert reason in text
    if text:
        assert text.endswith(f"regiondag bake image --driver auto --for {kind}")
        assert gpu_of(kind).name in text


def test_what_is_chosen_for_machines_drives_them():
    for family in (name for name, gpu in GPUS.items() if not gpu.arm64):
        kind = f"{family}.48xlarge"
        choice = choose_driver([kind])
        newest = gpu_of(kind).newest_driver
        version = f"{choice.driver} {choice.least or newest or 550}.1"
        assert why_not_driven(kind, version, choice.fabric_manager) == ""
        assert choice.fabric_manager == has_nvswitch(kind)
