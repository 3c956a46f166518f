"""HTCondor's codes of holds, in words: what happened, and what to do. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from regiondag.condor.events.attempts import NO_MEMORY, is_too_small


@dataclass(frozen=True, slots=True)
class HoldKind:
    """What a code means, and what helps."""

    meaning: str
    advice: str


_RELEASE = "then: condor_release JOB"
_FILES = f"see that the file is there, may be read, and that there is room for it; {_RELEASE}"
_MORE_MEMORY = "give `memory`, `disk` or `memory_max` of `job` a larger value; `regiondag stats` says what jobs used"

KINDS = {
    1: HoldKind("somebody held it (condor_hold)", "condor_release JOB"),
    3: HoldKind("a rule in its submit file held it", _RELEASE.removeprefix("then: ")),
    4: HoldKind("its credentials are missing or broken", f"ask the pool's administrator; {_RELEASE}"),
    5: HoldKind("a rule in its submit file has no value", "read the rule that the reason names"),
    6: HoldKind(
        "the machine could not start the program",
        "the worker has no usable Python, or does not let programs run where jobs are; look at that machine",
    ),
    7: HoldKind("its output file cannot be opened", _FILES),
    8: HoldKind("its input file cannot be opened", _FILES),
    9: HoldKind("its output stream cannot be opened", _FILES),
    10: HoldKind("its input stream cannot be opened", _FILES),
    11: HoldKind("a transfer was not acknowledged", f"the network, or a full disk; {_RELEASE}"),
    12: HoldKind(
        "its results could not be brought back",
        f"a file that it should have written is missing, or no room; {_RELEASE}",
    ),
    13: HoldKind("its input could not be sent", _FILES),
    14: HoldKind("its folder on this machine is gone", _FILES),
    15: HoldKind("it was submitted on hold", "condor_release JOB"),
    16: HoldKind("its input is being spooled", "wait"),
    18: HoldKind("a transfer got no leave to go on", f"the queue of transfers; {_RELEASE}"),
    19: HoldKind("the machine's own preparation of jobs failed", "ask its administrator"),
    21: HoldKind("the machine's own rules held it", "the reason names the rule; ask the pool's administrator"),
    22: HoldKind("its event log cannot be written", _FILES),
    26: HoldKind("the pool's rules held it", "the reason names the rule; ask the pool's administrator"),
    32: HoldKind("its input is larger than the pool allows", "ask the pool's administrator"),
    33: HoldKind("its results are larger than it may bring back", "give `max_output` of `job` a larger value"),
    34: HoldKind("it needed more than it had asked for", _MORE_MEMORY),
    36: HoldKind("its checkpoint could not be brought back", f"no room, or the network; {_RELEASE}"),
    46: HoldKind("it was on machines for longer than it may", "give `deadline` of `job` a larger value"),
    47: HoldKind("it ran for longer than its deadline", "give `deadline` of `job` a larger value"),
}
UNKNOWN = HoldKind("HTCondor held it", f"the reason says why; {_RELEASE}")

_LIMIT = re.compile(r"EnteredCurrentStatus\s*>\s*(\d+)")
_SPARED = re.compile(r"HoldReasonCode\s+(?:=!=|isnt)\s+(\d+)")


def kind_of(code: int, subcode: int = 0) -> HoldKind:
    """Return what a hold's code means; by its subcode the rules of a machine or a pool are for memory or disk."""
    kind = KINDS.get(code, UNKNOWN)
    if is_too_small(code, subcode) and kind.advice != _MORE_MEMORY:
        return HoldKind(f"{kind.meaning}, for its {'memory' if subcode == NO_MEMORY else 'disk'}", _MORE_MEMORY)
    return kind


def removal_limit(rule: str, status: int = 5) -> int | None:
    """Return after how many seconds on hold (5), or idle (1), a job's periodic_remove takes it away, if it says so.

    >>> removal_limit("JobStatus == 5 && (HoldReasonCode =?= 47 || time() - EnteredCurrentStatus > 3600)")
    3600
    """
    found = _LIMIT.search(rule.partition(f"JobStatus == {status}")[2])
    return int(found[1]) if found else None


def is_spared(rule: str, code: int) -> bool:
    """Return whether a rule that removes held jobs leaves out those with this code.

    >>> is_spared("JobStatus == 5 && HoldReasonCode =!= 1 && time() - EnteredCurrentStatus > 3600", 1)
    True
    """
    return any(int(spared) == code for spared in _SPARED.findall(rule))
