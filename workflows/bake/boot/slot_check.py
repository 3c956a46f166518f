"""What a machine under test must advertise in the pool. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FLEET = "bake-test"

# What a worker must advertise.
WANTED: Mapping[str, Any] = {"HAS_GPU": True, "PartitionableSlot": True, "RegiondagFleet": FLEET, "SelfTest": "no GPU"}
QUERIED = (*WANTED, "Disk", "MachineMaxVacateTime")

NOTICE_SECONDS = 120  # what EC2 leaves between a spot notice and the end


def parse_slots(text: str) -> list[dict[str, Any]]:
    """Return the values that condor_status -af:Vt printed; None for what is undefined.

    >>> parse_slots('true\\ttrue\\t"bake-test"\\t"no GPU"\\t5000\\tundefined\\n')[0]["SelfTest"]
    'no GPU'
    """
    rows = (line.split("\t") for line in text.splitlines() if line.strip())
    return [{name: _value(cell) for name, cell in zip(QUERIED, row, strict=True)} for row in rows]


def _value(cell: str) -> Any:
    return None if cell in ("undefined", "error") else json.loads(cell)


def check_slot(slot: Mapping[str, Any], disk_bytes: int) -> str:
    """Return what is wrong with the slot of a machine whose image has so many bytes, or nothing."""
    for name, value in WANTED.items():
        if slot[name] != value:
            return f"advertises {name} = {slot[name]!r}, wanted {value!r}"
    if slot["Disk"] * 1024 <= disk_bytes:
        return f"its root file system did not grow: the slot offers {slot['Disk'] >> 10} MB"
    vacate = slot["MachineMaxVacateTime"]
    if not isinstance(vacate, int) or vacate >= NOTICE_SECONDS:
        return f"gives jobs {vacate!r} s to save themselves; a spot notice leaves {NOTICE_SECONDS} s"
    return ""
