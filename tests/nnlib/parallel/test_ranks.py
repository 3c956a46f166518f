"""Trainings on processes have the bits of one on this process alone, whatever is asked of them on the way."""

from __future__ import annotations

import dataclasses
import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.data.blockwise import run_in_order
from nnlib.data.file import write_data
from nnlib.data.rows import from_rows
from nnlib.data.sets import Data
from nnlib.data.stream import open_data
from nnlib.errors import DivergedError, EvictedError, NotFiniteError
from nnlib.model.examples import examples_of
from nnlib.parallel.crew import Crew
from nnlib.parallel.ranks import RanksBackend
from nnlib.shards.tree import RANKS
from nnlib.training import checkpoint, loop
from nnlib.training.checkpoint import Checkpoints
from nnlib.training.stop import Stop
from nnlib.util.threads import workers
from tests.nnlib.cpu import test_by_examples as dense
from tests.nnlib.samples import bits, network_of
from tests.nnlib.shards.trained import HIDDEN, INPUT, OUTPUT, PLAIN, SETS

pytestmark = pytest.mark.slow

SEVERAL = tuple(ranks for ranks in RANKS if ranks > 1)
BOTH = {"Source": ["H"]}
NOISY = {
    "Denoising": {"p": 0.2},
    "ErrorFunction": "L2",
    "Layers": [
        INPUT,
        HIDDEN | {"pDropout": 0.3},
        OUTPUT | BOTH,
        OUTPUT | BOTH | {"Name": "P", "DataSet": "v", "Activation": "Tanh"},
    ],
}
SETTINGS = TrainSettings(epochs=3, batch=20, learning_rate=0.01, clip=0.5, parallel="items", stop_after=0)


@pytest.fixture(scope="module")
def backends():
    """Backends of 1, 2, 4 and 8 ranks; those of several are started once."""
    started: dict[int, tuple[Crew, RanksBackend]] = {}

    def of(ranks):
        if ranks == 1:
            return Cpu()
        if ranks not in started:
            crew = Crew("cpu", ranks, 1)
            started[ranks] = crew, RanksBackend(crew)
        return started[ranks][1]

    with workers(1):  # as BLAS is held to one thread in ranks, too
        yield of
    for crew, _ in started.values():
        crew.end()


def fit(backend, raw=NOISY, sets=SETS, keeper=None, **settings):
    """What a training gives that must not depend on ranks: its network, losses and values, in bits."""
    network, epochs = network_of(dict(raw), sets), []
    examples = examples_of(network.spec, sets, "d")

    def value(evaluator):
        best, sums = evaluator.top(examples.take(np.arange(9)), network.spec.places["O"], 5, None)
        return evaluator.mean_loss(examples) + float(best.sum()) + float(sums.sum(dtype=np.float64))

    given = dataclasses.replace(SETTINGS, **settings)
    found = loop.fit(network, examples, given, backend, epochs.append, value, True, keeper)
    return bits(found.network), [(epoch.loss, epoch.value) for epoch in epochs]


MEAN = {"ema": 0.9, "optimizer": "adagrad", "clip": 0.0}
DENSE = {"Layers": [dense.INPUT, dense.HIDDEN, dense.OUTPUT]}
BY_EXAMPLES = {"raw": DENSE, "sets": dense.SETS, "parallel": "examples", "clip": 0.05}
PICTURES, LABELS = dense.image_sets("dropped maps")
IMAGES = {"raw": PICTURES | {"Augmentation": {"Crop": 1, "Mixup": 0.3}}, "sets": LABELS, "parallel": "examples"}
TRAININGS = {
    "clip": {},
    "mean of weights": MEAN,
    "by examples": BY_EXAMPLES,
    "by examples, mean of weights": BY_EXAMPLES | MEAN,
    "images by examples": IMAGES,
}


@pytest.mark.parametrize("settings", TRAININGS.values(), ids=TRAININGS)
def test_one_training_has_the_same_bits_on_any_number_of_ranks(backends, settings):
    alone = fit(backends(1), **settings)
    for ranks in SEVERAL:
        assert fit(backends(ranks), **settings) == alone


