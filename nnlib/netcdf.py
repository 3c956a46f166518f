"""NetCDF-4 files as plain attributes and NumPy arrays; the only module that imports netCDF4."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
from numpy.typing import NDArray

from nnlib.errors import DataError

VERSION = str(netCDF4.__version__)
ROOM = 1 << 20  # bytes that a file may take beyond its values


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: the name of its only dimension, and its values (an array, or strings)."""

    dimension: str
    values: NDArray[Any] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """All of a NetCDF file. Attributes are NumPy scalars (their type is the type in the file) or strings."""

    attributes: Mapping[str, Any]
    variables: Mapping[str, Variable]


def read(path: Path) -> Content:
    """Read a whole file; DataError when it is not NetCDF or torn, OSError when it cannot be opened at all."""
    with path.open("rb"):  # the system's own error for a missing or unreadable file
        pass
    try:
        with netCDF4.Dataset(str(path), "r") as file:
            file.set_auto_maskandscale(False)
            attributes = {name: file.getncattr(name) for name in file.ncattrs()}
            return Content(attributes, {name: _variable(v) for name, v in file.variables.items()})
    except (OSError, RuntimeError, AttributeError) as error:
        reason = str(error).partition(": '")[0]
        raise DataError(f"{path.name}: not a readable NetCDF file ({reason}); make or copy it again") from error


def write(path: Path, content: Content) -> None:
    """Write `content` so that `path` holds its old bytes or all of the new ones; same content, same bytes.

    Raises OSError that names the file; on a full disk its errno is ENOSPC, whatever netCDF4 made of it.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb"):  # the system's own error for a folder that is missing or may not be written
            pass
        try:
            _fill(part, content)
        except (OSError, RuntimeError) as error:
            raise _not_written(path, content, error) from error
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _fill(path: Path, content: Content) -> None:
    with netCDF4.Dataset(str(path), "w", format="NETCDF4") as file:
        file.setncatts(dict(content.attributes))
        for name, variable in content.variables.items():
            if variable.dimension not in file.dimensions:
                file.createDimension(variable.dimension, len(variable.values))
            strings = isinstance(variable.values, tuple)
            values = np.array(variable.values, dtype=object) if strings else variable.values
            kind = str if strings else variable.values.dtype  # type: ignore[union-attr]
            file.createVariable(name, kind, (variable.dimension,), fill_value=False)[:] = values
    with path.open("rb+") as written:
        os.fsync(written.fileno())


def _not_written(path: Path, content: Content, error: Exception) -> OSError:
    """Return what to raise for a failed write; netCDF4 says "HDF error" or "Permission denied" of a full disk."""
    free = shutil.disk_usage(path.parent).free
    if free < _size(content) + ROOM:
        return OSError(errno.ENOSPC, f"the disk is full: {free} bytes are free; make room and try again", str(path))
    reason = getattr(error, "strerror", None) or error
    code = getattr(error, "errno", None) or errno.EIO
    return OSError(code, f"cannot be written: {reason} ({free} bytes are free); check the disk", str(path))


def _size(content: Content) -> int:
    """Return about how many bytes the values take in a file."""
    values = (variable.values for variable in content.variables.values())
    return sum(sum(map(len, v)) + 16 * len(v) if isinstance(v, tuple) else v.nbytes for v in values)


def _variable(variable: Any) -> Variable:
    values = variable[:]
    dimension = variable.dimensions[0] if variable.dimensions else ""
    if variable.dtype is str:
        return Variable(dimension, tuple(np.atleast_1d(values).tolist()))
    return Variable(dimension, np.asarray(values).reshape(-1))
