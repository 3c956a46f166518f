"""What a data file says of time and place beside DSSTNE's variables, which DSSTNE ignores.

sparseTime<n> (int32) has the day of each entry of data set n, counted from 1970-01-01, sparseQuantity<n> (float32) how
many were bought; the attribute as_of (int32) is the first day that the file is asked about, and no entry is of that day
or later. Examples of one region have its name in the attribute `region`; where there are several, the strings `regions`
name them and regionOf (int32) has the number of each example's. Files without any of this lack it.

Where buying again counts (`nnlib import --repeats`) the attribute `repeats` is 1: what an example has is ranked and
recommended like anything else. In files without it, that has no rank. sparseTime<n> is then the day of the first
purchase, sparseLast<n> (int32) that of the last one, and sparseCount<n> (int32) on how many days there was one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.file_header import Header, check_length, integer, shape_of_names, shape_of_numbers
from nnlib.data.file_rows import read_entries
from nnlib.data.rows import Floats, Ints
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError
from nnlib.spec.json_section import show
from nnlib.util import netcdf

AS_OF, REGIONS, REGION_OF, REPEATS = "as_of", "regions", "regionOf", "repeats"
TIME, QUANTITY, LAST, COUNT = "sparseTime", "sparseQuantity", "sparseLast", "sparseCount"
SHORT = np.iinfo(np.int32)


def read_as_of(file: netcdf.File) -> int | None:
    """Return the first day that the file is asked about, None when it has no times."""
    if AS_OF not in file.attributes:
        return None
    day = integer(file, AS_OF)
    if not SHORT.min <= day <= SHORT.max:
        raise DataError(f"{file.path}: attribute as_of: {day} is not legal, legal: days since 1970-01-01, of 32 bits")
    return day


def read_repeats(file: netcdf.File) -> bool:
    """Return whether what an example has is ranked like anything else."""
    if REPEATS not in file.attributes:
        return False
    mark = integer(file, REPEATS)
    if mark not in (0, 1):
        raise DataError(f"{file.path}: attribute {REPEATS}: {mark} is not legal, legal: 0, 1; make the file again")
    return mark == 1


def find_beside(file: netcdf.File, header: Header) -> tuple[str, ...]:
    """Return which of BESIDE a data set has for each entry; DataError when one has not as many values as entries."""
    kinds = {TIME: "iu", QUANTITY: "iuf", LAST: "iu", COUNT: "iu"}
    return tuple(name for name in BESIDE if _has(file, header, name, kinds[name]))


def read_beside(file: netcdf.File, header: Header, fields: Collection[str]) -> dict[str, Any]:
    """Return which of `fields` of `DataSet` a data set has for each of its entries, and what."""
    wanted = [name for name in find_beside(file, header) if FIELDS[name] in fields]
    return {FIELDS[name]: BESIDE[name](file, header, 0, header.rows) for name in wanted}


def read_days(file: netcdf.File, header: Header, first: int, last: int) -> Ints:
    """Return the days of the entries of the rows from `first` to before `last`."""
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


def read_last_days(file: netcdf.File, header: Header, first: int, last: int) -> Ints:
    """Return the days of the last purchases, likewise."""
    if f"{TIME}{header.n}" not in file.variables:
        raise DataError(f"{file.path}: variable {TIME}{header.n} is missing, legal beside {LAST}{header.n}")
    days, found = read_days(file, header, first, last), read_entries(file, header, LAST, first, last)
    as_of = read_as_of(file)
    wrong = np.flatnonzero((found < days) | (found >= as_of))
    if len(wrong):
        raise DataError(
            f"{file.path}: variable {LAST}{header.n}: an entry of {header.row}s {first} to {last - 1} is of day "
            f"{found[wrong[0]]}, legal: from its {TIME}{header.n}, {days[wrong[0]]}, to before as_of, {as_of}"
        )
    return found.astype(np.int32, copy=False)


def read_counts(file: netcdf.File, header: Header, first: int, last: int) -> Ints:
    """Return on how many days the entries were bought, likewise."""
    found = read_entries(file, header, COUNT, first, last)
    wrong = np.flatnonzero((found < 1) | (found > SHORT.max))
    if len(wrong):
        raise DataError(
            f"{file.path}: variable {COUNT}{header.n}: an entry of {header.row}s {first} to {last - 1} has "
            f"{found[wrong[0]]}, legal: from 1; make the file again"
        )
    return found.astype(np.int32, copy=False)


def read_quantities(file: netcdf.File, header: Header, first: int, last: int) -> Floats:
    """Return the quantities of the entries, likewise."""
    with np.errstate(over="ignore"):
        found = read_entries(file, header, QUANTITY, first, last).astype(np.float32, copy=False)
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise DataError(
            f"{file.path}: variable {QUANTITY}{header.n}: an entry of {header.row}s {first} to {last - 1} has "
            f"{found[wrong[0]]}, legal: a finite float32; make the file again"
        )
    return found


Read = Callable[[netcdf.File, Header, int, int], NDArray[Any]]
BESIDE: Mapping[str, Read] = {TIME: read_days, QUANTITY: read_quantities, LAST: read_last_days, COUNT: read_counts}
FIELDS = {TIME: "days", QUANTITY: "quantities", LAST: "last", COUNT: "counts"}  # of DataSet
TYPES = {TIME: np.int32, QUANTITY: np.float32, LAST: np.int32, COUNT: np.int32}


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
    """Return the attributes that say of which region and day the data are, and whether buying again counts."""
    found: dict[str, netcdf.Attribute] = {}
    if data.region:
        found["region"] = data.region
    if data.as_of is not None:
        found[AS_OF] = np.int32(data.as_of)
    if data.repeats:
        found[REPEATS] = np.uint32(1)
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
    found = {name: getattr(data_set, field) for name, field in FIELDS.items()}
    return {f"{name}{n}": of.astype(TYPES[name], copy=False) for name, of in found.items() if of is not None}


def _has(file: netcdf.File, header: Header, name: str, kinds: str) -> bool:
    name = f"{name}{header.n}"
    if name not in file.variables:
        return False
    if not header.sparse:
        raise DataError(f"{file.path}: variable {name}: data set {show(header.name)} is dense, legal: sparse ones only")
    check_length(file, name, shape_of_numbers(file, name, kinds).length, header.entries, "units")
    return True
