"""Convolutions by cuDNN, where it is asked for, beside their references; and whether they give the same bits again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnlib.engines import Difference
from nnlib.gpu.maps.cudnn import FORWARD, KINDS, TO_SOURCE, Task
from nnlib.gpu.runtime import Runtime
from nnlib.gpu.selfcheck.case import Case, normal
from nnlib.gpu.selfcheck.convolutions import B, arrays_of, in_double, sweep_of_groups
from nnlib.ops import convolution

TF32_APART = 1 << 10  # times as far as float32: factors have 13 bits less, and are half of a sum's error each


def check_cudnn(runtime: Runtime) -> Iterator[tuple[str, list[Difference]]]:
    """Yield the name of each kind of convolution with what differs, nothing where cuDNN has no engine for it."""
    for sweep in (sweep_of_groups(6, 10, 2), sweep_of_groups(32, 48, 1)):
        x, w, delta = arrays_of(sweep)
        bias = normal(3, sweep.target.channels)
        given = {FORWARD: (x, w, delta, bias), TO_SOURCE: (delta, w, x)}
        ways = {FORWARD: convolution.forward, TO_SOURCE: convolution.input_gradient}
        for kind in KINDS:
            first, second, result, *more = given.get(kind, (x, delta, w))
            wanted, near = in_double(ways.get(kind, convolution.weight_gradient), first, second, sweep)
            wanted = wanted + np.repeat(bias, sweep.target.area) if more else wanted
            arrays = [runtime.zeros(array.shape) for array in (first, second, result, *more)]
            for array, values in zip(arrays, (first, second, result, *more), strict=True):
                runtime.upload(array, values)
            for rounded in (False, True):
                name = f"cuDNN: {kind}{', TF32' if rounded else ''}"
                task = Task(kind, sweep, B, False, rounded)
                if not runtime.convolve(task, arrays):
                    continue
                found = runtime.download(arrays[2])
                runtime.convolve(task, arrays)
                allowed = {"result": near * (TF32_APART if rounded else 1)}
                differences = Case(name, (), {}, {"result": wanted}, allowed).differences({"result": found})
                again = {"again": runtime.download(arrays[2])}
                yield name, differences + Case(name, (), {}, {"again": found}).differences(again)
