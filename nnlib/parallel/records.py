"""Frozen dataclasses as JSON and back: the network's specification and the settings, as a job tells its ranks."""

from __future__ import annotations

import dataclasses
import enum
import types
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(record: Any) -> Any:
    """Return a dataclass as plain values that JSON can hold; tuples become lists, enumerations their values."""
    return dataclasses.asdict(record)


def of_plain(kind: type[T], plain: Any) -> T:
    """Return the dataclass of which `to_plain` made this, by the types of its fields."""
    made: T = _of(kind, plain)
    return made


def _of(kind: Any, plain: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        kinds = get_type_hints(kind)
        fields = (field for field in dataclasses.fields(kind) if field.init)
        return kind(**{field.name: _of(kinds[field.name], plain[field.name]) for field in fields})
    inside = get_args(kind)
    if get_origin(kind) is tuple:
        one_kind = inside[-1] is Ellipsis
        return tuple(_of(inside[0 if one_kind else n], value) for n, value in enumerate(plain))
    if get_origin(kind) in (Union, types.UnionType):
        return None if plain is None else _of(inside[0], plain)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(plain)
    return plain
