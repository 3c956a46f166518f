"""`nnlib import --format dsstne`: text files become a data file and index files, as DSSTNE's generateNetCDF makes them.

Where that is wrong this is right: a sample of the index that is not in the input gets an empty row, so that files
made with one index never misalign, and in analog data a value that is missing or no number is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnlib.data.file import write_data
from nnlib.data.rows import Csr
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError
from nnlib.importing.index_files import Labels, read_index, write_index
from nnlib.importing.text_examples import TextExamples, read_examples
from nnlib.util.terminal import show_reading, tell

CREATE, DROP = "create", "drop"
INDICATOR, ANALOG = "indicator", "analog"
PADDING = 128  # what generateNetCDF rounds widths up to
NAMED = 16  # names are written while there are not this many times as many units as names


@dataclass(frozen=True, slots=True)
class Indexes:
    """The index files, and what happens to features that are not in theirs."""

    features: Path
    samples: Path
    new_features: str = DROP


def import_text(
    source: Path, out: Path, name: str, indexes: Indexes, analog: bool = False, pad_width: bool = False
) -> int:
    """Write data set `name` of a text file, or of all files of a folder, to `out`; keep the indexes up to date."""
    written = {"--out": out, "--features": indexes.features, "--samples": indexes.samples}
    _check_apart(written | {"the input": source})
    paths = _inputs(source, set(written.values()))
    old_features, old_samples = _features(indexes), read_index(indexes.samples) if indexes.samples.exists() else {}
    known = {} if indexes.new_features == CREATE else old_features
    features, samples = Labels(known), Labels(old_samples)
    with show_reading(sum(path.stat().st_size for path in paths), "lines") as report:
        examples = read_examples(paths, analog, samples, features, indexes.new_features != DROP, report)
    width = -(-features.next // PADDING) * PADDING if pad_width else features.next
    if not width:
        raise DataError(f"{source}: no feature, legal: sample<TAB>feature[,value]:feature[,value]:...")
    all_features, all_samples = features.all(), samples.all()
    if not all_samples:
        raise DataError(f"{source}: no sample, legal: sample<TAB>feature[,value]:feature[,value]:...")
    rows, padded = _in_order(examples, list(all_samples.values()), width)
    names = _names(all_features, width) if width <= NAMED * len(all_features) + PADDING else ()
    write_data(out, Data((DataSet(name, rows, names),), tuple(all_samples)))
    _keep(indexes.features, old_features, all_features)  # after the data: should they fail, the old index stays
    _keep(indexes.samples, old_samples, all_samples)
    _tell(out, rows, examples, padded, len(all_samples) - len(old_samples) if old_samples else 0)
    return 0


def _check_apart(paths: Mapping[str, Path]) -> None:
    """Raise DataError when two options name one file, of which the one would replace the other."""
    seen: dict[Path, str] = {}
    for option, path in paths.items():
        other = seen.setdefault(path.resolve(), option)
        if other != option:
            raise DataError(f"{path}: is {other} and {option}, legal: different files")


def _inputs(source: Path, others: Set[Path]) -> list[Path]:
    ours = {path.resolve() for path in others}
    found = sorted(path for path in source.iterdir() if path.is_file()) if source.is_dir() else [source]
    paths = [path for path in found if path.resolve() not in ours]
    if not paths:
        raise DataError(f"{source}: a folder without files, legal: a text file, or a folder of text files")
    return paths


def _features(indexes: Indexes) -> dict[str, int]:
    if indexes.features.exists():
        return read_index(indexes.features)
    if indexes.new_features == CREATE:
        return {}
    raise DataError(f"{indexes.features}: there is no such feature index; make one with --new-features {CREATE}")


def _in_order(examples: TextExamples, numbers: list[int], width: int) -> tuple[Csr, int]:
    """Return a row for each sample of the index, in the order of their numbers, and how many of them are empty pads."""
    order = np.full(len(numbers), examples.rows.examples - 1)  # the empty row
    order[np.searchsorted(numbers, examples.sample)] = np.arange(len(examples.sample))  # a sample's last one stays
    rows = examples.rows.take(order)
    padded = int(np.count_nonzero(order == examples.rows.examples - 1))
    return Csr(rows.indptr, rows.indices, width, rows.values), padded


def _names(labels: Mapping[str, int], width: int) -> tuple[str, ...]:
    names = [""] * width
    for label, number in labels.items():
        names[number] = label
    return tuple(names)


def _keep(path: Path, old: Mapping[str, int], new: Mapping[str, int]) -> None:
    if old != new or not path.exists():
        write_index(path, new)
        replaced = [label for label, number in old.items() if new.get(label) != number]
        if replaced:
            print(f"{path}: replaced; files made with it before have other numbers", file=sys.stderr)


def _tell(out: Path, rows: Csr, examples: TextExamples, padded: int, more: int) -> None:
    kind = INDICATOR if rows.boolean else ANALOG
    print(f"{out}: {rows.examples} examples, width {rows.width}, {rows.nonzeros} nonzeros, {kind}")
    for line in examples.warnings.lines():
        print(line, file=sys.stderr)
    if examples.dropped:
        print(f"{examples.dropped} entries dropped, their features are not in the index", file=sys.stderr)
    if padded:
        tell(f"{padded} samples of the index are not in the input: their rows are empty")
    if more:
        print(f"{more} samples are new in the index: make files that go with this one again", file=sys.stderr)
