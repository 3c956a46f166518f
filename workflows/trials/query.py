"""Choose trials of a run by a condition on what is known of them. Nothing here touches the disk."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnlib.contract import Status
from regiondag.errors import UsageError
from regiondag.study.constraints import LEGAL, UNDEFINED, Constraint, parse_constraint
from regiondag.trials.rows import TrialRow, hyperparameter_names

COLUMNS = ("job", "machine", "priority")  # of a trial whose job is in the queue
FIELDS = ("trial", "region", "status", "value", "epochs", "best_epoch", "seconds", "won", "job", "host", "priority")
# What `status` and `job` are, so that they need no quotes.
WORDS = (*Status, "idle", "held", "transferring")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trial's job is in the queue."""

    job: str  # idle, running, held ...
    machine: str = ""
    priority: int = 0


Places = Mapping[tuple[str, int], Place]  # by slug and trial


@dataclass(frozen=True, slots=True)
class Query:
    """A condition on trials, read without `eval`, by the rules of `search.constraints`."""

    text: str
    constraint: Constraint
    words: Mapping[str, str | bool]

    def matches(self, row: TrialRow, place: Place | None = None) -> bool:
        """Return whether it holds; never where something that it names is not known of the trial."""
        values = {**self.words, **_values(row, place)}
        used = [values.get(name) for name in self.constraint.names]
        if any(value is None for value in used):
            return False
        try:
            return bool(self.constraint.evaluate(values))
        except UNDEFINED:
            return False
        except TypeError as error:
            raise UsageError(
                f"--where {self.text!r}: makes no sense for trial {row.trial}: it mixes numbers and texts; legal: "
                "numbers with numbers, texts with == and != or in a list"
            ) from error


def parse_query(text: str, rows: Sequence[TrialRow]) -> Query:
    """Read a condition such as `learning_rate < 0.01 and status == ok`; UsageError says what is not legal in it.

    Names are hyperparameters of `rows`, FIELDS, and words that mean themselves: WORDS and the texts that
    hyperparameters have as values.
    """
    names = hyperparameter_names(rows)
    texts = {value for row in rows for value in row.hyperparameters.values() if isinstance(value, str)}
    words: dict[str, str | bool] = {word: word for word in [*WORDS, *texts] if _WORD.fullmatch(word)}
    words |= {"true": True, "false": False}
    try:
        constraint = parse_constraint(text, [*words, *FIELDS, *names])
    except ValueError as error:
        said = str(error).replace("is not a hyperparameter of search.space", "is no name here")
        raise UsageError(
            f"--where {text!r}: {said}; legal: {LEGAL}, and the names {', '.join([*names, *FIELDS])}. "
            'For instance: --where "learning_rate < 0.01 and status == ok"'
        ) from error
    return Query(text, constraint, words)


def headings_with_places(headings: Sequence[str]) -> list[str]:
    """Return a table's headings with COLUMNS before the last one, the reason."""
    return [*headings[:-1], *COLUMNS, headings[-1]]


def with_places(rows: Sequence[TrialRow], cells: Sequence[Sequence[str]], places: Places) -> list[list[str]]:
    """Return a table's cells with COLUMNS before the last one; `-` where there is no job."""
    table = []
    for row, texts in zip(rows, cells, strict=True):
        place = places.get((row.slug, row.trial))
        more = ["-"] * 3 if place is None else [place.job, place.machine or "-", str(place.priority)]
        table.append([*texts[:-1], *more, texts[-1]])
    return table


def _values(row: TrialRow, place: Place | None) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(row, name) for name in FIELDS if hasattr(row, name)}
    if place is not None:
        fields |= {"job": place.job, "host": place.machine or None, "priority": place.priority}
    return fields | dict(row.hyperparameters)
