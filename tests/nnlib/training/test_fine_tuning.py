"""Layers that are frozen for some epochs or for good, and learning rates of layers, on the processors."""

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS, TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.cpu.backward import backward
from nnlib.cpu.forward import Forward
from nnlib.cpu.gradients import Gradients
from nnlib.errors import EvictedError
from nnlib.model import network as net
from nnlib.model.examples import examples_of
from nnlib.model.fine_tuning import freeze
from nnlib.training.gradient_check import TOLERANCE, check_gradients
from nnlib.util.threads import workers
from tests.nnlib.samples import batch_of, bits, network_of
from tests.nnlib.training.test_checkpoint import Evicting
from tests.nnlib.training.test_loop import HIDDEN, INPUT, OUTPUT, SETS, fit, fit_with

pytestmark = pytest.mark.slow

NORMED = HIDDEN | {"pDropout": 0.3, "BatchNormalization": True}
DEEP = {
    "Denoising": {"p": 0.2},
    "Layers": [INPUT, NORMED, NORMED | {"Name": "G", "N": 7}, OUTPUT | {"Source": ["G", "I"], "WeightNorm": 0.5}],
}
CHAIN = {"Layers": [INPUT, HIDDEN, HIDDEN | {"Name": "G", "N": 7}, OUTPUT]}
SOME = [["H"], ["G"], ["O"], ["H", "G"], ["H", "O"]]


def tuned(raw=DEEP, **tuning):
    return raw | {"FineTuning": tuning}


def arrays_of(network):
    """Each array with the layer that it belongs to."""
    for name, array in network.arrays():
        yield name, network.spec.layers[network.layer_of(name)].name, array


@pytest.mark.parametrize("frozen", SOME, ids="".join)
@pytest.mark.parametrize(
    "more", [{}, {"clip": 0.1}, {"ema": 0.9, "batch": 5, "accumulate": 3}], ids=["", "clip", "mean"]
)
def test_frozen_layers_keep_their_bits_and_the_others_learn(backend, frozen, more):
    before = network_of(DEEP, SETS)
    found, _, _ = fit(tuned(Freeze=frozen), epochs=3, l2=0.01, **more)
    for (name, layer, start), (_, end) in zip(arrays_of(before), found.network.arrays(), strict=True):
        assert (layer in frozen) == np.array_equal(start, end), name
    assert not (found.network.locked or found.network.fixed)  # the model may be trained on


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_no_state_of_a_frozen_layer_moves(backend, rule):
    network = freeze(network_of(tuned(Freeze=["H", "O"]), SETS), 1)
    examples = examples_of(network.spec, SETS, "d")
    engine = Cpu().engine(network, examples, TrainSettings(optimizer=rule, l2=0.1))
    for batch in engine.batches([np.arange(20), np.arange(20, 50)]):
        engine.run(batch)
    engine.settle()
    for name, state in engine.states().items():
        layer = network.spec.layers[network.layer_of(name.partition("_state")[0])].name
        assert layer == "G" or not state.any(), name
        assert layer != "G" or state.any(), name


@pytest.mark.parametrize("frozen", SOME, ids="".join)
def test_a_step_changes_the_others_as_if_nothing_were_frozen(backend, frozen):
    given = {"optimizer": "sgd", "epochs": 1, "batch": 50, "learning_rate": 0.5}
    whole, some = (fit(raw, **given)[0].network for raw in (CHAIN, tuned(CHAIN, Freeze=frozen)))
    for (name, layer, one), (_, other) in zip(arrays_of(whole), some.arrays(), strict=True):
        assert layer in frozen or np.array_equal(one, other), name


class Recording(Gradients):
    """Writes down whose gradients come."""

    def __init__(self, network):
        super().__init__(network)
        self.seen = set()

    def rows(self, owner, *rest):
        self.seen.add(self._network.spec.edges[owner].target)
        super().rows(owner, *rest)

    def touched(self, owner, *rest):
        self.seen.add(self._network.spec.edges[owner].target)
        super().touched(owner, *rest)


@pytest.mark.parametrize(
    ("frozen", "learning"), [(["H"], {2, 3}), (["H", "G"], {3}), (["O"], {1, 2, 3}), (["G"], {1, 2, 3})]
)
def test_the_error_goes_no_further_back_than_something_learns(frozen, learning):
    network = freeze(network_of(tuned(CHAIN, Freeze=frozen), SETS), 1)
    assert net.find_learning_layers(network) == learning
    forward, batch, sink = Forward(network), batch_of(network, SETS), Recording(network)
    values = forward.run(batch.inputs)
    error = backward(forward, values, batch.targets, sink)
    assert {network.spec.layers[n].name for n in sink.seen} == {"H", "G", "O"} - set(frozen)
    whole = Forward(network_of(CHAIN, SETS))
    assert error == backward(whole, whole.run(batch.inputs), batch.targets, Gradients(whole.network))


@pytest.mark.parametrize("frozen", SOME, ids="".join)
@pytest.mark.parametrize("change", [{}, {"Layers": [*DEEP["Layers"][:3], OUTPUT | {"Activation": "SoftMax"}]}])
def test_gradients_through_frozen_layers(frozen, change):
    spec = network_of(tuned(DEEP | change, Freeze=frozen), SETS).spec
    found = check_gradients(spec, examples_of(spec, SETS, "d").take(np.arange(8)), 12)
    assert found
    for one in found:
        assert one.difference <= TOLERANCE and one.name.split()[-1] not in frozen, one


