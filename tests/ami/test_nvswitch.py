"""Whether the fabric manager has anything to manage."""

from __future__ import annotations

import pytest

from tests.ami.gpu_fakes import load, pci_device, program


@pytest.fixture
def nvswitch():
    return load("nvswitch")


def test_gpus_alone_need_no_fabric_manager(nvswitch, tmp_path, capsys):
    pci_device(tmp_path, "0000:00:1e.0")
    pci_device(tmp_path, "0000:00:01.0", vendor="0x8086", kind="0x068000")
    assert nvswitch.main([f"--sys={tmp_path}"]) == 1
    assert capsys.readouterr().out == "nvswitch: none\n"


def test_switches_of_a100_h100_and_h200_are_pci_devices(nvswitch, tmp_path, capsys):
    pci_device(tmp_path, "0000:10:1c.0")
    for number in (0, 1):
        pci_device(tmp_path, f"0000:20:1d.{number}", kind="0x068000")
    assert nvswitch.main([f"--sys={tmp_path}"]) == 0
    assert capsys.readouterr().out == "nvswitch: 0000:20:1d.0, 0000:20:1d.1\n"


@pytest.mark.parametrize("fails", [False, True])
def test_switches_of_blackwell_are_reached_by_infiniband(nvswitch, tmp_path, capsys, monkeypatch, fails):
    program(tmp_path / "bin", "modprobe", f"echo $* >>{tmp_path}/loaded; [ {int(fails)} = 0 ] || exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    for name, data in (("mlx5_0", b"\x82\x0bsomeSMDL=SW_MNG\0"), ("mlx5_1", b"\x82a card for the network")):
        folder = tmp_path / "class/infiniband" / name / "device"
        folder.mkdir(parents=True)
        (folder / "vpd").write_bytes(data)
    (tmp_path / "class/infiniband/mlx5_2").mkdir()
    assert nvswitch.main([f"--sys={tmp_path}"]) == 0
    assert (tmp_path / "loaded").read_text() == "ib_umad\n"
    out = capsys.readouterr().out
    assert out.endswith("nvswitch: mlx5_0\n")
    assert ("modprobe ib_umad: exit code 1" in out) is fails
