"""Read typed values out of parsed YAML; every mistake is collected with its place, not raised at once."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from regiondag.util.text import holds_control_character

if TYPE_CHECKING:  # what needs only a name's letters checked must not need PyYAML
    from regiondag.util.yaml_file import Document, KeyPath

T = TypeVar("T")

_MISSING = object()
REGIONAL = ("regions", "pooled")  # what stands below them is of one region

DURATION_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SIZE_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


@dataclass(slots=True)
class Problems:
    """All mistakes found in one document, each said once and in the order of the file."""

    document: Document
    found: dict[str, int] = field(default_factory=dict)

    def add(self, path: KeyPath, text: str) -> None:
        """Note that what stands at `path` is wrong; `text` says what was seen and what is legal."""
        line = self.line_of(path)
        self.found.setdefault(f"{self.document.file}:{line}: {show_path(path)}: {text}", line)

    def line_of(self, path: KeyPath) -> int:
        """Return the line of `path`, or of the nearest enclosing key when it is absent."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.document.lines:
                return self.document.lines[path[:end]]
        return 1

    def texts(self) -> list[str]:
        """Return the messages, by line."""
        return sorted(self.found, key=lambda text: self.found[text])


def show_path(path: KeyPath) -> str:
    """Return a key path as people write it: `regions[1].search.space`.

    >>> show_path(("regions", 1, "search", "space"))
    'regions[1].search.space'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(top level)"


def nearest(word: str, legal: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the legal word closest to `word`, or nothing.

    >>> nearest("serach", ["search", "job"])
    "; did you mean 'search'?"
    """
    close = difflib.get_close_matches(word, list(legal), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True, slots=True)
class Layer:
    """One mapping in which a section may be given, and its key path."""

    value: Mapping[str, Any]
    path: KeyPath


class Section:
    """One section of the study, looked up in a region's own mapping first and in the study's after it.

    Each reading method returns the value, or the default after noting a problem.
    """

    def __init__(self, problems: Problems, layers: list[Layer]) -> None:
        self.problems = problems
        self.layers = layers
        self._legal: set[str] = set()

    def has(self, key: str) -> bool:
        """Return whether any layer gives `key`."""
        return any(key in layer.value for layer in self.layers)

    def where(self, key: str) -> KeyPath:
        """Return the path of the layer that gives `key`, or where it would stand in the last one."""
        found = [layer for layer in self.layers if key in layer.value]
        return (*(found or self.layers[-1:])[0].path, key)

    def contradicts(self, key: str, other: str) -> bool:
        """Return whether `key` was given by somebody who could see `other`: beside it, or in a layer before its own.

        A layer of the whole study cannot see what one of its regions says.
        """
        given, seen = (next((layer for layer in self.layers if name in layer.value), None) for name in (key, other))
        if given is None or seen is None:
            return given is not None
        if seen.path[0] in REGIONAL and given.path[0] != seen.path[0]:
            return False
        return self.layers.index(given) <= self.layers.index(seen)

    def read(self, key: str, default: T, check: Callable[[Any], T], legal: str) -> T:
        """Return `check(value)`; a ValueError of `check` becomes a problem that names what is `legal`."""
        value = self.raw(key)
        if value is _MISSING:
            return default
        try:
            return check(value)
        except ValueError as error:
            detail = f" ({error})" if str(error) else ""
            self.problems.add(self.where(key), f"seen {value!r}{detail}, legal: {legal}")
            return default

    def raw(self, key: str) -> Any:
        """Return the value of `key` as it stands, and count the key as legal."""
        self._legal.add(key)
        for layer in self.layers:
            if key in layer.value:
                return layer.value[key]
        return _MISSING

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """Read a whole number from `low` to `high`."""
        return self.read(key, default, lambda v: whole(v, low, high), f"a whole number from {low} to {high}")

    def real(self, key: str, default: float, low: float, high: float) -> float:
        """Read a number from `low` to `high`."""
        return self.read(key, default, lambda v: real(v, low, high), f"a number from {low:g} to {high:g}")

    def text(self, key: str, default: str) -> str:
        """Read a non-empty text."""
        return self.read(key, default, text, "text on one line")

    def choice(self, key: str, default: str, options: Iterable[str]) -> str:
        """Read one of `options`."""
        options = list(options)
        return self.read(key, default, lambda v: choice(v, options), one_of(options))

    def duration(self, key: str, default: int) -> int:
        """Read a duration such as `90s`, `30m`, `2h` or `1d`; return seconds."""
        return self.read(key, default, duration, "a duration such as 90s, 30m, 2h or 1d")

    def size(self, key: str, default: int, low: int) -> int:
        """Read a size such as `512MB` or `4GB`, at least `low`; return bytes."""
        legal = f"a size such as 512MB or 4GB, at least {low >> 20}MB"
        return self.read(key, default, lambda value: size(value, low), legal)

    def section(self, key: str) -> Section:
        """Return the section under `key`, empty where it is not given."""
        self._legal.add(key)
        layers = []
        for layer in self.layers:
            value = layer.value.get(key)
            if isinstance(value, Mapping):
                layers.append(Layer(value, (*layer.path, key)))
            elif key in layer.value:
                self.problems.add((*layer.path, key), f"seen {value!r}, legal: a mapping of keys to values")
        return Section(self.problems, layers or [Layer({}, (*self.layers[-1].path, key))])

    def finish(self, also: Iterable[str] = ()) -> None:
        """Note every key that was never asked for; `also` names keys that are read elsewhere."""
        legal = self._legal | set(also)
        for layer in self.layers:
            for key in layer.value:
                if key not in legal:
                    hint = nearest(key, legal)
                    names = ", ".join(sorted(legal))
                    self.problems.add((*layer.path, key), f"unknown key{hint or '.'} Legal keys: {names}")


