import numpy as np
import pytest
from nnlib_samples import NETWORK, clustered, random_rows

from nnlib import network as net
from nnlib import train
from nnlib.contract import TrainSettings
from nnlib.errors import NnlibError
from nnlib.spec import parse_network, substitute
from nnlib.threads import workers

FILLED = substitute(NETWORK, {"hidden": 64, "denoising": 0.2})


def network_of(width, output="Sigmoid", **changes):
    raw = FILLED | changes
    raw["Layers"] = [*raw["Layers"][:2], raw["Layers"][2] | {"Activation": output}]
    return net.create(train.resolve(parse_network(raw, "n"), width, width, "n"), train.stream(1, train.WEIGHTS))


def bits(network):
    return b"".join(edge.store.tobytes() + edge.bias.tobytes() for edge in network.edges)


@pytest.mark.parametrize("output", ["Sigmoid", "SoftMax"])
def test_same_bits_on_any_number_of_threads(output):
    inputs, targets = random_rows(300, 1500, 1, 60), random_rows(300, 1500, 2, 60)
    seen = set()
    for threads in (1, 1, 3):
        network = network_of(1500, output)
        with workers(threads) as each:
            train.fit(network, inputs, targets, TrainSettings(epochs=2), lambda _epoch: None, each=each)
        seen.add(bits(network))
    assert len(seen) == 1


def test_another_seed_gives_another_training():
    data = clustered(20, 1, 9)
    seen = set()
    for seed in (1, 2):
        network = network_of(40)
        settings = TrainSettings(epochs=1, seed=seed)
        train.fit(network, data.sets[0].rows, data.sets[1].rows, settings, lambda _epoch: None)
        seen.add(bits(network))
    assert len(seen) == 2


def fit_with(values, minimize=False, **settings):
    data = clustered(20, 1, 9)
    network, states, script = network_of(40), [], iter(values)

    def validate(network):
        states.append(bits(network))
        return next(script)

    fit = train.fit(
        network,
        data.sets[0].rows,
        data.sets[1].rows,
        TrainSettings(**settings),
        lambda _epoch: None,
        validate,
        minimize,
    )
    return fit, states


def test_early_stopping_keeps_the_best_epoch():
    fit, states = fit_with([0.1, 0.3, 0.3, 0.2, 0.9], epochs=9, stop_after=2)
    assert (fit.best_epoch, fit.epochs) == (2, 4)
    assert bits(fit.network) == states[1]


def test_without_early_stopping_all_epochs_run():
    fit, states = fit_with([3, 2, 1, 4, 5], minimize=True, epochs=5, stop_after=0)
    assert (fit.best_epoch, fit.epochs) == (3, 5)
    assert bits(fit.network) == states[2]


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "sgd"])
def test_the_loss_falls(optimizer):
    data, losses = clustered(64, 1, 9), []
    rate = 1.0 if optimizer == "sgd" else 0.01
    settings = TrainSettings(epochs=20, batch=16, optimizer=optimizer, learning_rate=rate)
    train.fit(
        network_of(40),
        data.sets[0].rows,
        data.sets[1].rows,
        settings,
        lambda epoch: losses.append(epoch.loss),
    )
    assert losses[-1] < 0.6 * losses[0]


def test_epoch_data_are_shuffled_and_denoised():
    inputs, targets = random_rows(500, 40, 1), random_rows(500, 40, 2)
    spec = network_of(40, Denoising={"p": 0.25}).spec
    x, t = train._epoch_data(spec, inputs, targets, 1, 1, np.float32)
    again, _ = train._epoch_data(spec, inputs, targets, 1, 1, np.float32)
    other, _ = train._epoch_data(spec, inputs, targets, 1, 2, np.float32)
    assert (x != again).nnz == 0
    assert (x != other).nnz > 0
    assert set(x.data.tolist()) == {float(np.float32(1 / 0.75))}
    assert x.nnz / inputs.nonzeros == pytest.approx(0.75, abs=0.05)
    order = train.stream(1, train.SHUFFLE, 1).permutation(500)
    np.testing.assert_array_equal(t.indices, targets.take(order).indices)
    plain = network_of(40, ShuffleIndices=False, Denoising={"p": 0}).spec
    x, _ = train._epoch_data(plain, inputs, targets, 1, 1, np.float32)
    np.testing.assert_array_equal(x.indices, inputs.indices)


def test_widths_must_agree():
    spec = parse_network(FILLED | {"Layers": [{"N": 39, "DataSet": "input"}, *FILLED["Layers"][1:]]}, "n")
    with pytest.raises(NnlibError, match=r"n: layer Input0: N is 39, data set 'input' has width 40"):
        train.resolve(spec, 40, 40, "n")


def test_settings_are_checked_all_at_once():
    with pytest.raises(NnlibError) as caught:
        train.check_settings(TrainSettings(epochs=1.5, batch=True, learning_rate=float("nan"), optimizer=3, seed=-1))
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == [
        f" train.{name}" for name in ("epochs", "batch", "optimizer", "learning_rate", "seed")
    ]
