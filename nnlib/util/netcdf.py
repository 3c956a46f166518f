"""NetCDF-4 files as plain attributes and NumPy arrays; the only module that imports netCDF4."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import netCDF4
import numpy as np
from numpy.typing import NDArray

from nnlib.errors import DataError
from nnlib.util.files import replacing

VERSION = str(netCDF4.__version__)
ROOM = 1 << 20  # bytes that a file may take beyond its values
LOCK = threading.RLock()  # the library underneath is not made for threads, whatever file they read
HANDLES: dict[tuple[int, int], _Handle] = {}  # what the library has open for reading, by device and inode
ABANDONED: deque[_Handle] = deque()  # of open files that nobody has any more
STRING_BYTES = 16  # of each string in a file, beside its text
MOST_PACKED = {"zlib": 1100, "szip": 100_000, "zstd": 100_000, "bzip2": 1_000_000, "blosc": 100_000}  # values per byte


Attribute = str | int | float | np.generic | NDArray[Any]  # as netCDF has them


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: the name of its only dimension, and its values (an array, or strings)."""

    dimension: str
    values: NDArray[Any] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """All of a NetCDF file. Attributes are NumPy scalars (their type is the type in the file) or strings."""

    attributes: Mapping[str, Attribute]
    variables: Mapping[str, Variable]


@dataclass(frozen=True, slots=True)
class VariableShape:
    """A variable to be filled part by part: its dimensions and their sizes, and its type (None: strings)."""

    dimensions: Mapping[str, int]
    dtype: np.dtype[Any] | None


@dataclass(slots=True, eq=False)
class _Handle:
    """A file that the library has open once, however many read it."""

    key: tuple[int, int]
    dataset: Any
    users: int = 0


Put = Callable[[str, int, NDArray[Any] | tuple[str, ...]], None]  # variable, first row, values of the rows from there


@dataclass(frozen=True, slots=True)
class Shape:
    """What a file says of a variable; `dtype` is None for strings, and for types that no file of ours has."""

    dimensions: tuple[str, ...]
    length: int
    dtype: np.dtype[Any] | None
    strings: bool


@contextmanager
def _library() -> Iterator[None]:
    """Have the library underneath for this thread alone, and close the files that nobody has any more.

    Python finds those at any time and in any thread, also in the middle of another one's call of the library, so that
    they must not be closed there and then.
    """
    with LOCK:
        while ABANDONED:
            with suppress(RuntimeError, OSError, IndexError):
                _let_go(ABANDONED.popleft())
        yield


def _take_handle(path: Path, status: os.stat_result) -> _Handle:
    """Return the one handle of a file.

    A second one of the library's would crash: of a variable of texts it keeps which handle first read it, also after
    that is closed (HDF5's issue 5359).
    """
    key = (status.st_dev, status.st_ino)
    if key not in HANDLES:
        dataset = netCDF4.Dataset(str(path), "r")
        dataset.set_auto_maskandscale(False)
        HANDLES[key] = _Handle(key, dataset)
    HANDLES[key].users += 1
    return HANDLES[key]


def _let_go(handle: _Handle) -> None:
    handle.users -= 1
    if not handle.users:
        del HANDLES[handle.key]
        handle.dataset.close()


