"""Small networks and data that the tests of nnlib share."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnlib.data import Csr, Data, DataSet, from_rows

ITEMS = 40

NETWORK: dict[str, Any] = {
    "Version": 0.8,
    "Name": "small",
    "Kind": "AutoEncoder",
    "Denoising": {"p": "$denoising"},
    "ErrorFunction": "CrossEntropy",
    "Layers": [
        {"Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Kind": "Hidden", "N": "$hidden", "Activation": "Relu", "pDropout": 0.1},
        {"Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "Sigmoid"},
    ],
}


def random_rows(examples: int, width: int, seed: int, most: int = 12) -> Csr:
    """Rows of 0 to `most` distinct units."""
    random = np.random.default_rng(seed)
    rows = [sorted(random.permutation(width)[: random.integers(0, most)].tolist()) for _ in range(examples)]
    return from_rows(rows, width)


def clustered(examples: int, seed: int, cut: int) -> Data:
    """Customers of four tastes: each buys nine of its taste's ten items; `cut` splits inputs from targets."""
    random = np.random.default_rng(seed)
    inputs, targets = [], []
    for customer in range(examples):
        bought = (random.permutation(10)[:9] + 10 * (customer % 4)).tolist()
        inputs.append(sorted(bought[:cut]))
        targets.append(sorted(bought[cut:]) or sorted(bought))
    names = tuple(f"item{n}" for n in range(ITEMS))
    sets = (
        DataSet("input", from_rows(inputs, ITEMS), names),
        DataSet("output", from_rows(targets, ITEMS), names),
    )
    return Data(sets, region="Côte d'Ivoire")
