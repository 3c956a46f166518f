"""The epoch loop: what is learned, in which order, and when it ends."""

import math
import re

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS, TrainSettings
from nnlib.cpu import backward, engine, forward, gradients, optimizer, sparse_products
from nnlib.cpu.backend import Cpu
from nnlib.cpu.forward import Forward
from nnlib.cpu.gradients import Gradients
from nnlib.data.file import write_data
from nnlib.data.sets import Data
from nnlib.data.stream import open_data
from nnlib.errors import DivergedError
from nnlib.model import batches
from nnlib.model import network as net
from nnlib.model.batches import epoch_order
from nnlib.model.examples import examples_of
from nnlib.training import loop
from nnlib.util.threads import map_in_turn, workers
from tests.nnlib.samples import batch_of, bits, clustered, network_of, random_matrix, sets_of

pytestmark = pytest.mark.slow

WIDTH = 40
SETS = sets_of(x=random_matrix(50, WIDTH, 1, 0.2), y=random_matrix(50, WIDTH, 2, 0.2))
INPUT, OUTPUT = {"Name": "I", "N": "auto", "DataSet": "x"}, {"Name": "O", "N": "auto", "DataSet": "y"}
HIDDEN = {"Name": "H", "N": 10, "Activation": "Relu"}
PLAIN = {"Layers": [INPUT, HIDDEN, OUTPUT]}
SHARING = {  # its input's weights are used twice, next to some that only the rows of a batch touch
    "Layers": [
        INPUT,
        HIDDEN | {"Name": "A"},
        HIDDEN
        | {"SharedWeights": {"InputLayer": "I", "SourceInputLayer": "I", "SourceOutputLayer": "A"}, "Source": "I"},
        OUTPUT | {"Source": ["H", "A", "I"]},
    ],
}
NOISY = {
    "Denoising": {"p": 0.2},
    "Layers": [INPUT, HIDDEN | {"pDropout": 0.3, "BatchNormalization": True}, OUTPUT | {"Source": ["H", "I"]}],
}


def fit(raw=PLAIN, sets=SETS, validate=None, minimize=False, each=map_in_turn, keeper=None, **settings):
    """Return the Fit, the epochs that were reported, and the network that was trained."""
    network, epochs = network_of(raw, sets), []
    examples = examples_of(network.spec, sets, "d")
    given = TrainSettings(**{"epochs": 2, "batch": 16, "learning_rate": 0.01} | settings)
    return loop.fit(network, examples, given, Cpu(each), epochs.append, validate, minimize, keeper), epochs, network


@pytest.fixture
def small_pieces(monkeypatch):
    """Make a small network many pieces of work."""
    for module, name, size in (
        (net, "BLOCK", 8),
        (sparse_products, "SHARE", 5),
        (forward, "EXAMPLES", 5),
        (forward, "PIECE", 4),
        (optimizer, "SHARE", 7),
    ):
        monkeypatch.setattr(module, name, size)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"ErrorFunction": "ScaledMarginalCrossEntropy", "ScaledMarginalCrossEntropy": {"zeroTarget": 0.4}},
        {"Layers": [*NOISY["Layers"][:2], OUTPUT | {"Activation": "SoftMax"}]},
        {"Layers": [*NOISY["Layers"][:2], OUTPUT | {"WeightNorm": 0.5}]},
    ],
    ids=["sigmoid", "margins", "softmax", "weight norm"],
)
@pytest.mark.parametrize("clip", [0.0, 0.1])
@pytest.mark.parametrize("more", [{}, {"batch": 5, "accumulate": 3, "ema": 0.9}], ids=["plain", "several"])
def test_same_bits_on_any_number_of_threads(backend, small_pieces, change, clip, more):
    seen = set()
    for threads in (1, 2, 3, 8):
        with workers(threads) as each:
            found, epochs, _ = fit(NOISY | change, each=each, l2=1e-3, clip=clip, schedule="cosine", **more)
        seen.add((bits(found.network), epochs[-1].loss))
    assert len(seen) == 1


