"""NVreg_CheckPCIConfigSpace: what the bake says of it, for parameters recorded of real drivers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.ami.gpu_fakes import PROVISION, RECORDED, fake_modinfo, module, program

KERNEL = "6.12.117+deb13-cloud-amd64"
OPEN = "Dual MIT/GPL"
KNOWN = "known: driver {} honours NVreg_CheckPCIConfigSpace=0"
IGNORED = (
    "ignored: driver {} has no NVreg_CheckPCIConfigSpace any more (450 and newer); "
    "in virtual machines the check is off anyway since 340.65"
)
NO_DRIVER = "no driver: NVreg_CheckPCIConfigSpace=0 is set, but no NVIDIA driver is in this image to read it"
SKIPPED = "skipped: NVreg_CheckPCIConfigSpace=0 was left out (--skip-pci-option)"


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    fake_modinfo(tmp_path / "bin", tmp_path / "modules", KERNEL)
    return tmp_path / "bin"


def run(script: str, *words: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(PROVISION / script), *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{path}:{os.environ['PATH']}", **environment},
    )


@pytest.mark.parametrize(
    ("recorded", "name", "licence", "wanted"),
    [
        ("340.108", "nvidia", "NVIDIA", KNOWN),
        ("418.226.00", "nvidia", "NVIDIA", KNOWN),
        ("418.226.00", "nvidia-current", "NVIDIA", KNOWN),
        ("450.248.02", "nvidia", "NVIDIA", IGNORED),
        ("470.256.02", "nvidia-current", "NVIDIA", IGNORED),
        ("535.261.03-open", "nvidia-current-open", OPEN, IGNORED),
        ("550.163.01", "nvidia-current", "NVIDIA", IGNORED),
        ("550.163.01-open", "nvidia", OPEN, IGNORED),
    ],
)
def test_each_driver(tmp_path, bin_folder, recorded, name, licence, wanted):
    module(tmp_path / "modules", name, recorded, licence)
    done = run("pci-option.sh", "yes", KERNEL, path=bin_folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted.format(recorded.split("-")[0]) + "\n", "")


@pytest.mark.parametrize("words", [["yes"], ["yes", ""], ["yes", KERNEL], ["yes", "6.1.0-other"]])
def test_no_driver_for_this_kernel(tmp_path, bin_folder, words):
    if words[-1] != KERNEL:
        module(tmp_path / "modules", "nvidia", "418.226.00")
    done = run("pci-option.sh", *words, path=bin_folder)
    assert (done.returncode, done.stdout) == (0, NO_DRIVER + "\n")


def test_skipped_asks_nobody(tmp_path):
    program(tmp_path, "modinfo", "exit 99")
    done = run("pci-option.sh", "no", KERNEL, path=tmp_path)
    assert (done.returncode, done.stdout) == (0, SKIPPED + "\n")


@pytest.mark.parametrize("words", [[], ["maybe"], ["YES", KERNEL]])
def test_what_is_no_answer(bin_folder, words):
    done = run("pci-option.sh", *words, path=bin_folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "it can be yes or no" in done.stderr


def test_a_modinfo_that_fails_is_no_answer(tmp_path, bin_folder):
    module(tmp_path / "modules", "nvidia", "418.226.00")
    (tmp_path / "modules/nvidia/parameters").unlink()
    done = run("pci-option.sh", "yes", KERNEL, path=bin_folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"modinfo -k {KERNEL} -p nvidia failed" in done.stderr


def test_no_modinfo_is_no_answer(tmp_path):
    for tool in ("sh", "dirname", "readlink"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        ["sh", str(PROVISION / "pci-option.sh"), "yes", KERNEL],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "apt-get install kmod" in done.stderr


def test_an_option_with_a_longer_name_is_another(tmp_path, bin_folder):
    module(tmp_path / "modules", "nvidia", "550.163.01")
    (tmp_path / "modules/nvidia/parameters").write_text("NVreg_CheckPCIConfigSpaceMore: (int)\n")
    assert run("pci-option.sh", "yes", KERNEL, path=bin_folder).stdout.startswith("ignored:")


def step(
    tmp_path: Path, bin_folder: Path, kernel: str = KERNEL, **environment: str
) -> subprocess.CompletedProcess[str]:
    program(bin_folder, "update-initramfs", f'echo "$*" >>{tmp_path}/initramfs')
    if kernel:
        folder = tmp_path / "root/lib/modules" / kernel
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "modules.builtin").touch()
    return run("55-pci-option.sh", path=bin_folder, REGIONDAG_ROOT=str(tmp_path / "root"), **environment)


def test_the_step_sets_the_option_for_every_name(tmp_path, bin_folder):
    module(tmp_path / "modules", "nvidia-current", "550.163.01")
    done = step(tmp_path, bin_folder)
    assert done.returncode == 0, done.stderr
    sentence = IGNORED.format("550.163.01")
    assert done.stdout == f"55-pci-option: {sentence}\n"
    lines = (tmp_path / "root/etc/modprobe.d/regiondag-nvidia.conf").read_text().splitlines()
    assert {line for line in lines if not line.startswith("#")} == {
        f"options {name} NVreg_CheckPCIConfigSpace=0" for name in ("nvidia", "nvidia-current", "nvidia-current-open")
    }
    recorded = (tmp_path / "root/var/lib/regiondag/recorded").read_text()
    assert recorded == f'PCI_OPTION="{sentence}"\n'
    read_back = subprocess.run(
        ["sh", "-c", f'. {tmp_path}/root/var/lib/regiondag/recorded; printf %s "$PCI_OPTION"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert read_back.stdout == sentence


def test_the_step_takes_the_newest_kernel(tmp_path, bin_folder):
    (tmp_path / "root/lib/modules/6.12.9+deb13-cloud-amd64").mkdir(parents=True)
    (tmp_path / "root/lib/modules/6.12.9+deb13-cloud-amd64/modules.builtin").touch()
    (tmp_path / "root/lib/modules/6.13.0-without-a-kernel").mkdir()  # only dkms's left-overs
    module(tmp_path / "modules", "nvidia", "418.226.00")
    assert step(tmp_path, bin_folder).stdout == f"55-pci-option: {KNOWN.format('418.226.00')}\n"


def test_the_step_without_a_driver_sets_it_all_the_same(tmp_path, bin_folder):
    done = step(tmp_path, bin_folder, kernel="")
    assert (done.returncode, done.stdout) == (0, f"55-pci-option: {NO_DRIVER}\n")
    assert (tmp_path / "root/etc/modprobe.d/regiondag-nvidia.conf").exists()


@pytest.mark.parametrize(("there", "call"), [(True, f"-u -k {KERNEL}\n"), (False, f"-c -k {KERNEL}\n")])
def test_the_initramfs_is_rebuilt_or_made_for_the_images_kernel(tmp_path, bin_folder, there, call):
    step(tmp_path, bin_folder)
    if there:
        (tmp_path / "root/boot").mkdir()
        (tmp_path / f"root/boot/initrd.img-{KERNEL}").touch()
    done = run("65-initramfs.sh", path=bin_folder, REGIONDAG_ROOT=str(tmp_path / "root"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "initramfs").read_text() == call


def test_the_step_can_be_skipped_and_takes_back_an_earlier_run(tmp_path, bin_folder):
    step(tmp_path, bin_folder)
    done = step(tmp_path, bin_folder, PCI_OPTION="no")
    assert (done.returncode, done.stdout) == (0, f"55-pci-option: {SKIPPED}\n")
    assert not (tmp_path / "root/etc/modprobe.d/regiondag-nvidia.conf").exists()


def test_the_step_fails_where_the_case_cannot_be_found_out(tmp_path, bin_folder):
    done = step(tmp_path, bin_folder, PCI_OPTION="perhaps")
    assert done.returncode == 2
    assert not (tmp_path / "root/etc").exists()


def test_all_recorded_parameters_are_in_modinfos_form():
    files = sorted(RECORDED.glob("*.txt"))
    assert len(files) == 7
    for path in files:
        for line in path.read_text().splitlines():
            assert re.fullmatch(r"\w+:.* \((int|uint|charp)\)", line), f"{path.name}: {line}"
