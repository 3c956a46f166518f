"""DSSTNE's data-set files: NetCDF-4 with numbered attributes and variables, one number per data set.

Data set n has the attributes name, attributes (bits), dataType, kind, dimensions, width, and, being sparse, the
variables sparseStart, sparseEnd (half-open ranges into sparseIndex) and sparseIndex. Read as well: legacy 32-bit
ranges, more than one dimension, duplicate units in an example, ranges in any order. Beyond the format: `samples`
and `indToFeature<n>` (names), and the global attribute `region`; DSSTNE ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib import netcdf
from nnlib.data import Csr, Data, DataSet, join, offsets
from nnlib.errors import DataError

SPARSE, BOOLEAN = 1, 2
WITHOUT_EFFECT = 4 | 8 | 16  # Compressed, Recurrent, Mutable: flags that DSSTNE stores and never reads
UINT_TYPE = 0
NUMERIC_KIND = 0


@dataclass(frozen=True, slots=True)
class SetSummary:
    """What one data set holds."""

    name: str
    examples: int
    width: int
    nonzeros: int


@dataclass(frozen=True, slots=True)
class DataSummary:
    """What a data file holds; `region` is empty when the file does not name one."""

    sets: tuple[SetSummary, ...]
    region: str


def check_data_file(path: Path) -> DataSummary:
    """Read the whole file and summarize it; DataError names the file, the variable and what is legal."""
    data = read_data(path)
    sets = tuple(SetSummary(s.name, s.rows.examples, s.rows.width, s.rows.nonzeros) for s in data.sets)
    return DataSummary(sets, data.region)


def read_all(paths: Sequence[Path]) -> Data:
    """Read several files; their examples follow one another."""
    return join([(path.name, read_data(path)) for path in paths])


def read_data(path: Path) -> Data:
    """Read one data-set file."""
    content = netcdf.read(path)
    reader = _Reader(path.name, content.attributes, content.variables)
    count = reader.integer("datasets")
    if not 1 <= count <= len(content.variables):
        raise DataError(
            f"{path.name}: attribute datasets: {count} is not legal, legal: the number of data sets, from 1"
        )
    sets = tuple(_read_set(reader, n) for n in range(count))
    examples = {s.rows.examples for s in sets}
    if len(examples) > 1:
        seen = ", ".join(f"{s.name} {s.rows.examples}" for s in sets)
        raise DataError(f"{path.name}: data sets have different numbers of examples ({seen}); they must agree")
    samples = reader.strings("samples")
    if samples and len(samples) != sets[0].rows.examples:
        raise DataError(f"{path.name}: samples: {len(samples)} names, there are {sets[0].rows.examples} examples")
    return Data(sets, samples, str(content.attributes.get("region", "")))


def write_data(path: Path, data: Data) -> None:
    """Write a data-set file atomically; the same data give the same bytes."""
    attributes: dict[str, Any] = {"datasets": np.uint32(len(data.sets))}
    variables: dict[str, netcdf.Variable] = {}
    for n, data_set in enumerate(data.sets):
        rows = data_set.rows
        attributes |= {
            f"name{n}": data_set.name,
            f"attributes{n}": np.uint32(SPARSE | BOOLEAN),
            f"dataType{n}": np.uint32(UINT_TYPE),
            f"kind{n}": np.uint32(NUMERIC_KIND),
            f"dimensions{n}": np.uint32(1),
            f"width{n}": np.uint32(rows.width),
        }
        variables |= {
            f"sparseStart{n}": netcdf.Variable(f"examplesDim{n}", rows.indptr[:-1].astype(np.uint64)),
            f"sparseEnd{n}": netcdf.Variable(f"examplesDim{n}", rows.indptr[1:].astype(np.uint64)),
            f"sparseIndex{n}": netcdf.Variable(f"sparseDataDim{n}", rows.indices.astype(np.uint32)),
        }
        if data_set.features:
            variables[f"indToFeature{n}"] = netcdf.Variable(f"indToFeatureDim{n}", data_set.features)
    if data.samples:
        variables["samples"] = netcdf.Variable("samplesDim", data.samples)
    if data.region:
        attributes["region"] = data.region
    netcdf.write(path, netcdf.Content(attributes, variables))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Typed access to a file's content, with errors that name file and variable."""

    file: str
    attributes: Mapping[str, Any]
    variables: Mapping[str, netcdf.Variable]

    def integer(self, name: str) -> int:
        value = self.attributes.get(name)
        if value is None:
            raise DataError(f"{self.file}: attribute {name} is missing; this is not a DSSTNE data file")
        if np.ndim(value) or not np.issubdtype(np.asarray(value).dtype, np.integer):
            raise DataError(f"{self.file}: attribute {name}: {value!r} is not legal, legal: an integer")
        return int(value)

    def array(self, name: str) -> NDArray[np.int64]:
        variable = self.variables.get(name)
        if variable is None:
            raise DataError(f"{self.file}: variable {name} is missing; make the file again")
        values = variable.values
        if isinstance(values, tuple) or not np.issubdtype(values.dtype, np.integer):
            raise DataError(f"{self.file}: variable {name} is not of an integer type, legal: uint or uint64")
        if values.size and not 0 <= int(values.min()) <= int(values.max()) < 2**62:
            raise DataError(f"{self.file}: variable {name}: values outside 0 to 2^62; make the file again")
        return values.astype(np.int64)

    def strings(self, name: str) -> tuple[str, ...]:
        variable = self.variables.get(name)
        if variable is None:
            return ()
        if not isinstance(variable.values, tuple):
            raise DataError(f"{self.file}: variable {name} is not of type string")
        return variable.values


