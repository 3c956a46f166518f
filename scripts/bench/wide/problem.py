"""The work of the benchmark as a network and examples of nnlib."""

from __future__ import annotations

import numpy as np

from nnlib.data.rows import Csr, one_hot
from nnlib.data.sets import DataSet
from nnlib.model.batches import WEIGHTS, generator_for
from nnlib.model.examples import Examples, examples_of
from nnlib.model.network import Network, create
from scripts.bench.common.nnlib_side import spec_between
from scripts.bench.wide.data import Wide, rows


def problem_of(work: Wide) -> tuple[Network, Examples]:
    """Return the network that is trained, and what it learns from."""
    units, classes = rows(work)
    starts = np.arange(0, units.size + 1, work.entries)
    data = {
        "input": DataSet("input", Csr(starts, units.reshape(-1), work.width)),
        "output": DataSet("output", one_hot(classes, work.classes)),
    }
    spec = spec_between(data, (work.hidden,), "SoftMax", sparse=True)
    return create(spec, generator_for(1, WEIGHTS)), examples_of(spec, data, "bench")
