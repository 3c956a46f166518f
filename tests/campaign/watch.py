"""How long a study stands still after a fault: journals and event log, looked at while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from regiondag.run.layout import JOB_LOG, dagman_file
from tests.campaign.running import EVENT, Running

PAUSE = 0.25  # seconds between two looks
# What the event that ended a silence says of it. Others (sizes, transfers) say nothing.
ENDED_BY = {
    "000": "DAGMan submitted the next job, which takes PRE and, where it was away, DAGMan itself",
    "001": "a job began: it waits for a slot that is free, then for a new match",
    "004": "a job was evicted",
    "005": "a training ended, some of which had begun anew",
    "009": "a job was removed",
    "012": "a job was held",
    "013": "a job was released",
    "016": "POST had settled a trial, again where it had failed",
    "022": "HTCondor noticed that a job's machine did not answer",
    "023": "HTCondor reached a job's machine again",
    "024": "HTCondor gave a job's machine up, whose lease had to run out",
}


@dataclass
class Watch:
    """What was seen, each with the machine's monotonic time: the clock of a pool may jump."""

    progress: list[float] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)


@contextmanager
def watched(running: Running) -> Iterator[Watch]:
    """Look at a study again and again, until the end of the block."""
    watch, over = Watch(), Event()

    def look() -> None:
        lines, seen = 0, dict[Path, int]()
        while not over.wait(PAUSE):
            now = time.monotonic()
            before, lines = lines, _lines(running)
            if lines > before:
                watch.progress.append(now)
            for log in _logs(running):
                found = [number for number, _ in EVENT.findall(_text(log))]
                watch.events += [(now, number) for number in found[seen.get(log, 0) :] if number in ENDED_BY]
                seen[log] = len(found)

    thread = Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def _lines(running: Running) -> int:
    return sum(_text(path).count("\n") for path in running.journals().values()) + running.is_complete()


def _logs(running: Running) -> list[Path]:
    """Return DAGMan's log, which has the scripts' ends, and those of the jobs, which have lost connections."""
    return [dagman_file(running.run.study_dag, "nodes.log"), *running.run.path.glob(f"regions/*/trials/*/{JOB_LOG}")]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def recoveries(struck: Sequence[tuple[str, float]], watch: Watch) -> tuple[tuple[str, float, str], ...]:
    """Return for each fault its kind, the seconds until a journal had its next line, and what took longest."""
    found = []
    for kind, begun in struck:
        ended = next((moment for moment in watch.progress if moment > begun), None)
        if ended is not None:
            others = [other for other, moment in struck if begun < moment < ended]
            found.append((kind, round(ended - begun, 1), why(begun, ended, watch.events, others)))
    return tuple(found)


def why(begun: float, ended: float, events: Sequence[tuple[float, str]], others: Sequence[str]) -> str:
    """Say in a sentence what the longest silence was for, and which faults came in between."""
    moments = [(begun, ""), *((t, number) for t, number in events if begun < t < ended), (ended, "")]
    silences = [(moments[n + 1][0] - moments[n][0], moments[n + 1][1]) for n in range(len(moments) - 1)]
    longest, number = max(silences)
    until = ENDED_BY.get(number, "a script wrote its line")
    between = f"; in between came: {', '.join(others)}" if others else ""
    return f"{longest:.0f} of {ended - begun:.0f} s passed until {until}{between}."
