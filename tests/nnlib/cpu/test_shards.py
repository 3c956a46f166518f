"""One training on 1, 2, 4 and 8 ranks: one sha256 of parameters, states and losses."""

import dataclasses
import functools
import threading

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS
from nnlib.cpu import engine as engine_module
from nnlib.cpu.backend import Cpu
from nnlib.cpu.engine import CpuEngine
from nnlib.errors import NotFiniteError
from nnlib.model.batches import DROPOUT, add_noise, generator_for
from nnlib.model.examples import examples_of
from nnlib.shards import cut
from nnlib.shards.cut import Cut, Range
from nnlib.shards.plan import plan_of
from nnlib.shards.tree import RANKS
from nnlib.training import loop
from nnlib.util.threads import map_in_turn, workers
from tests.nnlib.samples import bits, network_of
from tests.nnlib.shards.together import run_ranks
from tests.nnlib.shards.trained import (
    EXAMPLES,
    HIDDEN,
    INPUT,
    NOISY,
    OUTPUT,
    PLAIN,
    SETS,
    assert_goes_on,
    assert_same,
    engine_of,
    settings_of,
    sum_in_turn,
    train,
)

pytestmark = pytest.mark.slow

MARGIN = {"oneTarget": 0.7, "zeroTarget": 0.45, "oneScale": 3, "zeroScale": 0.5}
SHUT = {"oneTarget": 0.9, "zeroTarget": 0.6}  # nearly all deltas are zero, and the products sparse


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(backend, optimizer):
    assert_same(raw=NOISY, optimizer=optimizer, learning_rate=0.05)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_clipped_and_on_several_threads(backend, threads, clip):
    assert_same(raw=NOISY, threads=threads, clip=clip, l2=1e-3, accumulate=1 + (clip > 0))


