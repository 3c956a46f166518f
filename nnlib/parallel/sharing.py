"""Examples for several processes: those in memory lie once, in memory without a name that all map; files are opened.

By items a rank needs whole rows, also of layers of which it has some units: denoising counts the entries of the whole
batch. By examples it reads the rows of its own examples.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.file_header import read_headers
from nnlib.data.rows import Csr, Dense, Joined, Rows
from nnlib.data.sets import DataSet
from nnlib.data.stream import Cache, FileRows
from nnlib.errors import DataError
from nnlib.model.examples import Examples
from nnlib.parallel.wire import view_bytes
from nnlib.util.netcdf import File

ALIGNMENT = 64  # bytes: where an array begins
MOST_WRITTEN = 1 << 30  # bytes at a time; Linux takes less than 2 GiB

Plain = dict[str, Any]


@contextmanager
def share(arrays: Mapping[str, NDArray[Any]]) -> Iterator[tuple[list[Any], int]]:
    """Copy arrays into memory without a name: give where each lies in it, as `mapped` takes it, and its descriptor.

    The descriptor is closed afterwards; the memory is given back when all others who have it have closed it, too, or
    have ended in any way. OSError where there is no room.
    """
    places, low = [], 0
    memory = os.memfd_create("nnlib")
    try:
        for name, array in arrays.items():
            whole = np.ascontiguousarray(array)
            places.append([name, whole.dtype.str, whole.shape, low])
            _write(memory, view_bytes(whole), low)
            low += -(-whole.nbytes // ALIGNMENT) * ALIGNMENT
        os.ftruncate(memory, max(low, 1))
        yield places, memory
    finally:
        os.close(memory)


def mapped(places: Sequence[Any], memory: int) -> dict[str, NDArray[Any]]:
    """Return arrays that `share` copied, which cannot be written; the descriptor is closed."""
    try:
        view = mmap.mmap(memory, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(memory)
    found = {}
    for name, kind, shape, low in places:
        count = int(np.prod(shape, dtype=np.int64))
        found[name] = np.frombuffer(view, kind, count, low).reshape(shape)
    return found


def describe(examples: Examples) -> tuple[Plain, dict[str, NDArray[Any]]]:
    """Return what `restore` makes the same examples of: plain values, and the arrays of those in memory."""
    arrays: dict[str, NDArray[Any]] = {}
    known: dict[int, int] = {}  # an autoencoder's inputs are its targets
    rows: list[Plain] = []
    sets: Plain = {}
    for layer, data_set in examples.sets.items():
        if id(data_set.rows) not in known:
            known[id(data_set.rows)] = len(rows)
            rows.append(_describe(data_set.rows, f"rows{len(rows)}", arrays))
        about = {"name": data_set.name, "rows": known[id(data_set.rows)], "ignore_zero": data_set.ignore_zero}
        sets[str(layer)] = about | {"dimensions": data_set.dimensions}
        for name in ("weights", "index"):
            if getattr(data_set, name) is not None:
                arrays[f"{name}{layer}"] = getattr(data_set, name)
    return {"sets": sets, "rows": rows, "file": examples.file}, arrays


def restore(plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], cache: Cache) -> Examples:
    """Return the examples of `describe`; what is read of files is kept in the cache. DataError, OSError."""
    rows = [_restore(about, f"rows{n}", arrays, cache) for n, about in enumerate(plain["rows"])]
    sets = {
        int(layer): DataSet(
            about["name"],
            rows[about["rows"]],
            weights=arrays.get(f"weights{layer}"),
            index=arrays.get(f"index{layer}"),
            dimensions=tuple(about["dimensions"]),
            ignore_zero=about["ignore_zero"],
        )
        for layer, about in plain["sets"].items()
    }
    return Examples(sets, plain["file"])


def _describe(rows: Rows, key: str, arrays: dict[str, NDArray[Any]]) -> Plain:
    if isinstance(rows, Csr):
        arrays |= {f"{key}_indptr": rows.indptr, f"{key}_indices": rows.indices}
        if rows.values is not None:
            arrays[f"{key}_values"] = rows.values
        return {"kind": "csr", "width": rows.width}
    if isinstance(rows, Dense):
        arrays[f"{key}_values"] = rows.values
        return {"kind": "dense"}
    if isinstance(rows, Joined):
        return {"kind": "joined", "parts": [_describe(part, f"{key}_{n}", arrays) for n, part in enumerate(rows.parts)]}
    assert isinstance(rows, FileRows), "there are no other rows"
    path, header = str(rows.file.path.absolute()), rows.header
    return {"kind": "file", "path": path, "set": header.n, "size": [header.rows, header.entries]}


def _restore(about: Mapping[str, Any], key: str, arrays: Mapping[str, NDArray[Any]], cache: Cache) -> Rows:
    match about["kind"]:
        case "csr":
            values = arrays.get(f"{key}_values")
            return Csr(arrays[f"{key}_indptr"], arrays[f"{key}_indices"], about["width"], values)
        case "dense":
            return Dense(arrays[f"{key}_values"])
        case "joined":
            parts = enumerate(about["parts"])
            return Joined(tuple(_restore(part, f"{key}_{n}", arrays, cache) for n, part in parts))
    file = File(Path(about["path"]))
    headers = read_headers(file)
    header = headers[min(about["set"], len(headers) - 1)]
    if [header.rows, header.entries] != about["size"]:
        raise DataError(f"{file.path}: has changed since the training began; leave data files as they are meanwhile")
    return FileRows(file, header, cache)


def _write(memory: int, data: memoryview, low: int) -> None:
    while data:
        written = os.pwrite(memory, data[:MOST_WRITTEN], low)
        data, low = data[written:], low + written