def test_a_training_is_repeatable_and_another_seed_gives_another_one():
    models = [bits(fit(NOISY, seed=seed)[0].network) for seed in (1, 1, 2)]
    assert models[0] == models[1] != models[2]


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_late_rows_end_as_in_a_dense_update_when_gradients_are_clipped(monkeypatch, backend, rule):
    found = []
    for lazy in (net.is_lazy, lambda *_: False):
        for module in (optimizer, gradients):
            monkeypatch.setattr(module, "is_lazy", lazy)
        fitted, epochs, _ = fit(NOISY, optimizer=rule, clip=0.1, l1=1e-4)
        found.append((bits(fitted.network), [epoch.loss for epoch in epochs]))
    assert found[0] == found[1]


RATES = {"sgd": 1.0, "momentum": 0.3, "nesterov": 0.3, "adagrad": 0.05, "adadelta": 0.0}


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_the_loss_falls(backend, rule):
    data = {data_set.name: data_set for data_set in clustered(64, 1, 9).sets}
    raw = {"Layers": [INPUT | {"DataSet": "input"}, HIDDEN, OUTPUT | {"DataSet": "output"}]}
    _, found, _ = fit(raw, data, optimizer=rule.upper(), epochs=20, learning_rate=RATES.get(rule, 0.02))
    assert found[-1].loss < (0.99 if rule == "adadelta" else 0.6) * found[0].loss  # that one starts slowly


def test_a_step_of_sgd_goes_down_the_gradient_of_the_mean():
    start = network_of(PLAIN, SETS)
    whole, batch, sink = Forward(start), batch_of(start, SETS), Gradients(start)
    total = backward.backward(whole, whole.run(batch.inputs), batch.targets, sink)
    gradient = sink.arrays()
    found, epochs, _ = fit(optimizer="sgd", epochs=1, batch=99, learning_rate=0.5, l2=0.1)
    assert epochs[0].loss == pytest.approx(total / 50)
    for (name, before), (_, after) in zip(start.arrays(), found.network.arrays(), strict=True):
        pull = 0.1 * before if name.startswith("weights") else 0
        np.testing.assert_allclose(after, before - 0.5 * (gradient[name] + pull), rtol=1e-4, atol=1e-6)


def fit_with(values, minimize=False, **settings):
    """Train while the validation metric takes these values; return also the parameters after every epoch."""
    script, states = iter(values), []

    def validate(evaluator):
        states.append(bits(evaluator.network))
        return next(script)

    found, epochs, _ = fit(NOISY, validate=validate, minimize=minimize, **settings)
    assert [epoch.value for epoch in epochs] == list(values)[: len(epochs)]
    return found, states


def test_early_stopping_keeps_the_best_epoch():
    found, states = fit_with([0.1, 0.3, 0.3, 0.2, 0.9], epochs=9, stop_after=2)
    assert (found.best_epoch, found.epochs) == (2, 4)
    assert bits(found.network) == states[1]


@pytest.mark.parametrize(("examples", "epochs"), [(1, 3), (50, 3), (51, 4), (100, 4), (10_000, 7)])
def test_patience_in_examples_takes_the_place_of_that_in_epochs(examples, epochs):
    """Of 50 examples an epoch; what is not a whole number of epochs lasts to the end of one."""
    values = [0.1, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2]
    found, _ = fit_with(values[:epochs], epochs=7, stop_after=1, stop_after_examples=examples)
    assert (found.best_epoch, found.epochs) == (2, epochs)


