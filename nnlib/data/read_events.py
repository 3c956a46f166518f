"""Data files read as histories with days, for the families that are fitted on these: `Events` and `Window`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnlib.data.events import BESIDE, Events, Window
from nnlib.data.file_header import Header, read_headers
from nnlib.data.file_history import read_as_of, read_beside, read_regions, read_repeats, region_of
from nnlib.data.file_rows import check_room, read_index, read_rows
from nnlib.data.rows import Csr, Ints, entries_of, offsets_of
from nnlib.errors import DataError
from nnlib.spec.json_section import show
from nnlib.util import netcdf

INPUT, OUTPUT = "input", "output"
ONE_OF = {"days": np.minimum, "last": np.maximum, "counts": np.add}  # of what is there for one item of a customer


def read_events(path: Path) -> Events:
    """Return what the customers of a data file have: its data set `input`, or else its first sparse one.

    Values are left out; an item that a customer has twice has the first of its first days, the last of its last ones,
    and the sum of its counts. Raises DataError that names the file and what is wrong in it, and OSError.
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
        rows, _ = _entries(file, wanted, beside=False)
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
    rows, beside = _entries(file, header, beside=True)
    regions, numbers = read_regions(file, header.examples)
    if numbers is None:
        regions, numbers = (region_of(file),), np.zeros(header.examples, np.int32)
    as_of, repeats = read_as_of(file) or 0, read_repeats(file)
    return Events(rows, _names(file, header), numbers, regions, as_of=as_of, repeats=repeats, **beside)


def _names(file: netcdf.File, header: Header) -> tuple[str, ...]:
    """Return the names of the units; their numbers where the file has no names."""
    return file.strings(f"indToFeature{header.names_of}") if header.names else tuple(map(str, range(header.width)))


def _entries(file: netcdf.File, header: Header, beside: bool) -> tuple[Csr, dict[str, Ints]]:
    """Return for each example its units in order and none twice, and what there is for each entry, if wanted."""
    check_room(file, f"data set {show(header.name)}", header.bytes + 4 * len(BESIDE) * header.entries)
    rows = read_rows(file, header, 0, header.rows)
    assert isinstance(rows, Csr), "sparse"
    rows = replace(rows, values=None)
    found = read_beside(file, header, BESIDE) if beside else {}
    index = read_index(file, header)
    if index is not None:
        indptr, entries = entries_of(rows.indptr, index.astype(np.int64))
        rows, found = Csr(indptr, rows.indices[entries], rows.width), {name: of[entries] for name, of in found.items()}
    example = np.repeat(np.arange(rows.examples), np.diff(rows.indptr))
    keys = example * rows.width + rows.indices
    if not np.any(keys[1:] <= keys[:-1]):
        return rows, found
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.diff(keys[order], prepend=-1) > 0)  # of each
    indptr = offsets_of(np.bincount(example[order[first]], minlength=rows.examples))
    found = {name: ONE_OF[name].reduceat(of[order], first) for name, of in found.items()}
    return Csr(indptr, rows.indices[order[first]], rows.width), found
