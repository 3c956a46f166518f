"""Update rules against textbook loops, and rows that are updated late against rows that are updated at once."""

import dataclasses
import time

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS, TrainSettings
from nnlib.cpu import optimizer as optimizers
from nnlib.cpu.backward import backward
from nnlib.cpu.engine import CpuEngine
from nnlib.cpu.forward import Forward
from nnlib.cpu.gradients import Gradients
from nnlib.cpu.optimizer import Optimizer
from nnlib.model import network as net
from nnlib.model.examples import examples_of
from nnlib.optim.hyper import Hyper, rate_of
from nnlib.util.threads import map_in_turn, workers
from tests.nnlib.samples import batch_of, bits, network_of, random_matrix, sets_of

ROWS = 12
SETS = sets_of(x=random_matrix(9, ROWS, 1), y=random_matrix(9, 5, 2))
INPUT, HIDDEN = {"Name": "I", "N": "auto", "DataSet": "x"}, {"Name": "H", "N": 3, "Activation": "Tanh"}
OUTPUT = {"Kind": "Output", "Name": "O", "N": "auto", "DataSet": "y"}
RAW = {"Layers": [INPUT, HIDDEN | {"BatchNormalization": True}, OUTPUT]}
RULES = pytest.mark.parametrize("rule", OPTIMIZERS)
COSINE = rate_of(TrainSettings(epochs=4, learning_rate=0.01, warmup=1.0, schedule="cosine"), 0.0, 100)


def decaying(step):
    return 0.02 / (1 + 0.1 * (step - 1))


def textbook(hyper, w, gradients, rate, first=1):
    """The rule as the books have it, a step at a time; Adam counts from `first`."""
    mu, b, l2, l1 = hyper.momentum, hyper.beta2, hyper.l2, hyper.l1
    w, v, s = w.astype(np.float64), np.zeros(w.shape), np.zeros(w.shape)
    for t, g in enumerate(gradients, first):
        a = rate(t - first + 1)
        if hyper.rule == "adamw":
            w = w - a * l2 * w
            g = g + l1 * np.sign(w)
        else:
            g = g + l2 * w + l1 * np.sign(w)
        if hyper.rule == "sgd":
            w = w - a * g
        elif hyper.rule == "momentum":
            v = mu * v - a * g
            w = w + v
        elif hyper.rule == "nesterov":
            before, v = v, mu * v - a * g
            w = w + v + mu * (v - before)
        elif hyper.rule == "adagrad":
            v = v + g**2
            w = w - a * g / np.sqrt(np.maximum(1e-9, v))
        elif hyper.rule == "rmsprop":
            v = mu * v + (1 - mu) * g**2
            w = w - a * g / np.sqrt(np.maximum(1e-9, v))
        elif hyper.rule == "adadelta":
            s = mu * s + (1 - mu) * g**2
            d = g * np.sqrt(np.maximum(1e-9, v) / np.maximum(1e-9, s))
            v = mu * v + (1 - mu) * d**2
            w = w - d
        else:
            v, s = mu * v + (1 - mu) * g, b * s + (1 - b) * g**2
            w = w - a * (v / (1 - mu**t)) / (np.sqrt(s / (1 - b**t)) + 1e-8)
    return w


def gradients_of(steps, shape, gaps, dtype=np.float64):
    """Gradients of which most rows are zero at most steps: row r has one at every gaps[r]-th step."""
    random = np.random.default_rng(0)
    found = random.normal(size=(steps, *shape)).astype(dtype)
    for row, gap in enumerate(gaps):
        found[np.arange(steps) % gap > 0, row] = 0
    return found


def feed(optimizer, gradient, lazy=True):
    """Do one step on the weights of the sparse input."""
    optimizer.begin()
    rows = np.flatnonzero(gradient.any(axis=1))
    optimizer.settle(0, rows)
    if lazy:
        optimizer.touched(0, 0, rows, gradient[rows].copy())
    else:
        optimizer.rows(0, 0, gradient.copy())
    optimizer.finish()
    return rows


