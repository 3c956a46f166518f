"""Our side of networks for images: `pictures` as a network of nnlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnlib.data.sets import DataSet
from nnlib.model.examples import resolve
from nnlib.model.network import Network, assemble, bias_count
from nnlib.spec.network import parse_network
from scripts.bench.common import pictures
from scripts.bench.common.workload import Work


def picture_network(work: Work, data: dict[str, DataSet]) -> Network:
    """Return the network that all sides start with."""
    channels, height, width = pictures.size_of(work)
    first = {"Name": "in", "Kind": "Input", "N": [width, height, channels], "DataSet": "input"}
    *hidden, last = pictures.network(work)
    output = {"Kind": "Output", "DataSet": "output", "Activation": "SoftMax"}
    raw: dict[str, Any] = {
        "Name": "bench",
        "ErrorFunction": "CrossEntropy",
        "Layers": [first, *({"Kind": "Hidden", **layer} for layer in hidden), last | output],
    }
    spec = resolve(parse_network(raw, "bench"), data, "bench")
    drawn = pictures.weights(work, [*hidden, last])
    matrices = {edge.number: drawn[spec.layers[edge.target].name].T for edge in spec.edges}
    biases = [np.zeros(bias_count(spec, edge), np.float32) for edge in spec.edges]
    return assemble(spec, matrices, biases, {})
