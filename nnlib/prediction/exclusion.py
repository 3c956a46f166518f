"""Items that predictions leave out, and DSSTNE's filters, which multiply scores: from text files and data files.

Text has one sample a line, `sample<TAB>feature,value:feature,value:...`; a sample that comes twice has its last line.
Samples and features are named as in the data, or numbered from 0 where the data have no names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnlib.data.blockwise import Lookup
from nnlib.data.rows import Csr, offsets_of
from nnlib.data.sets import DataSet
from nnlib.data.sources import DataSource, open_files
from nnlib.data.units import Units
from nnlib.errors import DataError
from nnlib.evaluation.owned import are_targets, find_owned_input
from nnlib.model.file import Model
from nnlib.prediction.predictor import Prepared
from nnlib.spec.json_section import show
from nnlib.util.arrays import Longs

NOT_THERE = -1
NETCDF = (".nc", ".cdf", ".nc4")


@dataclass(frozen=True, slots=True)
class Numbered:
    """How many things there are, and their names, none where they are called by their numbers."""

    count: int
    names: Sequence[str] = ()

    def places(self) -> dict[str, int]:
        """Return name -> number."""
        return {name: n for n, name in enumerate(self.names or map(str, range(self.count)))}


@dataclass(frozen=True, slots=True)
class Listed:
    """What a text file says of known samples and features, and how much of it is about unknown ones."""

    rows: Csr  # (samples, features)
    unknown_samples: int
    unknown_features: int

    def __str__(self) -> str:
        return f"{self.unknown_samples} unknown samples and {self.unknown_features} unknown features ignored"


def exclude_by_file(path: Path, samples: Numbered, features: Numbered) -> Lookup:
    """Return the features that a file has for each sample: a data file, or text, whose values mean nothing here."""
    if path.suffix.lower() in NETCDF:
        return _excluded_by_data(open_files([path]), samples, features)
    rows = read_listed(path, samples, features).rows
    return rows.take


def exclude_inputs(model: Model, ready: Prepared, output: int) -> Lookup | None:
    """Return the items of each example's own input; None when no input has the same items as the Output layer.

    They are what a prediction leaves out. See `targets_are_inputs` for what measures one.
    """
    n = find_owned(model, ready, output)
    if n is None:
        return None
    width = ready.network.spec.layers[output].units or 0
    return _lookup([ready.examples.sets[n]], None, Numbered(width, ready.names.get(output, ())))


def targets_are_inputs(model: Model, ready: Prepared, output: int) -> bool:
    """Whether the items of each example's own input are its targets, so that without them nothing can be measured."""
    n, targets = find_owned(model, ready, output), ready.examples.sets.get(output)
    return n is not None and targets is not None and are_targets(ready.examples.sets[n], targets)


def read_listed(path: Path, samples: Numbered, features: Numbered) -> Listed:
    """Read a text file, or all files of a folder by name; a missing value is 0, as in DSSTNE.

    Raises DataError for a value that is no number, a line without a TAB, and when no sample is known.
    """
    lines: dict[int, tuple[list[int], list[float]]] = {}
    sample_places, feature_places = samples.places(), features.places()
    unknown_samples, unknown_features = 0, 0
    for where, sample, pairs in _lines(path):
        place = sample_places.get(sample)
        if place is None:
            unknown_samples += 1
            continue
        units, values = [], []
        for pair in filter(None, pairs):
            feature, _, value = pair.partition(",")
            unit = feature_places.get(feature)
            if unit is None:
                unknown_features += 1
                continue
            units.append(unit)
            values.append(_number(value, where, pair))
        lines[place] = units, values
    if not lines:
        legal = show(next(iter(sample_places), ""))
        raise DataError(f"{path}: none of its {unknown_samples} samples is in the data, legal: such as {legal}")
    counts = np.zeros(samples.count, np.int64)
    for place, (units, _) in lines.items():
        counts[place] = len(units)
    flat = np.array([unit for place in sorted(lines) for unit in lines[place][0]], np.int32)
    numbers = np.array([value for place in sorted(lines) for value in lines[place][1]], np.float32)
    return Listed(Csr(offsets_of(counts), flat, features.count, numbers), unknown_samples, unknown_features)