@pytest.mark.parametrize(
    ("l2", "l1", "rate"), [(0.0, 0.0, decaying), (0.1, 0.0, COSINE), (0.0, 0.05, decaying), (0.1, 0.05, COSINE)]
)
@RULES
def test_rules_are_the_textbook_ones(backend, rule, l2, l1, rate):
    network = network_of(RAW, SETS, np.float64)
    before = network.copy()
    hyper = Hyper(rule, 0.8, 0.95, l2, l1)
    optimizer = Optimizer(network, hyper, rate)
    gaps = [1, 2, 3, 7, 20] * 3
    first = gradients_of(25, (ROWS, 3), gaps[:ROWS])
    second, biases, norm = (np.random.default_rng(1).normal(size=(25, *shape)) for shape in ((5, 3), (3,), (2, 3)))
    for n, gradient in enumerate(first):
        feed(optimizer, gradient)
        optimizer.rows(1, 0, second[n, :2].copy())
        optimizer.rows(1, 2, second[n, 2:].copy())
        optimizer.bias(0, 0, biases[n].copy())
        optimizer.norm(1, *norm[n].copy())
    optimizer.settle_all()
    free = dataclasses.replace(hyper, l2=0.0, l1=0.0)  # biases and batch normalizations are not pulled to zero
    for found, start, gradients, how in (
        (network.stores[0], before.stores[0], first, hyper),
        (network.stores[1], before.stores[1], second, hyper),
        (network.biases[0], before.biases[0], biases, free),
        (network.norms[1].scale, before.norms[1].scale, norm[:, 0], free),
        (network.norms[1].bias, before.norms[1].bias, norm[:, 1], free),
    ):
        np.testing.assert_allclose(found, textbook(how, start, gradients, rate), rtol=1e-9, atol=1e-12)


VARIANTS = {  # how many steps, the longest gap that they allow, and what stays the same in them
    "plain": (330, 300, Hyper(), lambda _: 0.01),
    "l2": (90, 70, Hyper(l2=1e-3), lambda _: 0.01),
    "l1": (90, 70, Hyper(l1=1e-4), lambda _: 0.01),
    "warm-up and cosine": (330, 300, Hyper(), COSINE),
    "forgetful": (90, 70, Hyper(momentum=0.3, beta2=0.2), decaying),
    "mindful": (330, 300, Hyper(momentum=0.97, beta2=0.9), lambda _: 0.01),
    "without momentum": (90, 70, Hyper(momentum=0.0, beta2=0.0), lambda _: 0.01),
}


