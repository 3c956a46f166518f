"""Read typed values out of parsed YAML; every mistake is collected with its place, not raised at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nnlib.spec import checks
from nnlib.spec.checks import Check, Schema
from regiondag.util.text import BIDIRECTIONAL_CONTROLS, holds_control_character

if TYPE_CHECKING:  # what needs only a value checked must not need PyYAML
    from regiondag.util.yaml_file import Document, KeyPath

T = TypeVar("T")

REGIONAL = ("regions", "pooled")  # what stands below them is of one region
MAPPING = "a mapping of keys to values"

DURATION_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
SIZE_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """A key of a section: what it is where it is absent, what it may be, and what it does, in one sentence."""

    default: T
    check: Check[T]
    about: str


Keys = Mapping[str, Key[Any]]


@dataclass(slots=True)
class Problems:
    """All mistakes found in one document, each said once and in the order of the file."""

    document: Document
    found: dict[str, int] = field(default_factory=dict)

    def add(self, path: KeyPath, text: str) -> None:
        """Note that what stands at `path` is wrong; `text` says what was seen and what is legal."""
        line = self.line_of(path)
        where = f"{self.document.file}:{line}" if self.document.lines else self.document.file  # not read from a file
        self.found.setdefault(f"{where}: {show_path(path)}: {text}", line)

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


class Section(checks.Section):
    """One section of the study, looked up in a region's own mapping first and in the study's after it."""

    def __init__(self, problems: Problems, layers: list[Layer]) -> None:
        self.problems = problems
        self.layers = layers
        self._legal: set[str] = set()

    def __contains__(self, key: str) -> bool:
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
        if seen.path and seen.path[0] in REGIONAL and given.path[:1] != seen.path[:1]:
            return False
        return self.layers.index(given) <= self.layers.index(seen)

    def refuse(self, key: str, legal: str, detail: str = "") -> None:
        """Note that the value of `key` is not legal."""
        reason = f" ({detail})" if detail else ""
        self.problems.add(self.where(key), f"seen {self.raw(key)!r}{reason}, legal: {legal}")

    def raw(self, key: str) -> Any:
        """Return the value of `key` as it stands, None where it is absent, and count the key as legal."""
        self._legal.add(key)
        return next((layer.value[key] for layer in self.layers if key in layer.value), None)

    def value(self, name: str, keys: Keys) -> Any:
        """Return the value of one of `keys`."""
        return self.read(name, keys[name].default, keys[name].check)

    def fill(self, kind: Callable[..., T], keys: Keys) -> T:
        """Return `kind` made of the values of all `keys`; others are noted."""
        made = kind(**{name: self.value(name, keys) for name in keys})
        self.finish()
        return made

    def section(self, key: str) -> Section:
        """Return the section under `key`, empty where it is not given."""
        self._legal.add(key)
        layers = []
        for layer in self.layers:
            value = layer.value.get(key)
            if isinstance(value, Mapping):
                layers.append(Layer(value, (*layer.path, key)))
            elif key in layer.value:
                self.problems.add((*layer.path, key), f"seen {value!r}, legal: {MAPPING}")
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


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    if holds_control_character(value):
        raise ValueError("it holds a line break or another control character")
    value.encode()  # UnicodeEncodeError, a ValueError, for half of a character
    return value


_CONTROLS = "".join(f"\\u{ord(character):04x}" for character in sorted(BIDIRECTIONAL_CONTROLS))
TEXT = Check(
    _text,
    "text on one line",
    {"type": "string", "pattern": r"\S", "not": {"pattern": rf"[\u0000-\u001f\u007f-\u009f\u2028\u2029{_CONTROLS}]"}},
)


def choice(options: Iterable[str]) -> Check[str]:
    """Return the check of one of `options`; it hints at the nearest one."""
    names = list(options)

    def of(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(nearest(str(value), names).removeprefix("; "))
        return value

    *head, last = names
    return Check(of, f"{', '.join(head)} or {last}" if head else last, {"enum": names})


def _amount(pattern: str, units: dict[str, int], low: int, legal: str) -> Check[int]:
    """Return the check of a number with one of `units`, the largest last, that stands for at least `low`."""

    def of(value: Any) -> int:
        found = re.fullmatch(pattern, value) if isinstance(value, str) else None
        amount = int(found[1]) * units[found[2]] if found else 0
        if amount < low:
            raise ValueError
        return amount

    def write(value: int) -> str:
        unit = next(unit for unit in reversed(units) if value % units[unit] == 0)
        return f"{value // units[unit]}{unit}"

    return Check(of, legal, {"type": "string", "pattern": f"^(?!0+[a-zA-Z]){pattern}$"}, write)


DURATION = _amount(r"([0-9]{1,6})([smhd])", DURATION_UNITS, 1, "a duration such as 90s, 30m, 2h or 1d")  # in seconds


def or_none(amount: Check[int]) -> Check[int]:
    """Return the check of an amount, or of 0, which stands for none."""
    return Check(
        lambda value: 0 if value == 0 and value is not False else amount.of(value),
        f"{amount.legal}, or 0",
        {"anyOf": [{"const": 0}, amount.schema]},
        lambda value: amount.write(value) if value else 0,
    )


OR_NEVER = or_none(DURATION)


def size(low: int = 1) -> Check[int]:
    """Return the check of a size of at least `low` bytes (1 KB is 1024 bytes, as in HTCondor).

    >>> size().of("2GB")
    2147483648
    """
    legal = f"a size such as 512MB or 4GB, at least {low >> 20}MB"
    return _amount(r"([0-9]{1,6})(KB|MB|GB|TB)", SIZE_UNITS, low, legal)


def section_of(schema: Schema) -> Check[Mapping[str, object]]:
    """Return the check of a mapping that is read key by key; `schema` says what it holds."""
    return checks.instance(Mapping, MAPPING, schema)


def word_or(options: Iterable[str], schema: Schema) -> Check[object]:
    """Return the check of one of `options`, or of a mapping that is read key by key as `schema` says."""
    names = list(options)
    legal = f"{', '.join(names)} or {MAPPING}"
    return checks.instance((str, Mapping), legal, {"anyOf": [{"enum": names}, schema]})


def object_of(keys: Keys, required: Iterable[str] = ()) -> Schema:
    """Return a mapping of `keys` as JSON Schema, without defaults that nobody may write, such as no text at all."""
    needed = {"required": list(required)} if required else {}
    properties = {name: _described(key) for name, key in keys.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False, **needed}


def _described(key: Key[Any]) -> Schema:
    try:
        written = key.check.write(key.default)
        default = {"default": written} if key.check.of(written) == key.default else {}
    except (TypeError, ValueError):
        default = {}
    return {"title": key.check.legal, "description": key.about, **default, **key.check.schema}
