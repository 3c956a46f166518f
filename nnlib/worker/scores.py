"""What customers got, by every model that a job measures: scores.npy, and the figures that a result has of it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nnlib.contract import Metric, scored_metrics
from nnlib.spec.metric_names import canonical_metric
from nnlib.util.arrays import Floats
from nnlib.util.files import write_atomically

BASELINE, FLOOR = "bestsellers", "floor"  # of a trial's `compare`

OfCustomers = Mapping[str, Floats]  # metric -> its value for each customer, NaN of those without targets


def write_scores(path: Path, found: Sequence[OfCustomers], metric: Metric) -> None:
    """Write what customers got: models x metrics (`scored_metrics`) x customers, as NumPy's file of float32."""
    names = [canonical_metric(name) for name in scored_metrics(metric)]
    file = io.BytesIO()
    np.save(file, np.array([[values[name] for name in names] for values in found], np.float32), allow_pickle=False)
    write_atomically(path, file.getvalue())


def means_of(found: OfCustomers) -> dict[str, float]:
    """Return the mean of each metric over the customers who have one."""
    return {name: float(values[np.isfinite(values)].mean(dtype=np.float64)) for name, values in found.items()}


def count_customers(values: Floats) -> int:
    """Return how many customers have a value."""
    return int(np.isfinite(values).sum())


def stderr_of(values: Floats) -> float | None:
    """Return the standard error of the mean over customers; None where there are too few for one."""
    known = values[np.isfinite(values)].astype(np.float64)
    return float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None
