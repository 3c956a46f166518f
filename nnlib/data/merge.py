"""`nnlib merge`: the examples of several data files as one file, whose units are found again by their names.

Each file is read twice, a block at a time: once to check and count, once to copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.data.file import BLOCK, blocks_of, check_data_file, names_owners, set_attributes
from nnlib.data.file_header import IGNORE_ZERO, INDEXED, WEIGHTED, Header, read_headers
from nnlib.data.file_history import BESIDE, REGION_OF, REGIONS, TYPES, attributes_of, read_regions
from nnlib.data.file_rows import read_index, read_rows, read_weights
from nnlib.data.merge_files import (
    FileSlice,
    Names,
    check_alike,
    check_unique,
    find_as_of,
    find_repeats,
    is_sparse,
    read_slice,
    unite_names,
)
from nnlib.data.rows import Csr, Dense, Ints
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError
from nnlib.spec.json_section import show
from nnlib.util import netcdf
from nnlib.util.arrays import Longs


@dataclass(frozen=True, slots=True)
class Merged:
    """One data set of all files: an empty one with its units, and where the values of each file begin.

    Of each of `rows`, `entries` and `examples` the last number is the count of all files.
    """

    empty: DataSet
    rows: Sequence[int]
    entries: Sequence[int]
    examples: Sequence[int]
    beside: Sequence[str] = ()  # what all files have for each entry, as `file_history` names it


def merge(files: Sequence[Path], out: Path, units_of: Sequence[Path] = ()) -> tuple[Merged, ...]:
    """Write the examples of `files`, one file after the other, into the data file `out`; return what that holds.

    Units are matched by name. They are those of the first file, then what the others have besides, in the order in
    which it appears; with `units_of` those of these files instead, so that several files can get the same units. Every
    file must have the same data sets of the same kinds; without names, and in dense ones, the same units too.
    What there is for each entry is kept where all files have it, and each example keeps its region. Files of which
    some say `repeats` and others do not are refused.
    Raises DataError for whatever does not fit, and OSError; `out` is the whole file then, or untouched.
    """
    if not files:
        raise DataError("no data file to merge, legal: one or more")
    parts = [read_slice(path) for path in files]
    givers = [read_slice(path) for path in units_of] or parts
    for part in (*parts[1:], *givers):
        check_alike(parts[0], part)
    entries = [{one.name: one.nonzeros for one in check_data_file(path).sets} for path in files]
    merged = [_merge_sets(name, parts, unite_names(name, givers), entries) for name in parts[0].sets]
    samples = all(part.samples for part in parts)
    owners = names_owners(Data(tuple(one.empty for one in merged)))
    regions = tuple(dict.fromkeys(region for part in parts for region in part.regions))
    attributes = _attributes(parts, merged, owners, regions)
    with netcdf.fill(out, attributes, _plans(merged, owners, samples, regions)) as put:
        if len(regions) > 1:
            put(REGIONS, 0, regions)
        for n in set(owners.values()):
            put(f"indToFeature{n}", 0, merged[n].empty.features)
        for p, part in enumerate(parts):
            with netcdf.File(part.path) as file:
                by_name = {header.name: header for header in read_headers(file)}
                if len(regions) > 1:
                    put(REGION_OF, merged[0].examples[p], _number_regions(file, part, regions))
                for n, one in enumerate(merged):
                    _copy(file, by_name[one.empty.name], part, one, (n, p), put)
                for low in range(0, part.examples if samples else 0, BLOCK):
                    put("samples", merged[0].examples[p] + low, file.strings("samples", low, low + BLOCK))
    return tuple(merged)


def _merge_sets(name: str, parts: Sequence[FileSlice], names: Names, counts: Sequence[Mapping[str, int]]) -> Merged:
    """Return a data set of all files, with units of these names; `counts` says how much each file stores by set."""
    headers, entries = [part.sets[name] for part in parts], [some[name] for some in counts]
    first = headers[0]
    width = len(names) or first.width
    rows: Csr | Dense
    if is_sparse(first):
        values = None if first.boolean else np.empty(0, np.float32)
        rows = Csr(np.zeros(1, np.int64), np.empty(0, np.int32), width, values)
    else:
        rows = Dense(np.empty((0, width), first.stored))
        entries = [one.rows * width for one in headers]
    weights = np.empty(0, np.float32) if any(one.bits & WEIGHTED for one in headers) else None
    index = np.empty(0, np.int64) if any(one.bits & INDEXED for one in headers) else None
    dimensions = first.dimensions if len(first.dimensions) > 1 else ()
    return Merged(
        DataSet(first.name, rows, names, weights, index, dimensions, bool(first.bits & IGNORE_ZERO)),
        list(accumulate((one.rows for one in headers), initial=0)),
        list(accumulate(entries, initial=0)),
        list(accumulate((one.examples for one in headers), initial=0)),
        [way for way in parts[0].beside[name] if all(way in part.beside[name] for part in parts)],
    )


def _number_regions(file: netcdf.File, part: FileSlice, regions: Names) -> Ints:
    """Return the number of each example's region in the order of all regions."""
    numbers = np.array([regions.index(region) for region in part.regions], dtype=np.int32)
    _, own = read_regions(file, part.examples)
    return numbers[np.zeros(part.examples, np.int32) if own is None else own]


def _attributes(
    parts: Sequence[FileSlice], merged: Sequence[Merged], owners: Mapping[int, int], regions: Names
) -> dict[str, netcdf.Attribute]:
    attributes: dict[str, netcdf.Attribute] = {"datasets": np.uint32(len(merged))}
    for n, one in enumerate(merged):
        attributes |= set_attributes(n, one.empty)
        if owners.get(n, n) != n:
            attributes[f"namesOf{n}"] = np.uint32(owners[n])
    region = regions[0] if len(regions) == 1 else ""
    return attributes | attributes_of(Data((), (), region, find_as_of(parts), repeats=find_repeats(parts)))


