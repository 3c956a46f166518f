"""The raw disk: where things lie, and what the boot loader is told of it."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.bake import contents, disk
from regiondag.errors import BakeError

SECTOR = disk.SECTOR
NEEDS_TOOLS = pytest.mark.skipif(
    not all(shutil.which(tool, path="/usr/sbin:/sbin:/usr/bin:/bin") for tool in disk.TOOLS) or os.geteuid() != 0,
    reason="needs root, and " + ", ".join(disk.TOOLS),
)


@given(st.integers(1, 1 << 36))
def test_the_disk_is_larger_than_its_files(files: int) -> None:
    size = disk.disk_bytes(files)
    assert size % disk.MIB == 0
    assert size - disk.ROOT_START * SECTOR - disk.MIB >= files + disk.SLACK


def test_grub_is_told_where_its_core_image_lies() -> None:
    boot, core = bytes(512), b"\xaa" * 3000
    first, padded = disk.bios_boot(boot, core)
    assert len(first) == 440, "the partition table after it stays as it is"
    assert struct.unpack_from("<Q", first, 0x5C) == (disk.CORE_START,)
    assert first[0x66:0x68] == b"\x90\x90"
    assert len(padded) == 6 * SECTOR
    assert struct.unpack_from("<QHH", padded, 0x1F4) == (disk.CORE_START + 1, 5, 0x820)
    assert padded[SECTOR:3000] == core[SECTOR:]


def test_a_core_image_too_large_for_its_partition_is_refused() -> None:
    with pytest.raises(BakeError, match="2049 sectors; its partition has 2048"):
        disk.bios_boot(bytes(512), bytes(2048 * SECTOR + 1))


@NEEDS_TOOLS
def test_a_disk_holds_the_files_with_their_owners_and_both_boot_loaders(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    os.chown(root / "etc/secret", 12, 34)
    raw = tmp_path / "disk.raw"
    with (tmp_path / "log").open("w") as log:
        disk.make_disk(root, raw, log)
    answer = contents.debugfs(raw, ["stat /etc/secret"])
    assert "User:    12   Group:    34" in answer
    content = raw.read_bytes()
    assert content[0x5C:0x64] == struct.pack("<Q", disk.CORE_START)
    assert content[510:512] == b"\x55\xaa", "the protective partition table is still there"
    assert content[disk.CORE_START * SECTOR :][:16] == b"core" * 4
    listed = subprocess.run(["sfdisk", "--dump", raw], capture_output=True, text=True, check=True).stdout
    assert [line.split("start=")[1].split(",")[0].strip() for line in listed.splitlines() if "start=" in line] == [
        str(start) for start in (disk.CORE_START, disk.ESP_START, disk.ROOT_START)
    ]
    copied = subprocess.run(
        ["mtype", "-i", f"{raw}@@{disk.ESP_START * SECTOR}", "::EFI/BOOT/BOOTX64.EFI"], capture_output=True, check=True
    )
    assert copied.stdout == b"efi program"
    checked = tmp_path / "root.ext4"
    checked.write_bytes(content[disk.ROOT_START * SECTOR : -disk.MIB])
    assert subprocess.run(["e2fsck", "-fn", checked], capture_output=True, check=False).returncode == 0


@NEEDS_TOOLS
def test_what_a_worker_needs_and_a_disk_lacks_is_named(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    for path in contents.NEEDED:
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).write_text("there")
    raw = tmp_path / "disk.raw"
    with (tmp_path / "log").open("w") as log:
        disk.make_disk(root, raw, log)
    assert contents.find_missing(raw) == []
    contents.debugfs(raw, ["rm /usr/sbin/condor_master"], write=True)
    assert contents.find_missing(raw) == ["/usr/sbin/condor_master"]


def test_a_file_that_is_no_disk_is_said_to_be_none(tmp_path: Path) -> None:
    raw = tmp_path / "disk.raw"
    raw.write_bytes(bytes(40 << 20))
    with pytest.raises(BakeError, match="holds no file system"):
        contents.find_missing(raw)


@NEEDS_TOOLS
def test_a_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    (root / "boot/regiondag/BOOTX64.EFI").write_bytes(bytes(20 << 20))  # too large for its partition
    with (tmp_path / "log").open("w") as log, pytest.raises(BakeError, match=r"(?s)mcopy failed with 1:.*full"):
        disk.make_disk(root, tmp_path / "disk.raw", log)


def make_root(folder: Path) -> Path:
    """Make a root folder with as much as make_disk looks for."""
    root = folder / "root"
    loader = root / "boot/regiondag"
    loader.mkdir(parents=True)
    (loader / "boot.img").write_bytes(bytes(512))
    (loader / "core.img").write_bytes(b"core" * 500)
    (loader / "BOOTX64.EFI").write_bytes(b"efi program")
    (root / "etc").mkdir()
    (root / "etc/secret").write_text("x")
    return root