def is_missing(value: Any) -> bool:
    """Return whether `Section.raw` found nothing."""
    return value is _MISSING


def whole(value: Any, low: int, high: int) -> int:
    """Return a whole number within bounds, else raise ValueError. True is not a number."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError
    return value


def real(value: Any, low: float, high: float) -> float:
    """Return a finite number within bounds as a float, else raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    if not math.isfinite(value) or not low <= value <= high:
        raise ValueError
    return float(value)


def text(value: Any) -> str:
    """Return a non-empty text without control characters, else raise ValueError."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    if holds_control_character(value):
        raise ValueError("it holds a line break or another control character")
    return value


def choice(value: Any, options: list[str]) -> str:
    """Return `value` if it is one of `options`, else raise ValueError with the nearest one."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(nearest(str(value), options).removeprefix("; "))
    return value


def one_of(options: Iterable[str]) -> str:
    """Return `a, b or c`."""
    *head, last = list(options)
    return f"{', '.join(head)} or {last}" if head else last


def duration(value: Any) -> int:
    """Return seconds for `90s`, `30m`, `2h` or `1d`, else raise ValueError.

    >>> duration("2h")
    7200
    """
    match = re.fullmatch(r"([0-9]{1,6})([smhd])", value) if isinstance(value, str) else None
    if not match or int(match[1]) == 0:
        raise ValueError
    return int(match[1]) * DURATION_UNITS[match[2]]


def size(value: Any, low: int = 1) -> int:
    """Return bytes for `512MB` or `4GB` (1 KB is 1024 bytes, as in HTCondor), else raise ValueError.

    >>> size("2GB")
    2147483648
    """
    match = re.fullmatch(r"([0-9]{1,6})(KB|MB|GB|TB)", value) if isinstance(value, str) else None
    if not match or int(match[1]) * SIZE_UNITS[match[2]] < low:
        raise ValueError
    return int(match[1]) * SIZE_UNITS[match[2]]