def _read_set(reader: _Reader, n: int) -> DataSet:
    name = str(reader.attributes.get(f"name{n}", ""))
    flags = reader.integer(f"attributes{n}") & ~WITHOUT_EFFECT
    if flags != SPARSE | BOOLEAN:
        raise DataError(
            f"{reader.file}: attributes{n}: data set {name!r} has the bits {flags}, not supported yet; "
            f"legal: {SPARSE | BOOLEAN} (sparse and boolean)"
        )
    reader.integer(f"dataType{n}")  # required by the format, without meaning for boolean data
    width = 1
    for axis in ("width", "height", "length")[: reader.integer(f"dimensions{n}")]:
        width *= reader.integer(f"{axis}{n}")
    if not 1 <= width < 2**31:
        raise DataError(f"{reader.file}: width{n}: {width} is not legal, legal: 1 to 2147483647")
    rows = _read_rows(reader, n, width)
    features = reader.strings(f"indToFeature{n}")
    if features and len(features) != width:
        raise DataError(f"{reader.file}: indToFeature{n}: {len(features)} names, width{n} is {width}")
    return DataSet(name, rows, features)


def _read_rows(reader: _Reader, n: int, width: int) -> Csr:
    start, end = reader.array(f"sparseStart{n}"), reader.array(f"sparseEnd{n}")
    index = reader.array(f"sparseIndex{n}")
    file = reader.file
    if not len(start):
        raise DataError(f"{file}: sparseStart{n}: zero examples, legal: at least one")
    if len(start) != len(end):
        raise DataError(f"{file}: sparseEnd{n}: {len(end)} examples, sparseStart{n} has {len(start)}")
    wrong = np.flatnonzero((start > end) | (end > len(index)))
    if len(wrong):
        i = int(wrong[0])
        raise DataError(
            f"{file}: sparseStart{n}, sparseEnd{n}: example {i} has the range {start[i]} to {end[i]}, "
            f"legal: start <= end <= {len(index)}; make the file again"
        )
    counts = end - start
    indptr = offsets(counts)
    flat = index[np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], counts)]
    if len(flat) and int(flat.max()) >= width:
        at = int(np.argmax(flat >= width))
        example = int(np.searchsorted(indptr, at, side="right")) - 1
        raise DataError(f"{file}: sparseIndex{n}: example {example} has unit {flat[at]}, legal: 0 to {width - 1}")
    return Csr(indptr, flat.astype(np.int32), width)
