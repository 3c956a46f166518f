"""Small networks and data that the tests of nnlib share."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from nnlib.cpu.forward import Forward
from nnlib.data.rows import Csr, from_rows
from nnlib.data.sets import Data, DataSet, as_data_set
from nnlib.evaluation.metrics import Scorer
from nnlib.model import batches
from nnlib.model import examples as examples_module
from nnlib.model import network as net
from nnlib.model.batches import Batch, inputs_of
from nnlib.model.network import Network
from nnlib.spec.network import parse_network

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


def random_matrix(examples: int, width: int, seed: int, density: float = 0.3, analog: bool = False) -> sparse.csr_array:
    """A sparse matrix of ones, or of values in [-1, 1] that are the same in float32."""
    random = np.random.default_rng(seed)
    ones = random.random((examples, width)) < density
    return sparse.csr_array(ones * (random.integers(-64, 65, ones.shape) / 64 if analog else 1.0))


def sets_of(**matrices: Any) -> dict[str, DataSet]:
    """Data sets by name."""
    return {name: as_data_set(name, matrix) for name, matrix in matrices.items()}


def network_of(
    raw: dict[str, Any], sets: dict[str, DataSet], dtype: Any = np.float32, compat: bool = False, seed: int = 1
) -> Network:
    """A network of the sizes of its data, with biases that are not all the same."""
    spec = examples_module.resolve(parse_network(raw, "n", compat), sets, "d")
    network = net.create(spec, batches.generator_for(seed, batches.WEIGHTS), dtype)
    random = np.random.default_rng(seed)
    for bias in network.biases:
        bias += random.normal(scale=0.3, size=bias.shape).astype(dtype)
    return network


def batch_of(network: Network, sets: dict[str, DataSet]) -> Batch:
    """All examples as one batch."""
    examples = examples_module.examples_of(network.spec, sets, "d")
    return batches.batch_of(network.spec, examples, np.arange(examples.count), network.dtype)


def bits(network: Network) -> bytes:
    """All parameters of a network."""
    return b"".join(array.tobytes() for _, array in network.arrays())


def network_scorer(network: Network, output: int | None = None) -> Scorer:
    """Return the scorer of a network's output layer (its first); it raises DivergedError for a score not finite."""
    forward = Forward(network)
    layer = forward.outputs[0].number if output is None else output  # its sums rank as it does, without saturated ties
    return lambda examples: forward.output_sums(inputs_of(network.spec, examples, network.dtype), layer)
