"""Which regions know a customer, and whose name may have been meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MOST_NEAR = 3
LOOKED_AT = 20_000  # names; comparing more would take seconds


def find_near(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are most like one that is not known.

    >>> find_near("12853", ["12583", "c", "99999"])
    ['12583']
    """
    folded = name.casefold().strip()
    alike: list[str] = []
    same: list[str] = []
    for one in known:
        other = one.casefold()
        if other.strip() == folded:
            same.append(one)
        elif abs(len(other) - len(folded)) <= 2 and len(alike) < LOOKED_AT and other[:1] == folded[:1]:
            alike.append(one)
    return [*same, *get_close_matches(name, alike, MOST_NEAR, 0.7)][:MOST_NEAR]


def place(customers: Sequence[str], samples: dict[str, Sequence[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Return by region those of the customers that it knows, and those that none knows; `samples` are by region."""
    wanted = dict.fromkeys(customers)
    found: dict[str, list[str]] = {}
    left = dict(wanted)
    for slug, names in samples.items():
        here = wanted.keys() & set(names)
        if here:
            found[slug] = [name for name in wanted if name in here]
            for name in here:
                left.pop(name, None)
    return found, list(left)
