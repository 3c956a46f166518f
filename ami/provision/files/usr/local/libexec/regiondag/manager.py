"""Ask the pool's collector whether it takes this machine, with condor_ping.

`condor_ping -verbose` says both versions when it succeeds, and when it fails why; always with exit code 1. Seen with
23.9.6 and 25.14.1:

ERROR: failed to make connection to <10.0.0.5:9618>     nobody listens, or no route (after 10 s)
ERROR: couldn't locate (null)!                          the name is unknown
SECMAN:2011:Connection closed during command ...        listens, but is no HTCondor; after one to two minutes
AUTHENTICATE:1004:Failed to authenticate using IDTOKENS the token is expired, or signed with another key
AUTHENTICATE:1003: ... with no word of IDTOKENS         there is no token for this pool
SECMAN:2010:Received "DENIED" from server for user ...  the token is good, but may not advertise
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

COMMAND = ["condor_ping", "-type", "collector", "-verbose", "ADVERTISE_STARTD"]
TIMEOUT_SECONDS = 30

Kind = Literal["welcome", "refused", "unreachable"]


@dataclass(frozen=True)
class Answer:
    """What the collector said; the versions only if it is `welcome`."""

    kind: Kind
    text: str = ""
    theirs: str = ""
    ours: str = ""


def ask(run: Callable[..., subprocess.CompletedProcess[str]]) -> Answer:
    """Ask the collector that HTCondor's settings name."""
    try:
        done = run(COMMAND, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Answer("unreachable", f"it did not answer within {TIMEOUT_SECONDS} s; is that port HTCondor's?")
    except OSError as error:
        return Answer("unreachable", f"condor_ping does not run here: {error.strerror}")
    return read_answer(done.stdout + done.stderr)


def read_answer(output: str) -> Answer:
    """Return what condor_ping's output means."""
    theirs, ours = (_version(output, word) for word in ("Remote", "Local"))
    if theirs and ours and re.search(r"^Authorized: +TRUE", output, re.MULTILINE):
        return Answer("welcome", theirs=theirs, ours=ours)
    lines = [line.strip() for line in output.splitlines() if line.strip() and "failed!" not in line]
    text = "; ".join(lines)[:400] or "condor_ping says nothing"
    refused = any(word in text for word in ("AUTHENTICATE:", "DENIED", "SECMAN:2010", "Authorized:"))
    return Answer("refused" if refused else "unreachable", text)


def series(version: str) -> str:
    """Return the series of a version: `23.9` of `23.9.6`."""
    return ".".join(version.split(".")[:2])


def wrong_series(manager: str, answer: Answer) -> str:
    """Say that workers and manager are of two series, and what to do."""
    return (
        f"the manager {manager} runs HTCondor {answer.theirs}, this machine {answer.ours}: a worker of another series "
        f"is listed but never gets a job. Use a worker image with HTCondor {series(answer.theirs)} (see: regiondag "
        f"bake image --help), or a manager with {series(answer.ours)}. HTCondor is not started here"
    )


def _version(output: str, word: str) -> str:
    found = re.search(rf"^{word} +Version: .*?(\d+\.\d+\.\d+)", output, re.MULTILINE)
    return found[1] if found else ""
