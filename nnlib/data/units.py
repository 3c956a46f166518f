"""The units of a layer as data name them: how many there are, and their names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The units of a data set as the model is to see them: their number and their names (empty when unknown)."""

    width: int
    names: tuple[str, ...]


def same_items(one: Units, other: Units) -> bool:
    """Whether units mean the same items: as far as is known, by how many there are and by their names."""
    return one.width == other.width and (one.names == other.names or not (one.names and other.names))
