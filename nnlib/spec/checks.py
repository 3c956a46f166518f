"""What a value that somebody wrote may be: as a check, in words and as JSON Schema, once for every file that is read.

Standard library only, because the manager reads with it too. Network files (`json_section`) and YAML
(`regiondag.util.schema`) differ in how they look a value up and in how they say that it is wrong.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Schema = Mapping[str, object]  # of JSON Schema, draft 2020-12


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """`of` takes a value as it stands in a file; the text of its ValueError adds to what is `legal`."""

    of: Callable[[Any], T]
    legal: str
    schema: Schema = field(default_factory=dict)
    write: Callable[[T], object] = lambda value: value  # back to how it stands in a file


class Section(ABC):
    """The values under one key of a file. What is wrong with one is noted, and its default returned."""

    @abstractmethod
    def __contains__(self, key: str) -> bool: ...

    @abstractmethod
    def raw(self, key: str) -> Any:
        """Return the value as it stands in the file, None when absent."""

    @abstractmethod
    def refuse(self, key: str, legal: str, detail: str = "") -> None:
        """Note that the value of `key` is not legal."""

    def read(self, key: str, default: T, check: Check[T]) -> T:
        """Return what the value of `key` stands for, the default when it is absent or wrong."""
        value = self.raw(key)
        if key not in self:
            return default
        try:
            return check.of(value)
        except ValueError as error:
            self.refuse(key, check.legal, str(error))
            return default


def whole(low: int, high: int | None = None) -> Check[int]:
    """Return the check of a whole number from `low`, to `high` if given. True is no number."""

    def of(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
            raise ValueError
        return value

    if high is None:
        return Check(of, f"a whole number from {low}", {"type": "integer", "minimum": low})
    legal = f"a whole number from {low} to {high}"
    return Check(of, legal, {"type": "integer", "minimum": low, "maximum": high})


def real(low: float, high: float = math.inf, legal: str = "", closed: bool = True) -> Check[float]:
    """Return the check of a finite number from `low` to `high`, or below `high` when not `closed`."""

    def of(value: Any) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        if not number or value == math.inf or (value == high and not closed):
            raise ValueError
        try:
            return float(value)
        except OverflowError:
            raise ValueError from None

    limit = {} if high == math.inf else {"maximum" if closed else "exclusiveMaximum": high}
    return Check(of, legal or f"a number from {low:g} to {high:g}", {"type": "number", "minimum": low, **limit})


def instance(kinds: type | tuple[type, ...], legal: str, schema: Schema) -> Check[Any]:
    """Return the check of a value of one of some kinds, whatever it holds."""

    def of(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise ValueError
        return value

    return Check(of, legal, schema)


def matching(pattern: str, legal: str) -> Check[str]:
    """Return the check of a text that is as a pattern says from its beginning to its end."""

    def of(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError
        return value

    return Check(of, legal, {"type": "string", "pattern": f"^({pattern})$"})


BOOLEAN: Check[bool] = instance(bool, "true or false", {"type": "boolean"})
