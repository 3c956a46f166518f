"""A launch of a kernel with what it must give, and how far what it gave is from that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.engines import Difference
from nnlib.gpu.kernels import read_signatures

EPSILON = float(np.finfo(np.float32).eps)

Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A kernel, its grid and its arguments by name: arrays, lists of arrays, numbers, None for a null pointer.

    `wanted` has what arrays must hold afterwards, `allowed` how far each number may be from that, arrays or numbers,
    nothing: not at all. They bound what another order of a sum and the functions of a GPU (exp,
    log and tanh, at most two units in the last place) can do.
    """

    kernel: str
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    wanted: Mapping[str, Any]
    allowed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ordered(self) -> list[Any]:
        """The arguments in the order of the kernel's parameters."""
        return [self.arguments[name] for name, _ in read_signatures()[self.kernel].parameters]

    def differences(self, found: Mapping[str, Any]) -> list[Difference]:
        """Return what in the arrays is too far from what is wanted, one for each parameter."""
        differences = []
        for name, wanted in self.wanted.items():
            several = isinstance(wanted, list)
            pairs = zip(found[name], wanted, strict=True) if several else [(found[name], wanted)]
            for one, other in pairs:
                difference = _compare(name, np.asarray(one), np.asarray(other), self.allowed.get(name, 0.0))
                differences += [difference] if difference else []
        return differences


def _compare(name: str, found: Numbers, wanted: Numbers, allowed: Any) -> Difference | None:
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(found - wanted)
        near = np.isfinite(wanted) & (apart <= allowed)
    wrong = ~((found == wanted) | (np.isnan(found) & np.isnan(wanted)) | near)
    if not wrong.any():
        return None
    worst = np.unravel_index(np.argmax(np.where(wrong, np.nan_to_num(apart, nan=np.inf), -1)), wrong.shape)
    place = ",".join(map(str, map(int, worst)))
    count = int(np.count_nonzero(wrong))
    return Difference(name, count, wrong.size, place, float(found[worst]), float(wanted[worst]))


def normal(seed: int, *shape: int) -> NDArray[np.float32]:
    """Return numbers that are the same everywhere."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def nothing(*shape: int, dtype: Any = np.float32) -> Numbers:
    """Return an array for a kernel to fill, with numbers that are in no result."""
    return np.full(shape, -12345, dtype)
