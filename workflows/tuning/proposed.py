"""A proposed point, with where it came from in words."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from regiondag.study.space import Value


class Source(enum.StrEnum):
    """Where a trial's point came from."""

    GIVEN = "given"  # before the tuner was asked: the recipe in office, an expert's choice, a blend
    SEQUENCE = "sequence"  # that fills the space evenly
    GRID = "grid"
    NEIGHBOUR = "neighbour"  # the best point of another region, or of an earlier run
    MODEL = "model"
    CHANCE = "chance"


@dataclass(frozen=True, slots=True)
class Proposed:
    """A point, where it came from, and more of that in words: of a model its criterion."""

    point: dict[str, Value]
    source: Source
    how: str
