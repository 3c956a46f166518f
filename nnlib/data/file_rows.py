"""Rows of an open data file, some at a time, each value checked: what reading in memory and streaming share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.file_header import INDEXED, WEIGHTED, Header
from nnlib.data.rows import Csr, Dense, Floats, Ints, find_not_finite, offsets_of, one_hot
from nnlib.errors import DataError
from nnlib.util.arrays import Longs
from nnlib.util.memory import available_bytes, show_bytes
from nnlib.util.netcdf import File

FAR = 2**62  # farther than any range can reach; larger numbers are cut to it, they are wrong all the same
SCATTERED = 4  # ranges that lie over more than this times their length are read one by one
SMALL = 1 << 26  # bytes that need not be asked for
GAP = 1 << 16  # values that are rather read in vain than left out


def read_rows(file: File, header: Header, first: int, last: int) -> Csr | Dense:
    """Return the rows from `first` to before `last`; DataError names the variable and the row that is wrong."""
    if header.sparse:
        return _sparse(file, header, first, last)
    if header.boolean:
        classes = file.values(f"data{header.n}", first, last)
        _check_units(file, header, f"data{header.n}", classes, np.arange(len(classes) + 1), first)
        return one_hot(classes, header.width)
    width = header.width
    values = _as_stored(file, header, f"data{header.n}", file.values(f"data{header.n}", first * width, last * width))
    rows = Dense(values.reshape(last - first, width))
    _check_finite(file, header, f"data{header.n}", rows, first)
    return rows


def read_weights(file: File, header: Header) -> Floats | None:
    """Return the weights of the examples, None when there are none."""
    if not header.bits & WEIGHTED:
        return None
    name = f"dataWeight{header.n}"
    weights = _floats(file.values(name))
    wrong = np.flatnonzero(~np.isfinite(weights))
    if len(wrong):
        raise DataError(
            f"{file.path}: variable {name}: example {wrong[0]} has the weight {weights[wrong[0]]}, "
            "legal: a finite number; make the file again"
        )
    return weights


def read_index(file: File, header: Header) -> NDArray[np.int64] | Ints | None:
    """Return the row of each example, None when every example has its own."""
    if not header.bits & INDEXED:
        return None
    name = f"index{header.n}"
    index = file.values(name)
    wrong = np.flatnonzero((index < 0) | (index >= header.rows))
    if len(wrong):
        raise DataError(
            f"{file.path}: variable {name}: example {wrong[0]} has the row {index[wrong[0]]}, "
            f"legal: 0 to {header.rows - 1}"
        )
    return index.astype(np.int32) if header.rows < 2**31 else index.astype(np.int64)


def check_room(file: File, what: str, count: float) -> None:
    """Raise DataError when `count` bytes are more than there is memory."""
    if count < SMALL:
        return
    free = available_bytes()
    if count > free:
        raise DataError(
            f"{file.path}: {what} would take {show_bytes(count)} of memory, {show_bytes(free)} are free; "
            "take a larger machine, or correct the file"
        )


def read_entries(file: File, header: Header, name: str, first: int, last: int) -> NDArray[Any]:
    """Return what a variable beside sparseIndex has for the entries of the rows from `first` to before `last`."""
    return _entries(file, f"{name}{header.n}", *_ranges(file, header, first, last))


def _ranges(file: File, header: Header, first: int, last: int) -> tuple[Longs, Longs, Longs]:
    """Return where the entries of each row start and end, and row pointers for these rows alone."""
    n = header.n
    start, end = (_longs(file.values(f"{name}{n}", first, last)) for name in ("sparseStart", "sparseEnd"))
    wrong = np.flatnonzero((start < 0) | (start > end) | (end > header.entries))
    if len(wrong):
        i = int(wrong[0])
        raise DataError(
            f"{file.path}: sparseStart{n}, sparseEnd{n}: {header.row} {first + i} has the range "
            f"{start[i]} to {end[i]}, legal: start <= end <= {header.entries}; make the file again"
        )
    counts = end - start
    size = 4 if header.boolean else 8
    check_room(file, f"{header.row}s {first} to {last - 1} of {header.name!r}", size * counts.sum(dtype=np.float64))
    return start, end, offsets_of(counts)


def _sparse(file: File, header: Header, first: int, last: int) -> Csr:
    n = header.n
    start, end, indptr = _ranges(file, header, first, last)
    units = _entries(file, f"sparseIndex{n}", start, end, indptr)
    _check_units(file, header, f"sparseIndex{n}", units, indptr, first)
    values = None
    if not header.boolean:
        stored = _as_stored(file, header, f"sparseData{n}", _entries(file, f"sparseData{n}", start, end, indptr))
        values = _floats(stored)
        if stored.dtype.itemsize == 1:  # bytes are parts of one, as in dense sets
            values /= np.float32(256 if stored.dtype.kind == "u" else 128)
    units = units.view(np.int32) if units.dtype.itemsize == 4 else units.astype(np.int32)
    rows = Csr(indptr, units, header.width, values)
    _check_finite(file, header, f"sparseData{n}", rows, first)
    return rows


def _entries(file: File, name: str, start: Longs, end: Longs, indptr: Longs) -> NDArray[Any]:
    """Return the values of a variable in the ranges, one range after the other."""
    used = np.flatnonzero(end > start)
    if not len(used):
        return file.values(name, 0, 0)
    if np.array_equal(start[1:], end[:-1]):
        return file.values(name, int(start[0]), int(end[-1]))
    low, high, total = int(start[used].min()), int(end.max()), int(indptr[-1])
    if high - low <= SCATTERED * total + GAP:
        source = np.arange(total) + np.repeat(start - indptr[:-1], end - start)
        return file.values(name, low, high)[source - low]
    found = np.empty(total, file.values(name, 0, 0).dtype)
    for i in used:
        found[indptr[i] : indptr[i + 1]] = file.values(name, int(start[i]), int(end[i]))
    return found


def _check_units(file: File, header: Header, name: str, units: NDArray[Any], indptr: Longs, first: int) -> None:
    if not len(units) or (int(units.min()) >= 0 and int(units.max()) < header.width):
        return
    at = int(np.argmax((units < 0) | (units >= header.width)))
    row = first + int(np.searchsorted(indptr, at, side="right")) - 1
    raise DataError(
        f"{file.path}: {name}: {header.row} {row} has unit {units[at]}, legal: 0 to {header.width - 1}; "
        "make the file again"
    )


def _check_finite(file: File, header: Header, name: str, rows: Csr | Dense, first: int) -> None:
    wrong = find_not_finite(rows)
    if wrong is not None:
        raise DataError(
            f"{file.path}: variable {name}: {header.row} {first + wrong} has a value that is not a finite "
            "float32; correct it and make the file again"
        )


def _as_stored(file: File, header: Header, name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return values in the type that dataType says; the variable's own may be another that holds the same numbers."""
    wanted = header.stored
    if values.dtype == wanted:
        return values
    with np.errstate(all="ignore"):
        seen = values.astype(wanted)
        same = np.array_equal(seen.astype(values.dtype), values, equal_nan=values.dtype.kind == "f")
    if not same and not (wanted.kind == values.dtype.kind == "f"):
        raise DataError(
            f"{file.path}: variable {name} holds {values.dtype} values that dataType{header.n} ({wanted}) cannot; "
            "correct the attribute, or make the file again"
        )
    return seen


def _longs(values: NDArray[Any]) -> Longs:
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        values = np.minimum(values, np.uint64(FAR))
    return values.astype(np.int64)


def _floats(values: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused by its place
        return values.astype(np.float32)
