"""Typed access to the attributes of a model file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from nnlib.errors import DataError
from nnlib.spec.json_section import MOST, MOST_UNITS, is_plain
from nnlib.util import netcdf

T = TypeVar("T")

MOST_COUNT = 2**32 - 1  # of an unsigned attribute


@dataclass(frozen=True, slots=True)
class Attributes:
    """Typed access to the attributes of a model file, with errors that name the file and the attribute.

    A getter without `default` takes the attribute as one that every model file has.
    """

    file: str
    values: Mapping[str, netcdf.Attribute]

    def wrong(self, name: str, legal: str) -> DataError:
        """Return the error for an attribute that is missing or not `legal`."""
        if name not in self.values and "datasets" in self.values:
            return DataError(f"{self.file}: is data, legal: a model, such as `nnlib train` writes")
        if name not in self.values and "recipe" in self.values:
            return DataError(f"{self.file}: is the model of a recipe, legal here: that of a network")
        if name not in self.values:
            return DataError(f"{self.file}: attribute {name} is missing, legal: {legal}; copy or train the model again")
        value = self.values[name]
        seen = repr(value) if isinstance(value, str) else str(value)
        seen = seen if len(seen) <= 60 else seen[:57] + "..."
        return DataError(f"{self.file}: attribute {name}: {seen} is not legal, legal: {legal}")

    def count(self, name: str, low: int = 0, high: int = MOST_COUNT, default: int | None = None) -> int:
        """Return a whole number in [low, high]."""
        value = np.asarray(self.values.get(name, default))
        if value.ndim or value.dtype.kind not in "iu" or not low <= int(value) <= high:
            raise self.wrong(name, f"a whole number from {low} to {high}")
        return int(value)

    def counts(self, name: str, length: int, low: int) -> tuple[int, ...]:
        """Return `length` whole numbers in [low, MOST_UNITS]."""
        values = np.atleast_1d(np.asarray(self.values.get(name)))
        whole = values.shape == (length,) and values.dtype.kind in "iu"
        if not whole or int(values.min()) < low or int(values.max()) > MOST_UNITS:
            raise self.wrong(name, f"{length} whole numbers from {low} to {MOST_UNITS}")
        return tuple(int(value) for value in values)

    def flag(self, name: str) -> bool:
        """Return whether a number is not 0."""
        return self.count(name) != 0

    def real(
        self, name: str, low: float = -MOST, high: float = MOST, closed: bool = True, default: float | None = None
    ) -> float:
        """Return a number in [low, high], or in [low, high) when not `closed`."""
        value = np.asarray(self.values.get(name, default))
        if value.ndim or value.dtype.kind not in "iuf":
            raise self.wrong(name, "a number")
        if not low <= float(value) <= high or (float(value) == high and not closed):
            raise self.wrong(name, f"a number in [{low:g}, {high:g}{']' if closed else ')'}")
        # 0.1 as a 32-bit float is 0.100000001490116 in 64 bits: its shortest spelling is what the network file had
        return float(str(value))

    def text(self, name: str) -> str:
        """Return a string without control characters."""
        value = self.values.get(name)
        if not isinstance(value, str) or not is_plain(value):
            raise self.wrong(name, "a string without control characters")
        return value

    def decode(self, name: str, codes: Mapping[T, int], default: int | None = None) -> T:
        """Return what the number means in `codes`."""
        value = self.count(name, default=default) if name in self.values or default is not None else None
        for meaning, code in codes.items():
            if code == value:
                return meaning
        raise self.wrong(name, ", ".join(f"{code} {meaning}" for meaning, code in codes.items()))
