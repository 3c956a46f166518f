"""What each rank reads of a file by examples: the blocks in which its own examples are, and hardly any others."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from nnlib.cpu.backend import Cpu
from nnlib.data import stream
from nnlib.data.file import write_data
from nnlib.data.rows import Dense, one_hot
from nnlib.data.sets import Data, DataSet
from nnlib.data.stream import Cache, open_data
from nnlib.model import batches
from nnlib.model.batches import batches_of, epoch_order
from nnlib.model.examples import examples_of
from nnlib.shards import cut
from nnlib.shards.evaluator import ShardsEvaluator
from nnlib.shards.tree import RANKS
from tests.nnlib.samples import network_of
from tests.nnlib.shards.together import run_ranks
from tests.nnlib.shards.trained import engine_of, settings_of

BLOCK, BLOCKS, WIDTH, BATCH = 32, 64, 48, 128
COUNT = BLOCK * BLOCKS
RAW = {
    "Layers": [
        {"Name": "I", "N": "auto", "DataSet": "x"},
        {"Name": "O", "N": "auto", "DataSet": "y", "Activation": "SoftMax"},
    ]
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of blocks, of which an epoch has four groups."""
    monkeypatch.setattr(stream, "BLOCK", BLOCK)
    monkeypatch.setattr(batches, "SHUFFLE_BLOCK", BLOCK)
    random = np.random.default_rng(1)
    x = DataSet("x", Dense(random.random((COUNT, WIDTH), np.float32)))
    y = DataSet("y", one_hot(random.integers(0, 10, COUNT), 10))
    write_data(tmp_path / "d.nc", Data((x, y)))
    return tmp_path / "d.nc"


class Reading(Cache):
    """Notes the blocks of each set that are read, once each: all have room."""

    def __init__(self, limit):
        super().__init__(limit, self.note)
        self.read, self.blocks = 0, Counter()

    def note(self, size):
        self.read += size

    def block(self, rows, number):
        self.blocks[rows.width, number] += 1
        return super().block(rows, number)


def read_by(ranks, file, monkeypatch, work):
    """The bytes that each rank reads of a file of its own."""

    def rank(together):
        monkeypatch.setattr(stream, "Cache", Reading)
        sets = {found.name: found for found in open_data([file], limit_bytes=0, cache_bytes=1 << 30).sets}
        network = network_of(dict(RAW), sets)
        examples = examples_of(network.spec, sets, "d")
        settings = settings_of(parallel="examples", batch=BATCH)
        engine, _ = engine_of(network, examples, settings, None, together, Cpu())
        cache = sets["x"].rows.cache
        cache.read = 0
        cache._blocks.clear()
        work(engine, examples)
        return cache.read

    return run_ranks(ranks, rank)


def an_epoch(engine, examples):
    order = epoch_order(3, 1, examples.count, True)
    for share in engine.batches(order[low:high] for low, high in batches_of(examples.count, BATCH)):
        assert len(share.inputs[0]) == BATCH // 8 * len(share.targets)


def bytes_of(file):
    data = open_data([file])
    return sum(
        array.nbytes
        for found in data.sets
        for array in ([found.rows.values] if isinstance(found.rows, Dense) else [found.rows.indptr, found.rows.indices])
    )


@pytest.mark.parametrize("ranks", RANKS)
def test_a_rank_reads_little_more_than_its_part_of_an_epoch(file, monkeypatch, ranks):
    whole = bytes_of(file)
    read = read_by(ranks, file, monkeypatch, an_epoch)
    assert max(read) < {1: 1.01, 2: 0.6, 4: 0.42, 8: 0.3}[ranks] * whole
    assert sum(read) >= whole


def test_in_the_order_of_the_epoch_it_would_read_nearly_all(file, monkeypatch):
    """What the order within a batch is for."""
    monkeypatch.setattr("nnlib.cpu.by_examples.order_for_shards", lambda rows: rows)
    assert min(read_by(8, file, monkeypatch, an_epoch)) > 0.9 * bytes_of(file)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_rank_reads_its_part_of_a_validation(file, monkeypatch, ranks):
    def validate(engine, examples):
        evaluator = engine.evaluator()
        assert isinstance(evaluator, ShardsEvaluator)
        evaluator.mean_loss(examples)

    whole = bytes_of(file)
    for read in read_by(ranks, file, monkeypatch, validate):
        assert whole / ranks <= read < 1.01 * whole / ranks + 8 * BLOCKS


def test_examples_are_dealt_out_by_their_numbers():
    rows = np.array([7, 2, 9, 4, 1])
    np.testing.assert_array_equal(cut.order_for_shards(rows), [1, 2, 4, 7, 9])
    dealt = [rows[cut.Rows(5, range(n, n + 1)).place].tolist() for n in range(8)]
    assert dealt == [[7], [2], [9], [4], [1], [], [], []]
