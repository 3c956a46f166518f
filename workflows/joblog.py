"""What the event log of one node's jobs says of one of them: on which machine it ran last, and why it was removed.

HTCondor writes `job.log` beside the job's other files. POST looks there, for DAGMan tells it an exit code and no more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_EVENT = re.compile(r"([0-9]{3}) \(0*([0-9]+)\.0*([0-9]+)\.[0-9]+\) ")
_SLOT = re.compile(r"^\tSlotName: (?:\S*@)?([A-Za-z0-9._:-]{1,255})$", re.MULTILINE)
_EXECUTE, _ABORTED = "001", "009"


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The last machine of a job, by the name that HTCondor knows it by, and why the job was removed."""

    host: str = ""
    removed: str = ""


def read_job_log(path: Path, job: str) -> JobFacts:
    """Return what a log says of the job `cluster.proc`; nothing where there is no log, or nothing in it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return JobFacts()
    host = removed = ""
    for event in text.split("\n...\n"):
        head = _EVENT.match(event)
        if head is None or f"{head[2]}.{head[3]}" != job:
            continue
        if head[1] == _EXECUTE and (slot := _SLOT.search(event)):
            host = slot[1]
        elif head[1] == _ABORTED:
            removed = _reason(event)
    return JobFacts(host, removed)


def _reason(event: str) -> str:
    """Return the first line below an event's head, as plain text."""
    lines = [line.strip() for line in event.splitlines()[1:]]
    first = next((line for line in lines if line), "")
    return "".join(character if character.isprintable() else "?" for character in first)[:1000]
