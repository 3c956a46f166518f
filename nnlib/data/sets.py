"""Data sets in memory or in files: rows with their names, weights and index; several files as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import (
    Csr,
    Dense,
    Floats,
    Ints,
    Joined,
    Rows,
    entries_of,
    find_not_finite,
    offsets_of,
    stack,
)
from nnlib.errors import DataError
from nnlib.spec.json_section import MOST_UNITS
from nnlib.util.arrays import Longs

STORED_TYPES = ("uint8", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
WIDENED = {"bool": "float32", "int16": "int32", "float16": "float32", "longdouble": "float64", "float128": "float64"}
BESIDE = ("days", "quantities", "last", "counts")  # what a DataSet has for each entry


def entries_beside(of: Any, names: Sequence[str], entries: NDArray[Any]) -> dict[str, Any]:
    """Return what the attributes `names` of data have for some entries, None where they have nothing."""
    found = {name: getattr(of, name) for name in names}
    return {name: None if values is None else values[entries] for name, values in found.items()}


@dataclass(frozen=True, slots=True, eq=False)
class DataSet:
    """One named data set; `features` are the names of its units, empty when the file has none.

    Example i is row `index[i]` of `rows`, or row i without an index; examples of an indexed set share rows.
    """

    name: str
    rows: Csr | Dense | Rows
    features: tuple[str, ...] = ()
    weights: Floats | None = None  # (examples,); None means ones
    index: NDArray[np.int64] | Ints | None = None  # (examples,)
    dimensions: tuple[int, ...] = ()  # width, height, length as in the file; () means (rows.width,)
    ignore_zero: bool = False  # of a target only the stored entries count
    days: Ints | None = None  # (entries of rows,): days since 1970-01-01; of sparse rows in memory alone
    quantities: Floats | None = None  # (entries of rows,): how many of it were bought, likewise
    last: Ints | None = None  # (entries of rows,): the days of the last purchases, `days` being those of the first
    counts: Ints | None = None  # (entries of rows,): on how many days it was bought

    @property
    def sparse(self) -> bool:
        """Whether the rows are Csr."""
        return self.rows.sparse

    @property
    def boolean(self) -> bool:
        """Whether the rows are Csr of ones."""
        return self.rows.boolean

    @property
    def examples(self) -> int:
        """How many examples."""
        return self.rows.examples if self.index is None else len(self.index)

    @property
    def width(self) -> int:
        """How many units an example has."""
        return self.rows.width

    def take(self, examples: Longs) -> DataSet:
        """Return the examples numbered `examples`, in that order, in memory and without an index."""
        rows = examples if self.index is None else self.index[examples].astype(np.int64)
        weights = None if self.weights is None else self.weights[examples]
        taken = replace(self, rows=self.rows.take(rows), weights=weights, index=None)
        if isinstance(self.rows, Csr) and any(getattr(self, name) is not None for name in BESIDE):
            return taken._with_entries(self, entries_of(self.rows.indptr, rows)[1])
        return taken

    def keep(self, mask: NDArray[np.bool_]) -> DataSet:
        """Return the same examples with only the entries whose `mask` (nonzeros,) is true; rows are Csr."""
        assert isinstance(self.rows, Csr)
        return replace(self, rows=self.rows.keep(mask))._with_entries(self, mask)

    def _with_entries(self, other: DataSet, entries: NDArray[Any]) -> DataSet:
        return replace(self, **entries_beside(other, BESIDE, entries))


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """The data sets of one file, or of several whose examples follow one another."""

    sets: tuple[DataSet, ...]
    samples: Sequence[str] = ()  # names of the examples
    region: str = ""  # of all examples
    as_of: int | None = None  # the first day that the data are asked about, in days since 1970-01-01
    regions: tuple[str, ...] = ()  # where the examples are of several
    region_of: Ints | None = None  # (examples,): numbers into `regions`, where there are any
    repeats: bool = False  # whether what an example has is ranked like anything else, as it may be bought again


def from_scipy(matrix: Any) -> Csr:
    """Return the Csr of a SciPy sparse matrix or array of any format; one whose values are all 1 becomes boolean."""
    if matrix.ndim != 2:
        raise DataError(f"a sparse array of {matrix.ndim} dimensions is not legal, legal: two, examples and units")
    matrix = matrix.tocsr()
    examples, width = matrix.shape
    if not 1 <= width <= MOST_UNITS:
        raise DataError(f"a sparse matrix of {width} columns is not legal, legal: 1 to {MOST_UNITS}")
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < width:
        raise DataError(f"a sparse matrix has column numbers outside 0 to {width - 1}; make it again")
    if np.all(matrix.data == 1):
        return Csr(indptr, indices.astype(np.int32), width)
    rows = Csr(indptr, indices.astype(np.int32), width, _as_floats(matrix.data))
    wrong = find_not_finite(rows)
    if wrong is not None:
        raise DataError(f"a sparse matrix of {examples} rows: row {wrong} has a value that is not a finite float32")
    return rows


def as_data_set(name: str, value: Any) -> DataSet:
    """Return what a caller has as a data set: a SciPy sparse matrix, a two-dimensional NumPy array, or a DataSet."""
    if isinstance(value, DataSet):
        return replace(value, name=name)
    if isinstance(value, Csr | Dense):
        return DataSet(name, value)
    try:
        if hasattr(value, "tocsr"):
            return DataSet(name, from_scipy(value))
        return DataSet(name, _from_array(np.asarray(value)))
    except DataError as error:
        raise DataError(f"data set {name!r}: {error}") from None
    except ValueError as error:  # NumPy's, of lists
        raise DataError(f"data set {name!r}: rows of different lengths are not legal, legal: a full table") from error


def join(parts: Sequence[tuple[str, Data]]) -> Data:
    """Return the examples of several (file name, data) one after the other; DataError when they do not fit.

    What there is for each entry is left out, and the region is that of the first.
    """
    (first_file, first), *others = parts
    if not others:
        return first
    for file, data in others:
        for wanted, seen in zip(first.sets, data.sets, strict=False):
            _check_continues(first_file, wanted, file, seen)
        if len(data.sets) != len(first.sets):
            raise DataError(f"{file}: {len(data.sets)} data sets, {first_file} has {len(first.sets)}")
        if data.repeats != first.repeats:
            raise DataError(say_mixed_repeats(first_file, first.repeats, file))
    datas = [data for _, data in parts]
    sets = tuple(_join([data.sets[n] for data in datas]) for n in range(len(first.sets)))
    named = all(data.samples for data in datas)
    samples = tuple(s for data in datas for s in data.samples) if named else ()
    return Data(sets, samples, first.region, repeats=first.repeats)


def say_mixed_repeats(one: str, repeats: bool, other: str) -> str:
    """Return what is wrong with two files of which the first says `repeats` and the other does not say the same."""
    marked, plain = (one, other) if repeats else (other, one)
    return (
        f"{marked}: what a customer has is ranked when it is bought again (repeats), in {plain} it has no rank; legal: "
        "the same in all files; import them from one table, all with --repeats or all without"
    )


def kind_of(data_set: DataSet) -> str:
    """Return what a data set is, in words, such as `sparse boolean`."""
    if data_set.sparse:
        return "sparse boolean" if data_set.boolean else "sparse analog"
    return f"dense {data_set.rows.take(np.empty(0, np.int64)).values.dtype}"  # type: ignore[union-attr]


def _check_continues(first_file: str, wanted: DataSet, file: str, seen: DataSet) -> None:
    if (wanted.name, wanted.width, wanted.features) != (seen.name, seen.width, seen.features):
        raise DataError(
            f"{file}: data set {seen.name!r} of width {seen.width} does not continue {wanted.name!r} "
            f"of width {wanted.width} in {first_file}; import both with one list of items"
        )
    wants, sees = (f"{kind_of(s)}, {_axes(s)}{', ignoring zeros' * s.ignore_zero}" for s in (wanted, seen))
    if wants != sees:
        raise DataError(
            f"{file}: data set {seen.name!r} is {sees}, in {first_file} it is {wants}; make both files in one way"
        )


def _axes(data_set: DataSet) -> str:
    return " x ".join(map(str, data_set.dimensions or (data_set.width,)))


def _join(sets: Sequence[DataSet]) -> DataSet:
    rows = tuple(data_set.rows for data_set in sets)
    loaded = [part for part in rows if isinstance(part, Csr | Dense)]
    weights = index = None
    if any(data_set.weights is not None for data_set in sets):
        weights = np.concatenate([np.ones(s.examples, np.float32) if s.weights is None else s.weights for s in sets])
    if any(data_set.index is not None for data_set in sets):
        first = offsets_of(np.array([part.examples for part in rows]))
        index = np.concatenate(
            [(np.arange(s.examples) if s.index is None else s.index) + first[n] for n, s in enumerate(sets)]
        )
    together = stack(loaded) if len(loaded) == len(rows) else Joined(rows)
    nothing: dict[str, Any] = dict.fromkeys(BESIDE)
    return replace(sets[0], rows=together, weights=weights, index=index, **nothing)


def _as_floats(values: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused by name
        return values.astype(np.float32)


def _from_array(array: NDArray[Any]) -> Dense:
    if array.ndim != 2:
        raise DataError(f"an array of {array.ndim} dimensions is not legal, legal: two, examples and units")
    if not 1 <= array.shape[1] <= MOST_UNITS:
        raise DataError(f"an array of {array.shape[1]} columns is not legal, legal: 1 to {MOST_UNITS}")
    name = WIDENED.get(array.dtype.name, array.dtype.name)
    if name not in STORED_TYPES:
        raise DataError(f"an array of type {array.dtype} is not legal, legal: {', '.join(STORED_TYPES)}")
    rows = Dense(np.ascontiguousarray(array, dtype=name))
    wrong = find_not_finite(rows)
    if wrong is not None:
        raise DataError(f"row {wrong} has a value that is not a finite float32")
    return rows
