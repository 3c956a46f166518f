"""What a data file says of time and place beside DSSTNE's variables, which DSSTNE ignores.

sparseTime<n> (int32) has the day of each entry of data set n, counted from 1970-01-01, sparseQuantity<n> (float32) how
many were bought; the attribute as_of (int32) is the first day that the file is asked about, and no entry is of that day
or later. Examples of one region have its name in the attribute `region`; where there are several, the strings `regions`
name them and regionOf (int32) has the number of each example's. Files without any of this lack it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnlib.data.file_header import Header, check_length, integer, shape_of_names, shape_of_numbers
from nnlib.data.file_rows import read_entries
from nnlib.data.rows import Floats, Ints
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError
from nnlib.spec.json_section import show
from nnlib.util import netcdf

AS_OF, REGIONS, REGION_OF = "as_of", "regions", "regionOf"
TIME, QUANTITY = "sparseTime", "sparseQuantity"
SHORT = np.iinfo(np.int32)


def read_as_of(file: netcdf.File) -> int | None:
    """Return the first day that the file is asked about, None when it has no times."""
    if AS_OF not in file.attributes:
        return None
    day = integer(file, AS_OF)
    if not SHORT.min <= day <= SHORT.max:
        raise DataError(f"{file.path}: attribute as_of: {day} is not legal, legal: days since 1970-01-01, of 32 bits")
    return day


def has_days(file: netcdf.File, header: Header) -> bool:
    """Whether there is a day for each entry of a data set; DataError when there are days of which some are missing."""
    return _has(file, header, TIME, "iu")


def has_quantities(file: netcdf.File, header: Header) -> bool:
    """Whether there is a quantity for each entry of a data set."""
    return _has(file, header, QUANTITY, "iuf")


def read_days(file: netcdf.File, header: Header, first: int, last: int) -> Ints | None:
    """Return the days of the entries of the rows from `first` to before `last`, None when the file has no times."""
    if not has_days(file, header):
        return None
    as_of = read_as_of(file)
    if as_of is None:
        raise DataError(f"{file.path}: attribute as_of is missing, legal beside {TIME}{header.n}: the day it ends at")
    days = read_entries(file, header, TIME, first, last)
    wrong = np.flatnonzero((days < SHORT.min) | (days >= as_of))
    if len(wrong):
        raise DataError(
            f"{file.path}: variable {TIME}{header.n}: an entry of {header.row}s {first} to {last - 1} is of day "
            f"{days[wrong[0]]}, legal: before as_of, {as_of}; a history ends before the day it is asked about"
        )
    return days.astype(np.int32, copy=False)


def read_quantities(file: netcdf.File, header: Header, first: int, last: int) -> Floats | None:
    """Return the quantities of the entries of the rows from `first` to before `last`, None without any."""
    if not has_quantities(file, header):
        return None
    with np.errstate(over="ignore"):
        found = read_entries(file, header, QUANTITY, first, last).astype(np.float32, copy=False)
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise DataError(
            f"{file.path}: variable {QUANTITY}{header.n}: an entry of {header.row}s {first} to {last - 1} has "
            f"{found[wrong[0]]}, legal: a finite float32; make the file again"
        )
    return found


def read_regions(file: netcdf.File, examples: int) -> tuple[tuple[str, ...], Ints | None]:
    """Return the names of the regions and the number of each example's; nothing when the file is not of several."""
    shape = shape_of_names(file, REGIONS)
    if shape is None and REGION_OF not in file.variables:
        return (), None
    names = file.strings(REGIONS) if shape else ()
    if not names or len(set(names)) < len(names):
        seen = f"{len(names)} names, {len(set(names))} of them different"
        raise DataError(f"{file.path}: variable {REGIONS}: {seen}, legal: one for each region that {REGION_OF} counts")
    check_length(file, REGION_OF, shape_of_numbers(file, REGION_OF, "iu").length, examples, "examples")
    numbers = file.values(REGION_OF)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= len(names)))
    if len(wrong):
        raise DataError(
            f"{file.path}: variable {REGION_OF}: example {wrong[0]} has the region {numbers[wrong[0]]}, "
            f"legal: 0 to {len(names) - 1}"
        )
    return names, numbers.astype(np.int32)


def region_of(file: netcdf.File) -> str:
    """Return the one region that a file names, or nothing."""
    return str(file.attributes.get("region", ""))


def attributes_of(data: Data) -> dict[str, netcdf.Attribute]:
    """Return the attributes that say of which region and day the data are."""
    found: dict[str, netcdf.Attribute] = {}
    if data.region:
        found["region"] = data.region
    if data.as_of is not None:
        found[AS_OF] = np.int32(data.as_of)
    return found


def variables_of_regions(regions: Sequence[str], numbers: Ints | None) -> dict[str, netcdf.Variable]:
    """Return the variables that say which region each example is of; none when there is one region."""
    if not regions or numbers is None:
        return {}
    return {
        REGIONS: netcdf.Variable("regionsDim", tuple(regions)),
        REGION_OF: netcdf.Variable("regionOfDim", numbers.astype(np.int32, copy=False)),
    }


def entries_of_set(n: int, data_set: DataSet) -> dict[str, NDArray[np.generic]]:
    """Return, by the names of their variables, what there is for each entry of data set `n`."""
    found: dict[str, NDArray[np.generic]] = {}
    if data_set.days is not None:
        found[f"{TIME}{n}"] = data_set.days.astype(np.int32, copy=False)
    if data_set.quantities is not None:
        found[f"{QUANTITY}{n}"] = data_set.quantities.astype(np.float32, copy=False)
    return found


def _has(file: netcdf.File, header: Header, name: str, kinds: str) -> bool:
    name = f"{name}{header.n}"
    if name not in file.variables:
        return False
    if not header.sparse:
        raise DataError(f"{file.path}: variable {name}: data set {show(header.name)} is dense, legal: sparse ones only")
    check_length(file, name, shape_of_numbers(file, name, kinds).length, header.entries, "units")
    return True
