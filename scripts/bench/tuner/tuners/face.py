"""What a run needs of a tuner, whoever made it, and what a tuner is told before its first point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from scripts.bench.tuner.problem import Parameter, Value

BATCH = 4  # points tried at the same time
BUDGETS = (28, 60, 120)  # trials after which a tuner must name its best point
ROUNDS, LANES = "rounds", "lanes"  # four at a time, or one whenever one of four has ended
MODES = (ROUNDS, LANES)


@dataclass(frozen=True)
class Task:
    """What a tuner knows of a problem. All are told that the last budget will come, whatever is run of it."""

    space: tuple[Parameter, ...]
    seed: int
    mode: str = ROUNDS
    trials: int = BUDGETS[-1]
    constraints: tuple[str, ...] = ()


class Tuner(Protocol):
    """Trials are numbered from 0 in the order in which they are asked for; everything is minimised."""

    def ask(self, n: int) -> list[dict[str, Value]]:
        """Return n points to try now, while those that were asked for and not told yet still run.

        Parameters whose condition does not hold may be there: the run drops them. It asks anew for what breaks a
        constraint.
        """

    def tell(self, values: Mapping[int, float | None]) -> None:
        """Take what trials gave, by their numbers; None of those that failed."""


def worst_of(before: float | None, values: Mapping[int, float | None]) -> float | None:
    """Return the worst value seen, by what it was before and what trials gave since; None of failures alone.

    >>> worst_of(None, {0: None}), worst_of(2.0, {1: None, 2: 1.5})
    (None, 2.0)
    """
    return max((value for value in (before, *values.values()) if value is not None), default=None)


def plain(value: object) -> Value:
    """Return a plain value: NumPy's are not JSON.

    >>> plain("relu"), plain(3)
    ('relu', 3)
    """
    if isinstance(value, str):
        return str(value)
    found = value.item() if hasattr(value, "item") else value
    if not isinstance(found, int | float | str):
        raise TypeError(f"a tuner gave {value!r}, which is neither a number nor a text")
    return found
