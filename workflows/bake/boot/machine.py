"""A virtual machine that boots an image: qemu with an NVMe disk and a network card, dressed as an EC2 instance."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regiondag.errors import BakeError
from regiondag.pool.rootfs_build import search_path

Firmware = Literal["bios", "uefi"]
Acceleration = Literal["kvm", "tcg"]

OVMF = "/usr/share/OVMF/OVMF_CODE_4M.fd"
TOOLS = ("qemu-system-x86_64", "qemu-img", "ip", "unshare", OVMF)
PROBE_SECONDS = 4
GIVEN_UP = "KVM internal error"
SILENCE_SECONDS = 60  # a kernel that KVM really runs speaks after ten
STORE_BYTES = 8 << 30
DISK_GIGABYTES = 6  # larger than the image, so that the root file system has to grow


# The host's processor, but for a register that cannot be set where the host is virtual itself; or an emulated one
# without cmpxchg16b, for which qemu 7.2.22 leaves garbage in the flags: kernels that use it soon panic.
PROCESSORS: Mapping[Acceleration, tuple[str, ...]] = {
    "kvm": ("-accel", "kvm", "-cpu", "host,arch-capabilities=off"),
    "tcg": ("-accel", "tcg,thread=multi", "-cpu", "max,-cx16"),
}


class AccelerationError(BakeError):
    """KVM gave up on a machine: where the host is virtual itself, it may not know all instructions."""

    inner_code = 17  # exit code of the test's inner program


@dataclass(frozen=True)
class Machine:
    """A machine to boot; the image itself is never written to."""

    disk: Path
    folder: Path  # for what the machine writes
    firmware: Firmware
    acceleration: Acceleration
    uuid: str = "ec2e1916-9099-7caf-fd21-012345abcdef"  # EC2's begin with ec2, by which cloud-init knows it

    @property
    def serial(self) -> Path:
        """What the machine wrote on its serial console."""
        return self.folder / f"serial-{self.firmware}.log"

    @property
    def complaints(self) -> Path:
        """What qemu itself had to say."""
        return self.folder / "qemu.log"

    @property
    def overlay(self) -> Path:
        """The disk as the machine changed it."""
        return self.folder / f"disk-{self.firmware}.qcow2"


def qemu_argv(machine: Machine) -> list[str]:
    """Return the call that boots a machine with 2 processors and 2 GB; it ends when the machine powers off."""
    argv = ["qemu-system-x86_64", "-machine", "q35", "-smp", "2", "-m", "2048", *PROCESSORS[machine.acceleration]]
    argv += ["-display", "none", "-vga", "none", "-monitor", "none", "-serial", f"file:{machine.serial}", "-no-reboot"]
    if machine.firmware == "uefi":  # an instance store in front of the root disk: names of disks are nobody's promise
        argv += ["-blockdev", f"driver=null-co,node-name=store,size={STORE_BYTES},read-zeroes=on"]
        argv += ["-device", "nvme,drive=store,serial=AWS0123456789abcdef0"]
    argv += ["-drive", f"file={machine.overlay},format=qcow2,if=none,id=root,cache=unsafe"]
    argv += ["-device", "nvme,drive=root,serial=vol0123456789abcdef0,bootindex=0"]
    argv += ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"]
    product = f"manufacturer=Amazon EC2,product=g5.xlarge,uuid={machine.uuid},serial={machine.uuid}"
    argv += ["-smbios", f"type=1,{product}"]
    if machine.firmware == "uefi":
        argv += ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={OVMF}"]
    return argv


def best_acceleration() -> Acceleration:
    """Return kvm where a machine really gets through its BIOS with it: /dev/kvm may be there, and of no use."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    argv = ["qemu-system-x86_64", "-machine", "q35", "-nodefaults", "-display", "none", *PROCESSORS["kvm"]]
    argv += ["-chardev", "stdio,id=log", "-device", "isa-debugcon,iobase=0x402,chardev=log"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PROBE_SECONDS)
        said = done.stdout
    except subprocess.TimeoutExpired as error:  # it waits for something to boot from, and goes on waiting
        said = error.stdout or b""
    return "kvm" if b"No bootable device" in said else "tcg"


def check_acceleration(machine: Machine, seconds: float) -> None:
    """Raise AccelerationError where KVM has given up on a machine that was booted so many seconds ago.

    qemu says so, and lets the machine stand still; or it emulates instructions one by one, and no kernel ever starts.
    """
    if machine.acceleration != "kvm":
        return
    if GIVEN_UP in machine.complaints.read_text(errors="replace"):
        raise AccelerationError(f"KVM gave up on the machine under test ({GIVEN_UP})")
    if seconds > SILENCE_SECONDS and not machine.serial.stat().st_size:
        raise AccelerationError(f"with KVM no kernel has started within {SILENCE_SECONDS} s")


@contextlib.contextmanager
def run_machine(machine: Machine) -> Iterator[subprocess.Popen[bytes]]:
    """Boot a machine; whatever happens, it does not run any more afterwards."""
    environment = {**os.environ, "PATH": search_path()}
    overlay = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(machine.disk.resolve())]
    made = subprocess.run(
        [*overlay, str(machine.overlay), f"{DISK_GIGABYTES}G"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if made.returncode != 0:
        raise BakeError(f"cannot make a disk for the test: {made.stderr.strip()}")
    with machine.complaints.open("ab") as log:
        process = subprocess.Popen(
            qemu_argv(machine), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        machine.overlay.unlink(missing_ok=True)
