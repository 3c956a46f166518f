"""Messages from outside become dataclasses, every mistake told at once; the same fields make their JSON Schema.

A field is declared by `whole`, `flag`, `text` or `texts`, which say what is legal; nothing else is read.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from regiondag.util.schema import nearest
from regiondag.util.text import shorten

T = TypeVar("T")
Schema = dict[str, object]  # JSON Schema, as JSON

KIND, ABOUT = "kind", "about"
PLAIN = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"  # no control characters, as JSON Schema says it
_PLAIN = re.compile("[^\u0000-\u001f\u007f-\u009f\ud800-\udfff]+")  # nor halves of a pair, which UTF-8 has not
_WHOLE = re.compile(r"-?[0-9]{1,18}")
SHOWN = 80  # characters of what was seen
MOST_TOLD = 20  # mistakes that an answer names: a request with thousands gets no answer of megabytes


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake of a message: where, what was seen, what is legal."""

    where: str
    seen: str
    legal: str


class RefusedError(Exception):
    """A message that cannot be read."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        found = tuple(problems)
        more = Problem("in all", f"{len(found)} mistakes", "none; these are the first")
        self.problems = found if len(found) <= MOST_TOLD else (*found[:MOST_TOLD], more)
        super().__init__("; ".join(f"{one.where}: seen {one.seen}, legal: {one.legal}" for one in self.problems))


class Kind(Protocol):
    """What a field may hold."""

    many: ClassVar[bool]  # whether a query may have it several times

    @property
    def legal(self) -> str:
        """What is legal, in words."""

    def from_json(self, value: object) -> Any:
        """Return what a JSON value stands for; ValueError where it is not legal."""

    def from_texts(self, texts: list[str]) -> Any:
        """Return what the values in a query or a path stand for; ValueError where they are not legal."""

    def schema(self) -> Schema:
        """Return its JSON Schema."""


@dataclass(frozen=True, slots=True)
class _Whole:
    low: int
    high: int
    many: ClassVar[bool] = False

    @property
    def legal(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def from_json(self, value: object) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            raise ValueError
        return value

    def from_texts(self, texts: list[str]) -> int:
        if not _WHOLE.fullmatch(texts[0]):
            raise ValueError
        return self.from_json(int(texts[0]))

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class _Flag:
    many: ClassVar[bool] = False
    legal: ClassVar[str] = "true or false"

    def from_json(self, value: object) -> bool:
        if type(value) is not bool:
            raise ValueError
        return value

    def from_texts(self, texts: list[str]) -> bool:
        return {"true": True, "false": False}[texts[0]]

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class _Text:
    longest: int
    many: ClassVar[bool] = False

    @property
    def legal(self) -> str:
        return f"a text of 1 to {self.longest} characters, none of them a control character"

    def from_json(self, value: object) -> str:
        if type(value) is not str or len(value) > self.longest or not _PLAIN.fullmatch(value):
            raise ValueError
        return value

    def from_texts(self, texts: list[str]) -> str:
        return self.from_json(texts[0])

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": self.longest, "pattern": PLAIN}


@dataclass(frozen=True, slots=True)
class _Texts:
    each: _Text
    most: int
    many: ClassVar[bool] = True

    @property
    def legal(self) -> str:
        return f"1 to {self.most} of them, each {self.each.legal}"

    def from_json(self, value: object) -> tuple[str, ...]:
        if type(value) is not list or not 1 <= len(value) <= self.most:
            raise ValueError
        return tuple(map(self.each.from_json, value))

    def from_texts(self, texts: list[str]) -> tuple[str, ...]:
        return self.from_json(texts)

    def schema(self) -> Schema:
        return {"type": "array", "items": self.each.schema(), "minItems": 1, "maxItems": self.most}


def whole(default: int, low: int, high: int, about: str) -> Any:
    """Declare a field: a whole number."""
    return field(default=default, metadata={KIND: _Whole(low, high), ABOUT: about})


def flag(about: str) -> Any:
    """Declare a field: true or false, None where it is not said."""
    return field(default=None, metadata={KIND: _Flag(), ABOUT: about})


def text(longest: int, about: str, default: str | None = None) -> Any:
    """Declare a field: a text that has to be there, unless there is a default."""
    metadata = {KIND: _Text(longest), ABOUT: about}
    return field(metadata=metadata) if default is None else field(default=default, metadata=metadata)


def texts(longest: int, most: int, about: str) -> Any:
    """Declare a field: some texts; an empty tuple where it is not said."""
    return field(default=(), metadata={KIND: _Texts(_Text(longest), most), ABOUT: about})


def read_json(kind: type[T], raw: object) -> T:
    """Return the message that a JSON object holds; RefusedError with every mistake."""
    if not isinstance(raw, dict):
        raise RefusedError([Problem("body", show(raw), "a JSON object")])
    return _read(kind, raw, from_texts=False)


def read_texts(kind: type[T], pairs: Iterable[tuple[str, str]]) -> T:
    """Return the message that names with texts hold, as in a query; RefusedError with every mistake."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return _read(kind, found, from_texts=True)


def _read(kind: type[T], raw: Mapping[str, Any], *, from_texts: bool) -> T:
    known = {one.name: one for one in fields(kind)}
    values, problems = {}, []
    for name, value in raw.items():
        if name not in known:
            legal = f"{', '.join(known) or 'nothing'}{nearest(name, known)}"
            problems.append(Problem(show(name), "a name that means nothing here", legal))
            continue
        one: Kind = known[name].metadata[KIND]
        try:
            if from_texts and len(value) > 1 and not one.many:
                raise ValueError
            values[name] = one.from_texts(value) if from_texts else one.from_json(value)
        except (ValueError, KeyError):
            seen = value[0] if from_texts and len(value) == 1 else value
            problems.append(Problem(name, show(seen), one.legal + ", once" * (from_texts and not one.many)))
    for name, declared in known.items():
        if name not in raw and declared.default is MISSING:
            problems.append(Problem(name, "nothing", declared.metadata[KIND].legal))
    if problems:
        raise RefusedError(problems)
    return kind(**values)


def fields(kind: type) -> tuple[dataclasses.Field[Any], ...]:
    """Return the declared fields of a message."""
    return tuple(one for one in dataclasses.fields(kind) if KIND in one.metadata)


def show(value: object) -> str:
    """Return what was seen, bounded and on one line.

    >>> show(None), show([1, 2]), show("a" + chr(10))
    ('null', 'a list of 2', "'a\\\\n'")
    """
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return shorten(ascii(value) if isinstance(value, str) else json.dumps(value), SHOWN)


def schema_of(kind: type) -> Schema:
    """Return the JSON Schema of a message's object."""
    properties = {
        one.name: {**one.metadata[KIND].schema(), "description": one.metadata[ABOUT], **_default_of(one)}
        for one in fields(kind)
    }
    needed = [one.name for one in fields(kind) if one.default is MISSING]
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": needed} if needed else {}),
    }


def parameters_of(kind: type, place: str) -> Iterator[Schema]:
    """Yield the parameters, as OpenAPI has them, of a message that is read from a query or a path."""
    for one in fields(kind):
        yield {
            "name": one.name,
            "in": place,
            "description": one.metadata[ABOUT],
            "required": one.default is MISSING,
            "schema": {**one.metadata[KIND].schema(), **_default_of(one)},
        }


def _default_of(one: dataclasses.Field[Any]) -> Schema:
    return {} if one.default in (MISSING, None, (), "") else {"default": one.default}
