"""What links the GPUs of a machine to each other, from what `nvidia-smi topo -m` prints. Pure.

The table has a row and a column for each GPU, then columns for network cards and affinities; its header is underlined
by escape sequences whether or not anybody looks. A word says how two GPUs reach each other: its own legend follows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_ROW = re.compile(r"GPU(\d+)\s+(\S.*)")
_NVLINK = re.compile(r"NV(\d+)")
# As nvidia-smi's legend says it, the fastest first.
PATHS = {
    "PIX": "PCI, one bridge",
    "PXB": "PCI, several bridges",
    "PHB": "PCI, through the processor's host bridge",
    "NODE": "PCI, between host bridges of one NUMA node",
    "SYS": "PCI, between processors",
}

Links = Mapping[tuple[int, int], str]  # (a GPU, a later one) -> the word for what links them


def parse_topology(text: str) -> dict[tuple[int, int], str]:
    """Return the word for what links each two GPUs; those that a table does not say are left out.

    >>> parse_topology("\\tGPU0\\tGPU1\\tCPU Affinity\\nGPU0\\t X \\tNV18\\t0-31\\nGPU1\\tNV18\\t X \\t0-31\\n")
    {(0, 1): 'NV18'}
    """
    rows = [row for line in _ESCAPE.sub("", text).splitlines() if (row := _ROW.match(line))]
    numbers = [int(row[1]) for row in rows]
    found = {}
    for row in rows:
        one = int(row[1])
        for other, word in zip(numbers, row[2].split(), strict=False):
            if one < other and (word in PATHS or _NVLINK.fullmatch(word)):
                found[one, other] = word
    return found


def describe_links(links: Links) -> Iterator[str]:
    """Yield a line for each kind of link, NVLink first: the pairs of GPUs that it links."""
    kinds: dict[str, list[str]] = {}
    for (one, other), word in links.items():
        kinds.setdefault(word, []).append(f"{one}-{other}")
    for word in sorted(kinds, key=_slowness):
        pairs = f"all {len(links)} pairs" if len(kinds) == 1 and len(links) > 1 else f"GPUs {', '.join(kinds[word])}"
        yield f"{pairs}: {word}, {_meaning(word)}"


def has_nvlink(links: Links) -> bool:
    """Return whether NVLink links every two GPUs."""
    return bool(links) and all(map(_NVLINK.fullmatch, links.values()))


def _slowness(word: str) -> int:
    found = _NVLINK.fullmatch(word)
    return -int(found[1]) if found else list(PATHS).index(word)


def _meaning(word: str) -> str:
    found = _NVLINK.fullmatch(word)
    return PATHS[word] if found is None else f"{found[1]} NVLinks" if found[1] != "1" else "one NVLink"
