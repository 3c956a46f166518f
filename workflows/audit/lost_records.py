"""What a region's journal should know by its other records, and does not: trials that were given to jobs."""

from __future__ import annotations

from collections.abc import Sequence

from nnlib.contract import ENDED_WELL, RESULT_FILE, TRIAL_FILE, read_result
from regiondag.errors import GiveUpError
from regiondag.run.history import History
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.util.text import list_some

ADVICE = "`regiondag repair RUN` makes the lines anew from the trials' own files; or restore the journal from a copy"


def list_unproposed(folder: RegionFolder, history: History) -> list[int]:
    """Return trials that have a trial.json, which PRE writes after the line that proposes it, and no such line."""
    numbers = (int(path.parent.name) for path in folder.path.glob(f"trials/[0-9]*/{TRIAL_FILE}"))
    return sorted(number for number in numbers if number not in history.proposals)


def list_unsettled(folder: RegionFolder, history: History) -> list[int]:
    """Return trials whose result says that they ended well, and of whose end the journal says nothing."""
    waiting = set(history.proposals) - set(history.settled) - history.reopened
    nodes = [NodeName(folder.path.name, number) for number in sorted(waiting)]
    results = [(node.number, read_result(folder.trial(node) / RESULT_FILE)) for node in nodes]
    return [number for number, result in results if number is not None and result and result.status in ENDED_WELL]


def check_own(folder: RegionFolder, history: History) -> None:
    """Raise GiveUpError where the journal has lines of another run or region: nothing may be concluded from them."""
    if history.strangers:
        seen = f"{folder.journal}: {name_lines(history.strangers)} of another run or region"
        raise GiveUpError(f"{seen}: {ADVICE}; then submit the DAG again")


def is_gone(folder: RegionFolder) -> bool:
    """Return whether trials have begun and no journal is there."""
    return not folder.journal.exists() and any(folder.path.glob(f"trials/[0-9]*/{TRIAL_FILE}"))


def name_lines(numbers: Sequence[int]) -> str:
    """Return them in words, with their verb.

    >>> name_lines([3]), name_lines([1, 2, 3, 4, 5, 6])
    ('line 3 is', 'lines 1, 2, 3, 4 and 2 more are')
    """
    return (
        f"line{'s' if len(numbers) > 1 else ''} {list_some(list(map(str, numbers)))} {'are' if numbers[1:] else 'is'}"
    )


def name_trials(numbers: list[int]) -> str:
    """Return them in words, the first few by number.

    >>> name_trials([0, 1, 2, 3, 4, 5])
    'trials 0, 1, 2, 3 and 2 more'
    """
    return f"trial{'s' if len(numbers) > 1 else ''} {list_some(list(map(str, numbers)))}"
