"""What a data file says of its data sets before their values are read: names, kinds, sizes, all of them checked.

Data set n has the attributes name, attributes (bits), dataType, kind, dimensions, width, height, length, and the
variables sparseStart, sparseEnd (half-open ranges into sparseIndex), sparseIndex, sparseData, or data, then dataWeight
and index; every one of these names ends in n. Names of units are in indToFeature, or, where the attribute namesOf
gives the number of an earlier data set, they are those of that one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnlib.errors import DataError
from nnlib.spec.json_section import MOST_UNITS
from nnlib.util.netcdf import File, Shape

SPARSE, BOOLEAN, IGNORE_ZERO, INDEXED, WEIGHTED = 1, 2, 32, 64, 128
WITHOUT_EFFECT = 4 | 8 | 16  # Compressed, Recurrent, Mutable: bits that DSSTNE stores and never reads
ALL_BITS = SPARSE | BOOLEAN | IGNORE_ZERO | INDEXED | WEIGHTED | WITHOUT_EFFECT
# What dataType counts. DSSTNE fails to load the third, fourth and eighth of them.
TYPE_NAMES = ("UInt", "Int", "LLInt", "ULLInt", "Float", "Double", "RGB8", "RGB16", "UChar", "Char")
TYPES = tuple(np.dtype(name) for name in ("u4", "i4", "i8", "u8", "f4", "f8", "u1", "u2", "u1", "i1"))
AXES = ("width", "height", "length")
NAME_BYTES = 80  # of a name in memory, about


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of data set `n`. Without an index `examples` and `rows` are the same number."""

    n: int
    name: str
    bits: int
    stored: np.dtype[Any]
    dimensions: tuple[int, ...]
    rows: int
    examples: int
    entries: int  # how long sparseIndex is; of a dense set, how long data is
    names: int  # of units
    names_of: int  # which data set's names these are

    @property
    def sparse(self) -> bool:
        """Whether the file holds ranges and units; else values of all units."""
        return bool(self.bits & SPARSE)

    @property
    def boolean(self) -> bool:
        """Whether there are no values: ones, or in a dense set the number of the only unit that is one."""
        return bool(self.bits & BOOLEAN)

    @property
    def width(self) -> int:
        """How many units an example has."""
        return math.prod(self.dimensions)

    @property
    def kind(self) -> str:
        """What the rows are once read, in words, such as `sparse boolean`."""
        if self.boolean:
            return "sparse boolean"
        return "sparse analog" if self.sparse else f"dense {self.stored}"

    @property
    def row(self) -> str:
        """What to call a row in a message."""
        return "row" if self.bits & INDEXED else "example"

    @property
    def row_bytes(self) -> float:
        """How much memory a row takes on average once it is read."""
        if self.boolean:
            return 8 + 4 * self.entries / self.rows
        return 8 + 8 * self.entries / self.rows if self.sparse else float(self.width * self.stored.itemsize)

    @property
    def bytes(self) -> float:
        """How much memory the data set takes once it is read, names included."""
        extra = 4 * bool(self.bits & WEIGHTED) + 4 * bool(self.bits & INDEXED)
        return self.rows * self.row_bytes + self.examples * extra + self.names * NAME_BYTES


def read_headers(file: File) -> tuple[Header, ...]:
    """Return what the file says of its data sets; DataError names the attribute or variable that is wrong."""
    count = integer(file, "datasets")
    if not 1 <= count <= len(file.variables):
        raise DataError(
            f"{file.path}: attribute datasets: {count} is not legal, legal: the number of data sets, from 1"
        )
    headers = tuple(_header(file, n) for n in range(count))
    if len({header.examples for header in headers}) > 1:
        seen = ", ".join(f"{header.name} {header.examples}" for header in headers)
        raise DataError(f"{file.path}: data sets have different numbers of examples ({seen}); they must agree")
    names = shape_of_names(file, "samples")
    if names is not None and names.length != headers[0].examples:
        raise DataError(f"{file.path}: samples: {names.length} names, there are {headers[0].examples} examples")
    return headers


def integer(file: File, name: str) -> int:
    """Return an attribute that is a whole number."""
    value = file.attributes.get(name)
    if value is None and "layers" in file.attributes:
        raise DataError(f"{file.path}: is a model, legal: data, such as `nnlib import` writes")
    if value is None:
        raise DataError(f"{file.path}: attribute {name} is missing; this is not a DSSTNE data file")
    if np.ndim(value) or not np.issubdtype(np.asarray(value).dtype, np.integer):
        raise DataError(f"{file.path}: attribute {name}: {value!r:.60} is not legal, legal: an integer")
    return int(value)


def shape_of_names(file: File, name: str) -> Shape | None:
    """Return the shape of a variable of names, None when the file has none."""
    if name not in file.variables:
        return None
    shape = _one_dimension(file, name)
    if not shape.strings:
        raise DataError(f"{file.path}: variable {name} is not of type string; make the file again")
    return shape


