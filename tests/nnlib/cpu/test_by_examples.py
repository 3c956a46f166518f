"""A training by examples on 1, 2, 4 and 8 ranks: one sha256 of parameters, states and losses."""

import dataclasses
import functools
import operator

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS
from nnlib.cpu import engine as cpu_engine
from nnlib.cpu.backend import Cpu
from nnlib.cpu.backward import backward, backward_shards
from nnlib.cpu.by_examples import ExamplesEngine
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.cpu.forward import Forward, Values
from nnlib.cpu.gradients import Gradients
from nnlib.cpu.maps import shard_norms
from nnlib.cpu.maps.shard_norms import ShardNorms
from nnlib.cpu.output import sum_errors
from nnlib.cpu.products import FLOAT32
from nnlib.cpu.shard_gradients import Summed
from nnlib.data.rows import from_rows
from nnlib.model.batches import DROPOUT, batch_of, draw_from, generator_for, take_targets
from nnlib.model.examples import examples_of
from nnlib.model.network import create
from nnlib.optim.hyper import hyper_of
from nnlib.optim.rules import RULES
from nnlib.shards.collectives import ALONE
from nnlib.shards.evaluator import ShardsEvaluator
from nnlib.shards.tree import RANKS, SHARDS, Tree
from nnlib.util.threads import map_in_turn
from tests.nnlib import image_cases
from tests.nnlib.samples import network_of, random_matrix, sets_of
from tests.nnlib.shards import trained as on_ranks
from tests.nnlib.shards.together import run_ranks
from tests.nnlib.shards.trained import engine_of, settings_of, sum_in_turn, train

pytestmark = pytest.mark.slow