def same_rows(rows: Csr, samples: Numbered, features: Numbered) -> Lookup:
    """Return what gives the rows of a matrix (samples, features); DataError when it has another shape."""
    if (rows.examples, rows.width) != (samples.count, features.count):
        raise DataError(
            f"exclude: a matrix of {rows.examples} rows and {rows.width} columns, legal: {samples.count} and "
            f"{features.count}, as the examples and the units of the Output layer"
        )
    return rows.take


def find_owned(model: Model, ready: Prepared, output: int) -> int | None:
    """Return the first sparse Input layer with the items of an Output layer, as the model has both; None without."""
    spec = model.network.spec
    units = {n: Units(layer.units or 0, model.features.get(n, ())) for n, layer in enumerate(spec.layers)}
    return find_owned_input(spec, ready.examples, units, output)


def _lines(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (file and line, sample, its pairs)."""
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        try:
            with file.open(encoding="utf-8") as opened:
                for number, line in enumerate(opened, 1):
                    text = line.rstrip("\r\n")
                    if not text:
                        continue
                    sample, tab, rest = text.partition("\t")
                    if not tab:
                        raise DataError(
                            f"{file}:{number}: {show(text)} has no TAB, legal: sample<TAB>feature,value:..."
                        )
                    yield f"{file}:{number}", sample, rest.split(":")
        except UnicodeDecodeError as error:
            raise DataError(f"{file}: byte {error.start} is not UTF-8; save the file as UTF-8") from error


def _number(text: str, where: str, pair: str) -> float:
    if not text:
        return 0.0
    try:
        value = float(text.partition(",")[0])
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise DataError(f"{where}: {show(pair)} has no finite number after its comma, legal: feature,value")
    return value


def _excluded_by_data(data: DataSource, samples: Numbered, features: Numbered) -> Lookup:
    fitting = [data_set for data_set in data.sets.values() if data_set.sparse and _same_items(data_set, features)]
    if not fitting:
        seen = ", ".join(f"{show(s.name)} of width {s.width}" for s in data.sets.values())
        raise DataError(
            f"{data.file}: no sparse data set of these items, legal: one of width {features.count}, or one whose units "
            f"and the model's have names; there are: {seen}"
        )
    return _lookup(fitting, _sample_places(data, samples), features)


def _lookup(sets: Sequence[DataSet], places: Longs | None, features: Numbered) -> Lookup:
    """Return the units of sparse sets, numbered as the features, of each sample; `places` are the samples' rows."""
    moved = [_unit_places(data_set, features) for data_set in sets]

    def lookup(examples: Longs) -> Csr:
        rows = examples if places is None else places[examples]
        there = np.flatnonzero(rows != NOT_THERE)
        owners, units = [], []
        for data_set, new in zip(sets, moved, strict=True):
            found = data_set.take(rows[there]).rows
            assert isinstance(found, Csr), "only sparse sets are given"
            unit = found.indices if new is None else new[found.indices]
            owners.append(np.repeat(there, np.diff(found.indptr))[unit != NOT_THERE])
            units.append(unit[unit != NOT_THERE])
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        indptr = offsets_of(np.bincount(owner, minlength=len(examples)))
        return Csr(indptr, np.concatenate(units)[order].astype(np.int32), features.count)

    return lookup


def _same_items(data_set: DataSet, features: Numbered) -> bool:
    """Whether the units of a set can be found among the features: by name, else by number."""
    return bool(data_set.features and features.names) or data_set.width == features.count


def _unit_places(data_set: DataSet, features: Numbered) -> Longs | None:
    """Return the number of each unit of the set among the features, NOT_THERE for none; None: they are the same."""
    if not (data_set.features and features.names) or data_set.features == features.names:
        return None
    places = features.places()
    return np.array([places.get(name, NOT_THERE) for name in data_set.features], np.int64)


def _sample_places(data: DataSource, samples: Numbered) -> Longs:
    """Return the row of each sample, NOT_THERE for one without."""
    count = next(iter(data.sets.values())).examples
    if data.samples and samples.names:
        place = {name: n for n, name in enumerate(data.samples)}
        found = np.array([place.get(name, NOT_THERE) for name in samples.names], np.int64)
        if not len(found) or (found != NOT_THERE).any():
            return found
        raise DataError(
            f"{data.file}: none of its samples is in the data; they are named such as {show(data.samples[0])}, those "
            f"of the data such as {show(samples.names[0])}"
        )
    if count != samples.count:
        raise DataError(
            f"{data.file}: {count} examples without names to go by, legal: {samples.count}, the examples of the data"
        )
    return np.arange(count)