class Leaving(Checkpoints):
    """Has a training stop after some steps of its own."""

    def __init__(self, folder, steps):
        self.told, self.left = Stop(), steps
        super().__init__(folder, "this one", self.told)

    def after_batch(self, training):
        self.left -= 1
        self.told.requested = self.left <= 0
        super().after_batch(training)


@pytest.mark.parametrize(
    ("settings", "legs"),
    [
        ({"optimizer": "adam"}, ((4, 1), (2, 2), (1, 2), (8, 1))),
        ({"optimizer": "sgd"}, ((4, 1), (2, 2), (1, 2), (8, 1))),
        (BY_EXAMPLES, ((4, 1), (2, 2), (8, 2), (1, 1))),
        (IMAGES, ((4, 2), (2, 2))),
    ],
    ids=["adam", "sgd", "by examples", "images by examples"],
)
def test_a_training_goes_on_with_another_number_of_ranks(backends, tmp_path, settings, legs):
    settings = settings | {"schedule": "plateau", "decay_epochs": 1}
    alone = fit(backends(1), **settings)
    for ranks, steps in legs:
        with pytest.raises(EvictedError):
            fit(backends(ranks), keeper=Leaving(tmp_path, steps), **settings)
    last, epochs = fit(backends(2), keeper=Leaving(tmp_path, 99), **settings)
    assert last == alone[0]
    assert epochs == alone[1][-len(epochs) :]


def test_a_full_disk_at_a_checkpoint_leaves_the_one_before_and_whole_ranks(backends, tmp_path, monkeypatch):
    with pytest.raises(EvictedError):
        fit(backends(2), keeper=Leaving(tmp_path, 2))
    before = (tmp_path / "checkpoint.nc").read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(checkpoint, "write", full)
        fit(backends(2), keeper=Leaving(tmp_path, 2))
    assert (tmp_path / "checkpoint.nc").read_bytes() == before
    assert fit(backends(2), keeper=Leaving(tmp_path, 99))[0] == fit(backends(1))[0]


@pytest.mark.parametrize("ranks", SEVERAL)
def test_a_network_answers_by_its_own_numbers(backends, ranks):
    network = network_of(dict(NOISY), SETS)
    examples = examples_of(network.spec, SETS, "d")
    some, owned = examples.take(np.array([3, 1])), from_rows([[0, 5, 4100], []], SETS["y"].width)
    answers = []
    for backend in (backends(1), backends(ranks)):
        engine = backend.engine(network.copy(), examples, SETTINGS)
        for asked in (engine.evaluator(), backend.evaluator(network)):
            answers.append(
                [
                    asked.mean_loss(examples),
                    *asked.top(some, 2, 7, owned),
                    *asked.top(some, 3, 5000, None),
                    asked.sums(some, 2),
                    asked.values(some, 1),
                    asked.values(some, 3),
                ]
            )
    for other in answers[1:]:
        for one, found in zip(answers[0], other, strict=True):
            np.testing.assert_array_equal(one, found)


@pytest.mark.parametrize("ranks", SEVERAL)
def test_ranks_by_examples_share_a_validation(backends, ranks):
    """Of more examples than shards, of fewer, and by networks besides the trained one."""
    network = network_of(dict(DENSE), dense.SETS)
    examples = examples_of(network.spec, dense.SETS, "d")
    settings = dataclasses.replace(SETTINGS, parallel="examples")
    answers = []
    for backend in (backends(1), backends(ranks)):
        engine = backend.engine(network.copy(), examples, settings)
        assert engine.evaluator().at_once == backend.evaluator(network).at_once == 8 * 256
        for asked in (engine.evaluator(), backend.evaluator(network)):
            answers.append([dense.ask(asked, examples.take(np.arange(count))) for count in (45, 11)])
    assert answers.count(answers[0]) == 4
    network.biases[1][-1] = np.nan
    with pytest.raises(NotFiniteError):
        backends(ranks).evaluator(network).sums(examples.take(np.arange(3)), 2)


def test_networks_that_nobody_asks_any_more_are_let_go(backends):
    backend = backends(2)
    network = network_of(dict(PLAIN), SETS)
    examples = examples_of(network.spec, SETS, "d")
    backend.engine(network, examples, SETTINGS)
    for _ in range(3):
        kept = backend.evaluator(network)
        kept.mean_loss(examples)
    assert len(backend.dropped) == 0
    del kept
    assert len(backend.dropped) == 1