def _header(file: File, n: int) -> Header:
    name = file.attributes.get(f"name{n}")
    if not isinstance(name, str):
        raise DataError(f"{file.path}: attribute name{n}: {name!r:.60} is not legal, legal: the data set's name")
    bits = integer(file, f"attributes{n}")
    if bits & ~ALL_BITS:
        raise DataError(
            f"{file.path}: attribute attributes{n}: data set {name!r} has the bits {bits}, legal: a sum of "
            "1 sparse, 2 boolean, 4, 8, 16 (without effect), 32 ignore zero, 64 indexed, 128 weighted"
        )
    stored, dimensions = _stored_type(file, n, bits), _dimensions(file, n)
    rows, entries = _sparse_sizes(file, n, bits) if bits & SPARSE else _dense_sizes(file, n, bits, dimensions)
    examples = shape_of_numbers(file, f"index{n}", "iu").length if bits & INDEXED else rows
    for dimension, size in ((f"examplesDim{n}", examples), (f"uniqueExamplesDim{n}", rows)):
        declared = file.dimensions.get(dimension, size)
        if declared != size:
            raise DataError(
                f"{file.path}: dimension {dimension} of data set {name!r} is {declared}, its variables "
                f"hold {size}; make the file again"
            )
    if not examples or not rows:
        raise DataError(f"{file.path}: data set {name!r} has zero examples, legal: at least one")
    if bits & WEIGHTED:
        check_length(
            file, f"dataWeight{n}", shape_of_numbers(file, f"dataWeight{n}", "iuf").length, examples, "examples"
        )
    names, names_of = _names(file, n, dimensions)
    return Header(n, name, bits, stored, dimensions, rows, examples, entries, names, names_of)


def _stored_type(file: File, n: int, bits: int) -> np.dtype[Any]:
    spelled = f"datatype{n}" if f"dataType{n}" not in file.attributes and f"datatype{n}" in file.attributes else ""
    code = integer(file, spelled or f"dataType{n}")  # DSSTNE's engine writes datatype, and cannot read it
    if not 0 <= code < len(TYPES):
        legal = ", ".join(f"{number} {name}" for number, name in enumerate(TYPE_NAMES))
        raise DataError(f"{file.path}: attribute dataType{n}: {code} is not legal, legal: {legal}")
    return TYPES[0] if bits & BOOLEAN else TYPES[code]  # the type has no meaning for boolean data


def _dimensions(file: File, n: int) -> tuple[int, ...]:
    count = integer(file, f"dimensions{n}")
    if not 1 <= count <= len(AXES):
        raise DataError(f"{file.path}: attribute dimensions{n}: {count} is not legal, legal: 1 to {len(AXES)}")
    sizes = tuple(integer(file, f"{axis}{n}") for axis in AXES[:count])
    for axis, size in zip(AXES, sizes, strict=False):
        if not 1 <= size <= MOST_UNITS:
            raise DataError(f"{file.path}: attribute {axis}{n}: {size} is not legal, legal: 1 to {MOST_UNITS}")
    if math.prod(sizes) > MOST_UNITS:
        raise DataError(
            f"{file.path}: attribute dimensions{n}: {' x '.join(map(str, sizes))} units are not legal, "
            f"legal: {MOST_UNITS} at most"
        )
    return sizes


def _sparse_sizes(file: File, n: int, bits: int) -> tuple[int, int]:
    rows = shape_of_numbers(file, f"sparseStart{n}", "iu").length
    check_length(file, f"sparseEnd{n}", shape_of_numbers(file, f"sparseEnd{n}", "iu").length, rows, "ranges")
    entries = shape_of_numbers(file, f"sparseIndex{n}", "iu").length
    if not bits & BOOLEAN:
        check_length(file, f"sparseData{n}", shape_of_numbers(file, f"sparseData{n}", "iuf").length, entries, "units")
    return rows, entries


def _dense_sizes(file: File, n: int, bits: int, dimensions: tuple[int, ...]) -> tuple[int, int]:
    length = shape_of_numbers(file, f"data{n}", "iu" if bits & BOOLEAN else "iuf").length
    width = 1 if bits & BOOLEAN else math.prod(dimensions)
    if length % width:
        raise DataError(
            f"{file.path}: variable data{n} has {length} values, legal: a multiple of {width}, "
            f"the number of units ({' x '.join(map(str, dimensions))})"
        )
    return length // width, length


def _names(file: File, n: int, dimensions: tuple[int, ...]) -> tuple[int, int]:
    """Return how many names the units have, and which data set's they are."""
    owner = integer(file, f"namesOf{n}") if f"namesOf{n}" in file.attributes else n
    if not 0 <= owner <= n:
        raise DataError(f"{file.path}: attribute namesOf{n}: {owner} is not legal, legal: 0 to {n}")
    shape = shape_of_names(file, f"indToFeature{owner}")
    if shape is None:
        return 0, owner
    width = math.prod(dimensions)
    if shape.length not in (0, width):
        axes = " x ".join(f"{axis}{n}" for axis in AXES[: len(dimensions)])
        raise DataError(f"{file.path}: indToFeature{owner}: {shape.length} names, {axes} is {width}")
    return shape.length, owner


def _one_dimension(file: File, name: str) -> Shape:
    shape = file.variables.get(name)
    if shape is None:
        raise DataError(f"{file.path}: variable {name} is missing; make the file again")
    if len(shape.dimensions) != 1:
        raise DataError(f"{file.path}: variable {name} has {len(shape.dimensions)} dimensions, legal: one")
    return shape


def shape_of_numbers(file: File, name: str, kinds: str) -> Shape:
    """Return the shape of a variable of numbers: `iu` integers, `iuf` of any type."""
    shape = _one_dimension(file, name)
    seen = np.dtype("i1") if shape.dtype == "S1" else shape.dtype
    if seen is None or seen.kind not in kinds:
        legal = "integers" if kinds == "iu" else "numbers"
        was = "strings" if shape.strings else str(seen or "a type of its own")
        raise DataError(f"{file.path}: variable {name} is of {was}, legal: {legal}; make the file again")
    return shape


def check_length(file: File, name: str, length: int, wanted: int, of: str) -> None:
    """Raise DataError when a variable has not as many values as there are of something else."""
    if length != wanted:
        raise DataError(
            f"{file.path}: variable {name} has {length} values, there are {wanted} {of}; make the file again"
        )
