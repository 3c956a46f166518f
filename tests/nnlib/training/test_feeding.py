"""An epoch that is read without training: every example once, in the order of a training, and what is said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.devices import CPU, GPU, processors
from nnlib.model.batches import epoch_order
from nnlib.model.examples import examples_of
from nnlib.training import feeding
from nnlib.training.feeding import Feeding, describe_feeding, measure_feeding
from tests.kernels.standin import Cupy
from tests.nnlib.samples import network_of, random_matrix, sets_of

RAW: dict[str, Any] = {
    "Layers": [
        {"Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Kind": "Hidden", "N": 4, "Activation": "Relu"},
        {"Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "Sigmoid"},
    ]
}
SETS = sets_of(input=random_matrix(50, 30, 1), output=random_matrix(50, 30, 2))
SETTINGS = TrainSettings(batch=16)


def measured(backend: Any, device: str, step: float | None) -> tuple[Feeding, list[Any]]:
    """Return what is found, and which examples were asked for, batch by batch."""
    spec, asked = network_of(RAW, SETS).spec, []
    engine_of = backend.engine

    class Backend:
        def engine(self, *given: Any) -> Any:
            engine = engine_of(*given)
            batches = engine.batches
            engine.batches = lambda rows: batches([asked.append(some) or some for some in rows])
            return engine

    found = measure_feeding(spec, examples_of(spec, SETS, "d"), SETTINGS, Backend(), device, (0.5, 1000), step)  # type: ignore[arg-type]
    return found, asked


def test_an_epoch_is_read_as_a_training_reads_it():
    found, asked = measured(processors(), CPU, 0.002)
    np.testing.assert_array_equal(np.concatenate(asked), epoch_order(SETTINGS.seed, 1, 50, True))
    assert [len(some) for some in asked] == [16, 16, 16, 2]
    assert (found.examples, found.batches, found.file_bytes, found.opening) == (50, 4, 1000, 0.5)
    assert (found.in_memory, found.step, found.given) == (True, 0.002, True)
    assert found.epoch > 0


def test_a_step_is_measured_where_it_is_not_told(monkeypatch):
    monkeypatch.setattr(feeding, "STEPS", 3)
    found, asked = measured(processors(), CPU, None)
    assert found.step > 0 and not found.given
    assert len(asked) == 4 + 3


def test_on_a_gpu(monkeypatch):
    from nnlib.gpu.backend import Gpu

    cupy = Cupy()
    monkeypatch.setattr(feeding, "STEPS", 2)
    found, asked = measured(Gpu(cupy.runtime()), GPU, None)
    assert found.step > 0
    assert len(asked) == 4 + 2
    assert "update" in cupy.launched
    cupy.check()


@pytest.mark.parametrize(
    ("device", "epoch", "share", "said"),
    [
        (CPU, 1.0, 0.5, "batches are 50.0% of the time of a training"),
        (GPU, 1.0, 1.0, "take 100.0% of one: the GPU does not wait"),
        (GPU, 0.25, 0.25, "take 25.0% of one: the GPU does not wait"),
        (GPU, 2.0, 2.0, "2.00 times as long as a step: the GPU waits 50.0% of the time"),
    ],
)
def test_shares(device, epoch, share, said):
    found = Feeding(1000, 10, 5_000_000, 0.1, True, epoch, 0.1, True, device)
    assert found.share == pytest.approx(share)
    text = describe_feeding(found, 500)
    assert said in text
    assert f"{5 / epoch:,.1f} MB/s" in text
    assert max(map(len, describe_feeding(found, 80).splitlines())) <= 80
