"""The driver's options chosen at boot, with a machine of files and a modinfo and modprobe of three lines."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ami.gpu_fakes import dmi, fake_modinfo, load, module, pci_device, program

OPEN = "Dual MIT/GPL"


@pytest.fixture
def gpu_options() -> ModuleType:
    return load("gpu-options")


def driver(gpu_options: ModuleType, licence: str = "NVIDIA", *parameters: str):
    return gpu_options.Driver("nvidia-current", "550.163.01", licence, frozenset(parameters))


@pytest.mark.parametrize("product", ["g4dn.xlarge", "g4dn.metal", "g5.48xlarge", "g5g.2xlarge"])
def test_these_families_do_without_firmware(gpu_options, product):
    choice = gpu_options.choose("Amazon EC2", product, driver(gpu_options, "NVIDIA", "NVreg_EnableGpuFirmware"))
    assert choice.options == ("NVreg_EnableGpuFirmware=0",)
    assert choice.reason == f"{product} is steadier without the GPU's firmware"


@pytest.mark.parametrize(
    ("vendor", "product", "licence", "parameters", "reason"),
    [
        ("Amazon EC2", "g6.xlarge", "NVIDIA", ["NVreg_EnableGpuFirmware"], "g6.xlarge needs none"),
        ("Amazon EC2", "p5.48xlarge", "NVIDIA", ["NVreg_EnableGpuFirmware"], "p5.48xlarge needs none"),
        ("Amazon EC2", "g5x", "NVIDIA", ["NVreg_EnableGpuFirmware"], "g5x needs none"),
        ("Amazon EC2", "", "NVIDIA", ["NVreg_EnableGpuFirmware"], "an unknown instance type needs none"),
        ("QEMU", "g5.xlarge", "NVIDIA", ["NVreg_EnableGpuFirmware"], "a machine of QEMU, not of Amazon EC2"),
        ("", "", "NVIDIA", ["NVreg_EnableGpuFirmware"], "a machine of an unknown maker, not of Amazon EC2"),
        (
            "Amazon EC2",
            "g5.xlarge",
            OPEN,
            ["NVreg_EnableGpuFirmware"],
            "g5.xlarge, but the open driver cannot do without the GPU's firmware",
        ),
        (
            "Amazon EC2",
            "g5.xlarge",
            "NVIDIA",
            ["NVreg_EnableGpuFirmwareLogs"],
            "g5.xlarge, but driver 550.163.01 has no NVreg_EnableGpuFirmware",
        ),
    ],
)
def test_all_others_get_none(gpu_options, vendor, product, licence, parameters, reason):
    choice = gpu_options.choose(vendor, product, driver(gpu_options, licence, *parameters))
    assert (choice.options, choice.reason) == ((), reason)


@given(st.text(), st.text())
def test_whatever_the_firmware_says_only_fixed_options_come_of_it(vendor, product):
    gpu_options = sys.modules.get("regiondag_gpu_options") or load("gpu-options")
    choice = gpu_options.choose(vendor, product, driver(gpu_options, "NVIDIA", "NVreg_EnableGpuFirmware"))
    assert choice.options in ((), ("NVreg_EnableGpuFirmware=0",))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An EC2 machine with a GPU and a driver; modprobe notes what it loads."""
    fake_modinfo(tmp_path / "bin", tmp_path / "modules")
    program(tmp_path / "bin", "modprobe", f'echo "$*" >>{tmp_path}/loaded')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    module(tmp_path / "modules", "nvidia-current", "550.163.01")
    pci_device(tmp_path / "sys", "0000:00:1e.0")
    pci_device(tmp_path / "sys", "0000:00:1e.1", kind="0x040300")  # its sound
    pci_device(tmp_path / "sys", "0000:00:03.0", vendor="0x1d0f", kind="0x030000")  # Amazon's VGA
    dmi(tmp_path / "sys", "Amazon EC2", "g5.xlarge")
    return tmp_path


def main(gpu_options: ModuleType, machine: Path) -> int:
    return gpu_options.main(["--sys", str(machine / "sys"), "--run", str(machine / "run")])


