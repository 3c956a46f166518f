"""What the event log of one node's jobs says of one of them: on which machine it ran last, and why it was removed.

HTCondor writes `job.log` beside the job's other files. POST looks there, for DAGMan tells it an exit code and no more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from regiondag.condor.events.log import attempts_of
from regiondag.condor.events.text import parse_events
from regiondag.util.text import make_printable

_HOST = re.compile(r"[A-Za-z0-9._:-]{1,255}")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The last machine of a job, by the name that HTCondor knows it by, and why the job was removed."""

    host: str = ""
    removed: str = ""


def is_host(text: str) -> bool:
    """Return whether a text can be the name of a machine, as a log or a worker says it."""
    return _HOST.fullmatch(text) is not None


def read_job_log(path: Path, job: str) -> JobFacts:
    """Return what a log says of the job `cluster.proc`; nothing where there is no log, or nothing in it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return JobFacts()
    found = [attempt for attempt in attempts_of(parse_events(text)) if attempt.job == job]
    if not found:
        return JobFacts()
    hosts = [leg.machine for leg in found[-1].legs if is_host(leg.machine)]
    return JobFacts(hosts[-1] if hosts else "", make_printable(found[-1].removed)[:1000])
