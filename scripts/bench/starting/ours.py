"""Our side: `nnlib` with the arguments of the command line, ended right after the first batch of its training."""

from __future__ import annotations

import os
import sys
from typing import Any

from nnlib import cli
from nnlib.commands import _arguments, train


def end_after_first_batch(count: int | None) -> int:
    """Hold the threads as the command does, before NumPy is imported; then change what it imports right afterwards."""
    found = _arguments.hold_threads(count)
    from nnlib.cpu.engine import CpuEngine

    run = CpuEngine.run

    def run_once(self: CpuEngine, batch: Any) -> None:
        run(self, batch)
        os._exit(0)

    setattr(CpuEngine, "run", run_once)  # noqa: B010 -- for the type checker
    return found


if __name__ == "__main__":
    setattr(train, "hold_threads", end_after_first_batch)  # noqa: B010
    sys.exit(cli.main(sys.argv[1:]) or 1)  # a training that ends without a batch
