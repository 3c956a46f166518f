"""Kernels over maps of all kinds, small; convolution by its definition."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nnlib.spec.geometry import Maps, Sweep, Window

Arrays = tuple[Any, Any, Any]  # x (b, source units), w (out channels, fan in), delta (b, target units)


def sweep_over(windows: tuple[Window, ...], channels: int, targets: int, groups: int = 1) -> Sweep:
    source = Maps(channels, tuple(window.size for window in windows))
    return Sweep(source, Maps(targets, tuple(window.out for window in windows)), windows, groups)


@st.composite
def windows(draw: st.DrawFn, most: int) -> Window:
    kernel, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    low, high = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    least = max(1, dilation * (kernel - 1) + 1 - low - high)
    size = draw(st.integers(least, least + most))
    return Window(size, kernel, draw(st.integers(1, 4)), low, high, dilation)


@st.composite
def sweeps(draw: st.DrawFn, most: int = 6, channels: int = 3) -> Sweep:
    """Give sweeps on one to three axes, or none; of one group, some, and as many as there are channels."""
    axes = draw(st.integers(0, 3))
    found = tuple(draw(windows(most if axes < 3 else most // 2)) for _ in range(axes))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    below, above = (groups * draw(st.integers(1, channels)) for _ in range(2))
    if draw(st.booleans()):
        groups = below
        above = below * draw(st.integers(1, 2))
    return sweep_over(found, below, above, groups)


def arrays_of(sweep: Sweep, examples: int, seed: int = 1, dtype: Any = np.float64) -> Arrays:
    random = np.random.default_rng(seed)
    shapes = (examples, sweep.source.units), (sweep.target.channels, sweep.fan_in), (examples, sweep.target.units)
    x, w, delta = (random.standard_normal(shape).astype(dtype) for shape in shapes)
    return x, w, delta


def convolve(x: Any, w: Any, sweep: Sweep) -> Any:
    """The definition, number by number."""
    below, above = sweep.source.channels // sweep.groups, sweep.target.channels // sweep.groups
    maps = x.reshape(len(x), sweep.source.channels, *sweep.source.sizes)
    weights = w.reshape(sweep.target.channels, below, *(window.kernel for window in sweep.windows))
    z = np.zeros((len(x), sweep.target.channels, *sweep.target.sizes))
    kernel = list(product(*(range(window.kernel) for window in sweep.windows)))
    for example, channel, *p in np.ndindex(z.shape):
        for c, k in product(range(below), kernel):
            where = [n * o.stride + m * o.dilation - o.low for n, m, o in zip(p, k, sweep.windows, strict=True)]
            if all(0 <= at < window.size for at, window in zip(where, sweep.windows, strict=True)):
                seen = maps[(example, channel // above * below + c, *where)]
                z[(example, channel, *p)] += weights[(channel, c, *k)] * seen
    return z.reshape(len(x), -1)
