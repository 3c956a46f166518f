"""Say by the exit code whether NVSwitches connect this machine's GPUs: 0 yes, 1 no.

The condition of nvidia-fabricmanager.service. Of A100, H100 and H200 the switches are PCI devices of NVIDIA's. Those of
Blackwell are not on the PCI bus; InfiniBand devices lead to them, whose vital product data say SW_MNG, and for those
the module ib_umad has to be loaded before the fabric manager starts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpu_common import NVIDIA_VENDOR, read, run_within

BRIDGE_CLASS = "0x0680"  # "other bridge", as NVSwitches have it
MANAGEMENT = b"SW_MNG"
SECONDS = 30


def find_switches(sys_root: Path) -> list[str]:
    """Return the PCI addresses of NVSwitches."""
    return sorted(
        device.name
        for device in (sys_root / "bus/pci/devices").glob("*")
        if read(device / "vendor") == NVIDIA_VENDOR and read(device / "class").startswith(BRIDGE_CLASS)
    )


def find_management(sys_root: Path) -> list[str]:
    """Return the InfiniBand devices that lead to NVSwitches."""
    return sorted(
        device.name
        for device in (sys_root / "class/infiniband").glob("*")
        if MANAGEMENT in _bytes(device / "device/vpd")
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def main(arguments: list[str] | None = None) -> int:
    """Look, tell, and load what Blackwell's need."""
    parser = argparse.ArgumentParser(prog="nvswitch", description="Are there NVSwitches?")
    parser.add_argument("--sys", type=Path, default=Path("/sys"), help="where sysfs is (default: %(default)s)")
    sys_root = parser.parse_args(arguments).sys
    switches, management = find_switches(sys_root), find_management(sys_root)
    if management:
        ended = run_within(SECONDS, ["modprobe", "ib_umad"])
        if ended.failure:
            print(f"nvswitch: modprobe ib_umad: {ended.failure}", flush=True)
    print(f"nvswitch: {', '.join(switches + management) or 'none'}", flush=True)
    return 0 if switches or management else 1


if __name__ == "__main__":
    sys.exit(main())
