"""The boot programs loaded from their files, and a machine made of files and small programs to run them against."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PROVISION = ROOT / "ami" / "provision"
LIBEXEC = PROVISION / "files" / "usr" / "local" / "libexec" / "regiondag"
RECORDED = Path(__file__).parent / "modinfo"

MODINFO = """#!/bin/sh
# modinfo [-k KERNEL] -F FIELD | -p NAME: what lies in {folder}/NAME
while [ $# -gt 1 ]; do
    case "$1" in
        -k) shift; [ -z "{kernel}" ] || [ "$1" = "{kernel}" ] || exit 1 ;;
        -F) shift; field=$1 ;;
        -p) field=parameters ;;
    esac
    shift
done
if [ ! -d "{folder}/$1" ]; then
    echo "modinfo: ERROR: Module $1 not found." >&2
    exit 1
fi
cat "{folder}/$1/$field"
"""


def load(name: str) -> ModuleType:
    """Return a boot program as a module; each call gives a fresh one."""
    if str(LIBEXEC) not in sys.path:
        sys.path.append(str(LIBEXEC))  # where they look for their common part
    module_name = f"regiondag_{name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(module_name, LIBEXEC / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look there
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # the folder is what an image gets
        spec.loader.exec_module(module)
    return module


def program(folder: Path, name: str, text: str) -> Path:
    """Write an executable script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_modinfo(bin_folder: Path, modules: Path, kernel: str = "") -> None:
    """Write a modinfo that knows the modules of a folder, for one kernel if named."""
    program(bin_folder, "modinfo", MODINFO.format(folder=modules, kernel=kernel))


def module(modules: Path, name: str, recorded: str, licence: str = "NVIDIA") -> None:
    """Add a module to a folder for `fake_modinfo`, with the parameters recorded of a driver (modinfo/RECORDED.txt)."""
    folder = modules / name
    folder.mkdir(parents=True)
    (folder / "filename").write_text(f"/lib/modules/k/{name}.ko\n")
    (folder / "version").write_text(f"{recorded.partition('-')[0]}\n")
    (folder / "license").write_text(f"{licence}\n")
    (folder / "parameters").write_text((RECORDED / f"{recorded}.txt").read_text())


def pci_device(sys_root: Path, address: str, vendor: str = "0x10de", kind: str = "0x030200") -> None:
    """Add a PCI device to a sysfs of files."""
    folder = sys_root / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def dmi(sys_root: Path, vendor: str, product: str) -> None:
    """Give a sysfs of files a maker and a product."""
    folder = sys_root / "class/dmi/id"
    folder.mkdir(parents=True)
    (folder / "sys_vendor").write_text(f"{vendor}\n")
    (folder / "product_name").write_text(f"{product}\n")
