"""Make a raw disk of a root folder: GPT, a boot loader for BIOS and one for UEFI, ext4. Nothing is mounted.

sector      0  GPT, and GRUB's first 440 bytes
         2048  1 MiB  GRUB's core image (BIOS)
         4096  16 MiB EFI system partition with GRUB as its default program
        36864  the root file system, to the end of the disk; it grows at the first boot
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from regiondag.errors import BakeError
from regiondag.pool.rootfs_build import as_owner, last_lines, search_path

SECTOR = 512
MIB = 1 << 20
CORE_START = 2048
ESP_START = 4096
ROOT_START = 36864
LABEL = "regiondag-root"

TOOLS = ("sfdisk", "mkfs.ext4", "mkfs.vfat", "mcopy", "debugfs")

PARTITIONS = f"""label: gpt
1: start={CORE_START}, size={ESP_START - CORE_START}, type=21686148-6449-6E6F-744E-656564454649, name=bios
2: start={ESP_START}, size={ROOT_START - ESP_START}, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=efi
3: start={ROOT_START}, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root
"""

# The root file system's room for what comes after the bake, until it grows: logs, cloud-init, keys.
SLACK = 192 * MIB


def disk_bytes(files: int) -> int:
    """Return the size of the disk, in bytes, for a root folder whose files take `files` bytes."""
    root = int(files * 1.06) + SLACK
    return (ROOT_START * SECTOR + root + MIB) // MIB * MIB + MIB  # the copy of the GPT ends the disk


def bios_boot(boot: bytes, core: bytes) -> tuple[bytes, bytes]:
    """Return GRUB's boot sector (440 bytes) and core image, told where the core image lies.

    What grub-bios-setup writes, by the layout in GRUB's boot.S and diskboot.S: boot.img holds the core's first sector
    at 0x5c and a jump for floppies at 0x66, which hard disks skip; the core's own first sector ends with a list of
    blocks: where the rest starts, how many sectors it has, and the segment it is loaded to.
    """
    sectors = -(-len(core) // SECTOR)
    if sectors > ESP_START - CORE_START:
        raise BakeError(f"GRUB's core image has {sectors} sectors; its partition has {ESP_START - CORE_START}")
    first = bytearray(boot[:440])
    first[0x5C:0x64] = struct.pack("<Q", CORE_START)
    first[0x66:0x68] = b"\x90\x90"
    padded = bytearray(core.ljust(sectors * SECTOR, b"\0"))
    padded[0x1F4:0x200] = struct.pack("<QHH", CORE_START + 1, sectors - 1, 0x820)
    return bytes(first), bytes(padded)


def make_disk(root: Path, disk: Path, output: IO[str]) -> None:
    """Make `disk` of the folder `root`, as the recipe's outlet `disk` leaves it."""
    files = int(_run(as_owner(["du", "--summarize", "--block-size=1", str(root)]), output).split()[0])
    size = disk_bytes(files)
    with disk.open("wb") as file:
        file.truncate(size)
    _run(["sfdisk", "--quiet", str(disk)], output, PARTITIONS)
    blocks = (size - ROOT_START * SECTOR - MIB) // 4096
    disk.chmod(0o666)  # whoever owns the root folder's files writes them
    with disk.open("r+b") as file:
        # By its descriptor, for that user may not enter the folder.
        options = ["-q", "-F", "-L", LABEL, "-m", "1", "-E", f"offset={ROOT_START * SECTOR}", "-d", str(root)]
        argv = ["mkfs.ext4", *options, f"/proc/self/fd/{file.fileno()}", f"{blocks * 4}k"]
        _run(as_owner(argv), output, pass_fds=(file.fileno(),))
    disk.chmod(0o644)
    _make_bootable(root / "boot/regiondag", disk, output)


def _make_bootable(loader: Path, disk: Path, output: IO[str]) -> None:
    esp = f"{disk}@@{ESP_START * SECTOR}"
    kilobytes = (ROOT_START - ESP_START) * SECTOR // 1024
    _run(["mkfs.vfat", "-F", "16", "-n", "EFI", f"--offset={ESP_START}", str(disk), str(kilobytes)], output)
    _run(["mmd", "-i", esp, "::EFI", "::EFI/BOOT"], output)
    _run(["mcopy", "-i", esp, str(loader / "BOOTX64.EFI"), "::EFI/BOOT/BOOTX64.EFI"], output)
    first, core = bios_boot((loader / "boot.img").read_bytes(), (loader / "core.img").read_bytes())
    with disk.open("r+b") as file:
        file.write(first)
        file.seek(CORE_START * SECTOR)
        file.write(core)


def _run(argv: Sequence[str], output: IO[str], given: str | None = None, pass_fds: Sequence[int] = ()) -> str:
    """Run one tool; return its stdout. Raises BakeError with what it said."""
    done = subprocess.run(
        argv,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        pass_fds=pass_fds,
        env={"PATH": search_path(), "LC_ALL": "C.UTF-8", "MTOOLS_SKIP_CHECK": "1"},
    )
    output.write(f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}")
    output.flush()
    if done.returncode != 0:
        raise BakeError(f"{argv[0]} failed with {done.returncode}:\n" + last_lines(Path(output.name)))
    return done.stdout