class File:
    """An open file whose variables are read as they are asked for, from any thread."""

    def __init__(self, path: Path) -> None:
        """Open `path`; DataError when it is not NetCDF or torn, OSError when it cannot be opened at all."""
        # The system's own error for a missing or unreadable file; whoever opens a pipe waits for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        os.close(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = errno.EISDIR if stat.S_ISDIR(status.st_mode) else 0
            raise OSError(kind, os.strerror(kind), str(path)) if kind else DataError(f"{path}: is no regular file")
        self.path = path
        with _library(), _readable(path):
            self._handle = _take_handle(path, status)
            self._abandoned = weakref.finalize(self, ABANDONED.append, self._handle)
            self._abandoned.atexit = False
            self._file = self._handle.dataset
            try:
                self._describe(status.st_size)
            except BaseException:  # whoever catches it keeps this object, and the file would stay open
                self.close()
                raise

    def _describe(self, size: int) -> None:
        self.attributes: Mapping[str, Attribute] = {name: self._file.getncattr(name) for name in self._file.ncattrs()}
        self.dimensions = {name: len(dimension) for name, dimension in self._file.dimensions.items()}
        self.variables = {name: self._shape(name, v, size) for name, v in self._file.variables.items()}

    def values(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Return the values from `start` to before `stop` of a variable of one dimension that is not of strings."""
        with _library(), _readable(self.path, name):
            values = np.asarray(self._file.variables[name][start:stop])
        values = values.view(np.int8) if values.dtype == "S1" else values
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def strings(self, name: str, start: int = 0, stop: int | None = None) -> tuple[str, ...]:
        """Return the texts from `start` to before `stop` of a variable of strings."""
        with _library(), _readable(self.path, name):
            return tuple(np.atleast_1d(self._file.variables[name][start:stop]).tolist())

    def whole(self, name: str) -> Variable:
        """Return all of a variable, as one dimension."""
        shape = self.variables[name]
        dimension = shape.dimensions[0] if shape.dimensions else ""
        if shape.strings:
            return Variable(dimension, self.strings(name))
        with _library(), _readable(self.path, name):
            return Variable(dimension, np.asarray(self._file.variables[name][:]).reshape(-1))

    def close(self) -> None:
        """Let go of the file; it cannot be read any more."""
        with _library(), _readable(self.path):
            if self._abandoned.detach():  # None when it is closed already
                _let_go(self._handle)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _shape(self, name: str, variable: Any, size: int) -> Shape:
        """Return the shape of a variable; DataError when the file is too short to hold what it declares."""
        strings = variable.dtype is str
        own = not strings and isinstance(variable.datatype, np.dtype)
        length = 1
        for dimension in variable.shape:  # in whole numbers that cannot overflow
            length *= int(dimension)
        filters = variable.filters() or {}
        packed = max((ratio for by, ratio in MOST_PACKED.items() if filters.get(by)), default=1)
        if length * (STRING_BYTES if strings else np.dtype(variable.dtype).itemsize) > size * packed:
            raise DataError(
                f"{self.path}: variable {name} declares {length} values, a file of {size} bytes cannot hold them; "
                "make or copy it again"
            )
        return Shape(tuple(variable.dimensions), length, np.dtype(variable.dtype) if own else None, strings)


def read(path: Path) -> Content:
    """Read a whole file; DataError when it is not NetCDF or torn, OSError when it cannot be opened at all."""
    with File(path) as file:
        return Content(file.attributes, {name: file.whole(name) for name in file.variables})


@contextmanager
def _readable(path: Path, name: str = "") -> Iterator[None]:
    """Turn what netCDF4 raises for a damaged file into DataError."""
    try:
        yield
    except (OSError, RuntimeError, AttributeError, UnicodeDecodeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, OSError) and error.errno and error.errno > 0:
            raise
        reason = (isinstance(error, OSError) and error.strerror) or str(error).partition(": '")[0]
        what = f"variable {name} cannot be read" if name else "not a readable NetCDF file"
        raise DataError(f"{path}: {what} ({_seen(path) or reason}); make or copy it again") from error


def _seen(path: Path) -> str:
    """Say what an unreadable file is, where that can be seen from outside; empty where it cannot."""
    try:
        with path.open("rb") as raw:
            begin = raw.read(1024)
    except OSError:
        return ""
    if not begin:
        return "it is empty"
    if begin.startswith(b"\x1f\x8b"):
        return "it is gzipped"
    return "it is a text file" if re.fullmatch(rb"[\t\r\n -~]+", begin) else ""


def write(path: Path, content: Content, begun: Path | None = None) -> None:
    """Write `content` so that `path` holds its old bytes or all of the new ones; same content, same bytes.

    Variables that the file `begun` has are copied with it instead: texts take HDF5 long.
    Raises OSError that names the file; on a full disk its errno is ENOSPC, whatever netCDF4 made of it. Raises
    DataError for a text with a zero byte, at which netCDF ends texts.
    """
    for name, value in content.attributes.items():
        _check_texts(f"attribute {name}", (value,) if isinstance(value, str) else ())
    for name, variable in content.variables.items():
        _check_texts(f"variable {name}", variable.values)
    with replacing(path) as part:
        part.touch()  # the system's own error for a folder that is missing or may not be written
        with _library(), _writing(path, _size(content)):
            if begun:
                shutil.copyfile(begun, part)
            _fill(part, content, "a" if begun else "w")


@contextmanager
def fill(path: Path, attributes: Mapping[str, Attribute], plans: Mapping[str, VariableShape]) -> Iterator[Put]:
    """Give a function that fills the variables as their values come; `path` is the whole file at the end, or untouched.

    Raises OSError and DataError as `write` does.
    """
    for name, value in attributes.items():
        _check_texts(f"attribute {name}", (value,) if isinstance(value, str) else ())
    with replacing(path) as part:
        part.touch()
        with _library(), _writing(path, ROOM):
            file = netCDF4.Dataset(str(part), "w", format="NETCDF4")
            try:
                _plan(file, attributes, plans)
            except BaseException:
                file.close()
                raise

        def put(name: str, first: int, values: NDArray[Any] | tuple[str, ...]) -> None:
            _check_texts(f"variable {name}", values)
            rows = np.array(values, dtype=object) if isinstance(values, tuple) else values
            with _library(), _writing(path, rows.nbytes):
                file[name][first : first + len(rows)] = rows

        try:
            yield put
        finally:
            with _library(), _writing(path, ROOM):
                file.close()


def _check_texts(what: str, values: NDArray[Any] | tuple[str, ...]) -> None:
    """Raise DataError for a text that would be cut where it is written."""
    wrong = next((text for text in values if "\0" in text), None) if isinstance(values, tuple) else None
    if wrong is not None:
        raise DataError(f"{wrong!r:.60} holds a zero byte, at which NetCDF ends texts; correct the input ({what})")


def _plan(file: Any, attributes: Mapping[str, Attribute], plans: Mapping[str, VariableShape]) -> None:
    file.setncatts(dict(attributes))
    for name, plan in plans.items():
        for dimension, size in plan.dimensions.items():
            if dimension not in file.dimensions:
                file.createDimension(dimension, size)
        file.createVariable(name, plan.dtype or str, tuple(plan.dimensions), fill_value=False)


@contextmanager
def _writing(path: Path, size: int) -> Iterator[None]:
    """Turn what netCDF4 raises when it cannot write `size` bytes into an OSError that names the file."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise _not_written(path, size, error) from error


def _fill(path: Path, content: Content, mode: Literal["w", "a"]) -> None:
    with netCDF4.Dataset(str(path), mode, format="NETCDF4") as file:
        file.setncatts(dict(content.attributes))
        for name, variable in content.variables.items():
            if name in file.variables:
                continue
            if variable.dimension not in file.dimensions:
                file.createDimension(variable.dimension, len(variable.values))
            strings = isinstance(variable.values, tuple)
            values = np.array(variable.values, dtype=object) if strings else variable.values
            kind = str if strings else variable.values.dtype  # type: ignore[union-attr]
            file.createVariable(name, kind, (variable.dimension,), fill_value=False)[:] = values


def _not_written(path: Path, size: int, error: Exception) -> OSError:
    """Return what to raise for a failed write; netCDF4 says "HDF error" or "Permission denied" of a full disk."""
    free = shutil.disk_usage(path.parent).free
    if free < size + ROOM:
        return OSError(errno.ENOSPC, f"the disk is full: {free} bytes are free; make room and try again", str(path))
    reason = getattr(error, "strerror", None) or error
    code = getattr(error, "errno", None) or errno.EIO
    return OSError(code, f"cannot be written: {reason} ({free} bytes are free); check the disk", str(path))


def _size(content: Content) -> int:
    """Return about how many bytes the values take in a file."""
    values = (variable.values for variable in content.variables.values())
    return sum(sum(map(len, v)) + 16 * len(v) if isinstance(v, tuple) else v.nbytes for v in values)