COUNT = 45  # in batches of 20 the last one has 5: fewer than there are shards
RANDOM = np.random.default_rng(7)
SETS = sets_of(
    x=RANDOM.random((COUNT, 21), np.float32),
    k=RANDOM.normal(size=(COUNT, 6)).astype(np.float32),
    y=random_matrix(COUNT, 35, 3, 0.1),
    v=RANDOM.random((COUNT, 9), np.float32),
)
INPUT = {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"}
HIDDEN = {"Name": "H", "Kind": "Hidden", "N": 13, "Activation": "Tanh", "pDropout": 0.4}
OUTPUT = {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y"}
NORMED = {"BatchNormalization": True}
PLAIN = {"Layers": [INPUT, HIDDEN, OUTPUT]}
DEEP = {  # products whose rows have other bits with others beside them
    "Layers": [INPUT, HIDDEN | {"N": 64}, HIDDEN | {"Name": "G", "Source": "H", "N": 64}, OUTPUT | {"Source": "G"}]
}
IN_ORDER = {"ShuffleIndices": False}  # what is drawn by an example's place in its batch is that of whole batches then

trained = functools.partial(train, sets=SETS, parallel="examples")
assert_same = functools.partial(on_ranks.assert_same, sets=SETS, parallel="examples")
assert_goes_on = functools.partial(on_ranks.assert_goes_on, sets=SETS, parallel="examples")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(backend, optimizer):
    assert_same(raw=PLAIN, optimizer=optimizer, learning_rate=0.05, l2=1e-3, l1=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_clipped_and_on_several_threads(backend, threads, clip):
    assert_same(raw=PLAIN, threads=threads, clip=clip, accumulate=1 + (clip > 0))


@pytest.mark.parametrize("precision", ["bf16", "float32"])
def test_wide_products(precision):
    """Of several pieces of 256 columns."""
    assert_same(raw={"Layers": [INPUT, HIDDEN | {"N": 600}, OUTPUT]}, precision=precision)


def test_products_of_openblas(monkeypatch):
    """Which are taken where nothing is compiled, shard by shard: with other rows beside them rows have other bits."""
    monkeypatch.setattr(cpu_engine, "products_of", lambda *_: FLOAT32)
    right = assert_same(raw=DEEP).sha256
    monkeypatch.setattr(Forward, "multiply", lambda self, _, a, b, out=None: self.products.multiply(a, b, out))
    assert len({right, *(trained(ranks, DEEP).sha256 for ranks in (2, 4, 8))}) > 1


def few(sets, batch):
    """Two whole batches, and one example beyond them."""
    return {name: data.take(np.arange(min(2 * batch + 1, COUNT))) for name, data in sets.items()}


@pytest.mark.parametrize("batch", [1, 3, 7, 8, 9, 16, 31, 45])
def test_batches_of_every_size(batch):
    on_ranks.assert_same(raw=PLAIN, sets=few(SETS, batch), parallel="examples", batch=batch)


LAYERS = {
    "softmax": {"Layers": [INPUT, HIDDEN, OUTPUT | {"Activation": "SoftMax"}]},
    "a whole output": {"Layers": [INPUT, HIDDEN, OUTPUT | {"Activation": "SoftMax"}], "ErrorFunction": "L2"},
    "limits": {"Layers": [INPUT, HIDDEN | {"WeightNorm": 0.4, "DeltaNorm": 0.01}, OUTPUT | {"WeightNorm": 0.3}]},
    "several inputs and outputs": {
        "Layers": [
            INPUT,
            INPUT | {"Name": "K", "DataSet": "k"},
            HIDDEN | {"Source": ["I", "K"]},
            HIDDEN | {"Name": "G", "Source": "H", "Skip": "H", "pDropout": 0.0},
            OUTPUT | {"Source": ["H", "G"]},
            OUTPUT | {"Name": "P", "Source": "G", "DataSet": "v", "Activation": "Tanh"},
            HIDDEN | {"Name": "Dead", "Source": "H"},
        ],
        "ErrorFunction": "L2",
    },
    "normalized": {
        "Layers": [
            INPUT,
            HIDDEN | NORMED,
            HIDDEN | NORMED | {"Name": "G", "Source": "H", "Skip": "H", "N": 13},
            OUTPUT | {"Source": ["H", "G"]},
            HIDDEN | NORMED | {"Name": "Dead", "Source": "H"},
        ],
    },
    "shared weights": {
        "Layers": [
            INPUT,
            HIDDEN,
            OUTPUT
            | {
                "DataSet": "x",
                "SharedWeights": {
                    "InputLayer": "H",
                    "SourceInputLayer": "I",
                    "SourceOutputLayer": "H",
                    "Transposed": True,
                },
            },
        ],
    },
}


@pytest.mark.parametrize(("loops", "compat"), [("numpy", "dsstne"), ("numba", "")])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_every_kind(use_backend, name, loops, compat):
    use_backend(loops)
    settings = {"compat": compat, "clip": 0.02, "optimizer": "nesterov", "l2": 1e-3}
    assert_near_whole(assert_same(raw=LAYERS[name] | IN_ORDER, **settings), LAYERS[name], **settings)


def test_weights_of_examples():
    sets = SETS | {"y": dataclasses.replace(SETS["y"], weights=np.linspace(0.5, 2, COUNT).astype(np.float32))}
    found = [train(ranks, PLAIN, sets, parallel="examples").sha256 for ranks in RANKS]
    assert len(set(found)) == 1 and found[0] != trained(1, PLAIN).sha256


def assert_near_whole(found, raw, sets=SETS, rtol=1e-4, **settings):
    """It is the training of whole batches but for rounding."""
    whole = train(1, raw | IN_ORDER, sets, parallel="none", **settings)
    assert found.totals == pytest.approx(whole.totals, rel=1e-5)
    for (name, array), (_, wanted) in zip(found.network.arrays(), whole.network.arrays(), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=rtol, atol=1e-5, err_msg=name)


def fits(name):
    raw = image_cases.CASES[name]
    return "SparsenessPenalty" not in raw


def image_sets(name, count=COUNT):
    raw = image_cases.CASES[name]
    return raw, sets_of(
        x=image_cases.pixels(raw["Layers"][0]["N"], count).astype(np.float32),
        y=image_cases.classes(count, image_cases.WIDTHS.get(name, image_cases.TARGETS)).astype(np.float32),
    )


@pytest.mark.parametrize("name", [*filter(fits, image_cases.CASES)])
def test_networks_of_images(name):
    """A whole batch and one with less than an example a shard, on one rank and on as many as there are shards."""
    raw, sets = image_sets(name, 25)
    settings = {"sets": sets, "clip": 0.5, "optimizer": "momentum", "epochs": 1}
    found = [train(ranks, raw | IN_ORDER, parallel="examples", **settings) for ranks in (1, 8)]
    assert found[0].sha256 == found[1].sha256
    assert_near_whole(found[0], raw, rtol=1e-3, **settings)


@pytest.mark.parametrize("batch", [1, 3, 9, 31])
def test_batches_of_every_size_are_normalized(backend, batch):
    """Shards are of several sizes then, or have no examples, as all of a rank's may."""
    raw, sets = image_sets("residual")
    for one in ({"raw": LAYERS["normalized"], "sets": few(SETS, batch)}, {"raw": raw, "sets": few(sets, batch)}):
        on_ranks.assert_same(**one, parallel="examples", batch=batch)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["dropped maps", "residual"])
def test_images_that_are_changed_by_chance(backend, name, threads):
    raw, sets = image_sets(name)
    raw = raw | {"Augmentation": {"Crop": 1, "Flip": True, "Mixup": 0.3}}
    on_ranks.assert_same(raw=raw, sets=sets, parallel="examples", threads=threads)


def test_a_training_of_images_goes_on_with_other_ranks():
    raw, sets = image_sets("residual")
    raw = raw | {"Augmentation": {"Flip": True, "Mixup": 0.3}}
    on_ranks.assert_goes_on(raw=raw, sets=sets, parallel="examples", clip=0.5, optimizer="adam")


@pytest.mark.parametrize("name", ["normalized twice", "residual", None])
def test_gradients_are_those_of_the_whole_batch_and_of_its_loss(name):
    """In double precision, on one rank; finite differences are of the mean error as the shards compute it."""
    raw, sets = image_sets(name) if name else (LAYERS["normalized"], SETS)
    spec = network_of(dict(raw), sets).spec
    network = create(spec, np.random.default_rng(3), np.float64)
    for bias in network.biases:
        bias += np.random.default_rng(4).uniform(-0.05, 0.05, bias.shape)
    examples, forward = examples_of(spec, sets, "d"), Forward(network)
    norms, batch = ShardNorms(map_in_turn, ALONE, 6, COUNT), batch_of(spec, examples, np.arange(COUNT), np.float64)
    targets = [take_targets(spec, examples, np.arange(COUNT)[some], np.float64) for some in norms.shards]
    assert len(targets) == SHARDS

    def run():
        return forward.run(batch.inputs, None, True, Values(COUNT, norms.shards, norms))

    def loss():
        return sum(sum_errors(forward, *part) for part in zip(run().parts(), targets, strict=True)) / COUNT

    shards, whole = Gradients(network), Gradients(network)
    backward_shards(forward, run(), targets, shards)
    found = shards.arrays()
    backward(forward, forward.run(batch.inputs, training=True), batch.targets, whole)
    for array, expected in whole.arrays().items():
        gradient = found[array]
        np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-12, err_msg=array)
        if array.endswith(("_mean", "_variance")) or not gradient.any():
            continue
        place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        parameters = dict(network.arrays())[array]
        before, h = parameters[place], 1e-6
        parameters[place] = before + h
        above = loss()
        parameters[place] = before - h
        below = loss()
        parameters[place] = before
        assert gradient[place] == pytest.approx((above - below) / (2 * h), rel=1e-4, abs=1e-8), array


def test_what_is_frozen_stays_as_it_is():
    raw, sets = image_sets("normalized twice")
    raw = raw | {"FineTuning": {"Freeze": ["A", "B"], "Rates": {"O": 0.5}}}
    first, found = network_of(dict(raw), sets), on_ranks.assert_same(raw=raw, sets=sets, parallel="examples")
    same = {
        name
        for (name, one), (_, other) in zip(first.arrays(), found.network.arrays(), strict=True)
        if (one == other).all()
    }
    assert same == {name for name, _ in first.arrays() if first.layer_of(name) != 3}


@pytest.mark.parametrize("name", [None, *LAYERS])
def test_an_update_of_several_batches_is_that_of_whole_ones(name):
    raw, settings = (
        LAYERS[name] if name else PLAIN,
        {"clip": 0.01, "accumulate": 2, "optimizer": "momentum", "l2": 1e-3},
    )
    assert_near_whole(trained(4, raw | IN_ORDER, **settings), raw, **settings)


@pytest.mark.parametrize("clip", [0.0, 0.05])
@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
def test_a_training_goes_on_with_other_ranks(optimizer, clip):
    assert_goes_on(raw=PLAIN, optimizer=optimizer, clip=clip)


def ask(evaluator, examples):
    """What an evaluator says of all examples, and of some; floats to the last bit."""
    few, hidden, output = examples.take(np.arange(11)), 1, len(evaluator.network.spec.layers) - 1
    owned = from_rows([[n, n + 1] for n in range(11)], evaluator.network.spec.layers[output].units)
    found = [*evaluator.top(few, output, 7, owned), evaluator.sums(few, output), evaluator.values(few, hidden)]
    return evaluator.mean_loss(examples), [array.tolist() for array in found]


@pytest.mark.parametrize("threads", [1, 2])
def test_all_ranks_are_asked_and_answer_as_one_would(backend, threads):
    found = assert_same(raw=PLAIN, threads=threads, ask=ask)
    examples = examples_of(found.network.spec, SETS, "d")
    loss, (items, *others) = ask(CpuEvaluator(found.network, map_in_turn), examples)  # which knows of no shards
    assert found.answers[-1][0] == pytest.approx(loss, rel=1e-6)
    assert found.answers[-1][1][0] == items
    for found_ones, wanted in zip(found.answers[-1][1][1:], others, strict=True):
        np.testing.assert_allclose(found_ones, wanted, rtol=1e-5, atol=1e-6)


def test_a_network_that_ranks_are_given_is_asked_as_the_trained_one_is():
    """The mean of the weights, or the best epoch."""
    network = network_of(dict(PLAIN), SETS)
    examples, settings = examples_of(network.spec, SETS, "d"), settings_of(parallel="examples")

    def work(together):
        engine, cut = engine_of(network, examples, settings, map_in_turn, together)
        given = Cpu().part_evaluator(network, cut, together)
        return ask(engine.evaluator(), examples), ask(given, examples)

    backend = Cpu()
    backend.engine(network, examples, settings)
    alone = ask(backend.evaluator(network), examples)
    for ranks in RANKS:
        assert run_ranks(ranks, work) == [(alone, alone)] * ranks


def test_pictures_are_asked_about_in_shards():
    raw, sets = image_sets("squeeze and excitation")
    on_ranks.assert_same(raw=raw, sets=sets, parallel="examples", epochs=1, ask=lambda e, x: e.mean_loss(x))


def test_every_rank_has_the_state_of_its_rows_alone():
    network = network_of(dict(PLAIN), SETS)
    examples, settings = examples_of(network.spec, SETS, "d"), settings_of(parallel="examples")

    def work(together):
        engine, _ = engine_of(network, examples, settings, map_in_turn, together)
        return sum(state.size for state in engine.states().values())

    states = RULES[hyper_of(settings).rule].states * network.parameters
    for ranks in RANKS:
        sizes = run_ranks(ranks, work)
        assert sum(sizes) == states and max(sizes) < 1.25 * states / ranks


def test_a_step_takes_the_bytes_of_a_ring():
    network = network_of(dict(PLAIN), SETS)
    examples, settings = examples_of(network.spec, SETS, "d"), settings_of(parallel="examples")
    padded = sum(-(-len(array) // 8) * 8 * array.size // len(array) for _, array in network.arrays())

    def work(together):
        engine, _ = engine_of(network, examples, settings, map_in_turn, together)
        engine.run(next(engine.batches([np.arange(20)])))
        return together.sent

    for ranks in RANKS[1:]:
        assert run_ranks(ranks, work) == [{"sum": 2 * (ranks - 1) * 4 * padded // ranks}] * ranks


def test_a_normalized_layer_takes_one_exchange_each_way():
    """Of two numbers a channel from each rank to each other, whatever the layer's maps have."""
    raw, sets = image_sets("residual")
    network = network_of(dict(raw), sets)
    examples, settings = examples_of(network.spec, sets, "d"), settings_of(parallel="examples")
    channels = [norm.scale.size for norm in network.norms.values()]
    arrays = [array for name, array in network.arrays() if not name.endswith(("_mean", "_variance"))]
    padded = sum(-(-len(array) // 8) * 8 * array.size // len(array) for array in arrays)

    def work(together):
        engine, _ = engine_of(network, examples, settings, map_in_turn, together)
        together.calls.clear()
        engine.run(next(engine.batches([np.arange(20)])))
        gathers = [call for call in together.calls if call[0] == "gather"]
        assert len(gathers) == 2 * len(channels) + 1  # and that of the parameters
        return together.sent

    for ranks in RANKS[1:]:
        gathered = 2 * (ranks - 1) * 2 * 4 * sum(channels)
        ring = 2 * (ranks - 1) * 4 * padded // ranks
        assert run_ranks(ranks, work) == [{"sum": ring, "gather": gathered}] * ranks


def test_it_is_chosen_by_name_alone():
    network = network_of(dict(PLAIN), SETS)
    examples, backend = examples_of(network.spec, SETS, "d"), Cpu()
    assert type(backend.engine(network, examples, settings_of(parallel="Examples"))) is ExamplesEngine
    for other in ("auto", "none"):
        assert type(backend.engine(network, examples, settings_of(parallel=other))) is not ExamplesEngine


def test_what_is_drawn_from_a_place_on_is_what_all_would_be():
    whole = generator_for(3, DROPOUT, 9).random((11, 13), np.float32)
    for low in range(11):
        np.testing.assert_array_equal(draw_from(low * 13, (11 - low, 13), 3, DROPOUT, 9), whole[low:])


# Mistakes, each of which has to change the bits from one number of ranks to another: else these tests show nothing.


def sum_own_in_turn(monkeypatch):
    monkeypatch.setattr(Tree, "add", lambda self, part: setattr(self, "_branches", [sum([*self._branches, part])]))


def drop_from_the_ranks_start(monkeypatch):
    def keep(self, layer, shape, low, right=ExamplesEngine._keep):
        return right(self, layer, shape, low - self._together.own[0] * 3)

    monkeypatch.setattr(ExamplesEngine, "_keep", keep)


def sum_over_all_own_examples_at_once(monkeypatch):
    def find(products, x, delta, shards, dtype):
        return products.multiply(x.T, delta)

    monkeypatch.setattr("nnlib.cpu.backward.weight_gradient", find)


def ask_about_all_own_examples_at_once(monkeypatch):
    def shards(self, count, right=ShardsEvaluator._shards):
        found = right(self, count)
        return [(found[0][0], found[-1][1]), *[(found[-1][1],) * 2] * (len(found) - 1)]

    monkeypatch.setattr(ShardsEvaluator, "_shards", shards)


def clip_by_rank(monkeypatch):
    def length(self):
        return float(np.sqrt(np.square(self._kept).sum()))

    monkeypatch.setattr(Summed, "_length", length)


def merge_in_turn(monkeypatch):
    monkeypatch.setattr(shard_norms, "tree_sum", lambda parts: functools.reduce(operator.iadd, parts))


def normalize_by_rank(monkeypatch):
    def share(self, part):
        return np.broadcast_to(part, (self.ranks, *part.shape))

    monkeypatch.setattr("tests.nnlib.shards.together.Threads.share", share)


@pytest.mark.parametrize("mistake", [merge_in_turn, normalize_by_rank])
@pytest.mark.parametrize("name", ["normalized twice", None])
def test_a_mistake_in_normalization_changes_the_bits(monkeypatch, mistake, name):
    raw, sets = image_sets(name, 25) if name else (LAYERS["normalized"], SETS)
    right = train(1, raw, sets, parallel="examples", epochs=1).sha256
    mistake(monkeypatch)
    assert len({right, *(train(ranks, raw, sets, parallel="examples", epochs=1).sha256 for ranks in (1, 2, 4, 8))}) > 1


MISTAKES = [
    sum_in_turn,
    sum_own_in_turn,
    drop_from_the_ranks_start,
    sum_over_all_own_examples_at_once,
    ask_about_all_own_examples_at_once,
    clip_by_rank,
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_changes_the_bits(monkeypatch, mistake):
    settings = {"raw": DEEP, "clip": 0.05, "ask": ask}
    right = trained(1, **settings).sha256
    mistake(monkeypatch)
    assert len({right, *(trained(ranks, **settings).sha256 for ranks in (2, 4, 8))}) > 1
