"""How many ranks a training may have, and what is said where it may not."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import nnlib
from nnlib.contract import TrainSettings
from nnlib.errors import NnlibError
from nnlib.parallel.opening import check_ranks, choose_ranks
from nnlib.shards.plan import LEAST
from nnlib.spec.types import NetworkSpec
from tests.nnlib.samples import network_of, random_matrix, sets_of

WIDE = sets_of(x=random_matrix(4, LEAST, 1, 0.01))
NARROW = sets_of(x=random_matrix(4, LEAST - 1, 1, 0.01))
DENSE = sets_of(x=np.ones((3, 5), np.float32))
LAYERS = [
    {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"},
    {"Name": "H", "Kind": "Hidden", "N": 3, "Activation": "Tanh"},
    {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "x"},
]
ITEMS = TrainSettings(parallel="items")


def spec_of(sets) -> NetworkSpec:
    return network_of({"Layers": LAYERS}, sets).spec


@pytest.mark.parametrize(
    ("ranks", "sets", "settings", "said"),
    [
        (3, WIDE, ITEMS, "option ranks: 3 is not legal, legal: 1, 2, 4, 8"),
        (True, WIDE, ITEMS, "option ranks: True is not legal"),
        ("2", WIDE, ITEMS, "option ranks: '2' is not legal"),
        (2, WIDE, replace(ITEMS, parallel="none"), "2 ranks have nothing to share of this network: parallel is none"),
        (2, WIDE, TrainSettings(), "parallel auto cuts no layer of it, parallel items would; legal: 1"),
        (2, NARROW, TrainSettings(), "'items' cuts sparse inputs and output layers of at least 4,096 units"),
        (2, DENSE, TrainSettings(), "here is none; I has 5 units; O has 5 units; legal: 1, or parallel examples"),
    ],
)
def test_ranks_that_cannot_be_are_refused(ranks, sets, settings, said):
    with pytest.raises(NnlibError, match=re.escape(said)):
        check_ranks(ranks, spec_of(sets), settings, "cpu", "option ranks")


def test_ranks_that_can_be_are_not_refused():
    for ranks in (1, 2, 4, 8):
        check_ranks(ranks, spec_of(WIDE), ITEMS, "cpu")
    check_ranks(1, spec_of(NARROW), TrainSettings(), "gpu")
    by_examples = TrainSettings(parallel="examples")
    check_ranks(8, spec_of(DENSE), by_examples, "cpu")
    with pytest.raises(NnlibError, match="I: its data are sparse; legal: auto, items, none"):
        check_ranks(8, spec_of(WIDE), by_examples, "cpu")


def test_each_rank_needs_a_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    check_ranks(2, spec_of(WIDE), ITEMS, "gpu")
    with pytest.raises(NnlibError, match="4 ranks need a GPU each, CUDA_VISIBLE_DEVICES names 3; legal: 2 at most"):
        check_ranks(4, spec_of(WIDE), ITEMS, "gpu")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    check_ranks(8, spec_of(WIDE), ITEMS, "gpu")  # how many there are is not known here


@pytest.mark.parametrize(("named", "ranks"), [("", 1), ("a", 1), ("a,b,c", 2), ("a,b,c,d", 4)])
def test_a_job_takes_as_many_ranks_as_it_was_given_gpus(named, ranks):
    environment = {"_CONDOR_AssignedGPUs": named}
    assert choose_ranks(spec_of(WIDE), ITEMS, environment) == ranks
    assert choose_ranks(spec_of(WIDE), TrainSettings(), environment) == 1


@pytest.mark.slow
def test_ranks_from_python():
    network = nnlib.Network.from_json({"Layers": LAYERS})
    data = sparse.random_array((40, LEAST), density=0.01, format="csr", rng=np.random.default_rng(1))
    found = []
    for ranks in (1, 2):
        trainer = nnlib.Trainer(network, epochs=2, batch=16, parallel="items", ranks=ranks, threads=2, device="cpu")
        trained = trainer.fit(data)
        found.append(b"".join(array.tobytes() for _, array in trained.model.network.arrays()))
    assert found[0] == found[1]
    with pytest.raises(NnlibError, match="ranks: 5 is not legal"):
        nnlib.Trainer(network, ranks=5).fit(data)
