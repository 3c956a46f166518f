"""Where a region stands: one answer for PRE, POST, status, explain and report."""

from __future__ import annotations

from collections import Counter

from nnlib.contract import Status
from regiondag.errors import GiveUpError
from regiondag.run.history import CANCELLED, FAILED, History
from regiondag.run.layout import RunFolder
from regiondag.run.region_spec import RegionSpec
from regiondag.run.start_time import read_start
from regiondag.study.model import Search


def why_hopeless(history: History, spec: RegionSpec) -> str:
    """Return why a region stops whose first `search.give_up_after` trials all failed; nothing of any other."""
    ends = [settled for settled in history.settled.values() if settled.reason != CANCELLED]
    failures = [f"{settled.status}: {settled.reason}" for settled in ends if settled.status in FAILED]
    most = spec.search.give_up_after
    if not most or len(failures) < most or any(settled.value is not None for settled in ends):
        return ""
    reasons = "; ".join(f"{times} times {reason}" for reason, times in Counter(failures).most_common(3))
    return f"the first {len(failures)} trials failed, so it stops (give_up_after: {most}); {reasons}"


def search_is_over(search: Search, history: History) -> bool:
    """Return whether nothing more is to be proposed: the budget is spent, or lanes have taken all trials."""
    return len(history.proposals) >= search.trials or (0 < search.budget <= seconds_spent(history))


def seconds_spent(history: History) -> float:
    """Return the seconds that a region's trials have trained, those that were tried again included."""
    again = sum(fault.seconds for fault in history.faults if fault.trial is not None)
    return again + history.repeated_seconds + sum(settled.seconds for settled in history.settled.values())


def check_not_hopeless(history: History, spec: RegionSpec) -> None:
    """Raise GiveUpError when the first `search.give_up_after` trials of the region all failed."""
    reason = why_hopeless(history, spec)
    if reason:
        raise GiveUpError(f"region {spec.name!r}: {reason}")


def region_status(spec: RegionSpec, history: History) -> tuple[str, str]:
    """Return how a region stands (promoted, kept, failed or unfinished), and why."""
    final = history.final
    if final and final.ok:
        return "promoted" if final.promoted else "kept", final.reason
    if final:
        return "failed", final.reason
    failures = [s for s in history.settled.values() if not s.ok]
    refused = [s for s in failures if s.status == Status.BAD_INPUT]
    if refused:
        return "failed", refused[0].reason
    if history.stopped:
        reason = next(reversed(history.stopped.values()))
        return "failed", reason.removeprefix(f"region {spec.name!r}: ")
    if failures and len(failures) == spec.search.trials:
        reason, times = Counter(f"{s.status}: {s.reason}" for s in failures).most_common(1)[0]
        return "failed", f"all {len(failures)} trials failed, {times} of them: {reason}"
    stopped = why_hopeless(history, spec)
    if stopped:
        return "failed", stopped
    if spec.start.source and not history.proposals:
        return "unfinished", f"waits for the champion of the region {spec.start.source!r}, from which it starts"
    if not history.proposals:
        return "unfinished", "none of its jobs has run; submit the DAG"
    return "unfinished", "not all of its jobs have run; submit the DAG again to go on"


def why_not_needed(run: RunFolder, spec: RegionSpec, history: History, number: int, now: float) -> str:
    """Return why a trial without job and outcome will have none, as PRE sees it; nothing where it is to come."""
    if spec.deadline and (start := read_start(run)) is not None and now >= start + spec.deadline:
        return "the study's deadline has passed"
    if number in history.proposals or not search_is_over(spec.search, history):
        return ""
    full = len(history.proposals) >= spec.search.trials
    return "the search of its region has all its trials" if full else "the budget of its region's search is spent"
