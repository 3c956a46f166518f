"""What the backend does with networks of maps as a whole: pieces that are asked, graphs, the same bits, what breaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.data.blockwise import BATCH
from nnlib.data.rows import Csr
from nnlib.data.sets import as_data_set
from nnlib.gpu.backend import Gpu
from nnlib.gpu.maps import layers
from nnlib.gpu.maps.layers import count_asked
from nnlib.model.examples import Examples, examples_of
from nnlib.model.network import Network
from tests.nnlib.image_cases import CASES, EXAMPLES, classes, conv, image_network, pixels, pooled
from tests.nnlib.samples import network_of

MIXED = image_network(
    conv("A", 4, BatchNormalization=True, Activation="Relu", pDropout=0.3),
    pooled("B", "Max", 2, 2, stride=2),
    conv("C", 20, Groups=2, Source="B"),
    conv("D", 20, Source="C", Groups=20, Activation="Relu6"),
    pooled("E", "Sum", Source=["C", "D"]),
    pooled("F", "GlobalAverage", Source="E"),
)


def of(raw: dict[str, Any], examples: int = EXAMPLES) -> tuple[Network, Examples]:
    data = {"x": as_data_set("x", pixels(examples=examples)), "y": as_data_set("y", classes(examples))}
    network = network_of(raw, data)
    return network, examples_of(network.spec, data, "d")


def trained(gpu: Gpu, network: Network, examples: Examples, steps: int = 5, **settings: Any) -> dict[str, bytes]:
    given = TrainSettings(**{"batch": examples.count, "epochs": steps, "learning_rate": 0.05} | settings)
    engine = gpu.engine(network.copy(), examples, given)
    engine.begin_epoch(0.0)
    for batch in engine.batches([np.arange(examples.count)] * steps):
        engine.run(batch)
    assert engine.failed(wait=True) is None
    return {name: array.tobytes() for name, array in engine.pull().arrays()}


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_two_runs_have_the_same_bits(gpu, precision):
    network, examples = of(MIXED)
    first = trained(gpu, network, examples, precision=precision)
    assert first == trained(gpu, network, examples, precision=precision)
    assert first != {name: array.tobytes() for name, array in network.arrays()}


def test_a_step_is_captured_and_then_launched_as_a_whole(cupy):
    network, examples = of(MIXED)
    gpu = Gpu(cupy.runtime())
    trained(gpu, network, examples, steps=2)
    launched = len(cupy.launched)
    memory = len(cupy.memory)
    trained(gpu, network, examples, steps=6)
    assert len(cupy.launched) == 2 * launched, "from the third step on nothing is launched by itself"
    assert len(cupy.memory) < 3 * memory


def test_examples_are_asked_in_pieces_where_maps_take_much_memory(cupy, monkeypatch):
    network, examples = of(MIXED, 11)
    gpu, seen = Gpu(cupy.runtime()), {}
    owned = Csr(np.arange(12), np.arange(11, dtype=np.int32) % 6, 6)
    output = len(network.spec.layers) - 1
    for asked in (BATCH, 4, 1):
        each = sum(layer.units or 0 for layer in network.spec.layers[1:-1])
        monkeypatch.setattr(layers, "ASKED", asked * each)
        assert count_asked(network.spec) == asked
        evaluator = gpu.evaluator(network)
        items, best = evaluator.top(examples, output, 3, owned)
        values = [evaluator.values(examples, n) for n in (1, output)]
        seen[asked] = [evaluator.sums(examples, output), items, best, *values, [evaluator.mean_loss(examples)]]
    for asked in (4, 1):
        for mine, whole in zip(seen[asked], seen[BATCH], strict=True):
            np.testing.assert_allclose(mine, whole, rtol=1e-5, atol=1e-6)


def test_networks_without_maps_are_asked_as_ever():
    assert count_asked(of(image_network())[0].spec) == BATCH


def test_what_is_not_finite_is_named(gpu):
    network, examples = of(CASES["strided"])
    network.biases[0][...] = np.nan
    engine = gpu.engine(network, examples, TrainSettings(batch=examples.count, epochs=1))
    engine.begin_epoch(0.0)
    [batch] = engine.batches([np.arange(examples.count)])
    engine.run(batch)
    failure = engine.failed(wait=True)
    assert failure is not None
    assert "layer A" in failure.where
