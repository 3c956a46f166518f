"""manager.log, which is where DAGMan's scripts print to."""

from __future__ import annotations

import sys
import time


def say(text: str) -> None:
    """Put a line into manager.log, which is where scripts print to; on a full disk it is lost, and nothing else is."""
    try:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)
    except OSError:
        # What has been kept back of the line would fail again as the interpreter ends, with an exit code of its own.
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for as long as the process lives
