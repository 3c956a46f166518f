"""Files of predictions, written as they come and there as a whole or not at all: text, NetCDF and NumPy's own.

Best items as text are DSSTNE's lines, `sample<TAB>feature,score:feature,score:...:`; values are a table with a header.
In NetCDF they are `items` (numbers of units, -1 where there are no more) and `scores`, or `values`, one row an example,
with the names in `samples` and `features` where there are any.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.blockwise import Watch
from nnlib.errors import DataError, NnlibError
from nnlib.ops.ranking import NO_ITEM
from nnlib.prediction.exclusion import Numbered
from nnlib.prediction.predictor import Ranked
from nnlib.spec.json_section import is_plain, show
from nnlib.util import netcdf
from nnlib.util.files import replacing

NETCDF, NUMPY = ".nc", ".npy"
NAMES = 4096  # that are copied together
SCORE, VALUE = "%.3f", "%.6g"
IN_PAIRS = re.compile("[\t:,]")


def score_format(text: str) -> str:
    """Return a printf format of one number, with or without its percent sign; NnlibError when it is none."""
    found = "%" + text.removeprefix("%")
    if not re.fullmatch(r"%[-+ 0#]*[0-9]{0,2}(\.[0-9]{1,2})?[eEfFgG]", found):
        raise NnlibError(f"score format {show(text)} is not legal, legal: such as %.3f, 4.3f or %.6g, up to 99")
    return found


def write_ranked(
    path: Path | None,
    blocks: Iterable[Ranked],
    k: int,
    samples: Numbered,
    features: Numbered,
    watch: Watch,
    form: str = SCORE,
) -> None:
    """Write the k best items of each sample to a file, NetCDF by its name, else text; without `path` to stdout."""
    if path is not None and path.suffix == NETCDF:
        _write_ranked_netcdf(path, blocks, k, samples, features, watch)
        return
    wrong = next((name for name in features.names if IN_PAIRS.search(name) or not is_plain(name)), None)
    if wrong is not None:
        raise DataError(
            f"the feature {show(wrong)} cannot be in text, which separates by TAB, `:` and `,`; write a .nc"
        )
    names = np.array(features.names, dtype=object) if features.names else None
    first = 0
    with _text(path) as file:
        for block in blocks:
            file.write(_ranked_lines(block, _names(samples, first, len(block.items)), names, form))
            first += len(block.items)
            watch(len(block.items))


def write_values(
    path: Path | None,
    blocks: Iterable[NDArray[Any]],
    samples: Numbered,
    features: Numbered,
    watch: Watch,
    form: str = VALUE,
) -> None:
    """Write the values of all units for each sample: NetCDF or NumPy by the file's name, else text."""
    if path is not None and path.suffix == NETCDF:
        _write_values_netcdf(path, blocks, samples, features, watch)
        return
    if path is not None and path.suffix == NUMPY:
        with open_whole(path) as file:
            shape = (samples.count, features.count)
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for block in blocks:
                file.write(np.ascontiguousarray(block, "<f4").data)
                watch(len(block))
        return
    first, template = 0, "\t".join([form] * features.count)
    with _text(path) as file:
        file.write("\t".join(["sample", *_names(features, 0, features.count)]) + "\n")
        for block in blocks:
            names = _names(samples, first, len(block))
            file.writelines(f"{n}\t{template % tuple(row)}\n" for n, row in zip(names, block.tolist(), strict=True))
            first += len(block)
            watch(len(block))


@contextmanager
def open_whole(path: Path) -> Iterator[IO[bytes]]:
    """Give a file to write; `path` is the whole of it at the end, or what it was before."""
    with replacing(path) as part, part.open("wb") as file:
        yield file


@contextmanager
def _text(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    with open_whole(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        try:
            yield text
        finally:
            text.detach()  # writes what is left


def _names(things: Numbered, first: int, count: int) -> list[str]:
    """Return some names, or numbers where there are none; DataError for one that would break a line."""
    if not things.names:
        return [str(n) for n in range(first, first + count)]
    names = list(things.names[first : first + count])
    wrong = next((name for name in names if not is_plain(name)), None)
    if wrong is not None:
        raise DataError(f"the name {show(wrong)} has a control character and cannot be in text; write a .nc")
    return names


def _ranked_lines(block: Ranked, samples: list[str], names: NDArray[Any] | None, form: str) -> str:
    counts = (block.items != NO_ITEM).sum(axis=1).tolist()
    items = (block.items if names is None else names[block.items]).tolist()
    lines = []
    for sample, count, some, scores in zip(samples, counts, items, block.scores.tolist(), strict=True):
        pairs: list[Any] = [None] * (2 * count)
        pairs[0::2], pairs[1::2] = some[:count], scores[:count]
        lines.append(f"{sample}\t{(f'%s,{form}:' * count) % tuple(pairs)}\n")
    return "".join(lines)


def _write_ranked_netcdf(
    path: Path, blocks: Iterable[Ranked], k: int, samples: Numbered, features: Numbered, watch: Watch
) -> None:
    shape = {"examplesDim": samples.count, "kDim": min(k, features.count)}
    plans = {
        "items": netcdf.VariableShape(shape, np.dtype("i4")),
        "scores": netcdf.VariableShape(shape, np.dtype("f4")),
    }
    with _netcdf(path, plans, samples, features) as put:
        first = 0
        for block in blocks:
            put("items", first, block.items.astype(np.int32))
            put("scores", first, block.scores.astype(np.float32))
            first += len(block.items)
            watch(len(block.items))


def _write_values_netcdf(
    path: Path, blocks: Iterable[NDArray[Any]], samples: Numbered, features: Numbered, watch: Watch
) -> None:
    shape = {"examplesDim": samples.count, "featuresDim": features.count}
    with _netcdf(path, {"values": netcdf.VariableShape(shape, np.dtype("f4"))}, samples, features) as put:
        first = 0
        for block in blocks:
            put("values", first, block.astype(np.float32))
            first += len(block)
            watch(len(block))


@contextmanager
def _netcdf(
    path: Path, plans: dict[str, netcdf.VariableShape], samples: Numbered, features: Numbered
) -> Iterator[netcdf.Put]:
    """Give what fills a file that has the names of samples and features, where there are any."""
    if samples.names:
        plans["samples"] = netcdf.VariableShape({"examplesDim": samples.count}, None)
    if features.names:
        plans["features"] = netcdf.VariableShape({"featuresDim": features.count}, None)
    with netcdf.fill(path, {"nnlib_predictions": np.uint32(1)}, plans) as put:
        if features.names:
            put("features", 0, tuple(features.names))
        for first in range(0, samples.count if samples.names else 0, NAMES):
            put("samples", first, tuple(samples.names[first : first + NAMES]))
        yield put
