"""The text of HTCondor's event logs, taken apart. Pure; times are those of the machine that reads, as in the logs.

The bindings' JobEventLog does the same, at 35 us an event and more: 70,000 events of a long run would take five
seconds. They are also missing where POST runs on a manager whose Python has none. Each event is a line
`005 (043.000.000) 2026-11-22 05:34:05 Job terminated.`, indented lines, and a line of three dots.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

_WITHIN = re.compile(
    r"(\d{3}) \((\d{1,18})\.(\d{1,18})\.\d+\) (\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?) "
)
_HEAD = re.compile(f"^{_WITHIN.pattern}", re.MULTILINE)
_END = "\n...\n"
_ANOTHER = ") 2"  # as in every head, and hardly ever below one
_NODE = re.compile(r'^\s+DAG Node: (\S+)|DAGNodeName = "([^"]+)"', re.MULTILINE)
_RESOURCE = re.compile(
    r"^\s+((?i:cpus|disk|gpus|memory|gpusmemory))(?: \(\w+\))?\s*:"
    r"[ \t]*(\S+)(?:[ \t]+([\d.]\S*)(?:[ \t]+([\d.]\S*))?)?",
    re.MULTILINE,
)
_TABLE = "Partitionable Resources"
_CODE = re.compile(r"^(?:\s+|Job was evicted\. )Code (-?\d{1,18}) Subcode (-?\d{1,18})\s*$", re.MULTILINE)
_SENT = re.compile(r"^\s+(\d{1,18})  -  Run Bytes Sent By Job$", re.MULTILINE)
_RETURNED = re.compile(r"\((?:return value|signal) (-?\d{1,18})\)")
_SLOT = re.compile(r"^\s+SlotName: (\S+)", re.MULTILINE)
_MEMORY = re.compile(r"^\s+(\d{1,18})  -  MemoryUsage of job \(MB\)", re.MULTILINE)
_ATTRIBUTE = re.compile(r'^\t((?:EC2|CUDA|GPUs_D)\w+|GPUs) = (?:"((?:[^"\\]|\\.)*)"|([^\s\[{].*))$', re.MULTILINE)
_DEVICE = re.compile(r'^\tGPUs_\w+ = \[.*\bDeviceName = "((?:[^"\\]|\\.)*)"', re.MULTILINE)
_PLAIN_LINE = re.compile(r"^\s+(?!\(\d\)|\d+  -  |Usr |Code -?\d+ Subcode )(\S.*?)\s*$")
_ESCAPED = re.compile(r"\\(.)")


@dataclass(slots=True)
class Event:
    """One event of one job. `text` follows the time: the rest of the first line, and the lines below."""

    code: int
    job: str  # cluster.proc
    time: float  # Unix time
    text: str

    @property
    def title(self) -> str:
        """The first line, without number, job and time."""
        return self.text.partition("\n")[0]

    @property
    def body(self) -> str:
        """The lines below the first."""
        return self.text.partition("\n")[2]


@dataclass(frozen=True, slots=True)
class Resource:
    """What a job used, asked for and got of one resource; None where the log leaves a gap."""

    used: float | None
    asked: float | None


def parse_events(text: str) -> Iterator[Event]:
    """Yield the events of a log in its order; what is torn, has no end yet or is no event is passed over."""
    *blocks, _unfinished = text.split(_END)
    for block in blocks:
        head = _HEAD.match(block)
        if head is None or block.find(_ANOTHER, head.end()) >= 0:
            # A crash, or a full disk, tore what is before: at the end of a line, or within the first one.
            heads = [*_HEAD.finditer(block), *_WITHIN.finditer(block.partition("\n")[0])]
            head = max(heads, key=lambda one: one.start(), default=None)
        time = _seconds(head[4]) if head else None
        if head is not None and time is not None:
            yield Event(int(head[1]), f"{int(head[2])}.{int(head[3])}", time, block[head.end() :])


@lru_cache(maxsize=1024)  # events come in bunches
def _seconds(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError, OSError):  # such as the 31st of February, or the year 0000
        return None


def node_of(event: Event) -> str:
    """Return the DAG's node that a submission is for; empty where it is for none."""
    found = _NODE.search(event.text)
    return (found[1] or found[2]) if found else ""


def attributes_of(event: Event) -> dict[str, str]:
    """Return what the start of a job says of EC2, CUDA and GPUs, and the first GPU's own name as `DeviceName`.

    `GPUs` is their number.
    """
    found = {name: _unquote(text) if text else plain.strip() for name, text, plain in _ATTRIBUTE.findall(event.text)}
    device = None if "GPUs_DeviceName" in found else _DEVICE.search(event.text)
    if device:
        found["DeviceName"] = _unquote(device[1])
    return found


def slot_of(event: Event) -> str:
    """Return the slot on which a job starts, such as slot1_2@host; empty where the log does not say it."""
    found = _SLOT.search(event.text)
    return found[1] if found else ""


def host_of(event: Event, slot: str) -> str:
    """Return the machine on which a job starts: the slot's, or the alias of its address."""
    if "@" in slot:
        return slot.rpartition("@")[2]
    found = re.search(r"[?&]alias=([^&>]+)", event.title) or re.search(r"<([^:>?]+)", event.title)
    return found[1] if found else ""


def resources_of(event: Event) -> dict[str, Resource]:
    """Return the table of resources, by name in lower case: cpus, memory (MB), disk (KB), gpus, gpusmemory (MB).

    A row holds usage, request and what was allocated; usage may be missing, or stand alone.
    """
    table = event.text.find(_TABLE)
    resources = {}
    for name, *columns in _RESOURCE.findall(event.text, table) if table >= 0 else ():
        try:
            numbers = [float(column) for column in columns if column]
        except ValueError:
            continue
        if not all(0 <= number < math.inf for number in numbers):
            continue
        used = numbers[0] if len(numbers) != 2 else None
        resources[name.lower()] = Resource(used, numbers[-2] if len(numbers) >= 2 else None)
    return resources


def ending_of(event: Event) -> tuple[int | None, int | None]:
    """Return exit code and signal of a job that has ended: one of them is None."""
    found = _RETURNED.search(event.text)
    if found is None:
        return None, None
    return (None, int(found[1])) if "signal" in found[0] else (int(found[1]), None)


def code_of(event: Event) -> tuple[int, int]:
    """Return HTCondor's code and subcode of a hold, or since 24 of an eviction; 0, 0 where there are none."""
    found = _CODE.search(event.text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def reason_of(event: Event) -> str:
    """Return the line below the first that is a sentence: no figure, no table and no code."""
    for line in event.body.splitlines():
        if _TABLE in line:
            break
        found = _PLAIN_LINE.match(line)
        if found:
            return found[1].removeprefix("Reason: ")
    return ""


def has_saved(event: Event) -> bool:
    """Return whether an eviction saved what the job had done: it was checkpointed, or sent files."""
    sent = _SENT.search(event.text)
    return "(1) Job was checkpointed" in event.text or (sent is not None and int(sent[1]) > 0)


def memory_of(event: Event) -> float | None:
    """Return the MB that an `Image size` event says a job uses."""
    found = _MEMORY.search(event.text)
    return float(found[1]) if found else None


def _unquote(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text
