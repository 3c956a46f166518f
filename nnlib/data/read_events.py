"""Data files read as histories with days, for the families that are fitted on these: `Events` and `Window`.

Where the data set `input` is dense, examples have no history: they are told by these inputs, and what is learned is
which targets they have. So it is, too, where no data set is called `input`, there is a dense one, and of sparse ones
none but `output`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.data.events import BESIDE, Events, Window
from nnlib.data.file_header import INDEXED, Header, read_headers
from nnlib.data.file_history import read_as_of, read_beside, read_regions, read_repeats, region_of
from nnlib.data.file_rows import check_room, read_index, read_rows
from nnlib.data.rows import Csr, Dense, Ints, entries_of, offsets_of
from nnlib.errors import DataError
from nnlib.spec.json_section import show
from nnlib.util import netcdf

INPUT, OUTPUT = "input", "output"
ONE_OF = {"days": np.minimum, "last": np.maximum, "counts": np.add}  # of what is there for one item of a customer


def read_events(path: Path, inputs: bool = False) -> Events:
    """Return what is learned from a data file: what its customers have, its data set `input`, or the first sparse one.

    Values are left out; an item that a customer has twice has the first of its first days, the last of its last ones,
    and the sum of its counts. Of examples with dense inputs it is their targets, `output` or the first sparse one; the
    inputs themselves are read where `inputs` are wanted and there. Raises DataError that names the file and what is
    wrong in it, and OSError.
    """
    with netcdf.File(path) as file:
        headers = read_headers(file)
        dense = _find_inputs(headers)
        if dense is None:
            return _events(file, _choose(file, headers, INPUT))
        learned = _events(file, _choose(file, headers, OUTPUT))
        return replace(learned, inputs=_read_inputs(file, dense)) if inputs else learned


def read_asked(path: Path, inputs: bool = False) -> Events:
    """Return who is asked about: customers with their histories, or examples with dense inputs as if without targets.

    Of those no item is known, nor need their file name any: whoever asks gives them the model's.
    """
    with netcdf.File(path) as file:
        headers = read_headers(file)
        dense = _find_inputs(headers)
        return _events(file, _choose(file, headers, INPUT)) if dense is None else _untold(file, dense, (), inputs)


def read_window(path: Path, inputs: bool = False) -> Window:
    """Return a data file's customers with what they have, and what they took then.

    That is in the data set `output`, or else in the first sparse one that is not what they have; examples with dense
    inputs have nothing before. Raises DataError, also when the two are not of the same items, and OSError.
    """
    with netcdf.File(path) as file:
        headers = read_headers(file)
        dense = _find_inputs(headers)
        if dense is not None:
            wanted = _choose(file, headers, OUTPUT)
            rows, _ = _entries(file, wanted, beside=False)
            return Window(_untold(file, dense, _names(file, wanted), inputs), rows)
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


def _find_inputs(headers: Sequence[Header]) -> Header | None:
    """Return the dense data set that examples are told by; None where they have a history."""
    dense = [header for header in headers if not (header.sparse or header.boolean)]
    found = next((header for header in headers if header.name == INPUT), None)
    if found is not None or any(header.name != OUTPUT for header in headers if header not in dense):
        return found if found in dense else None
    return next(iter(dense), None)


def _events(file: netcdf.File, header: Header) -> Events:
    rows, beside = _entries(file, header, beside=True)
    return _of_regions(file, rows, _names(file, header), **beside)


def _untold(file: netcdf.File, dense: Header, items: tuple[str, ...], inputs: bool) -> Events:
    """Return the examples of a dense data set as those who have none of `items`."""
    nothing = Csr(np.zeros(dense.examples + 1, np.int64), np.empty(0, np.int32), len(items))
    return _of_regions(file, nothing, items, inputs=_read_inputs(file, dense) if inputs else None)


def _of_regions(file: netcdf.File, rows: Csr, items: tuple[str, ...], **beside: Any) -> Events:
    regions, numbers = read_regions(file, rows.examples)
    if numbers is None:
        regions, numbers = (region_of(file),), np.zeros(rows.examples, np.int32)
    as_of, repeats = read_as_of(file) or 0, read_repeats(file)
    return Events(rows, items, numbers, regions, as_of=as_of, repeats=repeats, **beside)


def _read_inputs(file: netcdf.File, header: Header) -> Dense:
    """Return the row of each example."""
    own = float(header.examples * header.width * header.stored.itemsize) if header.bits & INDEXED else 0.0
    check_room(file, f"data set {show(header.name)}", header.bytes + own)
    rows, index = read_rows(file, header, 0, header.rows), read_index(file, header)
    assert isinstance(rows, Dense), "not sparse"
    return rows if index is None else rows.take(index.astype(np.int64))


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
