"""Which GPU an EC2 instance type has, and which NVIDIA driver drives it. Pure.

Families and GPUs are those of EC2's pages about instance types (DescribeInstanceTypes says the same), compute
capabilities those of NVIDIA's list "CUDA GPUs". What follows of them is NVIDIA's: its open kernel modules drive Turing
(7.5) and newer, and nothing else drives Blackwell (10.0 and newer), which came with the branch 570; driver 470 was the
last for Kepler (3.x), and the branch 580 the last for Maxwell, Pascal and Volta (up to 7.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from regiondag.errors import UsageError

OPEN_FROM = (7, 5)  # Turing
OPEN_ONLY_FROM = (10, 0)  # Blackwell
BLACKWELL_DRIVER = 570
NEWEST_KEPLER_DRIVER = 470
NEWEST_VOLTA_DRIVER = 580
NVIDIA_SOURCE = "NVIDIA's own apt repository (--apt-source FILE)"


@dataclass(frozen=True, slots=True)
class InstanceGpu:
    """The GPU of a family of instance types."""

    name: str
    capability: tuple[int, int]  # compute capability
    nvswitch: bool = False  # eight GPUs behind NVSwitches, which need NVIDIA's fabric manager
    fabric_from: str = ""  # the only size that has them, where a family has others
    arm64: bool = False  # its machines' processors, for which no image is made

    @property
    def flavours(self) -> tuple[str, ...]:
        """The kinds of kernel module that drive it, the better one first."""
        if self.capability >= OPEN_ONLY_FROM:
            return ("open",)
        return ("open", "closed") if self.capability >= OPEN_FROM else ("closed",)

    @property
    def least_driver(self) -> int:
        """The first branch of drivers that knows it, where an image can have an older one; else 0."""
        return BLACKWELL_DRIVER if self.capability >= OPEN_ONLY_FROM else 0

    @property
    def newest_driver(self) -> int:
        """The last branch of drivers that knows it, or 0 where there is no last one yet."""
        if self.capability >= OPEN_FROM:
            return 0
        return NEWEST_VOLTA_DRIVER if self.capability >= (5, 0) else NEWEST_KEPLER_DRIVER


@dataclass(frozen=True, slots=True)
class DriverChoice:
    """What an image must have to drive some instance types."""

    driver: str  # open or closed
    least: int = 0  # branch of the driver; 0: any
    fabric_manager: bool = False


# Families of x86-64 with NVIDIA's GPUs, and their neighbours for arm64, of which no image is made.
GPUS: Mapping[str, InstanceGpu] = {
    "p2": InstanceGpu("K80", (3, 7)),
    "g3": InstanceGpu("M60", (5, 2)),
    "g3s": InstanceGpu("M60", (5, 2)),
    "p3": InstanceGpu("V100", (7, 0)),
    "p3dn": InstanceGpu("V100", (7, 0)),
    "g4dn": InstanceGpu("T4", (7, 5)),
    "g5g": InstanceGpu("T4g", (7, 5), arm64=True),
    "p4d": InstanceGpu("A100", (8, 0), nvswitch=True),
    "p4de": InstanceGpu("A100", (8, 0), nvswitch=True),
    "g5": InstanceGpu("A10G", (8, 6)),
    "g6": InstanceGpu("L4", (8, 9)),
    "g6f": InstanceGpu("L4", (8, 9)),
    "gr6": InstanceGpu("L4", (8, 9)),
    "gr6f": InstanceGpu("L4", (8, 9)),
    "g6e": InstanceGpu("L40S", (8, 9)),
    "p5": InstanceGpu("H100", (9, 0), nvswitch=True, fabric_from="48xlarge"),
    "p5e": InstanceGpu("H200", (9, 0), nvswitch=True),
    "p5en": InstanceGpu("H200", (9, 0), nvswitch=True),
    "p6-b200": InstanceGpu("B200", (10, 0), nvswitch=True),
    "p6-b300": InstanceGpu("B300", (10, 3), nvswitch=True),
    "p6e-gb200": InstanceGpu("GB200", (10, 0), nvswitch=True, arm64=True),
    "g7": InstanceGpu("RTX PRO 4500", (12, 0)),
    "g7e": InstanceGpu("RTX PRO Server 6000", (12, 0)),
}


def gpu_of(instance_type: str) -> InstanceGpu | None:
    """Return the GPU of an instance type such as p5.48xlarge, or None where the table has no such family."""
    return GPUS.get(instance_type.partition(".")[0])


def has_nvswitch(instance_type: str) -> bool:
    """Say whether NVSwitches connect an instance type's GPUs.

    >>> has_nvswitch("p5.48xlarge"), has_nvswitch("p5.4xlarge"), has_nvswitch("g6.xlarge")
    (True, False, False)
    """
    gpu = gpu_of(instance_type)
    return gpu is not None and gpu.nvswitch and gpu.fabric_from in ("", instance_type.partition(".")[2])


def choose_driver(instance_types: Iterable[str], open_is_there: bool = True) -> DriverChoice:
    """Return the driver that drives all these types: the open module wherever it can be, the closed one where it must.

    `open_is_there` says whether the image's apt sources have the open module; Debian 14's have none. UsageError names
    types that are not in the table, and types that no single image drives.
    """
    types = tuple(dict.fromkeys(instance_types))
    unknown = [name for name in types if gpu_of(name) is None]
    if unknown or not types:
        seen = ", ".join(unknown) or "none"
        raise UsageError(
            f"--for: seen {seen}, and the table has no such instance type with an NVIDIA GPU; families: "
            f"{', '.join(GPUS)}; give --driver open or closed yourself for others"
        )
    gpus = {name: gpu for name in types if (gpu := gpu_of(name))}
    if reasons := [text for name in types if (text := why_not_booted(name))]:
        raise UsageError("\n".join(reasons))
    closed_only = [name for name, gpu in gpus.items() if "open" not in gpu.flavours]
    open_only = [name for name, gpu in gpus.items() if "closed" not in gpu.flavours]
    if closed_only and open_only:
        raise UsageError(
            f"no driver drives both {', '.join(closed_only)} (older than Turing: closed module only) and "
            f"{', '.join(open_only)} (Blackwell: open module only); bake an image for each, and give each a fleet"
        )
    driver = "closed" if closed_only or not (open_only or open_is_there) else "open"
    least = max(gpu.least_driver for gpu in gpus.values())
    return DriverChoice(driver, least, any(map(has_nvswitch, gpus)))


def why_not_booted(instance_type: str) -> str:
    """Return why no image boots on an instance type; empty where one does, or the table does not know the type."""
    gpu = gpu_of(instance_type)
    if gpu is None or not gpu.arm64:
        return ""
    families = ", ".join(name for name, other in GPUS.items() if not other.arm64)
    return f"--for {instance_type}: its processor is arm64, and images are made for amd64 alone; families: {families}"


def why_not_driven(instance_type: str, driver: str, fabric_manager: bool | None = None) -> str:
    """Return why an image's driver, such as "closed 550.163.01", does not drive an instance type; empty if it does.

    `fabric_manager` says whether the image has one; None: it does not tell. Types that the table does not know, and
    images that do not tell their driver, are not refused.
    """
    gpu, (flavour, _, version) = gpu_of(instance_type), driver.partition(" ")
    if gpu is None or flavour not in ("open", "closed"):
        return ""
    what = f"the {gpu.name} of {instance_type} (compute capability {gpu.capability[0]}.{gpu.capability[1]})"
    bake = f"bake an image with: regiondag bake image --driver auto --for {instance_type}"
    if flavour not in gpu.flavours:
        return f"{what} is driven by the {gpu.flavours[0]} kernel module only, the image has the {flavour} one; {bake}"
    branch = int(version.partition(".")[0]) if version.partition(".")[0].isdecimal() else 0
    if branch and branch < gpu.least_driver:
        return f"{what} needs driver {gpu.least_driver} or newer, of {NVIDIA_SOURCE}; the image has {version}; {bake}"
    if gpu.newest_driver and branch > gpu.newest_driver:
        return f"{what} is known to drivers up to {gpu.newest_driver}, the image has {version}; {bake}"
    if has_nvswitch(instance_type) and fabric_manager is False:
        return (
            f"{what} is connected by NVSwitches, and the image has no fabric manager, without which CUDA fails there; "
            f"it comes from {NVIDIA_SOURCE}; {bake}"
        )
    return ""
