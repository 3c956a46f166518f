"""What differs between two images, package by package, and how old one is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from regiondag.bake.artifact import Manifest
from regiondag.bake.bill import FILE as BILL

FILE = "changes.txt"  # in an image's folder: what differs from the one that it took the place of


def list_changes(old: Manifest, new: Manifest) -> list[str]:
    """Return a line for each package, Debian's or a wheel, whose version is another, that is new or that is gone."""
    return _compare(old.packages, new.packages)


def _compare(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Compare versions by name.

    >>> _compare({"a": "1", "b": "1", "c": "1"}, {"b": "2", "c": "1", "d": "1"})
    ['a: 1 is gone', 'b: 1 -> 2', 'd: 1 is new']
    """
    lines = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before is None:
            lines.append(f"{name}: {after} is new")
        elif after is None:
            lines.append(f"{name}: {before} is gone")
        elif before != after:
            lines.append(f"{name}: {before} -> {after}")
    return lines


def is_older(folder: Path, seconds: float, now: datetime) -> bool:
    """Whether the image was baked longer ago, as its bill has it; one without a readable bill counts as older."""
    try:
        bill = json.loads((folder / BILL).read_text(encoding="utf-8"))
        baked = datetime.fromisoformat(bill["metadata"]["timestamp"])
        return baked < now - timedelta(seconds=seconds)
    except (OSError, ValueError, TypeError, KeyError):
        return True
