"""Where a DAG stands by the event log of DAGMan's own job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regiondag.condor.events.job import ABORTED, EVICTED, EXECUTE, HELD, RELEASED, SUBMIT, TERMINATED
from regiondag.condor.events.text import ending_of, parse_events

STATUS = {
    SUBMIT: "idle",
    EXECUTE: "running",
    EVICTED: "idle",
    HELD: "held",
    RELEASED: "idle",
    ABORTED: "removed",
    TERMINATED: "ended",
}


@dataclass(frozen=True, slots=True)
class DagState:
    """What the event log of DAGMan's own job says: its cluster, and whether it is gone."""

    log: Path
    cluster: int
    status: str  # idle, running, held, removed or ended
    started: float | None
    ended: float | None
    exit_code: int | None
    signal: int | None = None


def read_dag_log(log: Path) -> DagState | None:
    """Return the state of the DAG that was submitted last; None when none was. What is torn is passed over."""
    try:
        text = log.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    state: DagState | None = None
    for event in parse_events(text):
        if event.code not in STATUS:
            continue
        over = event.code in (ABORTED, TERMINATED)
        exit_code, signal = ending_of(event) if event.code == TERMINATED else (None, None)
        state = DagState(
            log=log,
            cluster=int(event.job.partition(".")[0]),
            status=STATUS[event.code],
            started=event.time if event.code == SUBMIT else state.started if state else None,
            ended=event.time if over else None,
            exit_code=exit_code,
            signal=signal,
        )
    return state
