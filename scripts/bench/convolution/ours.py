"""Our side of the benchmark of convolutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnlib.util.threads import Each, take_over_blas, workers

THREADS = take_over_blas()  # before NumPy

import numpy as np  # noqa: E402

from nnlib.cpu.maps.convolution import Unfolded, convolutions_of  # noqa: E402
from nnlib.spec.geometry import Maps, Sweep, Window  # noqa: E402
from scripts.bench.convolution.shapes import (  # noqa: E402
    FORWARD,
    INPUT,
    WEIGHT,
    Calls,
    Shape,
    arrays_of,
    serve,
    some_shapes,
)


def sweep_of(shape: Shape) -> Sweep:
    """Return a shape as nnlib has it."""
    windows = tuple(Window(*axis) for axis in shape.windows())
    source = Maps(shape.channels, tuple(window.size for window in windows))
    return Sweep(source, Maps(shape.targets, tuple(window.out for window in windows)), windows, shape.groups)


def main() -> None:
    """Serve."""
    with workers(THREADS) as each:

        def prepare(shape: Shape, layout: str) -> Calls:
            return calls(shape, layout, each)

        def results(count: int, folder: str) -> None:
            for number, shape in enumerate(some_shapes(count)):
                found: dict[str, Any] = {part: call() for part, call in calls(shape, "", each).items()}
                np.savez(Path(folder) / f"ours{number}.npz", **found)

        serve(prepare, results)


def calls(shape: Shape, layout: str, each: Each) -> Calls:
    """Return what computes each part; with the layout `numpy` by NumPy alone."""
    sweep = sweep_of(shape)
    x, w, delta = (array.reshape(len(array), -1) for array in arrays_of(shape))
    ways = Unfolded() if layout == "numpy" else convolutions_of(np.float32)
    return {
        FORWARD: lambda: ways.forward(x, w, sweep, each),
        INPUT: lambda: ways.input_gradient(delta, w, sweep, each),
        WEIGHT: lambda: ways.weight_gradient(x, delta, sweep, each),
    }


if __name__ == "__main__":
    main()
