"""What nvidia-smi and the kernel's log say of each GPU's health. Pure, but for `look`.

Signs are of two kinds. A sick GPU computes wrongly, will lose memory or has stopped: it is not offered to jobs. A sign
that only makes it slower is said, and no more: on EC2 some GPUs always sit on half of their PCI lanes.

Names of fields are those of nvidia-smi -q -x: nvsmi_device_v10.dtd (to driver 450), v11 (from 450), v12 (from 525) and
v13 (from 570). Numbers of XIDs are those of NVIDIA's Xid catalog whose remedy is a reset of the GPU, a reboot or a
repair; what a faulty job brings upon itself (13, 31, 43, 45, 94 ...) is not among them.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpu_common import run_within

SECONDS = 60
QUERY = ("nvidia-smi", "-q", "-x")
KERNEL_LOG = ("journalctl", "--dmesg", "--boot", "--output=cat", "--no-pager", "--grep=NVRM: Xid")

XIDS: Mapping[int, str] = {
    46: "stopped processing",
    48: "uncorrectable memory error",
    62: "its internal controller halted",
    64: "rows or pages of memory could not be replaced",
    74: "NVLink error",
    79: "fell off the bus",
    95: "uncontained memory error",
    110: "security fault",
    119: "its firmware does not answer",
    120: "error of its firmware",
    140: "unrecovered memory error",
    143: "could not be initialised",
}
XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): ([0-9]+)")

# Path, the value that is a bad one, and what it means.
BAD = (
    ("remapped_rows/remapped_row_failure", "Yes", "a row of its memory could not be replaced"),
    ("remapped_rows/remapped_row_pending", "Yes", "rows of its memory wait for a reset to be replaced"),
    ("retired_pages/pending_retirement", "Yes", "pages of its memory wait for a reboot to be retired"),
    ("ecc_errors/aggregate/sram_threshold_exceeded", "Yes", "more SRAM errors than NVIDIA lets pass"),
)
# Of this boot, summed: pre-Ampere, Ampere with its first drivers, and with those of today.
UNCORRECTABLE = (
    "ecc_errors/volatile/double_bit/total",
    "ecc_errors/volatile/sram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable_parity",
    "ecc_errors/volatile/sram_uncorrectable_secded",
    "ecc_errors/volatile/dram_uncorrectable",
)
REASONS = ("clocks_event_reasons/clocks_event_reason_", "clocks_throttle_reasons/clocks_throttle_reason_")
SLOWED = (
    ("hw_power_brake_slowdown", "slowed down by its power supply"),
    ("sw_thermal_slowdown", "slowed down by its driver, for it is hot"),
)


@dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi lists it."""

    uuid: str  # GPU- and 32 digits in five groups
    address: str  # on the PCI bus: domain:bus:device.function, lower case
    has_mig: bool
    sick: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As HTCondor calls it: GPU- and the first eight digits."""
        return self.uuid[:12]


def read_gpus(text: str, under_load: bool = False) -> list[Gpu]:
    """Return the GPUs of nvidia-smi's XML, in its order, with their signs; ValueError for what is none.

    Idle GPUs lower the speed of their PCI link and their clocks; `under_load` says that they were not.
    """
    try:
        root = ET.fromstring(text.strip())  # noqa: S314 - of nvidia-smi, which root runs
    except ET.ParseError as error:
        raise ValueError(f"nvidia-smi printed no XML: {error}") from None
    return [_gpu(node, under_load) for node in root.iterfind("gpu")]


def _gpu(node: ET.Element, under_load: bool) -> Gpu:
    uuid = _text(node, "uuid")
    if not re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid):
        raise ValueError(f"nvidia-smi listed a GPU with the UUID {uuid[:60]!r}")
    return Gpu(
        uuid,
        normal_address(node.get("id", "")),
        _text(node, "mig_mode/current_mig") == "Enabled",
        tuple(_sick(node, under_load)),
        tuple(_warnings(node, under_load)),
    )


def _sick(node: ET.Element, under_load: bool) -> list[str]:
    signs = [meaning for path, bad, meaning in BAD if _text(node, path) == bad]
    if count := sum(_number(node, path) or 0 for path in UNCORRECTABLE):
        signs.append(f"{count} uncorrectable memory errors since it was last reset")
    action = _text(node, "gpu_recovery_action")
    if action not in ("", "None", "N/A"):
        signs.append(f"its driver asks for: {action}")
    temperature, slow = _number(node, "temperature/gpu_temp"), _number(node, "temperature/gpu_temp_slow_threshold")
    left = _number(node, "temperature/gpu_temp_tlimit")  # degrees to go; newer drivers say this instead of a threshold
    if (temperature is not None and slow is not None and temperature >= slow) or (left is not None and left <= 0):
        signs.append(f"{temperature} degrees Celsius, at which it slows down")
    elif under_load and _is_active(node, "hw_thermal_slowdown"):
        signs.append("slows itself down after seconds, for it is hot")
    return signs


def _warnings(node: ET.Element, under_load: bool) -> list[str]:
    link = "pci/pci_gpu_link_info/"
    most, now = (_number(node, f"{link}link_widths/{name}_link_width") for name in ("max", "current"))
    signs = [f"{now} of {most} PCI lanes"] if most and now and now < most else []
    if not under_load:
        return signs
    most, now = (_number(node, f"{link}pcie_gen/{name}_link_gen") for name in ("max", "current"))
    signs += [f"PCI generation {now} of {most} under load"] if most and now and now < most else []
    return signs + [meaning for reason, meaning in SLOWED if _is_active(node, reason)]


def _is_active(node: ET.Element, reason: str) -> bool:
    return any(_text(node, before + reason) == "Active" for before in REASONS)


def _text(node: ET.Element, path: str) -> str:
    return (node.findtext(path) or "").strip()


def _number(node: ET.Element, path: str) -> int | None:
    """Return the whole number that a field begins with, such as 16 of 16x or 45 of 45 C; None for N/A."""
    found = re.match(r"-?[0-9]{1,9}", _text(node, path))
    return int(found[0]) if found else None


def normal_address(text: str) -> str:
    """Return a PCI address as sysfs writes it.

    >>> normal_address("00000000:1E:00.0"), normal_address("0000:1e:00"), normal_address("?")
    ('0000:1e:00.0', '0000:1e:00.0', '')
    """
    found = re.fullmatch(r"(?:0000)?([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", text.strip().lower())
    return f"{found[1]}:{found[2]}:{found[3]}.{found[4] or 0}" if found else ""


def find_xids(log: str) -> dict[str, list[int]]:
    """Return the XIDs of this boot that mean a sick GPU, by its PCI address."""
    seen: dict[str, list[int]] = {}
    for address, code in XID.findall(log):
        if int(code[:9]) in XIDS and int(code[:9]) not in seen.setdefault(normal_address(address), []):
            seen[normal_address(address)].append(int(code))
    return {address: codes for address, codes in seen.items() if codes}


def add_xids(gpus: Sequence[Gpu], xids: Mapping[str, Sequence[int]]) -> list[Gpu]:
    """Return the GPUs with what the kernel's log says of them."""
    signs = {at: tuple(f"XID {code}, {XIDS[code]}" for code in codes) for at, codes in xids.items()}
    return [replace(gpu, sick=(*gpu.sick, *signs.get(gpu.address, ()))) for gpu in gpus]


def merge(first: Sequence[Gpu], later: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs of `first` with the signs of both looks, each once."""
    by_uuid = {gpu.uuid: gpu for gpu in later}
    merged = []
    for gpu in first:
        more = by_uuid.get(gpu.uuid, gpu)
        sick = tuple(dict.fromkeys((*gpu.sick, *more.sick)))
        merged.append(replace(gpu, sick=sick, warnings=tuple(dict.fromkeys((*gpu.warnings, *more.warnings)))))
    return merged


def look(seconds: float = SECONDS) -> list[Gpu]:
    """Ask nvidia-smi and the kernel's log; ValueError with the reason where nvidia-smi does not answer."""
    ended = run_within(seconds, QUERY)
    if ended.failure:
        raise ValueError(f"nvidia-smi: {ended.failure}")
    log = run_within(seconds, KERNEL_LOG)
    if log.code not in (0, 1):  # 1: no such line
        log = run_within(seconds, ("dmesg",))
    return add_xids(read_gpus(ended.output), find_xids(log.output))
