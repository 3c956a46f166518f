"""What a result says of where it was made: code, machine, image, HTCondor's slot, driver. Standard library only.

Nothing here fails: what cannot be found out is left out.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from nnlib.contract import sha256_of
from nnlib.util.threads import count_processors

IMAGE_FILE = "etc/regiondag-image"  # KEY=VALUE lines; on machines and in root folders that our recipe made
ROOT = Path("/")
LONGEST = 500  # characters of a fact


def code_digest() -> str:
    """Return the SHA-256 of the archive that this code runs from; empty where it lies in a folder."""
    archive = Path(__file__).parents[2]
    return sha256_of(archive) if archive.is_file() else ""


def machine_facts(root: Path = ROOT, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what is known of this machine: its processors, kernel and image, and the slot that the job has."""
    facts = {
        "cpu": _cpu(_text(root / "proc/cpuinfo")) or platform.processor(),
        "architecture": platform.machine(),
        "cores": str(count_processors()),
        "kernel": platform.release(),
        "image": " ".join(line for line in _text(root / IMAGE_FILE).split("\n") if "=" in line),
        "slot": _slot(environment),
    }
    return {name: value[:LONGEST] for name, value in facts.items() if value}


def driver_version(root: Path = ROOT) -> str:
    """Return the version of NVIDIA's driver that is loaded, empty where none is."""
    loaded = _text(root / "sys/module/nvidia/version").strip()
    found = re.search(r"\b\d+\.\d+(?:\.\d+)?\b", loaded or _text(root / "proc/driver/nvidia/version"))
    return found[0] if found else ""


def _cpu(text: str) -> str:
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


def _slot(environment: Mapping[str, str]) -> str:
    """Return the slot's name with its machine's, as the machine's ad has it, else what HTCondor calls it here."""
    ad = environment.get("_CONDOR_MACHINE_AD", "")
    found = re.search(r'^Name = "([^"\\]+)"$', _text(Path(ad)) if ad else "", re.MULTILINE)
    return found[1] if found else environment.get("_CONDOR_SLOT", "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