def test_several_threads_ask_in_turn(backends):
    backend = backends(2)
    network = network_of(dict(PLAIN), SETS)
    examples = examples_of(network.spec, SETS, "d")
    evaluator = backend.engine(network, examples, SETTINGS).evaluator()
    ready = threading.Barrier(4)

    def ask(number):
        ready.wait()
        return [evaluator.sums(examples.take(np.array([number, n])), 2) for n in range(5)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(4)))
    for number, several in enumerate(found):
        for n, sums in enumerate(several):
            np.testing.assert_array_equal(sums, evaluator.sums(examples.take(np.array([number, n])), 2))


@pytest.mark.parametrize("ranks", SEVERAL)
def test_a_training_that_leaves_the_finite_numbers_is_told_of_and_is_not_the_end(backends, ranks):
    backend = backends(ranks)
    with pytest.raises(DivergedError, match=r"epoch 1, batch 3, step 3: loss is inf"):
        fit(backend, PLAIN, learning_rate=1e38, clip=0.0, optimizer="sgd")
    network = network_of(dict(NOISY), SETS)
    network.biases[1][-1] = np.nan  # an item of the last rank
    examples = examples_of(network.spec, SETS, "d")
    evaluator = backend.engine(network, examples, SETTINGS).evaluator()
    with pytest.raises(NotFiniteError):
        evaluator.top(examples.take(np.arange(3)), 2, 5, None)
    with pytest.raises(DivergedError):
        evaluator.mean_loss(examples)
    assert fit(backend, epochs=1) == fit(backends(1), epochs=1)


def test_data_that_stay_in_files_are_read_by_the_ranks(backends, tmp_path):
    file = tmp_path / "train.nc"
    write_data(file, Data(tuple(dataclasses.replace(SETS[name], name=name) for name in ("x", "y", "v"))))
    left = {found.name: found for found in open_data([file, file], limit_bytes=0).sets}
    assert fit(backends(2), sets=left) == fit(backends(1), sets=left)
    network = network_of(dict(NOISY), left)
    engine = backends(2).engine(network, examples_of(network.spec, left, "d"), SETTINGS)
    before = [facts["read"] for facts in engine.facts()]
    engine.begin_epoch(0.0)
    for batch in engine.batches([np.arange(20)]):
        engine.run(batch)
    read = [facts["read"] - earlier for facts, earlier in zip(engine.facts(), before, strict=True)]
    rows = [SETS[name].rows for name in ("x", "y", "v")]  # by items: all of them, the file's one block of each
    assert read == [sum(x.nbytes for one in rows for x in (one.indptr, one.indices, one.values) if x is not None)] * 2


def test_what_ranks_take_and_send_can_be_asked(backends):
    network = network_of(dict(PLAIN), SETS)
    examples = examples_of(network.spec, SETS, "d")
    engine = backends(4).engine(network, examples, SETTINGS)
    before = engine.facts()
    engine.begin_epoch(0.0)
    for batch in engine.batches([np.arange(20), np.arange(20, 40)]):
        engine.run(batch)
    after = engine.facts()
    sent = [facts["sent"]["sum"] - earlier["sent"].get("sum", 0) for facts, earlier in zip(after, before, strict=True)]
    assert [facts["step"] for facts in after] == [2] * 4
    # two exchanges a step, each 2 (R - 1) / R of (batch, hidden) float32, padded to whole slices
    assert sent == [2 * 2 * 2 * 3 * (20 * 12 // 4) * 4] * 4
    assert all(facts["cpu"] > earlier["cpu"] for facts, earlier in zip(after, before, strict=True))


def test_blocks_of_a_validation_come_from_several_threads(backends):
    """As `run_in_order` asks them, with the threads of the job."""
    backend = backends(2)
    network = network_of(dict(PLAIN), SETS)
    examples = examples_of(network.spec, SETS, "d")
    evaluator = backend.engine(network, examples, SETTINGS).evaluator()

    def block(rows):
        return evaluator.top(examples.take(rows), 2, 3, None)[0]

    with ThreadPoolExecutor(3) as pool:
        found = list(run_in_order(block, examples.count, 1 << 22, pool.map))
    np.testing.assert_array_equal(np.concatenate(found), evaluator.top(examples, 2, 3, None)[0])
