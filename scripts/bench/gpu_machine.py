"""What a GPU's speed may depend on: a parameter of the driver's, and the hypervisor below this machine.

In 2014 NPP's calls took minutes in a virtual machine: the driver read the PCI configuration space again and again, and
the hypervisor had to answer each time. `NVreg_CheckPCIConfigSpace=0` ended that; today's drivers do not have it.
"""

from __future__ import annotations

from pathlib import Path

PARAMETER = "CheckPCIConfigSpace"
NAMES = ("sys/hypervisor/type", "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name")


def pci_check(root: Path = Path("/")) -> str:
    """Return what the loaded driver has for the parameter, or why there is no value."""
    try:
        lines = (root / "proc/driver/nvidia/params").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "no driver with a GPU is loaded"
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    return values[PARAMETER].strip() if PARAMETER in values else "not a parameter of this driver"


def hypervisor(root: Path = Path("/")) -> str:
    """Return on one line what this machine says of what it runs on; a container may hide it."""
    found = [_first_line(root / path) for path in NAMES]
    flags = _flags(root / "proc/cpuinfo")
    virtual = "no cpuinfo flags" if flags is None else "virtual" if "hypervisor" in flags else "no hypervisor flag"
    return ", ".join([*(text for text in found if text), virtual])


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError:
        return ""


def _flags(path: Path) -> set[str] | None:
    """Return the processor's flags; None where it shows none, as other processors than x86 do."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), None)