def test_a_g5(gpu_options, machine, capsys):
    assert main(gpu_options, machine) == 0
    assert capsys.readouterr().out.splitlines() == [
        "regiondag-gpu: options by machine: NVreg_EnableGpuFirmware=0 (g5.xlarge is steadier without the GPU's "
        "firmware)",
        "regiondag-gpu: driver 550.163.01 (closed) is loaded for 1 GPU(s)",
    ]
    assert (machine / "loaded").read_text() == "nvidia\nnvidia-uvm\n"
    assert (machine / "run/modprobe.d/regiondag-gpu.conf").read_text().splitlines() == [
        f"options {name} NVreg_EnableGpuFirmware=0" for name in ("nvidia-current", "nvidia-current-open", "nvidia")
    ]


def test_the_file_of_run_is_not_hidden_by_the_images(gpu_options):
    image_file = "regiondag-nvidia.conf"  # 55-pci-option.sh; modprobe reads one file of a name, that of /etc
    assert Path(gpu_options.OPTIONS_FILE).name != image_file


def test_another_machine_takes_back_the_options_of_an_earlier_run(gpu_options, machine, capsys):
    main(gpu_options, machine)
    (machine / "sys/class/dmi/id/product_name").write_text("g6.xlarge\n")
    capsys.readouterr()
    assert main(gpu_options, machine) == 0
    assert "options by machine: none (g6.xlarge needs none)" in capsys.readouterr().out
    assert not (machine / "run/modprobe.d/regiondag-gpu.conf").exists()


def test_an_open_driver(gpu_options, machine, capsys):
    (machine / "modules/nvidia-current").rename(machine / "modules/gone")
    module(machine / "modules", "nvidia-current-open", "550.163.01-open", OPEN)
    assert main(gpu_options, machine) == 0
    out = capsys.readouterr().out
    assert "none (g5.xlarge, but the open driver cannot" in out
    assert "driver 550.163.01 (open) is loaded" in out


def test_without_a_gpu_nothing_is_asked_or_loaded(gpu_options, machine, capsys):
    (machine / "sys/bus/pci/devices/0000:00:1e.0/class").write_text("0x068000\n")  # an NVSwitch
    assert main(gpu_options, machine) == 0
    assert capsys.readouterr().out == "regiondag-gpu: no NVIDIA GPU in this machine; no driver is loaded\n"
    assert not (machine / "loaded").exists()


def test_a_gpu_without_a_driver(gpu_options, machine, capsys):
    (machine / "modules/nvidia-current").rename(machine / "modules/gone")
    assert main(gpu_options, machine) == 1
    assert capsys.readouterr().out == (
        "regiondag-gpu: ERROR: 1 NVIDIA GPU(s) here (0000:00:1e.0), but this image has no driver for its kernel; "
        "bake one with --driver auto --for its type\n"
    )


def test_a_module_that_does_not_load(gpu_options, machine, capsys):
    program(machine / "bin", "modprobe", "echo \"modprobe: ERROR: could not insert 'nvidia': No device\" >&2; exit 1")
    assert main(gpu_options, machine) == 1
    assert (
        "regiondag-gpu: ERROR: modprobe nvidia: exit code 1: modprobe: ERROR: could not insert 'nvidia': No device; "
        "the kernel's reason: journalctl -k"
    ) in capsys.readouterr().out


def test_a_modprobe_that_hangs(gpu_options, machine, capsys, monkeypatch):
    monkeypatch.setattr(gpu_options, "SECONDS", 0.5)
    program(machine / "bin", "modprobe", "exec sleep 60")
    assert main(gpu_options, machine) == 1
    assert "regiondag-gpu: ERROR: modprobe nvidia: did not end in time" in capsys.readouterr().out


def test_no_modprobe(gpu_options, machine, capsys, monkeypatch):
    (machine / "bin/modprobe").unlink()
    monkeypatch.setenv("PATH", f"{machine}/bin:{machine}/tools")
    program(machine / "tools", "cat", 'exec /bin/cat "$@"')
    assert main(gpu_options, machine) == 1
    assert "ERROR: modprobe nvidia: exit code 127: [Errno 2] No such file" in capsys.readouterr().out
