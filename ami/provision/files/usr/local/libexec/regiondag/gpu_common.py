"""What gpu-options.py and selftest.py share: which GPUs there are, and running a program that may never end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"  # VGA and 3D controllers; NVIDIA's audio and NVSwitch devices have others
GRACE_SECONDS = 5


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int | None  # None: it did not end in time; negative: a signal ended it
    output: str
    errors: str

    @property
    def failure(self) -> str:
        """Return what went wrong in a few words, or nothing."""
        if self.code == 0:
            return ""
        lines = self.errors.strip().splitlines()
        last = f": {lines[-1].strip()}" if lines else ""
        if self.code is None:
            return f"did not end in time{last}"
        if self.code < 0:
            return f"ended by signal {-self.code}{last}"
        return f"exit code {self.code}{last}"


def nvidia_gpus(sys_root: Path) -> list[str]:
    """Return the PCI addresses of all NVIDIA GPUs."""
    return sorted(
        device.name
        for device in (sys_root / "bus/pci/devices").glob("*")
        if read(device / "vendor") == NVIDIA_VENDOR and read(device / "class").startswith(DISPLAY_CLASS)
    )


def read(path: Path) -> str:
    """Return a short file's text, or nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def run_within(seconds: float, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Ended:
    """Run a program and all it starts for so long at most.

    A process that waits for a broken GPU inside the kernel cannot even be killed. It is left behind, for the boot must
    go on; that is why its output goes to files, since a pipe of it would never be closed.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
            )
        except OSError as error:
            return Ended(127, "", str(error))
        code: int | None = None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
        output.seek(0)
        errors.seek(0)
        return Ended(code, output.read().decode(errors="replace"), errors.read().decode(errors="replace"))


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(GRACE_SECONDS)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
