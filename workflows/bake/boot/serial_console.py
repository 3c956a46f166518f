"""Read a worker's serial console: what went wrong while it booted, in its own words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")
ERROR = re.compile(r"\b(regiondag-[a-z]+)(?:\[\d+\])?: ERROR: (.*)")

# What systemd and the kernel say of faults that leave a machine running and useless.
FAULTS = (
    re.compile(r".*Found ordering cycle.*"),
    re.compile(r".*Job .* deleted to break ordering cycle.*"),
    re.compile(r".*\[ *FAILED *\].*"),
    re.compile(r".*\[ *DEPEND *\].*"),
    re.compile(r".*Kernel panic.*"),
    re.compile(r".*You are in emergency mode.*"),
    re.compile(r".*error: (no such device|file .* not found).*"),  # GRUB's
    re.compile(r".*No bootable device.*"),
)


def strip_terminal_codes(serial: str) -> str:
    """Return the text without what moves a terminal's cursor or colours it."""
    return ESCAPES.sub("", serial)


def find_errors(serial: str) -> list[str]:
    """Return the ERROR lines of the worker's own units, each once: `regiondag-join: why`."""
    return list(dict.fromkeys(f"{name}: {text.strip()}" for name, text in ERROR.findall(strip_terminal_codes(serial))))


def find_faults(serial: str) -> list[str]:
    """Return what systemd, the kernel and the boot loader complained of, each line once."""
    return list(dict.fromkeys(_faults(strip_terminal_codes(serial))))


def has_panicked(serial: str) -> bool:
    """Return whether the kernel has given up: nothing more will happen."""
    return "Kernel panic - not syncing" in serial


def _faults(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if any(pattern.fullmatch(line) for pattern in FAULTS):
            yield re.sub(r"\s+", " ", line).strip()


def last_lines(serial: str, count: int = 15) -> str:
    """Return the last lines that hold anything, indented."""
    lines = [line.strip() for line in strip_terminal_codes(serial).splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[-count:])