class Slowing(Cpu):
    """Writes down when a training is slowed down, and how much."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def engine(self, *arguments):
        made = super().engine(*arguments)
        known = made.slow_down

        def slow_down(factor):
            self.seen.append((made.step, factor))
            known(factor)

        made.slow_down = slow_down
        return made


def test_a_plateau_lowers_the_rate_when_pytorch_does():
    """ReduceLROnPlateau(mode="max", factor=0.25, patience=1, threshold=0) has these rates after epochs 4, 8 and 10."""
    script = iter([0.1, 0.3, 0.3, 0.2, 0.25, 0.4, 0.4, 0.1, 0.2, 0.39, 0.1])
    network = network_of(PLAIN, SETS)
    given = TrainSettings(epochs=11, batch=50, stop_after=0, schedule="Plateau", decay_rate=0.25, decay_epochs=2)
    backend = Slowing()
    loop.fit(network, examples_of(network.spec, SETS, "d"), given, backend, lambda _: None, lambda _: next(script))
    assert backend.seen == [(4, 0.25), (8, 0.25**2), (10, 0.25**3)]


def test_without_validation_a_plateau_is_one_of_the_loss():
    network, epochs = network_of(PLAIN, SETS), []
    given = TrainSettings(epochs=6, batch=50, schedule="plateau", decay_epochs=1, learning_rate=3.0, optimizer="adam")
    backend = Slowing()
    loop.fit(network, examples_of(network.spec, SETS, "d"), given, backend, epochs.append)
    losses = [epoch.loss for epoch in epochs]
    worse = [n for n in range(2, 7) if losses[n - 1] >= min(losses[: n - 1])]
    assert worse
    assert [step for step, _ in backend.seen] == worse


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_a_plateau_from_the_start_is_a_schedule_in_steps(backend, rule):
    """A metric that is no number never gets better, so that the rate falls every two epochs: the same bits."""
    given = {"optimizer": rule, "epochs": 7, "stop_after": 0, "decay_epochs": 2, "decay_rate": 0.25}
    one, other = (
        bits(fit(NOISY, validate=lambda _: math.nan, schedule=schedule, **given)[0].network)
        for schedule in ("plateau", "step")
    )
    assert one == other
    assert rule == "adadelta" or one != bits(fit(NOISY, **given)[0].network)  # that rule has no rate


@pytest.mark.parametrize("rule", OPTIMIZERS)
@pytest.mark.parametrize("clip", [0.0, 0.05])
@pytest.mark.parametrize("raw", [PLAIN, SHARING], ids=["plain", "shared"])
def test_batches_that_make_one_update_are_one_batch(backend, rule, clip, raw):
    """50 examples in batches of 8, three an update: 24, 24 and 2 examples; as batches of 24, but for rounding."""
    given = {"raw": raw, "optimizer": rule, "clip": clip, "l2": 1e-3, "schedule": "cosine", "learning_rate": 0.003}
    one, epochs, _ = fit(batch=8, accumulate=3, **given)
    other, wanted, _ = fit(batch=24, **given)
    for (name, found), (_, whole) in zip(one.network.arrays(), other.network.arrays(), strict=True):
        np.testing.assert_allclose(found, whole, rtol=1e-3, atol=2e-4, err_msg=name)
    assert [epoch.loss for epoch in epochs] == pytest.approx([epoch.loss for epoch in wanted], rel=1e-4)


def test_the_gradient_of_several_batches_is_that_of_one():
    """In double precision, with the shares of the batches and rows that several of them touch."""
    network = network_of(PLAIN, SETS, np.float64)
    whole, sink = Forward(network), Gradients(network)
    for low, high in ((0, 20), (20, 40), (40, 50)):
        sink.begin((high - low) / 50)
        rows = np.arange(low, high)
        batch = batches.batch_of(network.spec, examples_of(network.spec, SETS, "d"), rows, np.float64)
        backward.backward(whole, whole.run(batch.inputs), batch.targets, sink)
    once = Gradients(network)
    batch = batches.batch_of(network.spec, examples_of(network.spec, SETS, "d"), np.arange(50), np.float64)
    backward.backward(whole, whole.run(batch.inputs), batch.targets, once)
    for name, gradient in once.arrays().items():
        np.testing.assert_allclose(sink.arrays()[name], gradient, rtol=1e-9, atol=1e-12, err_msg=name)


def test_without_early_stopping_all_epochs_run():
    found, states = fit_with([3, 2, 1, 4, 5], minimize=True, epochs=5, stop_after=0)
    assert (found.best_epoch, found.epochs) == (3, 5)
    assert bits(found.network) == states[2]


def test_without_validation_the_last_epoch_counts():
    found, epochs, network = fit(NOISY, epochs=3, stop_after=1)
    assert (found.best_epoch, found.epochs) == (3, 3)
    assert found.network is network
    assert [(epoch.epoch, epoch.value) for epoch in epochs] == [(1, None), (2, None), (3, None)]


def test_a_metric_that_never_is_better_than_nothing_leaves_the_first_epoch():
    found, states = fit_with([math.inf, math.inf], minimize=True, epochs=9, stop_after=2)
    assert found.epochs == 2
    assert bits(found.network) == states[-1]


LINEAR = {"ErrorFunction": "L2", "Layers": [INPUT, HIDDEN, OUTPUT | {"Activation": "Linear"}]}


@pytest.mark.parametrize(
    ("rule", "rate", "words"),
    [
        ("sgd", 1e6, "epoch 1, batch 4, step 4: loss is inf, layer O gives numbers that are not finite"),
        ("momentum", 1e20, "epoch 1, batch 2, step 2: loss is inf, layer O gives numbers that are not finite"),
        ("adam", 1e38, "epoch 1, batch 1, step 1: weights into layer H are not finite"),
    ],
)
def test_a_divergence_says_where(backend, rule, rate, words):
    with pytest.raises(DivergedError) as caught:
        fit(LINEAR, optimizer=rule, learning_rate=rate)
    assert re.fullmatch(f"{words}; lower learning_rate, or set clip", str(caught.value))


DEEP = {"Layers": [INPUT, HIDDEN, HIDDEN | {"Name": "G", "N": 7, "Activation": "Tanh"}, OUTPUT]}


@pytest.mark.parametrize("layer", ["H", "G", "O"])
@pytest.mark.parametrize("more", [{}, {"clip": 1e30}, {"batch": 5, "accumulate": 3}], ids=["plain", "clip", "several"])
def test_weights_that_an_update_breaks_are_found_in_its_batch(backend, layer, more):
    """The rate of one layer is out of all bounds; the others have none to speak of."""
    raw = DEEP | {"FineTuning": {"Rates": dict.fromkeys("HGO", 1e-30) | {layer: 1e38}}}
    with pytest.raises(DivergedError) as caught:
        fit(raw, optimizer="sgd", learning_rate=1e6, **more)
    step = "batch 3, step 3" if "accumulate" in more else "batch 1, step 1"
    words = rf"epoch 1, {step}: weights into layer {layer} are not finite; lower"
    assert re.match(words, str(caught.value))


def test_values_of_a_hidden_layer_that_the_loss_hides_are_found_in_their_batch(backend):
    """The first hidden layer overflows, the second turns infinity into one."""
    network, epochs = network_of(DEEP, SETS), []
    network.stores[0][...], network.stores[1][...] = 3e38, 0.1
    settings = TrainSettings(epochs=1, batch=16, learning_rate=1e-30, optimizer="sgd")
    words = r"^epoch 1, batch 1, step 1: layer H gives numbers that are not finite; lower"
    with pytest.raises(DivergedError, match=words):
        loop.fit(network, examples_of(network.spec, SETS, "d"), settings, Cpu(), epochs.append)


def test_large_numbers_that_are_finite_are_no_failure(backend):
    network, epochs = network_of(DEEP, SETS), []
    network.stores[0][...] = 3e30
    settings = TrainSettings(epochs=2, batch=16, learning_rate=1e-30, optimizer="sgd")
    loop.fit(network, examples_of(network.spec, SETS, "d"), settings, Cpu(), epochs.append)
    assert len(epochs) == 2


def test_a_divergence_in_the_last_update_is_seen(backend):
    words = "^epoch 1, batch 1, step 1: weights into layer H are not finite; lower"
    with pytest.raises(DivergedError, match=words):
        fit(LINEAR, optimizer="sgd", learning_rate=1e42, batch=50, epochs=1)


def test_a_loss_that_only_grows_is_a_divergence():
    with pytest.raises(DivergedError, match=r"^epoch 1, batch 4, step 4: loss \S+, the first was \S+; lower"):
        fit(optimizer="sgd", learning_rate=1e6)


class Spoiling:
    """A keeper that breaks the batch normalization after the last batch of an epoch."""

    def restore(self, training):
        pass

    def after_batch(self, training):
        if training.position.batch == 4:
            training.network.norms[1].mean[2] = np.nan


def test_a_batch_normalization_that_is_not_finite_is_named():
    words = "^epoch 1, batch 4, step 4: the last update failed, the batch normalization of layer H is not finite; lower"
    with pytest.raises(DivergedError, match=words):
        fit(NOISY, keeper=Spoiling())


@pytest.fixture
def seen_rows(monkeypatch):
    """The examples of every batch."""
    seen = []

    def recording(spec, examples, rows, dtype):
        seen.append(rows)
        return batches.batch_of(spec, examples, rows, dtype)

    monkeypatch.setattr(engine, "batch_of", recording)
    return seen


def test_every_epoch_has_an_order_of_its_own(monkeypatch, seen_rows):
    monkeypatch.setattr(batches, "SHUFFLE_BLOCK", 4)
    monkeypatch.setattr(batches, "SHUFFLE_GROUP", 3)
    fit(epochs=3)
    assert [len(rows) for rows in seen_rows] == [16, 16, 16, 2] * 3
    orders = [np.concatenate(seen_rows[low : low + 4]) for low in (0, 4, 8)]
    for epoch, order in enumerate(orders, 1):
        np.testing.assert_array_equal(order, epoch_order(1, epoch, 50, True))
        assert sorted(order) == list(range(50))


def test_without_shuffling_batches_follow_the_file(seen_rows):
    fit(PLAIN | {"ShuffleIndices": False})
    np.testing.assert_array_equal(np.concatenate(seen_rows), np.tile(np.arange(50), 2))


def test_data_in_a_file_give_what_data_in_memory_do(monkeypatch, tmp_path):
    monkeypatch.setattr(batches, "SHUFFLE_BLOCK", 4)
    monkeypatch.setattr(batches, "SHUFFLE_GROUP", 3)
    monkeypatch.setattr("nnlib.data.stream.BLOCK", 4)
    write_data(tmp_path / "d.nc", Data(tuple(SETS.values())))
    streamed = {s.name: s for s in open_data([tmp_path / "d.nc"], limit_bytes=0, cache_bytes=2000).sets}
    assert type(streamed["x"].rows).__name__ == "FileRows"
    assert bits(fit(NOISY, streamed)[0].network) == bits(fit(NOISY)[0].network)


def test_noise_is_drawn_anew_for_every_batch(monkeypatch):
    inputs, kept = [], []
    forward = Forward.run

    def recording(self, some, keep=None, training=False, values=None, wanted=None):
        found = forward(self, some, keep, training, values, wanted)
        inputs.append(some[0].nnz if training else 0)
        kept.extend(mask.mean() for mask in found.keep.values())
        return found

    monkeypatch.setattr(Forward, "run", recording)
    fit(NOISY, epochs=8)
    assert len(set(inputs)) > 8
    assert len(set(kept)) > 4
    assert sum(inputs) / 8 == pytest.approx(0.8 * SETS["x"].rows.nonzeros, rel=0.05)
    assert np.mean(kept) == pytest.approx(0.7, abs=0.05)


def test_validation_has_no_noise_and_the_running_statistics():
    def validate(evaluator):
        return evaluator.mean_loss(examples_of(evaluator.network.spec, SETS, "d"))

    _, epochs, network = fit(NOISY, validate=validate, minimize=True, stop_after=0)
    assert epochs[-1].value == validate(Cpu().evaluator(network))
    assert epochs[-1].value != epochs[-1].loss
    assert np.all(network.norms[1].variance != 1)


def test_whole_numbers_are_as_good_as_others():
    network = network_of(PLAIN, SETS)
    settings = TrainSettings(momentum=0, beta2=0, l2=1, l1=0)
    training = loop.Training(network, examples_of(network.spec, SETS, "d"), settings, Cpu())
    hyper = training._engine._optimizer.hyper
    assert {type(number) for number in (hyper.momentum, hyper.beta2, hyper.l2, hyper.l1)} == {float}


def test_a_batch_without_any_input_is_learned_from():
    sets = sets_of(x=random_matrix(50, WIDTH, 1, 0.0), y=random_matrix(50, WIDTH, 2, 0.2))
    _, epochs, network = fit(NOISY, sets, optimizer="adam", epochs=2)
    assert epochs[1].loss < epochs[0].loss
    assert bits(network) != bits(network_of(NOISY, sets))


@pytest.mark.parametrize(("minimize", "values"), [(False, [1, 2, 5, 9]), (True, [-1, -2, -5, -9])])
def test_a_training_that_misses_a_rung_ends(minimize, values):
    sign = -1 if minimize else 1
    for height, epochs in ((1.5, 4), (2, 4), (2.5, 2)):
        script = iter(values)
        network = network_of(PLAIN, SETS)
        examples = examples_of(network.spec, SETS, "d")
        given = TrainSettings(epochs=4, batch=16, stop_after=0)
        keys = {"minimize": minimize, "rungs": [(2, sign * height)]}
        found = loop.fit(network, examples, given, Cpu(), lambda _: None, lambda _, script=script: next(script), **keys)
        assert (found.epochs, found.pruned) == (epochs, epochs == 2)
