"""Our side of the training benchmarks: their work as data sets and networks of nnlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnlib.data.rows import Csr, Dense, one_hot
from nnlib.data.sets import DataSet
from nnlib.model.examples import Examples, examples_of, resolve
from nnlib.model.network import Network, create
from nnlib.spec.network import parse_network
from nnlib.spec.types import NetworkSpec
from scripts.bench.common.pictures import CLASSES, PICTURES, pictures
from scripts.bench.common.workload import AUTOENCODER, IMAGES, Work, images, purchases


def rows_of(work: Work) -> Csr:
    """Return the batches of purchases as one matrix."""
    found = purchases(work)
    starts = np.concatenate([[0], np.cumsum([len(indices) for _, indices in found])])
    indptr = [indptr[:-1] + start for (indptr, _), start in zip(found, starts, strict=False)]
    return Csr(np.concatenate([*indptr, starts[-1:]]), np.concatenate([indices for _, indices in found]), work.items)


def data_sets(work: Work) -> dict[str, DataSet]:
    """Return what a training learns from."""
    if work.kind == AUTOENCODER:
        rows = rows_of(work)
        return {"input": DataSet("input", rows), "output": DataSet("output", rows)}
    if work.kind in PICTURES:
        drawn, classes = (np.concatenate(part) for part in zip(*pictures(work), strict=True))
        return {
            "input": DataSet("input", Dense(drawn)),
            "output": DataSet("output", one_hot(classes, CLASSES[work.kind])),
        }
    pixels, classes = (np.concatenate(part) for part in zip(*images(work), strict=True))
    return {"input": DataSet("input", Dense(pixels)), "output": DataSet("output", one_hot(classes, 10))}


def network_spec(work: Work, data: dict[str, DataSet], hidden: tuple[int, ...]) -> NetworkSpec:
    """Return the network between two data sets."""
    activation = "SoftMax" if work.kind == IMAGES else "Sigmoid"
    keys: dict[str, Any] = {}
    if work.zero_target:
        margins = {"oneTarget": 1, "zeroTarget": work.zero_target, "oneScale": 1, "zeroScale": 1}
        keys = {"ErrorFunction": "ScaledMarginalCrossEntropy", "ScaledMarginalCrossEntropy": margins}
    return spec_between(data, hidden, activation, sparse=work.kind == AUTOENCODER, **keys)


def spec_between(
    data: dict[str, DataSet], hidden: Sequence[int], activation: str, *, sparse: bool, **keys: Any
) -> NetworkSpec:
    """Return the network from `input` over layers of Relu to `output`; `keys` are more of its own."""
    raw: dict[str, Any] = {
        "Name": "bench",
        "ErrorFunction": "CrossEntropy",
        "Layers": [
            {"Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": sparse},
            *({"Kind": "Hidden", "N": units, "Activation": "Relu"} for units in hidden),
            {"Kind": "Output", "N": "auto", "DataSet": "output", "Activation": activation},
        ],
    }
    return resolve(parse_network(raw | keys, "bench"), data, "bench")


def problem_of(work: Work, hidden: tuple[int, ...]) -> tuple[Network, Examples]:
    """Return the network of a work with its first weights, and what it learns from."""
    data = data_sets(work)
    spec = network_spec(work, data, hidden)
    return create(spec, np.random.default_rng(1)), examples_of(spec, data, "bench")
