"""Attributes of this job's ad in HTCondor's queue, set over the socket that HTCondor's starter has open for each job.

`set_job_attr_delayed` needs no line in the submit file. What else the socket can do (the submitter's files, any
attribute) needs WantIOProxy, which no job of ours sets.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

CHIRP_CONFIG = "_CONDOR_CHIRP_CONFIG"  # names a file that holds host, port and a password
PATIENCE = 1.0  # seconds for all of a call; it takes milliseconds
TAKEN, LONGEST_ANSWER = b"0\n", 64


def set_attributes(values: Mapping[str, str]) -> bool:
    """Set attributes to expressions, which HTCondor sends on with its next update. Return whether it took them all."""
    end = time.monotonic() + PATIENCE
    try:
        host, port, password = Path(os.environ[CHIRP_CONFIG]).read_text(encoding="ascii").split()
        lines = [f"cookie {password}", *(f"set_job_attr_delayed {n} {_escape(v)}" for n, v in values.items())]
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as link, link.makefile("rb") as answers:
            for line in lines:
                link.settimeout(max(end - time.monotonic(), 1e-3))
                link.sendall(f"{line}\n".encode())
                if answers.readline(LONGEST_ANSWER) != TAKEN:
                    return False
    except (OSError, ValueError, KeyError):
        return False
    return True


def _escape(expression: str) -> str:
    """Escape what ends a word of a line."""
    return re.sub(r"([\\\s])", r"\\\1", expression)
