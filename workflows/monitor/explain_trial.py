"""Why a trial failed, was slow, or has not begun: by journals, event logs and what its job left behind."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nnlib.contract import LOG_FILE, Status
from nnlib.util.files import read_last_lines
from regiondag.accounting.prices import PriceTable
from regiondag.accounting.usage import Taken, take
from regiondag.condor.events.attempts import Attempt
from regiondag.monitor.explain_queue import Explanation
from regiondag.run.history import History, TrialOutcome
from regiondag.run.layout import JOB_ERRORS, NodeName, RunFolder, parse_node
from regiondag.util.text import make_printable, show_duration

TAIL = 5  # lines of job.err
SLOW = 2.0  # times the median
WORTH_A_LOOK = 60.0  # seconds; nothing shorter is called slow
WORD = {
    Status.BAD_INPUT: "bad input",
    Status.MACHINE: "the machine's fault",
    Status.DIVERGED: "the training diverged",
    Status.REMOVED: "removed",
}
MEND = {
    Status.BAD_INPUT: "data, network or settings are wrong: no retry helps; mend them and generate a new run",
    Status.MACHINE: "when the DAG has ended, submit it again: the node runs again, and this outcome does not count",
    Status.DIVERGED: "it counts as the worst value seen; the search goes on",
    Status.REMOVED: "it counts as failed; where the deadline or a hold was the reason, see `job` in study.yaml",
}


def explain_failed(run: RunFolder, node: NodeName, settled: TrialOutcome, attempts: Sequence[Attempt]) -> Explanation:
    """Say why a trial, or a final training, failed: its outcome, where it ran, and the last lines it wrote."""
    place = run.region(node.slug).trial(node)
    kind = WORD.get(settled.status, settled.status)
    details = [*_machines(attempts), *_last_lines(place / JOB_ERRORS, TAIL), *_last_lines(place / LOG_FILE, 1)]
    return Explanation(str(node), "failed", f"{kind}: {settled.reason}", MEND.get(settled.status, ""), tuple(details))


def _machines(attempts: Sequence[Attempt]) -> Iterator[str]:
    for attempt in attempts:
        for leg in attempt.legs:
            facts = ", ".join(leg.facts[fact] for fact in ("gpu", "driver", "instance_type") if fact in leg.facts)
            end = f"ended with exit code {attempt.exit_code}" if leg.ending == "done" else leg.ending or "runs"
            end = f"ended by signal {attempt.signal}" if leg.ending == "done" and attempt.signal is not None else end
            reason = f": {leg.reason}" if leg.reason else ""
            yield f"job {attempt.job} on {leg.slot or leg.machine}{f' ({facts})' if facts else ''}: {end}{reason}"
        if attempt.removed and not (attempt.legs and attempt.legs[-1].ending == "removed"):
            yield f"job {attempt.job} was removed: {attempt.removed}"


def _last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a file, which a job wrote: without anything that steers a terminal."""
    return [f"{path.name}: {make_printable(line)[:300]}" for line in read_last_lines(path, count)]


def explain_done(
    node: NodeName, settled: TrialOutcome, history: History, attempts: Sequence[Attempt], now: float
) -> Explanation:
    """Compare a trial that succeeded with the others of its region that did; `attempts` are all of the region's."""
    taken = {one.node: one for one in take(attempts, {node: settled.seconds}, PriceTable(), now)}
    own = taken.get(node)
    value = "" if settled.value is None else f" with {settled.value:.4f}"
    why = f"it ended{value} after {show_duration(settled.seconds)} of training"
    if own is None:
        return Explanation(str(node), settled.status, why, details=("no event log of its job was found",))
    good = {NodeName(node.slug, number) for number, other in history.settled.items() if other.ok} - {node}
    others = [one for other, one in taken.items() if other in good]
    lines = list(_compare(own, others))
    slow = others and own.slot > max(SLOW * statistics.median(one.slot for one in others), WORTH_A_LOOK)
    mine = [attempt for attempt in attempts if attempt.node == node]
    return Explanation(str(node), "slow" if slow else settled.status, why, details=(*lines, *_machines(mine)))


def _compare(own: Taken, others: Sequence[Taken]) -> Iterator[str]:
    """Yield how long each part took, beside the median of the region's other trials."""
    parts: tuple[tuple[str, Callable[[Taken], float]], ...] = (
        ("in the queue", lambda one: sum(one.waited)),
        ("on slots", lambda one: one.slot),
        ("in transfers", lambda one: one.transfers or 0.0),
        ("lost to evictions", lambda one: one.lost_to_eviction),
        ("lost to failures", lambda one: one.lost_to_failure),
    )
    for name, part in parts:
        beside = (
            f" (median of the region's other trials: {show_duration(statistics.median(map(part, others)))})"
            if others
            else ""
        )
        if part(own) or (others and statistics.median(map(part, others))):
            yield f"{show_duration(part(own))} {name}{beside}"
    if own.starts > 1 or own.tries > 1 or own.evictions:
        yield f"{own.tries} tries, {own.starts} starts, {own.evictions} evictions, {own.holds} holds"


def explain_running(node: str, machine: str, seconds: float, starts: int, usual: float | None) -> Explanation:
    """Say where a job runs, and whether for longer than trials of its region usually train."""
    why = f"for {show_duration(seconds)} on {machine or 'a machine that the queue does not name'}"
    details = (f"it was started {starts} times",) if starts > 1 else ()
    if usual is None or seconds < max(SLOW * usual, WORTH_A_LOOK):
        return Explanation(node, "running", why, details=details)
    text = f"{why}; trials of its region train for {show_duration(usual)} (median)"
    return Explanation(
        node, "slow", text, "its log.jsonl says how far it is, once it has ended or been evicted", details
    )


def usual_seconds(history: History) -> float | None:
    """Return the median of the seconds that a region's trials trained."""
    seconds = [settled.seconds for settled in history.settled.values() if settled.ok and settled.seconds]
    return statistics.median(seconds) if seconds else None


def read_edges(dag: Path) -> Iterator[tuple[list[NodeName], list[NodeName]]]:
    """Yield which nodes DAGMan waits for before which others, as a graph says."""
    with dag.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("PARENT "):
                parents, _, children = line.removeprefix("PARENT ").partition(" CHILD ")
                yield list(map(parse_node, parents.split())), list(map(parse_node, children.split()))
