"""What callers hand in: paths, arrays, numbers, checked and converted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.data.sources import collect_sources
from nnlib.errors import NnlibError
from nnlib.spec.types import NetworkSpec
from nnlib.training.validation import DataPart
from nnlib.util.threads import count_processors

AUTO, INPUTS = "auto", "inputs"


def _part(spec: NetworkSpec, inputs: Any, targets: Any = None) -> DataPart:
    found = collect_sources(spec, inputs, targets, supervised=True)
    return DataPart(found.file, found.sets, found.region, found.repeats)


def _path(value: Any, what: str, legal: str = "a path") -> Path:
    if not isinstance(value, str | os.PathLike):
        raise NnlibError(f"{what}: {type(value).__name__} is not legal, legal: {legal}")
    return Path(value)


def _as_json(network: Any) -> Any:
    """Return a dict of Python as what would be read from a file of it: keys are texts, tuples lists."""
    try:
        return json.loads(json.dumps(network, default=_number))
    except (TypeError, ValueError, RecursionError) as error:
        raise NnlibError(f"network: {error}; legal: dicts, lists, texts, numbers, true, false and None") from error


def _number(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not legal in a network")


def _plain(value: Any) -> Any:
    """Return a number of NumPy as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _threads(threads: int | None) -> int:
    if threads is None:
        return count_processors()
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise NnlibError(f"threads: {threads!r} is not legal, legal: a whole number from 1")
    return int(threads)