@pytest.mark.parametrize("rule", OPTIMIZERS)
@pytest.mark.parametrize("more", [{}, {"clip": 0.1, "l2": 1e-3, "schedule": "cosine"}], ids=["plain", "forced"])
def test_half_the_rate_at_every_layer_is_half_the_rate(backend, rule, more):
    halves = tuned(Rates=dict.fromkeys(("H", "G", "O"), 0.5))
    one, other, third = (
        bits(fit(raw, optimizer=rule, learning_rate=rate, **more)[0].network)
        for raw, rate in ((halves, 0.01), (DEEP, 0.005), (DEEP, 0.01))
    )
    assert one == other
    assert rule == "adadelta" or one != third  # that rule has no rate


def test_a_rate_of_one_layer_is_its_alone():
    given = {"optimizer": "sgd", "epochs": 1, "batch": 50}
    start = network_of(CHAIN, SETS)
    plain, some = (fit(raw, **given)[0].network for raw in (CHAIN, tuned(CHAIN, Rates={"G": 4})))
    for (name, layer, before), (_, one), (_, other) in zip(
        arrays_of(start), plain.arrays(), some.arrays(), strict=True
    ):
        factor = 4 if layer == "G" else 1
        np.testing.assert_allclose(other - before, factor * (one - before), rtol=1e-3, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_a_layer_begins_to_learn_as_in_a_training_that_begins(backend, rule):
    """With an empty state and the first step of the rule, from the weights that the others have by then."""
    given = {"optimizer": rule, "batch": 50, "l2": 1e-3, "clip": 0}
    after, _, _ = fit(tuned(CHAIN, Freeze=["H", "G"]), epochs=2, **given)
    whole, _, _ = fit(tuned(CHAIN, Freeze=["H", "G"], UnfreezeAt=3), epochs=3, **given)
    network = after.network
    engine = Cpu().engine(network, examples_of(network.spec, SETS, "d"), TrainSettings(learning_rate=0.01, **given))
    for batch in engine.batches([np.arange(50)]):
        engine.run(batch)
    engine.settle()
    for (name, layer, one), (_, other) in zip(arrays_of(whole.network), network.arrays(), strict=True):
        if layer != "O":  # which goes on
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7, err_msg=name)


def test_layers_that_learned_go_on_as_before():
    """When nothing was frozen that has weights to be changed by the batch, unfreezing changes nothing: rate 1e-30."""
    still = {"Rates": {"H": 1e-30}}
    one, other = (
        bits(fit(tuned(CHAIN, **tuning), epochs=4)[0].network)
        for tuning in (still | {"Freeze": ["H"], "UnfreezeAt": 3}, {"Freeze": ["H"]})
    )
    assert one == other


@pytest.mark.parametrize("rule", ["adam", "nesterov", "sgd"])
@pytest.mark.parametrize(
    "more", [{}, {"schedule": "plateau", "decay_epochs": 1}, {"batch": 5, "accumulate": 3, "ema": 0.9}]
)
def test_stopped_in_any_epoch_and_resumed_as_if_never_stopped(tmp_path, rule, more):
    given = {"raw": tuned(Freeze=["H", "O"], UnfreezeAt=3, Rates={"H": 0.25}), "epochs": 4, "optimizer": rule} | more
    wanted, losses, _ = fit(**given)
    steps = [3, 13, 20, 23, 33] if "accumulate" in more else [1, 5, 8, 9, 14]  # of 10 or 4 an epoch
    keeper = Evicting(tmp_path, steps)
    starts = 0
    while True:
        starts += 1
        try:
            found, last, _ = fit(keeper=keeper, **given)
            break
        except EvictedError:
            keeper.stop.requested = False
    assert starts == 6
    assert bits(found.network) == bits(wanted.network)
    assert last[-1].loss == losses[-1].loss


@pytest.mark.parametrize(("before", "after"), [("bf16", "float32"), ("float32", "bf16")])
def test_frozen_layers_stay_so_where_a_precision_is_kept_to(tmp_path, monkeypatch, before, after):
    given = {"raw": tuned(Freeze=["H", "O"], UnfreezeAt=3), "epochs": 4}
    wanted, _, _ = fit(precision=before, **given)
    monkeypatch.setattr(Cpu, "choose_precision", lambda *_: before)
    keeper = Evicting(tmp_path, [2])
    with pytest.raises(EvictedError):
        fit(keeper=keeper, precision="auto", **given)
    keeper.stop.requested = False
    monkeypatch.setattr(Cpu, "choose_precision", lambda *_: after)
    found, _, _ = fit(keeper=keeper, precision="auto", **given)
    assert bits(found.network) == bits(wanted.network)


def test_the_same_bits_on_any_number_of_threads(backend):
    seen = set()
    for threads in (1, 2, 3, 5, 8):
        with workers(threads) as each:
            raw = tuned(Freeze=["G"], UnfreezeAt=2, Rates={"H": 0.5, "O": 2})
            found, epochs, _ = fit(raw, each=each, epochs=3, l2=1e-3)
        seen.add((bits(found.network), epochs[-1].loss))
    assert len(seen) == 1


def test_patience_begins_when_frozen_layers_begin_to_learn(monkeypatch):
    monkeypatch.setattr("tests.nnlib.training.test_loop.NOISY", tuned(Freeze=["H"], UnfreezeAt=4))
    found, _ = fit_with([0.5, 0.4, 0.3, 0.2, 0.1], epochs=9, stop_after=2)
    assert (found.best_epoch, found.epochs) == (1, 5)


def test_unfrozen_from_the_first_epoch_is_not_frozen():
    one, other = (bits(fit(raw)[0].network) for raw in (DEEP, tuned(Freeze=["H"], UnfreezeAt=1)))
    assert one == other
