"""`nnlib merge`: the examples of several data files as one file, whose units are found again by their names.

Each file is read twice, a block at a time: once to check and count, once to copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.data.file import BLOCK, blocks_of, check_data_file, names_owners, region_of, set_attributes
from nnlib.data.file_header import IGNORE_ZERO, INDEXED, WEIGHTED, Header, integer, read_headers
from nnlib.data.file_rows import read_index, read_rows, read_weights
from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError
from nnlib.spec.json_section import show
from nnlib.util import netcdf
from nnlib.util.arrays import Longs

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileSlice:
    """What one file holds but for its values: its data sets by name, and the names of their units."""

    path: Path
    sets: Mapping[str, Header]
    names: Mapping[str, Names]  # empty when the file has none
    samples: bool
    region: str

    @property
    def file(self) -> str:
        """What to call it in messages."""
        return self.path.name

    @property
    def examples(self) -> int:
        """How many examples each of its data sets has."""
        return next(iter(self.sets.values())).examples


@dataclass(frozen=True, slots=True)
class Merged:
    """One data set of all files: an empty one with its units, and where the values of each file begin.

    Of each of `rows`, `entries` and `examples` the last number is the count of all files.
    """

    empty: DataSet
    rows: Sequence[int]
    entries: Sequence[int]
    examples: Sequence[int]


def merge(files: Sequence[Path], out: Path, units_of: Sequence[Path] = ()) -> tuple[Merged, ...]:
    """Write the examples of `files`, one file after the other, into the data file `out`; return what that holds.

    Units are matched by name. They are those of the first file, then what the others have besides, in the order in
    which it appears; with `units_of` those of these files instead, so that several files can get the same units. Every
    file must have the same data sets of the same kinds; without names, and in dense ones, the same units too.
    Raises DataError for whatever does not fit, and OSError; `out` is the whole file then, or untouched.
    """
    if not files:
        raise DataError("no data file to merge, legal: one or more")
    parts = [_part(path) for path in files]
    givers = [_part(path) for path in units_of] or parts
    for part in (*parts[1:], *givers):
        _check_alike(parts[0], part)
    entries = [{one.name: one.nonzeros for one in check_data_file(path).sets} for path in files]
    merged = [
        _merge_sets([part.sets[name] for part in parts], _union(name, givers), [counts[name] for counts in entries])
        for name in parts[0].sets
    ]
    samples = all(part.samples for part in parts)
    owners = names_owners(Data(tuple(one.empty for one in merged)))
    attributes = _attributes(parts, merged, owners)
    with netcdf.fill(out, attributes, _plans(merged, owners, samples)) as put:
        for n in set(owners.values()):
            put(f"indToFeature{n}", 0, merged[n].empty.features)
        for p, part in enumerate(parts):
            with netcdf.File(part.path) as file:
                by_name = {header.name: header for header in read_headers(file)}
                for n, one in enumerate(merged):
                    _copy(file, by_name[one.empty.name], part, one, (n, p), put)
                for low in range(0, part.examples if samples else 0, BLOCK):
                    put("samples", merged[0].examples[p] + low, file.strings("samples", low, low + BLOCK))
    return tuple(merged)


def _part(path: Path) -> FileSlice:
    with netcdf.File(path) as file:
        headers = {header.name: header for header in read_headers(file)}
        if len(headers) < integer(file, "datasets"):
            raise DataError(f"{path}: two data sets of one name are not legal, legal: a name of its own for each")
        texts = {one.names_of: file.strings(f"indToFeature{one.names_of}") for one in headers.values() if one.names}
        names = {name: texts[one.names_of] if one.names else () for name, one in headers.items()}
        return FileSlice(path, headers, names, "samples" in file.variables, region_of(file))


def _check_alike(first: FileSlice, part: FileSlice) -> None:
    """Raise DataError when two files do not have the same data sets of the same kinds."""
    if set(part.sets) != set(first.sets):
        seen, wanted = (", ".join(map(show, which.sets)) for which in (part, first))
        raise DataError(
            f"{part.file}: has the data sets {seen}, {first.file} has {wanted}; legal: the same in all files"
        )
    for name, wants in first.sets.items():
        sees, here = part.sets[name], f"{part.file}: data set {show(name)}"
        kinds = [one.kind + ", ignoring zeros" * bool(one.bits & IGNORE_ZERO) for one in (sees, wants)]
        if kinds[0] != kinds[1]:
            raise DataError(f"{here} is {kinds[0]}, in {first.file} it is {kinds[1]}; make both files in one way")
        if bool(part.names[name]) != bool(first.names[name]):
            owner, other = (part, first) if part.names[name] else (first, part)
            raise DataError(
                f"{here}: {owner.file} has names of its units, {other.file} has none by which to match them; legal: "
                "names in all files, or in none"
            )
        fixed = not _sparse(sees) or len(sees.dimensions) > 1 or len(wants.dimensions) > 1
        if (not part.names[name] or fixed) and _shape(sees) != _shape(wants):
            raise DataError(f"{here} is {_shape(sees)} wide, in {first.file} {_shape(wants)}, with no names to go by")
        if fixed and part.names[name] != first.names[name]:
            raise DataError(f"{here} has other units than {first.file}, legal in dense data and pictures: the same")


def _shape(one: Header) -> str:
    return " x ".join(map(str, one.dimensions))


def _sparse(one: Header) -> bool:
    return one.sparse or one.boolean


def _merge_sets(headers: Sequence[Header], names: Names, entries: Sequence[int]) -> Merged:
    """Return the data set of these headers, with units of these names; `entries` has how many each file stores."""
    first = headers[0]
    width = len(names) or first.width
    rows: Csr | Dense
    if _sparse(first):
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
    )


def _union(name: str, givers: Sequence[FileSlice]) -> Names:
    """Return the names of all units, those of the first file first; padding, which has no names, is left out."""
    first = givers[0].names[name]
    if all(giver.names[name] == first for giver in givers):
        return first
    for giver in givers:
        _check_unique(giver.file, name, giver.names[name])
    return tuple(dict.fromkeys(unit for giver in givers for unit in giver.names[name] if unit))


def _check_unique(file: str, name: str, names: Names) -> None:
    unit, count = next(iter(Counter(filter(None, names)).most_common(1)), ("", 0))
    if count > 1:
        raise DataError(
            f"{file}: data set {show(name)} has {count} units of the name {show(unit)}; legal in files that "
            "have not all the same units: every name once"
        )


def _attributes(
    parts: Sequence[FileSlice], merged: Sequence[Merged], owners: Mapping[int, int]
) -> dict[str, netcdf.Attribute]:
    attributes: dict[str, netcdf.Attribute] = {"datasets": np.uint32(len(merged))}
    for n, one in enumerate(merged):
        attributes |= set_attributes(n, one.empty)
        if owners.get(n, n) != n:
            attributes[f"namesOf{n}"] = np.uint32(owners[n])
    regions = {part.region for part in parts}
    if len(regions) == 1 and parts[0].region:
        attributes["region"] = parts[0].region
    return attributes


def _plans(merged: Sequence[Merged], owners: Mapping[int, int], samples: bool) -> dict[str, netcdf.VariableShape]:
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
    return found


def _copy(file: netcdf.File, header: Header, part: FileSlice, to: Merged, at: tuple[int, int], put: netcdf.Put) -> None:
    """Copy one data set of a file to where it belongs; `at` is the number of the data set, and that of the file."""
    n, p = at
    entry = to.entries[p]
    for row, rows in _renumber(file, header, part, to.empty.features):
        if isinstance(rows, Dense):
            put(f"data{n}", to.entries[p] + row * rows.width, rows.values.reshape(-1))
            continue
        put(f"sparseStart{n}", to.rows[p] + row, (rows.indptr[:-1] + entry).astype(np.uint64))
        put(f"sparseEnd{n}", to.rows[p] + row, (rows.indptr[1:] + entry).astype(np.uint64))
        put(f"sparseIndex{n}", entry, rows.indices.astype(np.uint32))
        if rows.values is not None:
            put(f"sparseData{n}", entry, rows.values)
        entry += rows.nonzeros
    if to.empty.weights is not None:
        weights = read_weights(file, header)
        put(f"dataWeight{n}", to.examples[p], np.ones(header.examples, np.float32) if weights is None else weights)
    if to.empty.index is not None:
        index = read_index(file, header)
        index = np.arange(header.examples) if index is None else index
        put(f"index{n}", to.examples[p], (index + np.int64(to.rows[p])).astype(np.uint32))


def _renumber(file: netcdf.File, header: Header, part: FileSlice, units: Names) -> Iterator[tuple[int, Csr | Dense]]:
    """Yield the rows of a data set, a block at a time and with the number of its first, in the numbering of `units`."""
    names = part.names[header.name]
    place = None
    if names != units:
        for file_name, some in ((part.file, names), ("the file of the units", units)):
            _check_unique(file_name, header.name, some)
        numbers = {unit: number for number, unit in enumerate(units) if unit}
        place = np.array([numbers.get(unit, -1) for unit in names], dtype=np.int64)
    for first, last in blocks_of(header):
        rows = read_rows(file, header, first, last)
        if place is not None and isinstance(rows, Csr):
            rows = _move(rows, place, len(units), f"{part.file}: data set {show(header.name)}", names, first)
        yield first, rows


def _move(rows: Csr, place: Longs, width: int, where: str, names: Names, first: int) -> Csr:
    """Return rows whose unit u is now `place[u]`, units ascending; DataError for an entry of a unit without a place."""
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
    return Csr(rows.indptr, units[order].astype(np.int32), width, values)
