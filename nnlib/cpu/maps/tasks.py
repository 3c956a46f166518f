"""What of a convolution is one piece of work: a band of some examples, the memory for it, and ranges of channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nnlib.cpu.maps.shifts import Band, Shifts
from nnlib.cpu.scratch import SCRATCH
from nnlib.spec.geometry import Sweep
from nnlib.util.arrays import Floats

WIDTH = 1024  # places of a band
WIDER = 4096  # of one of groups, which have few channels
PIECES = 8  # at least, where there is as much work
NUMBERS = 1 << 17  # of a source that are laid out at a time: 512 KB

Part = tuple[range, range, range]  # of a weights' gradient: groups, and of a group target and source channels


@dataclass(frozen=True, slots=True)
class Task:
    """A band of some examples."""

    shifts: Shifts
    band: Band
    first: int  # example
    examples: int
    ends: tuple[int, ...] = ()  # of these, where each of several shards ends; the tree adds what they give

    @property
    def width(self) -> int:
        """Return how many places are computed one behind the other."""
        if self.shifts.lanes > 1:
            return self.shifts.lanes * self.band.put.extent.x
        return (self.examples - 1) * self.shifts.wide.example + self.band.width


def all_of(shifts: Shifts, begin: int, end: int) -> Iterator[Task]:
    """Return all bands of some examples."""
    for first in range(begin, end, shifts.examples):
        for band in shifts.bands:
            yield Task(shifts, band, first, min(shifts.examples, end - first))


def width_of(sweep: Sweep) -> int:
    """Return how many places a band has at most."""
    return WIDTH if sweep.groups == 1 else WIDER


def channels_of(sweep: Sweep) -> tuple[int, int]:
    """Return how many channels a group has, of the source and of the target."""
    return sweep.source.channels // sweep.groups, sweep.target.channels // sweep.groups


def memory(name: str, numbers: int) -> Floats:
    """Return memory of this thread."""
    return SCRATCH.get(f"maps {name}", (numbers,), np.float32)


def padded(count: int, unit: int) -> float:
    """Return how many there are for one when they are filled up to a multiple."""
    return -(-count // unit) * unit / count


def ranges(count: int, most: int, unit: int = 1) -> list[range]:
    """Cut into ranges of at most so many that differ little, at multiples of `unit`; the last may end before one."""
    units = -(-count // unit)
    parts = -(-units * unit // most)
    ends = [min(count, n * units // parts * unit) for n in range(parts + 1)]
    return [range(*pair) for pair in pairwise(ends)]