def _plans(
    merged: Sequence[Merged], owners: Mapping[int, int], samples: bool, regions: Names
) -> dict[str, netcdf.VariableShape]:
    """Return the variables as `file.write_data` has them."""
    found: dict[str, netcdf.VariableShape] = {}

    def plan(name: str, dimension: str, size: int, kind: Any) -> None:
        found[name] = netcdf.VariableShape({dimension: size}, np.dtype(kind) if kind else None)

    for n, one in enumerate(merged):
        empty, entries = one.empty, max(1, one.entries[-1])  # the format's dimensions start at 1
        if isinstance(empty.rows, Dense):
            plan(f"data{n}", f"dataDim{n}", entries, empty.rows.values.dtype)
        else:
            for name in ("sparseStart", "sparseEnd"):
                which = "examples" if empty.index is None else "uniqueExamples"
                plan(f"{name}{n}", f"{which}Dim{n}", one.rows[-1], np.uint64)
            plan(f"sparseIndex{n}", f"sparseDataDim{n}", entries, np.uint32)
            for way in one.beside:
                plan(f"{way}{n}", f"sparseDataDim{n}", entries, TYPES[way])
            if not empty.boolean:
                plan(f"sparseData{n}", f"sparseDataDim{n}", entries, np.float32)
        if empty.weights is not None:
            plan(f"dataWeight{n}", f"examplesDim{n}", one.examples[-1], np.float32)
        if empty.index is not None:
            plan(f"index{n}", f"examplesDim{n}", one.examples[-1], np.uint32)
        if owners.get(n) == n:
            plan(f"indToFeature{n}", f"indToFeatureDim{n}", len(empty.features), None)
    if samples:
        plan("samples", "samplesDim", merged[0].examples[-1], None)
    if len(regions) > 1:
        plan(REGIONS, "regionsDim", len(regions), None)
        plan(REGION_OF, "regionOfDim", merged[0].examples[-1], np.int32)
    return found


def _copy(file: netcdf.File, header: Header, part: FileSlice, to: Merged, at: tuple[int, int], put: netcdf.Put) -> None:
    """Copy one data set of a file to where it belongs; `at` is the number of the data set, and that of the file."""
    n, p = at
    entry = to.entries[p]
    for row, rows, order in _renumber(file, header, part, to.empty.features):
        if isinstance(rows, Dense):
            put(f"data{n}", to.entries[p] + row * rows.width, rows.values.reshape(-1))
            continue
        put(f"sparseStart{n}", to.rows[p] + row, (rows.indptr[:-1] + entry).astype(np.uint64))
        put(f"sparseEnd{n}", to.rows[p] + row, (rows.indptr[1:] + entry).astype(np.uint64))
        put(f"sparseIndex{n}", entry, rows.indices.astype(np.uint32))
        if rows.values is not None:
            put(f"sparseData{n}", entry, rows.values)
        for way in to.beside:
            values = BESIDE[way](file, header, row, row + rows.examples)
            put(f"{way}{n}", entry, values if order is None else values[order])
        entry += rows.nonzeros
    if to.empty.weights is not None:
        weights = read_weights(file, header)
        put(f"dataWeight{n}", to.examples[p], np.ones(header.examples, np.float32) if weights is None else weights)
    if to.empty.index is not None:
        index = read_index(file, header)
        index = np.arange(header.examples) if index is None else index
        put(f"index{n}", to.examples[p], (index + np.int64(to.rows[p])).astype(np.uint32))


def _renumber(
    file: netcdf.File, header: Header, part: FileSlice, units: Names
) -> Iterator[tuple[int, Csr | Dense, Longs | None]]:
    """Yield the rows of a data set in the numbering of `units`, a block at a time, with the number of its first.

    With each block goes the order in which its entries now are, None where that is the file's.
    """
    names = part.names[header.name]
    place = None
    if names != units:
        for file_name, some in ((part.file, names), ("the file of the units", units)):
            check_unique(file_name, header.name, some)
        numbers = {unit: number for number, unit in enumerate(units) if unit}
        place = np.array([numbers.get(unit, -1) for unit in names], dtype=np.int64)
    for first, last in blocks_of(header):
        rows = read_rows(file, header, first, last)
        if place is None or not isinstance(rows, Csr):
            yield first, rows, None
            continue
        yield first, *_move(rows, place, len(units), f"{part.file}: data set {show(header.name)}", names, first)


def _move(rows: Csr, place: Longs, width: int, where: str, names: Names, first: int) -> tuple[Csr, Longs]:
    """Return rows whose unit u is now `place[u]`, units ascending, and the order that the entries are in now.

    DataError for an entry of a unit without a place.
    """
    numbers, units = np.repeat(np.arange(rows.examples), np.diff(rows.indptr)), place[rows.indices]
    if len(units) and units.min() < 0:
        at = int(np.argmin(units))
        unit = int(rows.indices[at])
        what = f"unit {unit}, which has no name by which to match it; legal: units with names"
        if names[unit]:
            what = f"unit {show(names[unit])}, which is not among those asked for; add this file to --units-of"
        raise DataError(f"{where}: row {first + numbers[at]} has {what}")
    order = np.lexsort((units, numbers))
    values = None if rows.values is None else rows.values[order]
    return Csr(rows.indptr, units[order].astype(np.int32), width, values), order