LAYERS = {
    "softmax": {"Layers": [INPUT, HIDDEN, OUTPUT | {"Activation": "SoftMax"}]},
    "two hidden layers": {
        "Layers": [
            INPUT,
            HIDDEN | {"Name": "A"},
            HIDDEN | {"Name": "B", "N": 7, "Source": "A", "BatchNormalization": True},
            OUTPUT | {"Source": ["A", "B"]},
        ]
    },
    "several inputs and outputs": {
        "Denoising": {"p": 0.2},
        "Layers": [
            INPUT,
            INPUT | {"Name": "J", "DataSet": "w"},
            INPUT | {"Name": "K", "DataSet": "n"},
            HIDDEN | {"Source": ["I", "J", "K"]},
            OUTPUT | {"Source": ["H"]},
            OUTPUT | {"Name": "P", "Source": ["H"], "DataSet": "v", "Activation": "Tanh"},
            OUTPUT | {"Name": "Q", "Source": ["H"], "DataSet": "n"},
        ],
        "ErrorFunction": "L2",
    },
    "margins": {"ErrorFunction": "ScaledMarginalCrossEntropy", "ScaledMarginalCrossEntropy": MARGIN},
    "margins that shut out": {"ErrorFunction": "ScaledMarginalCrossEntropy", "ScaledMarginalCrossEntropy": SHUT},
    "weight norm of outputs": {"Layers": [INPUT, HIDDEN, OUTPUT | {"WeightNorm": 0.2}]},
    "penalty": {"SparsenessPenalty": {"p": 0.2, "beta": 0.5}, "Layers": [INPUT, HIDDEN | {"Sparse": True}, OUTPUT]},
    "dense input": {"Layers": [INPUT | {"DataSet": "d"}, HIDDEN, OUTPUT]},
    "dense targets": {"Layers": [INPUT, HIDDEN, OUTPUT | {"DataSet": "z"}]},
    "dense targets of a softmax": {"Layers": [INPUT, HIDDEN, OUTPUT | {"DataSet": "z", "Activation": "SoftMax"}]},
    "an input that is read twice": {
        "Layers": [
            INPUT,
            HIDDEN | {"Name": "A"},
            HIDDEN | {"Name": "B", "N": 7, "Source": ["A", "I"]},
            OUTPUT | {"Source": ["B"]},
        ]
    },
    "small output": {"Layers": [INPUT, HIDDEN, OUTPUT | {"DataSet": "n"}]},
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_every_kind(backend, name):
    assert_same(raw=PLAIN | LAYERS[name], clip=0.1 if name == "several inputs and outputs" else 0.0)


@pytest.mark.parametrize("activation", ["Sigmoid", "SoftMax"])
def test_weights_of_examples(backend, activation):
    weights = np.linspace(0.5, 2, EXAMPLES).astype(np.float32)
    sets = SETS | {name: dataclasses.replace(SETS[name], weights=weights) for name in ("x", "y")}
    assert_same(raw={"Layers": [INPUT, HIDDEN, OUTPUT | {"Activation": activation}]}, sets=sets)


@pytest.mark.parametrize("activation", ["Sigmoid", "SoftMax"])
def test_targets_that_alone_count(backend, activation):
    sets = SETS | {"y": dataclasses.replace(SETS["y"], ignore_zero=True)}
    assert_same(raw={"Layers": [INPUT, HIDDEN, OUTPUT | {"Activation": activation}]}, sets=sets)


def test_rounded_products(backend):
    assert_same(raw=NOISY, precision="bf16")


def test_dsstnes_oddities(backend):
    assert_same(raw=NOISY, compat="dsstne")


@pytest.mark.parametrize("clip", [0.0, 0.05])
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_a_training_goes_on_with_other_ranks(optimizer, clip):
    assert_goes_on(raw=NOISY, optimizer=optimizer, clip=clip)


def ask_everything(evaluator, examples):
    some = examples.take(np.array([3, 0, 44, 7, 7]))
    items, scores = evaluator.top(some, 2, 9, some.sets[0].rows)
    return [
        evaluator.mean_loss(examples),
        items.tolist(),
        scores.tolist(),
        evaluator.sums(some, 2).tobytes(),
        evaluator.values(some, 1).tobytes(),
        evaluator.values(some, 2).tobytes(),
    ]


@pytest.mark.parametrize("activation", ["Sigmoid", "SoftMax"])
def test_answers_about_all_units(backend, activation):
    found = assert_same(
        raw=NOISY | {"Layers": [INPUT, HIDDEN, OUTPUT | {"Activation": activation}]}, ask=ask_everything
    )
    loss, items, scores, sums, _, values = found.answers[-1]
    rows = np.frombuffer(sums, np.float32).reshape(5, -1)
    owned = SETS["x"].rows.take(np.array([3, 0, 44, 7, 7]))
    for row, (best, its) in enumerate(zip(items, scores, strict=True)):
        left = np.delete(np.arange(rows.shape[1]), owned.indices[owned.indptr[row] : owned.indptr[row + 1]])
        assert best == sorted(left, key=lambda unit: (-rows[row, unit], unit))[:9]
        assert its == rows[row, best].tolist()
    examples = examples_of(found.network.spec, SETS, "d")
    plain = ask_everything(Cpu().evaluator(found.network), examples)
    assert plain[0] == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(np.frombuffer(values, np.float32), np.frombuffer(plain[5], np.float32), rtol=1e-4)


@pytest.mark.parametrize("k", [1, 5, 1000, 10_000])
def test_equal_scores_are_ranked_by_item_on_any_number_of_ranks(backend, k):
    network = network_of(PLAIN, SETS)
    network.stores[1][...] = 0
    network.biases[1][...] = np.arange(len(network.biases[1])) // 100 % 3
    examples = examples_of(network.spec, SETS, "d")
    some = examples.take(np.arange(4))

    def ask(together):
        engine, _ = engine_of(network, examples, settings_of(), map_in_turn, together)
        items, scores = engine.evaluator().top(some, 2, k, some.sets[0].rows)
        return items.tolist(), scores.tolist()

    alone = run_ranks(1, ask)[0]
    assert len(alone[0][0]) == min(k, len(network.biases[1]))
    for ranks in RANKS[1:]:
        assert run_ranks(ranks, ask) == [alone] * ranks


def test_what_is_not_finite_is_told_by_all_ranks_at_once():
    network = network_of(PLAIN, SETS)
    network.stores[1][-1] = np.nan
    examples = examples_of(network.spec, SETS, "d")

    def ask(together):
        engine, _ = engine_of(network, examples, settings_of(), map_in_turn, together)
        with pytest.raises(NotFiniteError) as told:
            engine.evaluator().top(examples.take(np.arange(3)), 2, 5, None)
        broken = engine.broken()
        with np.errstate(all="ignore"):
            engine.run(next(engine.batches([np.arange(9)])))
        return told.value.example, broken, engine.failed().step, np.isnan(engine.total())

    for ranks in RANKS:
        assert run_ranks(ranks, ask) == [(0, ", weights into layer O are not finite", 1, True)] * ranks


def test_a_cut_changes_the_last_bits_alone():
    one, other = train(1, NOISY), train(1, NOISY, parallel="none")
    assert one.sha256 != other.sha256
    np.testing.assert_allclose(one.totals, other.totals, rtol=1e-6)
    for (name, array), (_, of_other) in zip(one.network.arrays(), other.network.arrays(), strict=True):
        np.testing.assert_allclose(array, of_other, rtol=1e-3, atol=1e-4, err_msg=name)


TUNED = NOISY | {"FineTuning": {"Freeze": ["H"], "UnfreezeAt": 2, "Rates": {"O": 0.5}}}


@pytest.mark.parametrize("raw", [NOISY, TUNED], ids=["plain", "frozen at first"])
@pytest.mark.parametrize("more", [{}, {"accumulate": 2, "ema": 0.9, "clip": 0.1}], ids=["plain", "several"])
def test_alone_a_training_is_what_it_is_on_ranks_and_goes_on_from_any_batch(raw, more):
    """By the backend: natural arrays in the network itself, and checkpoints between any two updates."""
    settings = settings_of(epochs=3, **more)

    def training():
        network = network_of(raw, SETS)
        return loop.Training(network, examples_of(network.spec, SETS, "d"), settings, Cpu())

    def after(batches):
        class Left(Exception):
            """Where the training is left."""

        class Keeper:
            count = 0

            def restore(self, training):
                """Begin anew."""

            def after_batch(self, training):
                self.count += 1
                if self.count == batches:
                    self.state = training.state()
                    self.state = {name: array.copy() for name, array in self.state[0].items()}, self.state[1]
                    raise Left

        keeper = Keeper()
        with pytest.raises(Left):
            training().run(lambda _: None, keeper)
        return keeper.state

    losses = []
    with workers(1):
        whole = training().run(lambda epoch: losses.append(epoch.loss))
        assert (training()._engine._cut is not None) and whole.epochs == 3
        for batches in (1, 2, 4):
            resumed, again = training(), []
            resumed.resume(*after(batches))
            assert bits(resumed.run(lambda epoch, again=again: again.append(epoch.loss)).network) == bits(whole.network)
            assert again == losses[-len(again) :]
    if raw is NOISY and not more:
        assert bits(train(4, raw, epochs=3).network) == bits(whole.network)


def test_alone_nothing_is_copied():
    network = network_of(PLAIN, SETS)
    engine = Cpu().engine(network, examples_of(network.spec, SETS, "d"), settings_of())
    assert engine.pull() is network and engine._cut.is_whole
    assert engine._cut.outputs.keys() == {2} and engine._cut.inputs.keys() == {0}


def test_a_trained_network_is_asked_as_it_was_trained():
    network, backend = network_of(PLAIN, SETS), Cpu()
    examples = examples_of(network.spec, SETS, "d")
    plain = backend.evaluator(network).sums(examples, 2)
    own = backend.engine(network, examples, settings_of()).evaluator().sums(examples, 2)
    assert own.tobytes() == backend.evaluator(network.copy()).sums(examples, 2).tobytes() != plain.tobytes()
    backend.engine(network, examples, settings_of(parallel="none"))
    assert backend.evaluator(network).sums(examples, 2).tobytes() == plain.tobytes()


@pytest.mark.parametrize("ranks", RANKS)
def test_a_backend_gives_each_rank_its_part(ranks):
    network, settings = network_of(PLAIN, SETS), settings_of()
    examples, cut_of = examples_of(network.spec, SETS, "d"), functools.partial(Cut, plan_of(network.spec, 20, "items"))

    def work(together):
        backend, part = Cpu(), cut_of(network.spec, together.own)
        assert backend.join(together) is together
        engine = backend.part(part.network(network).copy(), examples, settings, part, together)
        engine.run(next(engine.batches([np.arange(9)])))
        engine.settle()
        asked = backend.part_evaluator(engine.pull(), part, together).sums(examples, 2)
        return asked.tobytes() == engine.evaluator().sums(examples, 2).tobytes(), asked.shape

    assert run_ranks(ranks, work) == [(True, (EXAMPLES, SETS["y"].width))] * ranks


# Mistakes, each of which has to change the bits from one number of ranks to another: else these tests show nothing.


def draw_noise_for_own_entries(monkeypatch):
    seen = threading.local()

    def remember(spec, batch, seed, step):
        seen.step = step
        return batch

    def noisy(self, whole, part=Cut.batch):
        return add_noise(self.local, part(self, whole), 1, seen.step)

    monkeypatch.setattr(engine_module, "add_noise", remember)
    monkeypatch.setattr(Cut, "batch", noisy)


def drop_by_rank(monkeypatch):
    def keep(self, layer, shape):
        random = generator_for(1, DROPOUT, 100 * self.step + self._together.rank)
        return np.asarray(random.random(shape, np.float32) >= self._forward.network.spec.layers[layer].dropout)

    monkeypatch.setattr(CpuEngine, "_keep", keep)


class Ranges(Range):
    """Inputs dealt out as outputs are."""

    def columns(self, matrix):
        return matrix[:, self.place].sorted_indices()


def deal_out_inputs_in_ranges(monkeypatch):
    monkeypatch.setattr(cut, "Items", Ranges)


MISTAKES = [sum_in_turn, draw_noise_for_own_entries, drop_by_rank, deal_out_inputs_in_ranges]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_changes_the_bits(monkeypatch, mistake):
    right = train(1, NOISY).sha256
    mistake(monkeypatch)
    assert len({right, *(train(ranks, NOISY).sha256 for ranks in (2, 4, 8))}) > 1
