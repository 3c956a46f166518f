"""The peer of the benchmark of convolutions: PyTorch on the CPU. It has an environment of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from scripts.bench.convolution.shapes import FORWARD, INPUT, WEIGHT, Calls, Shape, arrays_of, serve, some_shapes

CHANNELS_LAST = "channels last"


def calls(shape: Shape, layout: str) -> Calls:
    """Return what computes each part, without autograd."""
    form = torch.channels_last if layout == CHANNELS_LAST else torch.contiguous_format
    x, w, delta = (torch.from_numpy(array).contiguous(memory_format=form) for array in arrays_of(shape))
    numbers = ([axis[2] for axis in shape.windows()], [axis[3] for axis in shape.windows()])
    more = (*numbers, [1] * len(shape.windows()), False, [0] * len(shape.windows()), shape.groups)
    back = torch.ops.aten.convolution_backward
    return {
        FORWARD: lambda: torch.ops.aten.convolution(x, w, None, *more),
        INPUT: lambda: back(delta, x, w, None, *more, (True, False, False)),
        WEIGHT: lambda: back(delta, x, w, None, *more, (False, True, False)),
    }


def values(shape: Shape, kind: torch.dtype) -> dict[str, Any]:
    """Return all parts as PyTorch computes them in a precision, padding by itself."""
    x, w, delta = (torch.from_numpy(array).to(kind) for array in arrays_of(shape))
    x.requires_grad_()
    w.requires_grad_()
    windows = shape.windows()
    padded = F.pad(x, [n for axis in reversed(windows) for n in axis[3:5]])
    convolution = (F.conv1d, F.conv2d, F.conv3d)[len(windows) - 1]
    z = convolution(padded, w, None, [axis[2] for axis in windows], 0, [axis[5] for axis in windows], shape.groups)
    z.backward(delta)
    assert x.grad is not None and w.grad is not None  # noqa: S101 -- for the type checker
    return {FORWARD: z.detach(), INPUT: x.grad, WEIGHT: w.grad}


def results(count: int, folder: str) -> None:
    """Write what each shape gives, in both precisions."""
    for number, shape in enumerate(some_shapes(count)):
        for name, kind in (("single", torch.float32), ("double", torch.float64)):
            found = {part: value.reshape(len(value), -1).numpy() for part, value in values(shape, kind).items()}
            np.savez(Path(folder) / f"{name}{number}.npz", **found)


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_flush_denormal(True)
    serve(calls, results)
