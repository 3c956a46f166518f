"""Frozen layers and learning rates of layers on the GPU backend, against those of a CPU."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS
from nnlib.cpu.backend import Cpu
from tests.nnlib.gpu.test_engine import HIDDEN, INPUT, OUTPUT, SETS, Leaving, Stopped, by_loss, fit
from tests.nnlib.samples import bits, network_of

NORMED = HIDDEN | {"BatchNormalization": True}
DEEP = {
    "Denoising": {"p": 0.2},
    "Layers": [INPUT, NORMED, NORMED | {"Name": "G", "N": 7}, OUTPUT | {"Source": ["G", "I"]}],
}
KINDS = {
    "first": {"Freeze": ["H"]},
    "middle": {"Freeze": ["G"]},
    "last": {"Freeze": ["O"]},
    "body": {"Freeze": ["H", "G"]},
    "ends": {"Freeze": ["H", "O"]},
    "rates": {"Rates": {"H": 0.25, "O": 3}},
    "thawed": {"Freeze": ["H", "O"], "UnfreezeAt": 2, "Rates": {"H": 0.5}},
}


@pytest.mark.parametrize("tuning", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "more", [{}, {"clip": 0.1, "l2": 1e-3}, {"batch": 8, "accumulate": 3}], ids=["", "clip", "several"]
)
def test_trainings_are_those_of_a_cpu(gpu, tuning, more):
    """With momentum: biases before a batch normalization have a gradient of zero, whose rounding Adam makes large."""
    raw, given = DEEP | {"FineTuning": tuning}, {"optimizer": "momentum", "learning_rate": 0.03} | more
    wanted, found = fit(Cpu(), by_loss, raw=raw, **given), fit(gpu, by_loss, raw=raw, **given)
    for one, other in zip(found[1], wanted[1], strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    start = network_of(raw, SETS)
    frozen = tuning.get("Freeze", []) if "UnfreezeAt" not in tuning else []
    for (name, one), (_, other), (_, first) in zip(
        found[0].network.arrays(), wanted[0].network.arrays(), start.arrays(), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5, err_msg=name)
        if start.spec.layers[start.layer_of(name)].name in frozen:
            assert np.array_equal(one, first), name


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_a_layer_that_begins_to_learn_does_so_as_on_a_cpu(gpu, rule):
    """Of plain layers, each of which has moments of its own age."""
    layers = [INPUT, HIDDEN, HIDDEN | {"Name": "G", "N": 7}, OUTPUT]
    raw = {"Layers": layers, "FineTuning": KINDS["thawed"]}
    (one, losses), (other, wanted) = (fit(compute, raw=raw, optimizer=rule, l2=1e-3) for compute in (gpu, Cpu()))
    assert [epoch[1] for epoch in losses] == pytest.approx([epoch[1] for epoch in wanted], rel=1e-4)
    for (name, found), (_, array) in zip(one.network.arrays(), other.network.arrays(), strict=True):
        np.testing.assert_allclose(found, array, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_half_the_rate_at_every_layer_is_half_the_rate(gpu, rule):
    halves = DEEP | {"FineTuning": {"Rates": dict.fromkeys(("H", "G", "O"), 0.5)}}
    one, other = (
        bits(fit(gpu, raw=raw, optimizer=rule, learning_rate=rate, l2=1e-3)[0].network)
        for raw, rate in ((halves, 0.01), (DEEP, 0.005))
    )
    assert one == other


@pytest.mark.parametrize("step", [2, 4, 5, 8])
def test_a_resumed_training_gives_the_same_bits(gpu, tmp_path, step):
    """Of four batches an epoch; the layers begin to learn with the fifth."""
    raw = DEEP | {"FineTuning": {"Freeze": ["H", "O"], "UnfreezeAt": 2, "Rates": {"H": 0.5}}}
    wanted, losses = fit(gpu, raw=raw)
    with pytest.raises(Stopped):
        fit(gpu, raw=raw, keeper=Leaving(tmp_path, step))
    found, last = fit(gpu, raw=raw, keeper=Leaving(tmp_path, -1))
    assert (bits(found.network), last[-1]) == (bits(wanted.network), losses[-1])
