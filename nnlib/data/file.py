"""DSSTNE's data-set files, read into memory, written and checked; `nnlib.data.file_header` says how they are made up.

Read as well: legacy 32-bit ranges, ranges in any order, duplicate units in an example, the engine's own spelling of
dataType, values of another type that holds the same numbers. Beyond the format, and ignored by DSSTNE: regions and
times, as `nnlib.data.file_history` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.file_header import (
    AXES,
    BOOLEAN,
    IGNORE_ZERO,
    INDEXED,
    NAME_BYTES,
    SPARSE,
    TYPES,
    WEIGHTED,
    Header,
    read_headers,
    shape_of_names,
)
from nnlib.data.file_history import (
    BESIDE,
    FIELDS,
    QUANTITY,
    TIME,
    attributes_of,
    entries_of_set,
    find_beside,
    read_as_of,
    read_beside,
    read_regions,
    read_repeats,
    region_of,
    variables_of_regions,
)
from nnlib.data.file_rows import check_room, read_index, read_rows, read_weights
from nnlib.data.rows import Csr, Dense, Rows
from nnlib.data.sets import Data, DataSet, join
from nnlib.errors import DataError
from nnlib.util import netcdf

NUMERIC_KIND = 0
BLOCK = 4096  # examples that are read together
BLOCK_BYTES = 1 << 26  # of very wide rows fewer are
TYPE_CODES = {stored: TYPES.index(stored) for stored in TYPES if stored != "u1"} | {np.dtype("u1"): 8}  # UChar, no RGB8


@dataclass(frozen=True, slots=True)
class SetSummary:
    """What one data set holds; `nonzeros` are the stored entries, or in dense rows the values other than zero."""

    name: str
    examples: int
    width: int
    nonzeros: int
    kind: str = "sparse boolean"
    rows: int = 0  # 0 means as many as examples; fewer in an indexed set
    dimensions: tuple[int, ...] = ()  # () means one, the width
    weighted: bool = False
    indexed: bool = False
    ignore_zero: bool = False
    days: tuple[int, int] | None = None  # the first and the last of its entries, since 1970-01-01
    quantities: bool = False

    @property
    def density(self) -> float:
        """Which part of all values is there."""
        return self.nonzeros / ((self.rows or self.examples) * self.width)


@dataclass(frozen=True, slots=True)
class DataSummary:
    """What a data file holds; `region` is empty when the file does not name one."""

    sets: tuple[SetSummary, ...]
    region: str
    as_of: int | None = None  # as in Data
    regions: Mapping[str, int] = field(default_factory=dict)  # how many examples each of several has
    repeats: bool = False  # as in Data


def check_data_file(path: Path) -> DataSummary:
    """Read the whole file, a block at a time, and summarize it; DataError names the file, the variable and the row."""
    with netcdf.File(path) as file:
        sets = tuple(_summary(file, header) for header in read_headers(file))
        names, numbers = read_regions(file, sets[0].examples)
        counts = [] if numbers is None else np.bincount(numbers, minlength=len(names)).tolist()
        regions = dict(zip(names, counts, strict=True))
        return DataSummary(sets, region_of(file), read_as_of(file), regions, read_repeats(file))


def read_all(paths: Sequence[Path]) -> Data:
    """Read several files without their times; their examples follow one another."""
    return join([(str(path), read_data(path, times=False)) for path in paths])


def read_data(path: Path, times: bool = True) -> Data:
    """Read one data-set file into memory; what it has for each entry, and its regions, only if there are `times`."""
    with netcdf.File(path) as file:
        headers = read_headers(file)
        check_room(file, "its data sets", sum(header.bytes for header in headers))
        sets = data_sets(file, headers, lambda header: read_rows(file, header, 0, header.rows))
        samples = file.strings("samples") if shape_of_names(file, "samples") else ()
        region, repeats = region_of(file), read_repeats(file)
        if not times:
            return Data(sets, samples, region, repeats=repeats)
        pairs = zip(headers, sets, strict=True)
        timed = tuple(replace(data_set, **read_beside(file, header, FIELDS.values())) for header, data_set in pairs)
        return Data(timed, samples, region, read_as_of(file), *read_regions(file, headers[0].examples), repeats)


def data_sets(
    file: netcdf.File, headers: Sequence[Header], rows: Callable[[Header], Csr | Dense | Rows]
) -> tuple[DataSet, ...]:
    """Return the data sets of an open file with their names, weights and index; their rows may lie anywhere."""
    named = {header.names_of: header for header in headers if header.names}
    names = {owner: file.strings(f"indToFeature{owner}") for owner in named}
    return tuple(
        DataSet(
            header.name,
            rows(header),
            names.get(header.names_of, ()),
            read_weights(file, header),
            read_index(file, header),
            header.dimensions if len(header.dimensions) > 1 else (),
            bool(header.bits & IGNORE_ZERO),
        )
        for header in headers
    )


def read_region(path: Path) -> str:
    """Return the region that the file at `path` names, or nothing."""
    with netcdf.File(path) as file:
        return region_of(file)


def read_first_day(path: Path) -> int | None:
    """Return the first day that the file at `path` is asked about, None where it has no times."""
    with netcdf.File(path) as file:
        return read_as_of(file)


def estimate_bytes(file: netcdf.File) -> float:
    """Return how much memory the data of a file take once they are read."""
    names = shape_of_names(file, "samples")
    return sum(header.bytes for header in read_headers(file)) + (names.length * NAME_BYTES if names else 0)


def blocks_of(header: Header) -> Iterator[tuple[int, int]]:
    """Yield first and last (exclusive) row of blocks that are read together."""
    size = max(1, min(BLOCK, int(BLOCK_BYTES // header.row_bytes)))
    for first in range(0, header.rows, size):
        yield first, min(first + size, header.rows)


@dataclass(frozen=True, slots=True)
class Begun:
    """A file that holds the names of units alone, as every file of these units begins."""

    path: Path
    features: tuple[tuple[str, ...], ...]


def write_data(path: Path, data: Data, begun: Begun | None = None) -> None:
    """Write a data-set file atomically; the same data give the same bytes.

    Many files of the same units are written faster with what `begin_data` made of one of them.
    """
    attributes: dict[str, netcdf.Attribute] = {"datasets": np.uint32(len(data.sets))}
    variables: dict[str, netcdf.Variable] = {}
    for n, data_set in enumerate(data.sets):
        attributes |= set_attributes(n, data_set)
        variables |= variables_of_set(n, data_set)
    for n, owner in names_owners(data).items():
        if owner == n:
            variables |= names_of_set(n, data.sets[n])
        else:
            attributes[f"namesOf{n}"] = np.uint32(owner)
    if data.samples:
        variables["samples"] = netcdf.Variable("samplesDim", tuple(data.samples))
    attributes |= attributes_of(data)
    variables |= variables_of_regions(data.regions, data.region_of)
    fits = begun and begun.features == tuple(data_set.features for data_set in data.sets)
    netcdf.write(path, netcdf.Content(attributes, variables), begun.path if begun and fits else None)


def begin_data(path: Path, data: Data) -> Begun:
    """Write what files of the same units begin with, for `write_data`."""
    variables: dict[str, netcdf.Variable] = {}
    for owner in set(names_owners(data).values()):
        variables |= names_of_set(owner, data.sets[owner])
    netcdf.write(path, netcdf.Content({}, variables))
    return Begun(path, tuple(data_set.features for data_set in data.sets))


def _summary(file: netcdf.File, header: Header) -> SetSummary:
    nonzeros, days, beside = 0, list[int](), find_beside(file, header)
    for first, last in blocks_of(header):
        rows = read_rows(file, header, first, last)
        found = {name: BESIDE[name](file, header, first, last) for name in beside}  # checked as they are read
        if len(found.get(TIME, ())):
            days += [int(found[TIME].min()), int(found[TIME].max())]
        nonzeros += rows.nonzeros if isinstance(rows, Csr) else int(np.count_nonzero(rows.values))
    weights, index = read_weights(file, header), read_index(file, header)
    return SetSummary(
        header.name,
        header.examples,
        header.width,
        nonzeros,
        header.kind,
        header.rows if index is not None else 0,
        header.dimensions if len(header.dimensions) > 1 else (),
        weights is not None,
        index is not None,
        bool(header.bits & IGNORE_ZERO),
        (min(days), max(days)) if days else None,
        QUANTITY in beside,
    )


def set_attributes(n: int, data_set: DataSet) -> dict[str, netcdf.Attribute]:
    """Return what a file says of data set `n`; DataError when it cannot be written."""
    dimensions = data_set.dimensions or (data_set.width,)
    if len(dimensions) > len(AXES) or math.prod(dimensions) != data_set.width:
        axes = " x ".join(map(str, dimensions))
        raise DataError(
            f"data set {data_set.name!r}: dimensions {axes} are not legal, legal: 1 to 3 whose product is the width, "
            f"{data_set.width}"
        )
    bits = SPARSE * data_set.sparse + BOOLEAN * data_set.boolean + IGNORE_ZERO * data_set.ignore_zero
    bits += INDEXED * (data_set.index is not None) + WEIGHTED * (data_set.weights is not None)
    code = TYPE_CODES[np.dtype("u4" if data_set.boolean else "f4")]
    if isinstance(data_set.rows, Dense):
        if data_set.rows.values.dtype not in TYPE_CODES:
            raise DataError(
                f"data set {data_set.name!r}: values of type {data_set.rows.values.dtype} cannot be written"
            )
        code = TYPE_CODES[data_set.rows.values.dtype]
    values: dict[str, netcdf.Attribute] = {
        f"name{n}": data_set.name,
        f"attributes{n}": np.uint32(bits),
        f"dataType{n}": np.uint32(code),
        f"kind{n}": np.uint32(NUMERIC_KIND),
        f"dimensions{n}": np.uint32(len(dimensions)),
    }
    return values | {f"{axis}{n}": np.uint32(size) for axis, size in zip(AXES, dimensions, strict=False)}


def variables_of_set(n: int, data_set: DataSet) -> dict[str, netcdf.Variable]:
    """Return what a file holds of data set `n`, but for its names."""
    rows = data_set.rows
    if not isinstance(rows, Csr | Dense):
        rows = rows.take(np.arange(rows.examples))
    per_row = f"{'examples' if data_set.index is None else 'uniqueExamples'}Dim{n}"
    if isinstance(rows, Dense):
        found = {f"data{n}": netcdf.Variable(f"dataDim{n}", rows.values.reshape(-1))}
    else:
        found = {
            f"sparseStart{n}": netcdf.Variable(per_row, rows.indptr[:-1].astype(np.uint64)),
            f"sparseEnd{n}": netcdf.Variable(per_row, rows.indptr[1:].astype(np.uint64)),
            f"sparseIndex{n}": netcdf.Variable(f"sparseDataDim{n}", _never_empty(rows.indices.astype(np.uint32))),
        }
        if rows.values is not None:
            found[f"sparseData{n}"] = netcdf.Variable(f"sparseDataDim{n}", _never_empty(rows.values))
        for name, values in entries_of_set(n, data_set).items():
            found[name] = netcdf.Variable(f"sparseDataDim{n}", _never_empty(values))
    if data_set.weights is not None:
        found[f"dataWeight{n}"] = netcdf.Variable(f"examplesDim{n}", data_set.weights.astype(np.float32, copy=False))
    if data_set.index is not None:
        found[f"index{n}"] = netcdf.Variable(f"examplesDim{n}", data_set.index.astype(np.uint32))
    return found


def names_owners(data: Data) -> dict[int, int]:
    """Return of each data set with names the first that has the same: they are written once, as texts take room."""
    found: dict[int, int] = {}
    for n, data_set in enumerate(data.sets):
        if data_set.features:
            found[n] = next((m for m in found if data.sets[m].features == data_set.features), n)
    return found


def names_of_set(n: int, data_set: DataSet) -> dict[str, netcdf.Variable]:
    """Return the names of the units of data set `n`, as a file holds them."""
    return {f"indToFeature{n}": netcdf.Variable(f"indToFeatureDim{n}", data_set.features)}


def _never_empty(values: NDArray[Any]) -> NDArray[Any]:
    """Return at least one entry, one that no range reaches: the format's dimensions start at 1."""
    return values if len(values) else np.zeros(1, values.dtype)
