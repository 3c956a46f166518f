"""How fast a device is at what a step is made of: what is measured is done, and the rates are numbers."""

from __future__ import annotations

import pytest

from nnlib.devices import processors
from nnlib.gpu import rates


def test_a_gpu(gpu, monkeypatch):
    monkeypatch.setattr(rates, "COPIED", 4096)
    monkeypatch.setattr(rates, "REPEATS", 2)
    found = gpu.rates(1, 8, 16)
    assert found.product == (8, 16, rates.UNITS)
    assert min(found.flops, found.bytes_moved, found.activations) > 0


@pytest.mark.parametrize("examples", [3, 5000])
def test_processors(examples):
    found = processors().rates(1, examples, 5000)
    assert found.product == (min(examples, 1024), 2048, 512)
    assert min(found.flops, found.bytes_moved, found.activations) > 1e6
