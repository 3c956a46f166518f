"""Choose the NVIDIA module's options for this machine, then load it.

Run once at boot by regiondag-gpu.service, as root. Options that hold for every machine are in the image
(/etc/modprobe.d); this adds those that depend on the EC2 instance type, in /run, and says what it did.

Exit code 0: loaded, or there is no NVIDIA GPU. 1: there is one, and it cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_common import nvidia_gpus, read, run_within

# Debian's closed and open packages, and everybody else's.
MODULE_NAMES = ("nvidia-current", "nvidia-current-open", "nvidia")

# Their GPUs (T4, A10G, T4G) hang or lose time now and then in the driver's GSP firmware, and work without it.
# Amazon's own EKS image sets the same option on the same families.
WITHOUT_FIRMWARE = ("g4dn", "g5", "g5g")
FIRMWARE_OPTION = "NVreg_EnableGpuFirmware"

AMAZON = "Amazon EC2"
# Not the name of the image's file: of two files with one name, modprobe reads only that in /etc.
OPTIONS_FILE = "modprobe.d/regiondag-gpu.conf"
SECONDS = 90  # for modprobe; less than the unit's TimeoutStartSec


@dataclass(frozen=True)
class Driver:
    """NVIDIA's module as modinfo describes it."""

    name: str
    version: str
    licence: str
    parameters: frozenset[str]

    @property
    def is_open(self) -> bool:
        """Whether this is the open one, which cannot do without the firmware."""
        return "GPL" in self.licence


@dataclass(frozen=True)
class Choice:
    """The module's options for a machine, and why."""

    options: tuple[str, ...]
    reason: str


def choose(vendor: str, product: str, driver: Driver) -> Choice:
    """Return the options for a machine whose firmware (DMI) names this vendor and product."""
    if vendor != AMAZON:
        return Choice((), f"a machine of {vendor or 'an unknown maker'}, not of {AMAZON}")
    family = product.partition(".")[0]
    if family not in WITHOUT_FIRMWARE:
        return Choice((), f"{product or 'an unknown instance type'} needs none")
    if driver.is_open:
        return Choice((), f"{product}, but the open driver cannot do without the GPU's firmware")
    if FIRMWARE_OPTION not in driver.parameters:
        return Choice((), f"{product}, but driver {driver.version} has no {FIRMWARE_OPTION}")
    return Choice((f"{FIRMWARE_OPTION}=0",), f"{product} is steadier without the GPU's firmware")


def read_driver() -> Driver | None:
    """Return NVIDIA's module of the running kernel, or None."""
    for name in MODULE_NAMES:
        if _output("modinfo", "-F", "filename", name) is not None:
            parameters = (_output("modinfo", "-p", name) or "").splitlines()
            return Driver(
                name,
                (_output("modinfo", "-F", "version", name) or "of unknown version").strip(),
                (_output("modinfo", "-F", "license", name) or "").strip(),
                frozenset(line.partition(":")[0] for line in parameters),
            )
    return None


def write_options(path: Path, options: Iterable[str]) -> None:
    """Write modprobe's file, or remove that of an earlier run."""
    text = " ".join(options)
    if not text:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"options {name} {text}\n" for name in MODULE_NAMES), encoding="utf-8")


def load(module: str) -> str:
    """Load a module; return what went wrong, or nothing."""
    failure = run_within(SECONDS, ["modprobe", module]).failure
    return f"modprobe {module}: {failure}" if failure else ""


def main(arguments: list[str] | None = None) -> int:
    """Do all of it."""
    parser = argparse.ArgumentParser(prog="gpu-options", description="Load the NVIDIA driver, fit for this machine.")
    parser.add_argument("--sys", type=Path, default=Path("/sys"), help="where sysfs is (default: %(default)s)")
    parser.add_argument("--run", type=Path, default=Path("/run"), help="default: %(default)s")
    options = parser.parse_args(arguments)

    gpus = nvidia_gpus(options.sys)
    if not gpus:
        say("no NVIDIA GPU in this machine; no driver is loaded")
        return 0
    driver = read_driver()
    if driver is None:
        return fail(
            f"{len(gpus)} NVIDIA GPU(s) here ({', '.join(gpus)}), but this image has no driver for its kernel; "
            "bake one with --driver auto --for its type"
        )
    choice = choose(
        read(options.sys / "class/dmi/id/sys_vendor"), read(options.sys / "class/dmi/id/product_name"), driver
    )
    write_options(options.run / OPTIONS_FILE, choice.options)
    say(f"options by machine: {' '.join(choice.options) or 'none'} ({choice.reason})")
    for module in ("nvidia", "nvidia-uvm"):
        if problem := load(module):
            return fail(f"{problem}; the kernel's reason: journalctl -k --grep 'nvidia|NVRM'")
    say(f"driver {driver.version} ({'open' if driver.is_open else 'closed'}) is loaded for {len(gpus)} GPU(s)")
    return 0


def say(text: str) -> None:
    """Tell the journal and the console."""
    print(f"regiondag-gpu: {text}", flush=True)


def fail(text: str) -> int:
    """Tell what is wrong; return the exit code of that."""
    print(f"regiondag-gpu: ERROR: {text}", flush=True)
    return 1


def _output(*argv: str) -> str | None:
    ended = run_within(SECONDS, argv)
    return ended.output if ended.code == 0 else None


if __name__ == "__main__":
    sys.exit(main())
