"""What a search may still try of `limits.trials`, which all searches share: it goes where most is to be gained.

A search claims the gain that its model expects of its best next trial, times its customers; until its model says
anything it claims more than any that has one. Who asks gets what is left, less one round of each search with a larger
claim. Nobody waits for anybody: who is refused asks again at its next round. The same of `limits.disk`, of which
nobody claims a part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from nnlib.util.files import locked
from nnlib.util.memory import show_bytes
from regiondag.accounting.disk import read_taken
from regiondag.errors import RegiondagError
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import RegionFolder
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.region_state import state_of

UNKNOWN = 1e300  # the claim of a search whose model says nothing yet


@dataclass(frozen=True, slots=True)
class Claim:
    """What a search has had of the trials, and what it would have."""

    had: int
    next: int  # trials of its next round; 0 where it is over
    worth: float


def hold_budget(folder: RegionFolder, spec: RegionSpec) -> AbstractContextManager[object]:
    """Let no other search propose meanwhile, where all share a number of trials."""
    return locked(folder.run.budget_lock) if spec.most_trials else nullcontext()


def count_affordable(folder: RegionFolder, spec: RegionSpec, history: History, wanted: int) -> int:
    """Return how many of the next `wanted` trials a search may have; call it while `hold_budget` holds."""
    if not spec.most_trials:
        return wanted
    return share_out(spec.most_trials, claim_of(spec, history), list(_other_claims(folder)), wanted)


def why_no_room(folder: RegionFolder, spec: RegionSpec) -> str:
    """Return why nothing more is proposed for want of `limits.disk`; nothing where there is room."""
    taken = read_taken(folder.run) if spec.most_disk else 0
    if not spec.most_disk or taken < spec.most_disk:
        return ""
    return f"the run takes {show_bytes(taken)} of the disk, and has {show_bytes(spec.most_disk)} (limits.disk)"


def share_out(most: int, mine: Claim, others: Sequence[Claim], wanted: int) -> int:
    """Return how many of `wanted` trials are left for a search of `most` for all.

    >>> share_out(20, Claim(8, 4, 0.1), [Claim(8, 4, 0.3)], 4), share_out(20, Claim(8, 4, 0.3), [Claim(8, 4, 0.1)], 4)
    (0, 4)
    """
    left = most - mine.had - sum(other.had for other in others)
    kept = sum(other.next for other in others if other.worth > mine.worth)
    return max(0, min(wanted, left - kept))


def claim_of(spec: RegionSpec, history: History) -> Claim:
    """Return what a search claims, by its journal."""
    had = sum(number < spec.search.nodes for number in history.proposals)  # the blend is of all that was tried
    state = state_of(spec, history)
    over = bool(state.complete or state.hopeless) or had >= spec.search.trials
    return Claim(had, 0 if over else min(spec.search.sizes[0], spec.search.trials - had), _worth(spec, history, had))


def _worth(spec: RegionSpec, history: History, had: int) -> float:
    if not had:
        return math.inf
    if not history.gains:
        return UNKNOWN if spec.search.method == "bayes" else 0.0
    customers = max((settled.customers or 1 for settled in history.settled.values()), default=1)
    return max(history.gains[max(history.gains)].gain, 0.0) * customers


def _other_claims(folder: RegionFolder) -> Iterator[Claim]:
    for path in sorted(folder.path.parent.iterdir()):
        other = RegionFolder(path)
        if path.name == folder.path.name or not other.spec.exists():
            continue
        try:
            spec, history = read_spec(other.spec), Journal(other.journal).read(whole=False)
        except RegiondagError:
            continue  # its own scripts say what is wrong with it
        if spec.search.trials:
            yield claim_of(spec, history)
