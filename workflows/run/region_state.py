"""Where a region stands: one answer for PRE, POST, status, explain and report. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from nnlib.contract import Status
from regiondag.errors import GiveUpError
from regiondag.run.history import CANCELLED, FAILED, ExpectedGain, History
from regiondag.run.region_spec import RegionSpec
from regiondag.tuning.noise import SMALL, is_lost_in_noise


class RegionOutcome(enum.StrEnum):
    """What has become of a region, as reports say it."""

    PROMOTED = "promoted"  # another recipe serves than before
    KEPT = "kept"  # the recipe in office stays, fitted anew
    FAILED = "failed"
    UNFINISHED = "unfinished"


MOST_LEFT = 12  # regions of which a table's foot says what is left to gain
FINISHED = frozenset({RegionOutcome.PROMOTED, RegionOutcome.KEPT})  # it has its champion


@dataclass(frozen=True, slots=True)
class RegionState:
    """Where a region stands, and what its next node is to do about it."""

    outcome: RegionOutcome
    reason: str  # of the outcome
    hopeless: str  # why the region is given up; nothing where it is not
    complete: str  # why its search proposes nothing more; nothing while it does
    expired: bool  # whether the study has had its time
    waits: bool  # for the champion of another region, from which it starts


def state_of(spec: RegionSpec, history: History, *, expired: bool = False) -> RegionState:
    """Return where a region stands by its journal; `expired`: the study's deadline has passed."""
    hopeless = _why_hopeless(spec, history)
    waits = bool(spec.init.source or spec.served_by) and not history.proposals
    outcome, reason = _outcome(spec, history, hopeless, waits)
    return RegionState(outcome, reason, hopeless, _why_complete(spec, history), expired, waits)


def why_not_needed(state: RegionState, history: History, number: int) -> str:
    """Return why a trial without job and outcome will have none, as PRE sees it; nothing where it is to come."""
    if state.expired:
        return "the study's deadline has passed"
    return "" if number in history.proposals else state.complete or history.declined.get(number, "")


def check_not_hopeless(spec: RegionSpec, state: RegionState) -> None:
    """Raise GiveUpError when the first `search.give_up_after` trials of the region all failed."""
    if state.hopeless:
        raise GiveUpError(f"region {spec.name!r}: {state.hopeless}")


def has_nothing_to_go_on_with(spec: RegionSpec, history: History, number: int) -> bool:
    """Return whether a region stops with a trial that machines have failed.

    None has ever succeeded, and this is the last trial of its round, or each lane has lost one.
    """
    if history.any_ok:
        return False
    if spec.search.schedule == "lanes":
        lanes = spec.search.sizes[0]
        lost = {trial for trial, settled in history.settled.items() if settled.status == Status.MACHINE} | {number}
        all_lost = len({trial % lanes for trial in lost}) == lanes
        return all_lost or set(history.proposals) - {number} <= set(history.settled)
    others = set(spec.search.trials_of_round(number)) - {number}
    return others <= set(history.settled)


def seconds_spent(history: History) -> float:
    """Return the seconds that a region's trials have trained, those that were tried again included."""
    again = sum(fault.seconds for fault in history.faults if fault.trial is not None)
    return again + history.repeated_seconds + sum(settled.seconds for settled in history.settled.values())


def say_left(left: ExpectedGain) -> str:
    """Return what is left to gain, in words.

    >>> say_left(ExpectedGain(0.0021, 0.004, 0.0, 0.0058))
    '0.0021 more is expected of the best next trial (0 to 0.0058); the standard error of a trial is 0.004'
    """
    interval = "" if left.low is None or left.high is None else f" ({_figure(left.low)} to {_figure(left.high)})"
    error = f"; the standard error of a trial is {_figure(left.stderr)}" if left.stderr else ""
    lost = ", in which that is lost" if left.stderr and left.gain < SMALL * left.stderr else ""
    return f"{_figure(left.gain)} more is expected of the best next trial{interval}{error}{lost}"


def list_left(regions: Iterable[tuple[str, ExpectedGain | None]]) -> list[str]:
    """Return a line for each region that knows what is left to gain; of many regions some."""
    lines = [f"{name}: {say_left(left)}" for name, left in regions if left is not None]
    more = [f"what is left to gain in {len(lines) - MOST_LEFT} more regions: --json has all"]
    return lines[:MOST_LEFT] + more * (len(lines) > MOST_LEFT)


def _figure(value: float) -> str:
    return "under 0.0001" if 0 < value < 1e-4 else f"{float(f'{value:.2g}'):g}"


def _outcome(spec: RegionSpec, history: History, hopeless: str, waits: bool) -> tuple[RegionOutcome, str]:
    final = history.final
    if final and final.ok:
        return RegionOutcome.PROMOTED if final.promoted else RegionOutcome.KEPT, final.reason
    failure = final.reason if final else _why_failed(spec, history, hopeless)
    if failure is not None:
        return RegionOutcome.FAILED, failure
    if waits:
        text = f"waits for the champion of the region {spec.init.source!r}, from which it starts"
        if spec.served_by:
            text = "waits for what is chosen for all regions together"
    elif not history.proposals:
        text = "none of its jobs has run; submit the DAG"
    else:
        text = "not all of its jobs have run; submit the DAG again to go on"
    return RegionOutcome.UNFINISHED, text


def _why_failed(spec: RegionSpec, history: History, hopeless: str) -> str | None:
    """Return why no final training is to come, by the trials; None while one may."""
    failures = [settled for settled in history.settled.values() if not settled.ok]
    refused = [settled for settled in failures if settled.status == Status.BAD_INPUT]
    if refused:
        return refused[0].reason
    if history.stopped:
        reason = next(reversed(history.stopped.values()))
        return reason.removeprefix(f"region {spec.name!r}: ")
    if failures and len(failures) == spec.search.trials:
        reason, times = Counter(f"{settled.status}: {settled.reason}" for settled in failures).most_common(1)[0]
        return f"all {len(failures)} trials failed, {times} of them: {reason}"
    return hopeless or None


def _why_hopeless(spec: RegionSpec, history: History) -> str:
    ends = [settled for settled in history.settled.values() if settled.reason != CANCELLED]
    failures = [f"{settled.status}: {settled.reason}" for settled in ends if settled.status in FAILED]
    most = spec.search.give_up_after
    if not most or len(failures) < most or any(settled.value is not None for settled in ends):
        return ""
    reasons = "; ".join(f"{times} times {reason}" for reason, times in Counter(failures).most_common(3))
    return f"the first {len(failures)} trials failed, so it stops (give_up_after: {most}); {reasons}"


def _why_complete(spec: RegionSpec, history: History) -> str:
    """Return why nothing more is proposed: lanes have taken all trials, or the budget is spent."""
    if len(history.proposals) >= spec.search.trials:
        return "the search of its region has all its trials"
    gains = [one.gain / one.stderr for _, one in sorted(history.gains.items()) if one.stderr]
    if spec.search.stop == "noise" and is_lost_in_noise(gains, len(history.settled), len(spec.first)):
        last = history.gains[max(history.gains)]
        return (
            f"its search ended after {len(history.settled)} of {spec.search.trials} trials: the next was expected to "
            f"gain {last.gain:.5f}, and the standard error of a trial is {last.stderr:.4f} (stop: noise)"
        )
    if 0 < spec.search.budget <= seconds_spent(history):
        return "the budget of its region's search is spent"
    return ""
