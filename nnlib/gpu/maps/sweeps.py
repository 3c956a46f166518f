"""What the kernels need to know of a sweep: `enum Axis` and `enum SweepCount` of kernels/sweep.cuh."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnlib.gpu.runtime import Array, Runtime
from nnlib.spec.geometry import Sweep, Window

AXES = 3  # that kernels have


class Sweeps:
    """Sweeps in the memory of a GPU, each brought there once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._words: dict[Sweep, Array] = {}

    def words(self, sweep: Sweep) -> Array:
        """Return a sweep as the kernels read it."""
        if sweep not in self._words:
            words = sweep_words(sweep)
            self._words[sweep] = self._runtime.zeros(words.size, np.int32)
            self._runtime.upload(self._words[sweep], words)
        return self._words[sweep]


def sweep_words(sweep: Sweep) -> NDArray[np.int32]:
    """Return a sweep as the kernels read it, (24,): axes that it lacks are of size 1."""
    axes = (*(Window(1, 1),) * (AXES - len(sweep.windows)), *sweep.windows)
    numbers = [n for w in axes for n in (w.size, w.out, w.kernel, w.stride, w.low, w.dilation)]
    below, above = channels_of(sweep)
    counts = [below, above, sweep.groups, sweep.volume, sweep.source.area, sweep.target.area]
    return np.array(numbers + counts, np.int32)


def channels_of(sweep: Sweep) -> tuple[int, int]:
    """Return how many channels a group has below and above."""
    return sweep.source.channels // sweep.groups, sweep.target.channels // sweep.groups
