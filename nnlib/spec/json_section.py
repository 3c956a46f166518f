"""Read a JSON object key by key and collect every mistake with its key path.

Standard library only. Keys and names of choices are matched without regard to case, as DSSTNE does.
"""

from __future__ import annotations

import difflib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nnlib.spec import checks
from nnlib.spec.checks import BOOLEAN, Check

T = TypeVar("T")

MOST = 3.4028234663852886e38  # the largest number that fits a model file's 32-bit floats
MOST_UNITS = 2**31 - 1  # what a 32-bit index can number


class SpecError(ValueError):
    """A network that cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def nearest(word: str, legal: Iterable[str]) -> str:
    """Return ', did you mean "x"?' for the legal word most like `word`, or an empty string."""
    by_lower = {name.lower(): name for name in legal}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f', did you mean "{by_lower[close[0]]}"?' if close else ""


def show(value: Any) -> str:
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
        message = f"{self.file}: {path}: {text}"
        # JSON may spell half a UTF-16 pair, which no terminal and no file takes
        self.found.append(message.encode("utf-8", "backslashreplace").decode())


class Section(checks.Section):
    """One JSON object at a key path; each getter notes a problem and returns the default on a bad value."""

    def __init__(
        self,
        raw: Mapping[str, object],
        path: str,
        problems: Problems,
        keys: Iterable[str],
        aliases: Mapping[str, str] | None = None,
        misplaced: Mapping[str, str] | None = None,
    ) -> None:
        """Keep the values of `keys`; note keys that are unknown or doubled.

        `aliases` are other names of keys, `misplaced` says of keys that are legal elsewhere why they are not here.
        """
        self.path = path
        self.problems = problems
        self._values: dict[str, Any] = {}
        self._typed: dict[str, str] = {}
        legal = {key.lower(): key for key in keys}
        names = legal | {alias.lower(): key for alias, key in (aliases or {}).items() if key.lower() in legal}
        why = {key.lower(): text for key, text in (misplaced or {}).items()}
        for typed, value in raw.items():
            key = names.get(typed.lower())
            if key is None:
                hint = nearest(typed, (*legal.values(), *(aliases or ()))) if typed.lower() not in why else ""
                text = why.get(typed.lower(), "unknown key")
                self._add(typed, text + (hint or ", legal: " + ", ".join(sorted(legal.values()))))
            elif key not in self._values:
                self._values[key], self._typed[key] = value, typed
            elif self._typed[key].lower() == typed.lower():
                self._add(typed, "given twice (case does not matter in keys)")
            else:
                self._add(typed, f"means the same as {self._typed[key]}, which is given too, legal: one of them")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def at(self, key: str) -> str:
        """Return the key path of `key` as the file spells it."""
        return self._path(self._typed.get(key, key))

    def wrong(self, key: str, text: str) -> None:
        """Note a problem with `key`."""
        self.problems.add(self.at(key), text)

    def raw(self, key: str) -> Any:
        """Return the value as it stands in the file, None when absent."""
        return self._values.get(key)

    def refuse(self, key: str, legal: str, detail: str = "") -> None:  # noqa: ARG002 (`legal` says it all here)
        """Note that the value of `key` is not legal."""
        value = self.raw(key)
        if isinstance(value, str) and value.startswith("$"):
            self.wrong(key, f"{show(value)} has no value, give the hyperparameter {show(value[1:])} one")
        else:
            self.wrong(key, f"{show(value)} is not legal, legal: {legal}")

    def number(self, key: str, default: float, low: float = -MOST, high: float = MOST, closed: bool = True) -> float:
        """Return a finite number in [low, high], or in [low, high) when not `closed`."""
        legal = "a number" + (f" from {low:g}" if low > -MOST else "")
        if high < MOST:
            legal = f"a number in [{low:g}, {high:g}{']' if closed else ')'}"
        return self.read(key, default, checks.real(low, high, legal, closed))

    def whole(self, key: str, default: int) -> int:
        """Return a whole number from 1."""
        return (self.wholes(key, 1) or (default,))[0]

    def wholes(self, key: str, most: int, also: str = "") -> tuple[int, ...]:
        """Return a whole number from 1, or an array of up to `most`; empty when absent or wrong."""
        if key not in self._values:
            return ()
        value = self._values[key]
        values = value if isinstance(value, list) else [value]
        if 1 <= len(values) <= most and all(type(v) is int and 1 <= v <= MOST_UNITS for v in values):
            return tuple(values)
        array = f", an array of 1 to {most} of them" if most > 1 else ""
        self.refuse(key, f"a whole number from 1{array}{also}")
        return ()

    def boolean(self, key: str, default: bool) -> bool:
        """Return true or false."""
        return self.read(key, default, BOOLEAN)

    def text(self, key: str, default: str) -> str:
        """Return a string that a model file can hold."""
        return self.read(key, default, PLAIN_TEXT)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the strings of a string or an array of them, none twice; empty when absent or wrong."""
        value = self._values.get(key, [])
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(v, str) and not v.startswith("$") for v in values):
            self.refuse(key, "a name or an array of names")
            return ()
        twice = [v for n, v in enumerate(values) if v in values[:n]]
        if twice:
            self.wrong(key, f"{show(twice[0])} is named twice, legal: every name once")
        return tuple(dict.fromkeys(values))

    def choice(self, key: str, legal: Mapping[str, T], default: T, refused: Mapping[str, str] | None = None) -> T:
        """Return the value that `legal` gives for the named choice; `refused` says why others are not legal."""
        if key not in self._values:
            return default
        value = self._values[key]
        if not isinstance(value, str) or value.startswith("$"):
            self.refuse(key, ", ".join(legal))
            return default
        for name, meaning in legal.items():
            if value.lower() == name.lower():
                return meaning
        why = {name.lower(): reason for name, reason in (refused or {}).items()}.get(value.lower())
        reason = f"is not legal: {why}; legal" if why else "is not legal, legal"
        self.wrong(key, f"{show(value)} {reason}: {', '.join(legal)}{'' if why else nearest(value, legal)}")
        return default

    def section(self, key: str, keys: Iterable[str]) -> Section:
        """Return the object under `key`, an empty one when absent or not an object."""
        value = self._values.get(key, {})
        if not isinstance(value, Mapping):
            self.refuse(key, "an object {...}")
            value = {}
        return Section(value, self.at(key), self.problems, keys)

    def sections(self, key: str, keys: Iterable[str]) -> tuple[Section, ...]:
        """Return the objects of an object or an array of them; those that are none are left out."""
        value, path = self._values.get(key, []), self.at(key)
        if isinstance(value, Mapping):
            return (self.section(key, keys),)
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            self.refuse(key, "an object {...} or an array of them")
            return ()
        return tuple(Section(item, f"{path}[{n}]", self.problems, keys) for n, item in enumerate(value))

    def _path(self, typed: str) -> str:
        return f"{self.path}.{typed}" if self.path else typed

    def _add(self, typed: str, text: str) -> None:
        self.problems.add(self._path(typed), text)


def is_plain(text: str) -> bool:
    """Return whether `text` is free of control characters and of halves of UTF-16 pairs."""
    return not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)


def _plain_text(value: Any) -> str:
    if not isinstance(value, str) or value.startswith("$") or not is_plain(value):
        raise ValueError
    return value


PLAIN_TEXT = Check(_plain_text, "a string without control characters", {"type": "string"})
