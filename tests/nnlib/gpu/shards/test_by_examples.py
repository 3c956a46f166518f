"""A training by examples on 1, 2, 4 and 8 GPUs: one sha256, and that of processors but for rounding.

GPUs are played, one a thread, by the kernels on processors; NCCL is played, too, or ranks meet in memory.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS
from nnlib.cpu.backend import Cpu
from nnlib.gpu import engine
from nnlib.gpu.backend import Gpu
from nnlib.gpu.runtime import Runtime
from nnlib.gpu.shards import by_examples, norms
from nnlib.gpu.shards.by_examples import ExamplesEngine
from nnlib.gpu.shards.exchange import Exchange
from nnlib.model.examples import examples_of
from nnlib.optim.hyper import hyper_of
from nnlib.optim.rules import RULES
from nnlib.shards.collectives import Collectives
from nnlib.shards.tree import RANKS
from tests.kernels.standin import Cupy, write_kernels
from tests.nnlib.cpu.test_by_examples import COUNT, IN_ORDER, LAYERS, PLAIN, SETS, ask, few, fits, image_sets
from tests.nnlib.gpu.test_parity import TOLERANCE
from tests.nnlib.image_cases import CASES
from tests.nnlib.samples import network_of
from tests.nnlib.shards import trained
from tests.nnlib.shards.together import run_ranks
from tests.nnlib.shards.trained import Trained, engine_of, settings_of


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    write_kernels()


@contextmanager
def on_gpus(_: Any, host: Collectives, over: str = "nccl") -> Iterator[tuple[Gpu, Collectives]]:
    """A played GPU of one rank, which others reach over a played NCCL, or over this machine's memory."""
    cupy = Cupy()
    backend = Gpu(cupy.runtime())
    yield backend, backend.join(host) if over == "nccl" and host.ranks > 1 else host
    cupy.check()


over_host = functools.partial(on_gpus, over="host")
train = functools.partial(trained.train, raw=PLAIN, sets=SETS, parallel="examples", opened=on_gpus)


def assert_same(ranks: tuple[int, ...] = RANKS, **arguments: Any) -> Trained:
    found = [train(count, **arguments) for count in ranks]
    assert len({one.sha256 for one in found}) == 1, [one.totals for one in found]
    return found[0]


def assert_near(found: Trained, wanted: Trained, tolerance: float = 64 * TOLERANCE) -> None:
    """Assert that two trainings differ by no more than rounding."""
    assert found.totals == pytest.approx(wanted.totals, rel=1e-5)
    pairs = zip(found.network.arrays(), wanted.network.arrays(), strict=True)
    for (name, one), (_, other) in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=tolerance, err_msg=name)
    for name, one in found.states.items():
        other = wanted.states[name].reshape(one.shape)
        near = tolerance * max(1.0, float(np.abs(other).max(initial=0)))
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=near, err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(optimizer):
    settings = {"optimizer": optimizer, "learning_rate": 0.05, "l2": 1e-3, "l1": 1e-4}
    found = assert_same(**settings)
    if optimizer in ("sgd", "momentum", "nesterov", "adagrad"):  # others divide by what is almost 0
        assert_near(found, trained.train(2, PLAIN, SETS, parallel="examples", **settings))


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("over", [on_gpus, over_host])
def test_clipped(over, accumulate):
    settings = {"raw": PLAIN | IN_ORDER, "clip": 0.05, "accumulate": accumulate, "optimizer": "momentum"}
    found = assert_same(opened=over, **settings)
    assert_near(found, trained.train(1, sets=SETS, parallel="examples", **settings))
    assert_near(found, trained.train(1, sets=SETS, parallel="none", **settings))


@pytest.mark.parametrize("batch", [1, 3, 7, 9, 31, 45])
def test_batches_of_every_size(batch):
    """Down to less than an example a shard."""
    settings = {"raw": PLAIN | IN_ORDER, "sets": few(SETS, batch), "batch": batch, "optimizer": "sgd", "epochs": 1}
    found = assert_same(ranks=(1, 2, 8), **settings)
    assert_near(found, trained.train(1, parallel="none", **settings))


