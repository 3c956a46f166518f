"""Read a JSON object key by key and collect every mistake with its key path.

Standard library only. Keys and names of choices are matched without regard to case, as DSSTNE does.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


def nearest(word: str, legal: Iterable[str]) -> str:
    """Return ', did you mean "x"?' for the legal word most like `word`, or an empty string."""
    by_lower = {name.lower(): name for name in legal}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f', did you mean "{by_lower[close[0]]}"?' if close else ""


def shown(value: Any) -> str:
    """Return `value` as JSON on one short line, for a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, slots=True)
class Problems:
    """The mistakes found in one file, in the order they were met."""

    file: str
    found: list[str] = field(default_factory=list)

    def add(self, path: str, text: str) -> None:
        """Note that the value at key path `path` is wrong."""
        self.found.append(f"{self.file}: {path}: {text}")


class Section:
    """One JSON object at a key path; each getter notes a problem and returns the default on a bad value."""

    def __init__(
        self,
        raw: Mapping[str, Any],
        path: str,
        problems: Problems,
        keys: Iterable[str],
        later: Iterable[str] = (),
    ) -> None:
        """Keep the values of `keys`; note keys that are unknown, doubled, or only planned (`later`)."""
        self.path = path
        self.problems = problems
        self._values: dict[str, Any] = {}
        known = {key.lower(): key for key in keys}
        planned = {key.lower(): key for key in later}
        for typed, value in raw.items():
            key = known.get(typed.lower())
            if typed.lower() in planned:
                self.wrong(typed, f"{planned[typed.lower()]} is a DSSTNE key that is not supported yet; remove it")
            elif key is None:
                hint = nearest(typed, known.values())
                self.wrong(typed, f"unknown key{hint or ', legal: ' + ', '.join(sorted(known.values()))}")
            elif key in self._values:
                self.wrong(typed, "given twice (case does not matter in keys)")
            else:
                self._values[key] = value

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def at(self, key: str) -> str:
        """Return the key path of `key`."""
        return f"{self.path}.{key}" if self.path else key

    def wrong(self, key: str, text: str) -> None:
        """Note a problem with `key`."""
        self.problems.add(self.at(key), text)

    def raw(self, key: str) -> Any:
        """Return the value as it stands in the file, None when absent."""
        return self._values.get(key)

    def number(
        self, key: str, default: float, low: float = -math.inf, high: float = math.inf, closed: bool = False
    ) -> float:
        """Return a finite number in [low, high), or in [low, high] when `closed`."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self._not(key, "a number", value)
            return default
        if not low <= value <= high or (value == high and not closed):
            self._not(key, f"a number in [{low:g}, {high:g}{']' if closed else ')'}", value)
            return default
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            self._not(key, "true or false", value)
            return default
        return value

    def text(self, key: str, default: str) -> str:
        """Return a string."""
        value = self._values.get(key, default)
        if not isinstance(value, str):
            self._not(key, "a string", value)
            return default
        return value

    def choice(self, key: str, legal: Mapping[str, T], default: T, later: Iterable[str] = ()) -> T:
        """Return the value that `legal` gives for the named choice; `later` are choices to come."""
        value = self._values.get(key)
        if key not in self._values:
            return default
        for name, meaning in legal.items():
            if isinstance(value, str) and value.lower() == name.lower():
                return meaning
        if isinstance(value, str) and value.lower() in {name.lower() for name in later}:
            self.wrong(key, f"{shown(value)} is not supported yet, legal: {', '.join(legal)}")
        else:
            hint = nearest(value, legal) if isinstance(value, str) else ""
            self.wrong(key, f"{shown(value)} is not legal, legal: {', '.join(legal)}{hint}")
        return default

    def section(self, key: str, keys: Iterable[str]) -> Section:
        """Return the object under `key`, an empty one when absent or not an object."""
        value = self._values.get(key, {})
        if not isinstance(value, Mapping):
            self._not(key, "an object {...}", value)
            value = {}
        return Section(value, self.at(key), self.problems, keys)

    def _not(self, key: str, legal: str, value: Any) -> None:
        if isinstance(value, str) and value.startswith("$"):
            self.wrong(key, f"{shown(value)} has no value, give the hyperparameter {shown(value[1:])} one")
        else:
            self.wrong(key, f"{shown(value)} is not legal, legal: {legal}")
