"""manager.log, which is where DAGMan's scripts print to."""

from __future__ import annotations

import time


def say(text: str) -> None:
    """Put a line into manager.log, which is where scripts print to."""
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)
