"""What a rank has of a network: every unit belongs to one, and all of them put together are the whole again."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nnlib.data.sets import as_data_set
from nnlib.model.batches import batch_of
from nnlib.model.examples import examples_of
from nnlib.model.network import BLOCK
from nnlib.shards.cut import Cut, Items, Range, Rows
from nnlib.shards.plan import LEAST, plan_of
from nnlib.shards.tree import RANKS, SHARDS, shards_of
from tests.nnlib.samples import network_of, random_matrix, sets_of

UNITS = st.integers(LEAST, 60_000) | st.sampled_from([LEAST, LEAST + 1, 8192, 8193, 27_278])
MOST = 10_000_000


@pytest.mark.parametrize("ranks", RANKS)
@given(UNITS)
@example(MOST)
def test_ranges_are_even_and_of_whole_blocks(ranks, units):
    parts = [Range(units, shards_of(rank, ranks)) for rank in range(ranks)]
    ends = [part.place for part in parts]
    assert [ends[0].start, *(place.stop for place in ends)] == [*(place.start for place in ends), units]
    width = parts[0].width
    assert 0.7 * BLOCK < width <= 1.5 * BLOCK and width % 8 == 0
    for part in parts:
        shards = part.shards(np.arange(min(part.count, 60_000)))
        starts = np.flatnonzero(np.diff(shards, prepend=-1))
        assert (starts % (part.blocks * width) == 0).all() and set(shards) <= set(range(len(part.own)))
        assert len(starts) == len(part.own) or part.count > 60_000
        ends = [part.shard(place) for place in range(len(part.own))]
        assert [0, *(end.stop for end in ends)] == [*(end.start for end in ends), part.count]
        assert all((shards[end] == place).all() for place, end in enumerate(ends))
        assert 0 < part.count <= len(part.own) * part.blocks * width
        assert part.blocks * width < 1.05 * units / SHARDS + 8


@pytest.mark.parametrize("ranks", RANKS)
@given(UNITS)
@example(MOST)
def test_items_are_dealt_out_one_by_one(ranks, units):
    parts = [Items(units, shards_of(rank, ranks)) for rank in range(ranks)]
    assert sum(part.count for part in parts) == units
    for part in parts:
        found = part.numbers(np.arange(part.count))
        assert (np.array(part.own)[part.shards(np.arange(part.count))] == found % SHARDS).all()
        assert (np.diff(found) > 0).all() and found[-1] < units
        assert set(np.unique(found % SHARDS)) == set(part.own)
        assert max(part.count for part in parts) - part.count <= len(part.own)


def small(shift=0, boolean=True):
    """A network with two wide inputs, two wide outputs and a narrow one."""
    wide = LEAST + shift
    sets = sets_of(
        x=random_matrix(12, wide, 1, 0.01, not boolean),
        w=random_matrix(12, LEAST + 7, 2, 0.01),
        n=random_matrix(12, 30, 3),
        y=random_matrix(12, LEAST + 30, 4, 0.01, not boolean),
    )
    sets["z"] = as_data_set("z", np.random.default_rng(5).random((12, wide)))
    layers = [
        {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"},
        {"Name": "J", "Kind": "Input", "N": "auto", "DataSet": "w"},
        {"Name": "K", "Kind": "Input", "N": "auto", "DataSet": "n"},
        {"Name": "H", "Kind": "Hidden", "N": 5, "Source": ["I", "J", "K"], "BatchNormalization": True},
        {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y", "Source": ["H"]},
        {"Name": "P", "Kind": "Output", "N": "auto", "DataSet": "z", "Source": ["H"]},
        {"Name": "Q", "Kind": "Output", "N": "auto", "DataSet": "n", "Source": ["H"]},
    ]
    return network_of({"Layers": layers}, sets), sets


def cuts(network, ranks):
    plan = plan_of(network.spec, 12, "items")
    return [Cut(plan, network.spec, shards_of(rank, ranks)) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", RANKS)
def test_networks_and_states_come_apart_and_together(ranks):
    network, _ = small(3)
    again, states = network.copy(), {}
    for array in dict(again.arrays()).values():
        array[...] = 0
    for cut in cuts(network, ranks):
        local = cut.network(network)
        assert [layer.units for layer in local.spec.layers] == [layer.units for layer in cut.local.layers]
        for name, array in local.arrays():
            assert array.shape == cut.take(name, dict(network.arrays())[name]).shape
            cut.put(name, array, dict(again.arrays())[name])
            state = states.setdefault(f"{name}_state1", np.zeros_like(dict(network.arrays())[name]))
            cut.put(f"{name}_state1", array, state)
    for name, array in network.arrays():
        np.testing.assert_array_equal(dict(again.arrays())[name], array)
        np.testing.assert_array_equal(states[f"{name}_state1"], array)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("boolean", [True, False])
def test_batches_come_apart_by_unit(ranks, boolean):
    network, sets = small(3, boolean)
    examples = examples_of(network.spec, sets, "d")
    whole = batch_of(network.spec, examples, np.array([3, 3, 0, 11, 7]))
    for cut in cuts(network, ranks):
        batch = cut.batch(whole)
        for n, part in cut.inputs.items():
            numbers = part.numbers(np.arange(part.count))
            np.testing.assert_array_equal(batch.inputs[n].toarray(), whole.inputs[n].toarray()[:, numbers])
            assert batch.inputs[n].indices.dtype == batch.inputs[n].indptr.dtype == np.int32
            assert batch.inputs[n].has_sorted_indices
        for n, part in cut.outputs.items():
            numbers = part.numbers(np.arange(part.count))
            own, all_of_it = batch.targets[n], whole.targets[n]
            if own.columns is not None:
                np.testing.assert_array_equal(own.columns.toarray(), all_of_it.columns.toarray()[:, numbers])
                np.testing.assert_array_equal(own.shares, all_of_it.shares)
                np.testing.assert_array_equal(own.per_entry, all_of_it.per_entry)
            else:
                np.testing.assert_array_equal(own.dense, all_of_it.dense[:, numbers])
        assert batch.inputs[2] is whole.inputs[2] and batch.targets[6] is whole.targets[6]
        assert batch.examples == 5


@pytest.mark.parametrize("ranks", RANKS)
@given(st.integers(1, 50))
def test_rows_are_dealt_out_in_ranges(ranks, units):
    parts, whole = [Rows(units, shards_of(rank, ranks)) for rank in range(ranks)], np.arange(3 * units).reshape(-1, 3)
    again = np.zeros_like(whole)
    assert np.concatenate([part.take(whole) for part in parts]).tolist() == whole.tolist()
    for part in parts:
        part.put(part.take(whole), again)
        assert len(part.take(whole)) <= part.each * len(part.own) < units + 8
    assert again.tolist() == whole.tolist()


@pytest.mark.parametrize("ranks", RANKS)
def test_by_examples_a_rank_has_all_parameters_and_the_states_of_its_rows(ranks):
    sets = sets_of(x=np.ones((3, 11), np.float32), y=np.ones((3, 20), np.float32))
    layers = [
        {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"},
        {"Name": "H", "Kind": "Hidden", "N": 9},
        {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y"},
    ]
    network = network_of({"Layers": layers}, sets)
    for rank in range(ranks):
        cut = Cut(plan_of(network.spec, 12, "examples"), network.spec, shards_of(rank, ranks))
        assert cut.local is network.spec or cut.local == network.spec
        local, owned = dict(cut.network(network).arrays()), dict(cut.owned(network).arrays())
        for name, array in network.arrays():
            assert local[name].shape == array.shape
            mine = cut.take(f"{name}_state0", array)
            assert mine.shape == owned[name].shape and np.shares_memory(owned[name], array) == (owned[name].size > 0)
            assert len(mine) == cut.updated(name).count


def test_a_rank_that_has_all_has_what_there_is():
    network, sets = small()
    [cut] = cuts(network, 1)
    batch = batch_of(network.spec, examples_of(network.spec, sets, "d"), np.arange(4))
    assert cut.network(network) is network and cut.batch(batch) is batch and cut.local is network.spec
    for name, array in network.arrays():
        assert cut.take(name, array) is array or np.shares_memory(cut.take(name, array), array)
        cut.put(name, array, array)