@pytest.mark.parametrize("compat", ["", "dsstne"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_every_kind(name, compat):
    settings = {"raw": LAYERS[name] | IN_ORDER, "compat": compat, "clip": 0.02, "optimizer": "nesterov", "l2": 1e-3}
    found = assert_same(ranks=(1, 4, 8), **settings)
    assert_near(found, trained.train(1, sets=SETS, parallel="none", **settings))


def test_an_update_of_few_examples_with_shared_weights():
    """Ranks that have no example in any batch divide by the uses of weights, too."""
    raw = LAYERS["shared weights"]
    assert_same(raw=raw, batch=3, compat="dsstne", optimizer="sgd", epochs=1)


def test_weights_of_examples():
    sets = SETS | {"y": dataclasses.replace(SETS["y"], weights=np.linspace(0.5, 2, COUNT).astype(np.float32))}
    settings = {"raw": PLAIN | IN_ORDER, "optimizer": "sgd"}
    found = assert_same(ranks=(1, 4), sets=sets, **settings)
    assert_near(found, trained.train(1, sets=sets, parallel="none", **settings))
    assert found.sha256 != train(1, **settings).sha256


@pytest.mark.parametrize("name", [*filter(fits, CASES)])
def test_networks_of_images(name):
    raw, sets = image_sets(name, 25)
    settings = {"raw": raw | IN_ORDER, "sets": sets, "clip": 0.5, "optimizer": "momentum", "epochs": 1}
    assert_near(assert_same(ranks=(1, 8), **settings), trained.train(1, parallel="none", **settings), 1e-5)


@pytest.mark.parametrize("name", ["dropped maps", "residual"])
def test_images_that_are_changed_by_chance(name):
    raw, sets = image_sets(name)
    raw = raw | {"Augmentation": {"Crop": 1, "Flip": True, "Mixup": 0.3}}
    settings = {"raw": raw, "sets": sets, "optimizer": "momentum", "epochs": 1}
    found = assert_same(**settings)
    assert_near(found, trained.train(1, parallel="examples", **settings), 1e-5)


def test_what_is_frozen_stays_as_it_is():
    raw, sets = image_sets("normalized twice")
    raw = raw | {"FineTuning": {"Freeze": ["A", "B"], "Rates": {"O": 0.5}}}
    first, found = network_of(dict(raw), sets), assert_same(raw=raw, sets=sets)
    pairs = zip(first.arrays(), found.network.arrays(), strict=True)
    same = {name for (name, one), (_, other) in pairs if (one == other).all()}
    assert same == {name for name, _ in first.arrays() if first.layer_of(name) != 3}


@pytest.mark.parametrize("over", [on_gpus, over_host])
def test_a_training_goes_on_with_other_gpus(over):
    trained.assert_goes_on(raw=PLAIN, sets=SETS, parallel="examples", optimizer="adam", clip=0.05, opened=over)


@pytest.mark.parametrize("over", [on_gpus, over_host])
def test_a_training_of_images_goes_on_with_other_gpus(over):
    raw, sets = image_sets("residual")
    raw = raw | {"Augmentation": {"Flip": True, "Mixup": 0.3}}
    trained.assert_goes_on(raw=raw, sets=sets, parallel="examples", opened=over, clip=0.5, optimizer="adam")


@pytest.mark.parametrize("batch", [1, 3, 9, 31])
def test_batches_of_every_size_are_normalized(batch):
    """Shards are of several sizes then, or have no examples, as all of a GPU's may."""
    raw, sets = image_sets("residual")
    for one in ({"raw": LAYERS["normalized"], "sets": few(SETS, batch)}, {"raw": raw, "sets": few(sets, batch)}):
        settings = {**one, "batch": batch, "optimizer": "sgd", "epochs": 1}
        found = assert_same(ranks=(1, 2, 8), **settings)
        if batch > 1:  # else the variance is 0, and what is divided by its root is rounding
            assert_near(found, trained.train(2, parallel="examples", **settings), 1e-5)


def test_errors_are_added_up_when_there_is_no_room_for_more_of_them(monkeypatch):
    wanted = train(1, batch=7)
    monkeypatch.setattr(engine, "LOSSES", 2)
    assert train(2, batch=7).sha256 == wanted.sha256


@pytest.mark.parametrize("over", [on_gpus, over_host])
def test_all_gpus_are_asked_and_answer_as_one_would(over):
    found = assert_same(ask=ask, opened=over)
    examples = examples_of(found.network.spec, SETS, "d")
    loss, (items, *others) = ask(Cpu().evaluator(found.network), examples)
    assert found.answers[-1][0] == pytest.approx(loss, rel=1e-5)
    assert found.answers[-1][1][0] == items
    for found_ones, wanted in zip(found.answers[-1][1][1:], others, strict=True):
        np.testing.assert_allclose(found_ones, wanted, rtol=1e-4, atol=1e-5)


def test_a_network_that_gpus_are_given_is_asked_as_the_trained_one_is():
    network = network_of(dict(PLAIN), SETS)
    examples = examples_of(network.spec, SETS, "d")

    def rank(host: Collectives) -> Any:
        with on_gpus(None, host) as (backend, together):
            engine, cut = engine_of(network, examples, settings_of(parallel="examples"), None, together, backend)
            return ask(engine.evaluator(), examples), ask(backend.part_evaluator(network, cut, together), examples)

    [(alone, _)] = run_ranks(1, rank)
    for ranks in (1, 2, 8):
        assert run_ranks(ranks, rank) == [(alone, alone)] * ranks


def engines(ranks: int, work: Any, raw: Any = PLAIN, sets: Any = SETS, **changes: Any) -> list[Any]:
    network = network_of(dict(raw), sets)
    examples, settings = examples_of(network.spec, sets, "d"), settings_of(parallel="examples", **changes)

    def rank(host: Collectives) -> Any:
        with on_gpus(None, host) as (backend, together):
            engine, _ = engine_of(network, examples, settings, None, together, backend)
            assert type(engine) is ExamplesEngine
            return work(engine, together)

    return run_ranks(ranks, rank)


def test_every_gpu_has_the_state_of_its_slice_alone():
    network = network_of(dict(PLAIN), SETS)
    states = RULES[hyper_of(settings_of()).rule].states * network.parameters
    for ranks in RANKS:
        sizes = engines(ranks, lambda engine, _: sum(x.size for x in engine._session.parameters.states))
        assert len(set(sizes)) == 1 and states <= sum(sizes) < 1.6 * states  # padded: arrays are aligned, slices equal


def test_a_step_takes_the_bytes_of_a_ring():
    def work(engine: Any, together: Any) -> tuple[Any, int]:
        engine.run(next(engine.batches([np.arange(20)])))
        engine.failed(wait=True)
        return dict(together.sent), engine._session.parameters.flat.nbytes

    for ranks in RANKS[1:]:
        for sent, size in engines(ranks, work):
            assert sent == {"sum": 2 * (ranks - 1) * size // ranks}


def test_a_normalized_layer_takes_one_exchange_each_way():
    """Of two numbers a channel from each GPU to each other, whatever the layer's maps have."""
    raw, sets = image_sets("residual")
    channels = [norm.scale.size for norm in network_of(dict(raw), sets).norms.values()]

    def work(engine: Any, together: Any) -> tuple[Any, int]:
        engine.run(next(engine.batches([np.arange(20)])))
        engine.failed(wait=True)
        return dict(together.sent), engine._session.parameters.flat.nbytes

    for ranks in RANKS[1:]:
        gathered = 2 * (ranks - 1) * 2 * 4 * sum(channels)
        for sent, size in engines(ranks, work, raw, sets):
            assert sent == {"sum": 2 * (ranks - 1) * size // ranks, "gather": gathered}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("name", [None, "residual"])
def test_a_step_is_one_graph_from_its_first_shard_to_its_update(monkeypatch, name, clip, ranks):
    """The third batch of a kind, as all after it, launches nothing by itself."""
    raw, sets = image_sets(name) if name else (PLAIN, SETS)

    def work(engine: Any, together: Any) -> tuple[list[int], list[Any]]:
        launched, sent, right = list[int](), [Counter(together.sent)] if ranks > 1 else [], Runtime.launch
        for rows in engine.batches([np.arange(20)] * 4):
            count = list[str]()
            monkeypatch.setattr(
                engine._runtime, "launch", lambda *given, c=count: (c.append(given[0]), right(engine._runtime, *given))
            )
            engine.run(rows)
            launched.append(len(count))
            sent += [Counter(together.sent)] if ranks > 1 else []
        engine.failed(wait=True)
        return launched, [b - a for a, b in itertools.pairwise(sent)]

    for launched, sent in engines(ranks, work, raw, sets, clip=clip):
        assert launched[0] > 10 and launched[1] == launched[0] and launched[2:] == [0, 0]
        assert len(set(map(repr, sent))) <= 1  # what is captured is counted as what is launched


# Mistakes, each of which has to change the bits from one number of GPUs to another: else these tests show nothing.


def drop_from_the_ranks_start(monkeypatch):
    def shard(self, batch, right=ExamplesEngine._shard):
        return right(self, dataclasses.replace(batch, low=batch.low - self._exchange.own[0] * 3))

    monkeypatch.setattr(ExamplesEngine, "_shard", shard)


def add_own_shards_in_turn(monkeypatch):
    def add(self, place):
        if place:
            self._runtime.launch("add", (1,), self._gradient, self._kept[0], self._gradient.size)
        if place < 2 ** len(self._kept) - 1:
            self._runtime.move(self._kept[0], self._gradient)

    monkeypatch.setattr(by_examples.Branches, "add", add)


def ask_nobody(monkeypatch):
    """Clip, or normalize, by what the own shards have."""
    monkeypatch.setattr(Exchange, "gather", lambda self, part, out: self._runtime.move(out, part, part.nbytes // 4))


def add_in_turn(monkeypatch):
    def add(runtime, parts, out):
        runtime.move(out, parts[0])
        for part in parts[1:]:
            runtime.launch("add", (1,), out, part, out.size)

    monkeypatch.setattr(norms, "tree_sum", add)


@pytest.mark.parametrize("mistake", [ask_nobody, add_in_turn])
@pytest.mark.parametrize("name", ["residual", None])
def test_a_mistake_in_normalization_changes_the_bits(monkeypatch, mistake, name):
    raw, sets = image_sets(name, 25) if name else (LAYERS["normalized"], SETS)
    right = train(1, raw=raw, sets=sets, epochs=1).sha256
    mistake(monkeypatch)
    assert len({right, *(train(ranks, raw=raw, sets=sets, epochs=1).sha256 for ranks in (1, 2, 4))}) > 1


@pytest.mark.parametrize("mistake", [drop_from_the_ranks_start, add_own_shards_in_turn, ask_nobody])
def test_a_mistake_changes_the_bits(monkeypatch, mistake):
    right = train(1, clip=0.05).sha256
    mistake(monkeypatch)
    assert len({right, *(train(ranks, clip=0.05).sha256 for ranks in (2, 4, 8))}) > 1


@contextmanager
def on_the_real_one(_: Any, host: Collectives) -> Iterator[tuple[Gpu, Collectives]]:
    runtime = Runtime.open()
    with runtime.faults():
        yield Gpu(runtime), host
    runtime.close()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [None, "squeeze and excitation", "residual"])
def test_ranks_on_one_gpu_have_the_bits_of_one(name):
    """They meet in this machine's memory: NCCL takes two GPUs."""
    raw, sets = image_sets(name) if name else (PLAIN, SETS)
    settings = {"raw": raw, "sets": sets, "clip": 0.5, "optimizer": "adam", "opened": on_the_real_one}
    assert_same(ranks=(1, 2, 8), **settings)
