"""What a caller has as data, brought to the data sets that a network's layers name: files, arrays, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlib.data.file_header import read_headers
from nnlib.data.sets import Data, DataSet, as_data_set
from nnlib.data.stream import open_data
from nnlib.errors import DataError
from nnlib.spec.json_section import nearest, show
from nnlib.spec.types import LayerKind, NetworkSpec
from nnlib.util import netcdf

Sets = dict[str, DataSet]


@dataclass(frozen=True, slots=True, eq=False)
class DataSource:
    """Data sets by name, the names of their examples where known, and what to call them in messages."""

    sets: Sets
    file: str
    samples: Sequence[str] = ()
    region: str = ""
    repeats: bool = False  # as in Data


def open_files(paths: Sequence[Path]) -> DataSource:
    """Return the data sets of files; those that do not fit into memory stay in their files.

    Files with the same data sets follow one another; files with other data sets have these of the same examples, as
    DSSTNE's input and output files do. Raises DataError when neither is so.
    """
    groups: dict[tuple[str, ...], list[Path]] = {}
    for path in paths:
        with netcdf.File(path) as opened:
            groups.setdefault(tuple(header.name for header in read_headers(opened)), []).append(path)
    parts = [(", ".join(path.name for path in group), open_data(group)) for group in groups.values()]
    sets: Sets = {}
    for n, (file, data) in enumerate(parts):
        for data_set in data.sets:
            if data_set.name in sets:
                earlier = next(f for f, other in parts[:n] if any(s.name == data_set.name for s in other.sets))
                raise DataError(
                    f"{file}: data set {show(data_set.name)} is in {earlier} too, beside others; legal: files with "
                    "the same data sets, one after the other, or with none in common, of the same examples"
                )
            sets[data_set.name] = data_set
        _check_same_samples(*parts[0], file, data)
    named = next((data.samples for _, data in parts if data.samples), ())
    repeats = any(data.repeats for _, data in parts)
    return DataSource(sets, ", ".join(file for file, _ in parts), named, parts[0][1].region, repeats)


def collect_sources(spec: NetworkSpec, inputs: Any, targets: Any = None, supervised: bool = False) -> DataSource:
    """Return the data sets of the Input layers, and when `supervised` of the Output layers, by name.

    Either is a path, several paths, a Data, a mapping of data-set names, or the one data set that is needed: a SciPy
    sparse matrix, a two-dimensional array or a DataSet. Without `targets` those in `inputs` are taken, and where there
    are none, the inputs are the targets.
    """
    wanted = [layer.data_set for layer in spec.layers_of(LayerKind.INPUT)]
    asked = [layer.data_set for layer in spec.layers_of(LayerKind.OUTPUT)]
    found = _collect(inputs, list(dict.fromkeys(wanted)), [*wanted, *asked], "inputs")
    if not supervised:
        return found
    sets = dict(found.sets)
    if targets is not None:
        more = _collect(targets, list(dict.fromkeys(asked)), [*wanted, *asked], "targets")
        shared = sorted(set(asked) & set(wanted))
        if shared:
            raise DataError(
                f"targets: data set {show(shared[0])} is that of an Input layer too, so its targets are its inputs; "
                "leave targets out, or give the Output layer another DataSet"
            )
        sets |= {name: more.sets[name] for name in asked if name in more.sets}
    missing = [name for name in asked if name not in sets]
    if missing and targets is None and len(set(wanted)) == 1 and not set(sets) - set(wanted):
        sets |= {name: as_data_set(name, sets[wanted[0]]) for name in missing}
    elif missing:
        raise DataError(f"{found.file}: no data set {show(missing[0])} for the targets, legal: {_list_names(sets)}")
    return DataSource(sets, found.file, found.samples, found.region, found.repeats)


def is_files(value: Any) -> bool:
    """Whether a value is a path or several."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(item, str | Path) for item in value)
    return isinstance(value, str | Path)


def _collect(value: Any, wanted: Sequence[str], legal: Sequence[str], what: str) -> DataSource:
    if is_files(value):
        return open_files([Path(path) for path in (value if isinstance(value, list | tuple) else [value])])
    if isinstance(value, Data):
        sets = {data_set.name: data_set for data_set in value.sets}
        return DataSource(sets, what, value.samples, value.region, value.repeats)
    if isinstance(value, Mapping):
        for name in value:
            if name not in legal:
                hint = nearest(str(name), legal) or f", legal: {_list_names(legal)}"
                raise DataError(f"{what}: no layer takes a data set {show(str(name))}{hint}")
        return DataSource({name: _one(name, item) for name, item in value.items()}, what)
    if len(wanted) != 1:
        raise DataError(
            f"{what}: one data set where the network takes {len(wanted)}, legal: a dict of {_list_names(wanted)}"
        )
    return DataSource({wanted[0]: as_data_set(wanted[0], value)}, what)


def _one(name: str, value: Any) -> DataSet:
    if not is_files(value):
        return as_data_set(name, value)
    found = open_files([Path(path) for path in (value if isinstance(value, list | tuple) else [value])])
    if len(found.sets) == 1:
        return as_data_set(name, next(iter(found.sets.values())))
    if name not in found.sets:
        raise DataError(f"{found.file}: no data set {show(name)}, legal: {_list_names(found.sets)}")
    return found.sets[name]


def _check_same_samples(first_file: str, first: Data, file: str, data: Data) -> None:
    """Raise DataError when two files name their examples differently: their rows would not belong together."""
    if data is first or not (first.samples and data.samples):
        return
    if len(first.samples) == len(data.samples):
        pairs = zip(first.samples, data.samples, strict=True)
        place = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
        if place is None:
            return
        seen = f"example {place} is {show(data.samples[place])}, {show(first.samples[place])} in {first_file}"
    else:
        seen = f"{len(data.samples)} examples, {len(first.samples)} in {first_file}"
    raise DataError(f"{file}: {seen}; files with different data sets must have the same examples in the same order")


def _list_names(names: Any) -> str:
    return ", ".join(map(show, dict.fromkeys(names))) or "none"
