"""An ONNX graph as plain values: nodes with their attributes, inputs, outputs, and the arrays it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from nnlib.errors import DataError
from nnlib.spec.json_section import show

Array = NDArray[Any]
Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Array


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operation; `place` says where it stands, for messages. Empty names are inputs that are not given."""

    place: str
    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]

    def wrong(self, text: str) -> DataError:
        """Return an error that names this node."""
        return DataError(f"{self.place}: {text}")

    def whole(self, name: str, default: int) -> int:
        """Return an attribute that is a whole number."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise self.wrong(f"attribute {name} is {_shown(value)}, legal: a whole number")
        return value

    def real(self, name: str, default: float) -> float:
        """Return an attribute that is a finite number."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int | float) or not abs(value) < float("inf"):
            raise self.wrong(f"attribute {name} is {_shown(value)}, legal: a number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        """Return an attribute that is a text."""
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            raise self.wrong(f"attribute {name} is {_shown(value)}, legal: a text")
        return value

    def wholes(self, name: str, count: int, default: int | None = None) -> tuple[int, ...]:
        """Return an attribute that is `count` whole numbers from 0; all of them `default` where it is not there."""
        value = self.attributes.get(name, None if default is None else (default,) * count)
        if isinstance(value, tuple) and len(value) == count and all(isinstance(one, int) and one >= 0 for one in value):
            return tuple(int(one) for one in value)
        raise self.wrong(f"attribute {name} is {_shown(value)}, legal: {count} whole numbers from 0")


@dataclass(frozen=True, slots=True, eq=False)
class OnnxGraph:
    """Nodes in the order of the file; shapes of inputs have None where any number is legal."""

    file: str
    opset: int
    nodes: tuple[Node, ...]
    inputs: Mapping[str, tuple[int | None, ...]]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]


def _shown(value: object) -> str:
    """Return a value that came from a file, short enough for a message."""
    if value is None:
        return "missing"
    return show(value) if isinstance(value, int | float | str | tuple) else f"a {type(value).__name__}"
