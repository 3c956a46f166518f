"""The blocks of a sparse disk: which of them hold data, their bytes and their checksums."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

BLOCK = 512 * 1024  # bytes; the only size that EBS takes
ZEROS = bytes(BLOCK)
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Disk:
    """A raw disk as it is at the moment."""

    path: Path
    size: int
    sha256: str
    blocks: dict[int, str]  # number and sha256 of each block that is not all zeros, in order

    @property
    def gib(self) -> int:
        """Size of the volume that takes it."""
        return max(-(-self.size // GIB), 1)

    @property
    def mib(self) -> float:
        """How much of it is to be uploaded."""
        return len(self.blocks) * BLOCK / (1 << 20)


def read_disk(path: Path) -> Disk:
    """Read a disk once for all checksums."""
    whole, blocks = hashlib.sha256(), {}
    with path.open("rb") as file:
        descriptor = file.fileno()
        size, used = os.fstat(descriptor).st_size, set(list_used_blocks(descriptor))
        for number in range(-(-size // BLOCK)):
            block = read_block(descriptor, number) if number in used else ZEROS
            whole.update(block[: size - number * BLOCK])
            if block != ZEROS:
                blocks[number] = hashlib.sha256(block).hexdigest()
    return Disk(path, size, whole.hexdigest(), blocks)


def list_used_blocks(descriptor: int) -> list[int]:
    """Return the numbers of the blocks that the file system keeps data for, in order; the others read as zeros.

    Some of them may hold zeros all the same, and where a file system knows no holes, all blocks are used.
    """
    size = os.fstat(descriptor).st_size
    used: set[int] = set()
    offset = 0
    while offset < size:
        try:
            begin = os.lseek(descriptor, offset, os.SEEK_DATA)
            end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                break
            begin, end = offset, size
        used.update(range(begin // BLOCK, -(-end // BLOCK)))
        offset = end
    return sorted(used)


def read_block(descriptor: int, number: int) -> bytes:
    """Return one block; the file's last one is filled up with zeros."""
    parts: list[bytes] = []
    offset, end = number * BLOCK, (number + 1) * BLOCK
    while offset < end and (part := os.pread(descriptor, end - offset, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts).ljust(BLOCK, b"\0")
