"""Data files read as histories with days, for the families that are fitted on these: `Events` and `Window`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnlib.data.events import Events, Window
from nnlib.data.file_header import Header, read_headers
from nnlib.data.file_history import read_as_of, read_days, read_regions, region_of
from nnlib.data.file_rows import check_room, read_index, read_rows
from nnlib.data.rows import Csr, Ints, entries_of, offsets_of
from nnlib.errors import DataError
from nnlib.spec.json_section import show
from nnlib.util import netcdf

INPUT, OUTPUT = "input", "output"


def read_events(path: Path) -> Events:
    """Return what the customers of a data file have: its data set `input`, or else its first sparse one.

    Values are left out; of an item that a customer has twice the first day counts. Raises DataError that names the
    file and what is wrong in it, and OSError.
    """
    with netcdf.File(path) as file:
        headers = read_headers(file)
        return _events(file, _choose(file, headers, INPUT))


def read_window(path: Path) -> Window:
    """Return a data file's customers with what they have, and what they took then.

    That is in the data set `output`, or else in the first sparse one that is not what they have. Raises DataError,
    also when the two are not of the same items, and OSError.
    """
    with netcdf.File(path) as file:
        headers = read_headers(file)
        had = _choose(file, headers, INPUT)
        wanted = _choose(file, [header for header in headers if header is not had], OUTPUT)
        asked = _events(file, had)
        rows, _ = _entries(file, wanted, timed=False)
        names = _names(file, wanted)
        if names != asked.items:
            raise DataError(
                f"{path}: data sets {show(had.name)} and {show(wanted.name)} are of different items, "
                f"{len(asked.items)} and {len(names)}; legal: the same in both"
            )
        return Window(asked, rows)


def _choose(file: netcdf.File, headers: Sequence[Header], name: str) -> Header:
    """Return the sparse data set of that name, or the first one."""
    sparse = [header for header in headers if header.sparse or header.boolean]
    found = next((header for header in sparse if header.name == name), None) or next(iter(sparse), None)
    if found is None:
        seen = ", ".join(f"{show(header.name)} ({header.kind})" for header in headers) or "none besides"
        raise DataError(f"{file.path}: no data set {show(name)}, nor another sparse one; there are: {seen}")
    return found


def _events(file: netcdf.File, header: Header) -> Events:
    rows, days = _entries(file, header, timed=True)
    regions, numbers = read_regions(file, header.examples)
    if numbers is None:
        regions, numbers = (region_of(file),), np.zeros(header.examples, np.int32)
    return Events(rows, _names(file, header), numbers, regions, days, read_as_of(file) or 0)


def _names(file: netcdf.File, header: Header) -> tuple[str, ...]:
    """Return the names of the units; their numbers where the file has no names."""
    return file.strings(f"indToFeature{header.names_of}") if header.names else tuple(map(str, range(header.width)))


def _entries(file: netcdf.File, header: Header, timed: bool) -> tuple[Csr, Ints | None]:
    """Return for each example its units in order and none twice, and the days on which they were first taken."""
    check_room(file, f"data set {show(header.name)}", header.bytes + 4 * header.entries)
    rows = read_rows(file, header, 0, header.rows)
    assert isinstance(rows, Csr), "sparse"
    rows = replace(rows, values=None)
    days = read_days(file, header, 0, header.rows) if timed else None
    index = read_index(file, header)
    if index is not None:
        indptr, entries = entries_of(rows.indptr, index.astype(np.int64))
        rows, days = Csr(indptr, rows.indices[entries], rows.width), None if days is None else days[entries]
    example = np.repeat(np.arange(rows.examples), np.diff(rows.indptr))
    keys = example * rows.width + rows.indices
    if not np.any(keys[1:] <= keys[:-1]):
        return rows, days
    if days is None:
        return rows.sets(), None
    order = np.lexsort((days, keys))
    order = order[np.diff(keys[order], prepend=-1) > 0]  # the first of each
    indptr = offsets_of(np.bincount(example[order], minlength=rows.examples))
    return Csr(indptr, rows.indices[order], rows.width), days[order]
