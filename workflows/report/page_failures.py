"""The page's failures: what went wrong, grouped by cause. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nnlib.contract import ENDED_WELL, Status
from regiondag.accounting.usage import EVICTED
from regiondag.condor.events.attempts import Attempt
from regiondag.report.page_packing import Texts, hold_name
from regiondag.report.summary import Summary
from regiondag.run.layout import NodeName
from regiondag.run.region_state import RegionOutcome
from regiondag.trials.rows import RegionTrials, TrialRow
from regiondag.util.text import shorten

LONGEST_CAUSE = 240  # characters of a failure's cause
FINE = ENDED_WELL | {Status.RUNNING}

# Digests and numbers of GPUs first, of which figures are a part.
_NUMBER = re.compile(
    r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b|0x[0-9a-fA-F]+|\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?"
)


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong with a trial, the final training (None) or a region as a whole (-1)."""

    kind: str
    reason: str
    slug: str
    trial: int | None
    machine: str


def group_failures(
    summary: Summary,
    trials: Sequence[RegionTrials],
    attempts: Sequence[Attempt],
    places: Mapping[str, int],
    machines: Mapping[NodeName, str],
    texts: Texts,
) -> list[dict[str, object]]:
    """Return what went wrong, grouped by its cause, the most frequent first.

    `places` are those of the regions by slug, and `machines` the last that worked for a node.
    """
    groups: dict[tuple[str, str], list[Incident]] = {}
    faults = {(region.spec.slug, job): reason for region in trials for job, reason in region.faults.items()}
    for incident in [*_of_regions(summary), *_of_trials(trials, machines), *_of_attempts(attempts, faults)]:
        groups.setdefault((incident.kind, strip_numbers(incident.reason)), []).append(incident)
    return [
        {
            "kind": kind,
            "cause": text,
            "region": [places[incident.slug] for incident in found],
            "trial": [incident.trial for incident in found],
            "machine": [texts.number(incident.machine) for incident in found],
            "reason": [texts.number(incident.reason) for incident in found],
        }
        for (kind, text), found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def strip_numbers(reason: str) -> str:
    """Return a reason without what is different each time: its numbers.

    >>> strip_numbers("the loss is nan in epoch 17 (batch 3e-4)")
    'the loss is nan in epoch # (batch #)'
    >>> strip_numbers("sha256 is 3f9ab2c1d4e5, not feedface0123")
    'sha# is #, not #'
    """
    return shorten(_NUMBER.sub("#", " ".join(reason.split())), LONGEST_CAUSE)


def _of_regions(summary: Summary) -> list[Incident]:
    failed = [region for region in summary.regions if region.status == RegionOutcome.FAILED]
    return [Incident("region failed", region.reason, region.slug, -1, "") for region in failed]


def _of_trials(trials: Iterable[RegionTrials], machines: Mapping[NodeName, str]) -> list[Incident]:
    failed: list[TrialRow] = [row for region in trials for row in region.rows if row.status not in FINE]
    return [
        Incident(
            f"trial {row.status}", row.reason, row.slug, row.trial, machines.get(NodeName(row.slug, row.trial), "")
        )
        for row in failed
    ]


def _of_attempts(attempts: Sequence[Attempt], faults: Mapping[tuple[str, str], str]) -> list[Incident]:
    """Return evictions, lost machines, holds, and tries that were followed by another, for the reason in `faults`."""
    last = {attempt.node: attempt for attempt in attempts}
    found = []
    for attempt in attempts:
        slug, trial = attempt.node.slug, attempt.node.number
        machine = attempt.legs[-1].machine if attempt.legs else ""
        found += [
            Incident(f"job {leg.ending}", leg.reason, slug, trial, leg.machine)
            for leg in attempt.legs
            if leg.ending in EVICTED
        ]
        found += [
            Incident(f"job {hold_name(hold.code, hold.subcode)}", hold.reason, slug, trial, machine)
            for hold in attempt.holds
        ]
        if last[attempt.node] is not attempt and (attempt.exit_code or attempt.signal or attempt.removed):
            reason = faults.get((slug, attempt.job), "") or attempt.removed
            found.append(Incident(f"job tried again after {_end_of(attempt)}", reason, slug, trial, machine))
    return found


def _end_of(attempt: Attempt) -> str:
    if attempt.exit_code:
        return f"exit code {attempt.exit_code}"
    return f"signal {attempt.signal}" if attempt.signal else "its removal"