@pytest.mark.parametrize("variant", VARIANTS)
@RULES
def test_late_rows_end_as_if_every_step_had_been_done(backend, rule, variant):
    """Bit for bit, when they are read, when they get a gradient after a long gap, and at the end."""
    steps, gap, hyper, rate = VARIANTS[variant]
    hyper = dataclasses.replace(hyper, rule=rule)
    late, at_once = network_of(RAW, SETS), network_of(RAW, SETS)
    optimizer, twin = Optimizer(late, hyper, rate), Optimizer(at_once, hyper, rate)
    twin._weights[0].last = None
    gaps = [1, 5, 9, 31, 40, gap // 2, gap, gap, gap + 1, gap + 7, steps - 1, steps]
    gradients = gradients_of(steps, (ROWS, 3), gaps, np.float32)
    for gradient in gradients:
        rows = np.flatnonzero(gradient.any(axis=1))
        before = at_once.stores[0][rows].copy()
        feed(twin, gradient, lazy=False)
        optimizer.begin()
        optimizer.settle(0, rows)
        np.testing.assert_array_equal(late.stores[0][rows], before)
        optimizer.touched(0, 0, rows, gradient[rows].copy())
        optimizer.finish()
    optimizer.settle_all()
    assert bits(late) == bits(at_once)
    for name, state in optimizer.arrays().items():
        np.testing.assert_array_equal(state, twin.arrays()[name], err_msg=name)


@RULES
def test_pieces_and_threads_do_not_matter(monkeypatch, backend, rule):
    monkeypatch.setattr(optimizers, "SHARE", 5)
    monkeypatch.setattr("nnlib.cpu.updates.CHUNK", 7)
    found = []
    for threads in (1, 3):
        network = network_of(RAW, SETS)
        with workers(threads) as each:
            optimizer = Optimizer(network, Hyper(rule, l2=0.01), decaying, each)
            for gradient in gradients_of(60, (ROWS, 3), [1, 50, 7, 60] * 3, np.float32):
                feed(optimizer, gradient)
            optimizer.settle_all()
        found.append(bits(network))
    assert found[0] == found[1]


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_that_ask_for_rates_at_once_get_the_same(monkeypatch, use_backend, threads):
    use_backend("numba")
    monkeypatch.setattr(optimizers, "SHARE", 1)

    def slowly(step):
        time.sleep(1e-4)  # lets another thread go on
        return decaying(step)

    network = network_of(RAW, SETS)
    with workers(threads) as each:
        optimizer = Optimizer(network, Hyper("adam", l2=0.01), slowly, each)
        for _ in range(40):
            optimizer.begin()
        optimizer.settle_all()
    rates = optimizer._updates._table_up_to(1)[:, 0]
    assert rates[1:] == pytest.approx([decaying(step) for step in range(1, len(rates))])


@RULES
def test_adam_of_dsstne_counts_from_two(backend, rule):
    network = network_of(RAW, SETS, np.float64, compat=True)
    start, hyper = network.stores[0].copy(), Hyper(rule)
    optimizer = Optimizer(network, hyper, decaying)
    gradients = gradients_of(9, (ROWS, 3), [1, 3, 4] * 4)
    for gradient in gradients:
        feed(optimizer, gradient)
    optimizer.settle_all()
    np.testing.assert_allclose(network.stores[0], textbook(hyper, start, gradients, decaying, first=2), rtol=1e-9)


@pytest.mark.parametrize("block", [512, 2])
def test_norms_of_weights_are_limited(monkeypatch, block):
    """Of the weights into each unit, whatever their layout; smaller ones stay as they are."""
    monkeypatch.setattr(net, "BLOCK", block)
    limit = {"WeightNorm": 0.8}
    raw = {"Layers": [INPUT, HIDDEN | limit, OUTPUT | {"Source": ["H", "I"]} | limit]}
    network = network_of(raw, SETS)
    for n, store in network.stores.items():
        matrix = network.matrix(n)
        matrix *= np.where(np.arange(matrix.shape[1]) % 2, 1.5, 0.5) / np.linalg.norm(matrix, axis=0)
        store[...] = net.lay_out_weights(network.spec, network.spec.edges[n], matrix)
    before = {n: network.matrix(n).copy() for n in network.stores}
    optimizer = Optimizer(network, Hyper("sgd"), decaying)
    optimizer.begin()
    optimizer.finish()
    for n, matrix in before.items():
        norms = np.linalg.norm(matrix, axis=0)
        assert norms.min() < 0.8 < norms.max()
        np.testing.assert_allclose(network.matrix(n), matrix * np.minimum(1, 0.8 / norms), rtol=1e-6)
        np.testing.assert_array_equal(network.matrix(n)[:, norms < 0.8], matrix[:, norms < 0.8])


@RULES
@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_locked_weights_and_their_biases_stay(backend, rule, clip):
    layers = [INPUT, HIDDEN | {"WeightNorm": 0.1}, HIDDEN | {"Name": "G"}, OUTPUT | {"Source": ["G", "I"]}]
    network = dataclasses.replace(network_of({"Layers": layers}, SETS), locked=frozenset({0, 3}))
    before = network.copy()
    settings = TrainSettings(optimizer=rule, learning_rate=0.01, l2=0.1, clip=clip)
    engine = CpuEngine(network, examples_of(network.spec, SETS, "d"), settings, map_in_turn)
    for _ in range(3):
        engine.run(batch_of(network, SETS))
    engine.settle()
    for n in range(4):
        assert np.array_equal(network.stores[n], before.stores[n]) == (n in network.locked)
        assert np.array_equal(network.biases[n], before.biases[n]) == (n in network.locked)


SHARED = {"InputLayer": "H", "SourceInputLayer": "I", "SourceOutputLayer": "H", "Transposed": True}
TIED = {"Layers": [INPUT, HIDDEN, {"Kind": "Hidden", "Name": "G", "N": ROWS, "SharedWeights": SHARED}, OUTPUT]}
UNTIED = {"Layers": [INPUT, HIDDEN, {"Kind": "Hidden", "Name": "G", "N": ROWS}, OUTPUT]}


def gradients_by_name(network):
    forward, batch, sink = Forward(network), batch_of(network, SETS), Gradients(network)
    backward(forward, forward.run(batch.inputs, training=True), batch.targets, sink)
    return sink, sink.arrays()


@pytest.mark.parametrize("compat", [False, True])
def test_shared_weights_get_the_gradients_of_all_their_edges(backend, compat):
    tied, untied = network_of(TIED, SETS, np.float64, compat), network_of(UNTIED, SETS, np.float64, compat)
    for n, store in tied.stores.items():
        untied.stores[n][...] = store
    untied.stores[1][...] = tied.stores[0].T
    sink, found = gradients_by_name(tied)
    _, single = gradients_by_name(untied)
    wanted = single["weights0"] + single["weights1"].T
    np.testing.assert_allclose(found["weights0"], wanted, atol=1e-14)
    for n in range(3):
        np.testing.assert_allclose(found[f"bias{n}"], single[f"bias{n}"], atol=1e-14)
    before, optimizer = tied.stores[0].copy(), Optimizer(tied, Hyper("sgd"), lambda _: 0.5)
    optimizer.begin()
    sink.give(optimizer)
    np.testing.assert_allclose((before - tied.stores[0]) / 0.5, wanted / (2 if compat else 1), atol=1e-14)


def test_clipping_shortens_the_gradient_of_all_that_is_trained(backend):
    layers = [INPUT, HIDDEN | {"BatchNormalization": True}, OUTPUT | {"Source": ["H", "I"]}]
    network = dataclasses.replace(network_of({"Layers": layers}, SETS, np.float64), locked=frozenset({1}))
    kept = []
    for limit in (0.0, 1e-3, 1e3):
        taken = Gradients(network)
        sink, whole = gradients_by_name(network)
        length = sink.length()
        sink.give(taken, limit)
        assert not any(array.any() for array in sink.arrays().values())
        kept.append(taken.arrays())
    trained = [array for name, array in whole.items() if name not in ("weights1", "bias1")]
    assert length == pytest.approx(np.sqrt(sum((array**2).sum() for array in trained)))
    assert length > 1e-3
    for name, array in whole.items():
        np.testing.assert_array_equal(kept[0][name], array)
        np.testing.assert_allclose(kept[1][name], array * 1e-3 / length)
        np.testing.assert_array_equal(kept[2][name], array)


@RULES
def test_a_checkpoint_has_the_states_of_all_that_is_trained(backend, rule):
    network = network_of({"Layers": [INPUT, HIDDEN, HIDDEN | {"Name": "G"}, OUTPUT]}, SETS)
    optimizer = Optimizer(network, Hyper(rule), decaying)
    names = {name.rpartition("_state")[0] for name in optimizer.arrays()}
    every = {f"{what}{n}" for what in ("weights", "bias") for n in range(3)}
    assert names == (set() if rule == "sgd" else every)  # which remembers nothing


def test_a_resumed_training_counts_its_steps_on():
    network = network_of(RAW, SETS, np.float64)
    optimizer = Optimizer(network, Hyper("adam"), decaying)
    optimizer.resume(7)
    assert optimizer.step == 7
    feed(optimizer, gradients_of(1, (ROWS, 3), [1])[0])
    assert optimizer.step == 8


@pytest.mark.parametrize("forces", [{}, {"l2": 0.1}, {"l1": 0.1}])
@RULES
def test_rows_that_never_had_a_gradient_cost_nothing_unless_weights_are_pulled_to_zero(
    monkeypatch, backend, rule, forces
):
    network, seen = network_of(RAW, SETS), list[int]()
    optimizer = Optimizer(network, Hyper(rule, **forces), decaying)
    replay = type(optimizer._updates).replay
    monkeypatch.setattr(
        type(optimizer._updates),
        "replay",
        lambda self, slot, rows, *more: (seen.extend(rows), replay(self, slot, rows, *more)),
    )

    def train(steps):
        for gradient in gradients_of(steps, (ROWS, 3), [3, 1, 5] + [steps + 1] * (ROWS - 3), np.float32):
            optimizer.begin()
            optimizer.settle(0, np.arange(ROWS))
            optimizer.touched(0, 0, np.arange(3), gradient[:3].copy())
            optimizer.finish()
        optimizer.settle_all()

    train(9)
    optimizer.resume(9)
    train(9)
    assert set(seen) == set(range(ROWS if forces else 3))


def test_a_resumed_training_goes_on_with_rows_that_have_but_one_bit_of_state(backend):
    network = network_of(RAW, SETS)
    optimizer = Optimizer(network, Hyper("adam"), decaying)
    m, s = optimizer.arrays()["weights0_state0"], optimizer.arrays()["weights0_state1"]
    m[1, 2], s[4, 0], m[7, 1] = -0.0, np.float32(1e-45), 1.0
    optimizer.resume(5)
    assert np.flatnonzero(optimizer._weights[0].last == 5).tolist() == [1, 4, 7]
