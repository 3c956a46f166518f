"""How many GPUs there are."""

from __future__ import annotations

import importlib.util


def count_gpus() -> int:
    """Return how many GPUs CuPy can use here."""
    if importlib.util.find_spec("cupy") is None:
        return 0
    from nnlib.gpu.runtime import usable

    if not usable():
        return 0
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


if __name__ == "__main__":
    print(count_gpus())
