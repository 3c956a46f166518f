"""From data sets to batches: order, noise, targets, weights."""

import dataclasses

import numpy as np
import pytest

from nnlib.data.file import BLOCK
from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import DataSet
from nnlib.data.stream import KEPT_BLOCKS
from nnlib.errors import DataError
from nnlib.model import batches
from nnlib.model.batches import add_noise, batches_of, epoch_order, generator_for
from nnlib.model.examples import examples_of, resolve
from nnlib.spec.json_section import SpecError
from nnlib.spec.network import parse_network
from tests.nnlib.samples import batch_of, network_of, random_matrix, sets_of

INPUT = {"Name": "I", "N": "auto", "DataSet": "x"}
OUTPUT = {"Kind": "Output", "Name": "O", "N": "auto", "DataSet": "y"}
RAW = {"Layers": [INPUT, {"Name": "H", "N": 3}, OUTPUT]}


def test_streams_have_nothing_in_common():
    keys = [(1, 0, 0), (1, 1, 0), (1, 0, 1), (2, 0, 0), (2**32 - 1, 4, 10**9)]
    drawn = [tuple(generator_for(*key).integers(2**63, size=1000)) for key in keys]
    assert len(set(sum(drawn, ()))) == 5000
    assert drawn[2] == tuple(generator_for(*keys[2]).integers(2**63, size=1000))


@pytest.mark.parametrize("count", [1, 11, 12, 13, 50, 97])
def test_every_example_comes_once_an_epoch(monkeypatch, count):
    monkeypatch.setattr(batches, "SHUFFLE_BLOCK", 4)
    monkeypatch.setattr(batches, "SHUFFLE_GROUP", 3)
    orders = [tuple(epoch_order(seed, epoch, count, True)) for seed, epoch in ((1, 1), (1, 2), (2, 1))]
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert len(set(orders)) == (3 if count > 1 else 1)
    assert orders[0] == tuple(epoch_order(1, 1, count, True))


def test_few_examples_are_permuted_as_a_whole():
    np.testing.assert_array_equal(epoch_order(3, 5, 99, True), generator_for(3, batches.SHUFFLE, 5).permutation(99))


def test_how_many_are_few_is_part_of_what_a_seed_says():
    few = 16 * 4096  # another number would give the same seed another training
    np.testing.assert_array_equal(epoch_order(3, 5, few, True), generator_for(3, batches.SHUFFLE, 5).permutation(few))
    assert (epoch_order(3, 5, few + 1, True) != generator_for(3, batches.SHUFFLE, 5).permutation(few + 1)).any()


def test_many_examples_are_mixed_within_a_few_blocks(monkeypatch):
    monkeypatch.setattr(batches, "SHUFFLE_BLOCK", 10)
    monkeypatch.setattr(batches, "SHUFFLE_GROUP", 4)
    order = epoch_order(1, 1, 1003, True)
    groups = [order[low : low + 40] for low in range(0, 1003, 40)]
    assert max(len(np.unique(group // 10)) for group in groups) <= 6
    assert np.mean([np.abs(np.diff(group // 10)) > 0 for group in groups[:20]]) > 0.5
    assert np.ptp([group.min() for group in groups]) > 500


def test_the_blocks_of_a_group_fit_into_the_cache():
    assert batches.SHUFFLE_BLOCK == BLOCK
    assert 2 * batches.SHUFFLE_GROUP < KEPT_BLOCKS


def test_without_shuffling_the_order_is_that_of_the_file():
    np.testing.assert_array_equal(epoch_order(1, 1, 100_000, False), np.arange(100_000))


def test_batches_cover_all_examples():
    assert batches_of(7, 3) == [(0, 3), (3, 6), (6, 7)]
    assert batches_of(6, 3) == [(0, 3), (3, 6)]
    assert batches_of(2, 3) == [(0, 2)]


def test_denoising_drops_entries_and_scales_the_others():
    sets = sets_of(
        x=random_matrix(300, 40, 1, analog=True), z=random_matrix(300, 30, 2), d=np.ones((300, 2)), y=np.ones((300, 2))
    )
    inputs = [{"Kind": "Input", "Name": name, "N": "auto", "DataSet": name} for name in "xzd"]
    raw = {"Denoising": {"p": 0.25}, "Layers": [*inputs, {"N": 2, "Source": ["x", "z", "d"]}, OUTPUT]}
    network = network_of(raw, sets)
    batch = batch_of(network, sets)
    first, again, other = (add_noise(network.spec, batch, 1, step).inputs for step in (5, 5, 6))
    for n in (0, 1):
        whole, kept = batch.inputs[n], first[n]
        assert kept.nnz / whole.nnz == pytest.approx(0.75, abs=0.03)
        some = kept.toarray() != 0
        np.testing.assert_allclose(kept.toarray()[some], whole.toarray()[some] / 0.75, rtol=1e-6)
        assert (kept != again[n]).nnz == 0
        assert (kept != other[n]).nnz > 0
    assert first[2] is batch.inputs[2]
    drawn = [generator_for(1, batches.DENOISE, 5 * 5 + n).random(9) for n in (0, 1)]
    assert not np.array_equal(*drawn)
    plain = dataclasses.replace(network.spec, denoising=0.0)
    assert add_noise(plain, batch, 1, 5) is batch


def test_sizes_and_sparseness_come_from_the_data():
    sets = {"x": DataSet("x", Dense(np.ones((4, 6))), dimensions=(2, 3)), **sets_of(y=random_matrix(4, 5, 1))}
    spec = resolve(parse_network(RAW, "n"), sets, "d")
    assert [layer.units for layer in spec.layers] == [6, 3, 5]
    assert spec.layers[0].dimensions == (2, 3)
    assert not spec.layers[0].sparse
    spec = resolve(parse_network(RAW, "n"), sets_of(x=random_matrix(4, 6, 1), y=np.ones((4, 5))), "d")
    assert [layer.sparse for layer in spec.layers] == [True, False, False]


def test_what_does_not_fit_the_data_is_told_at_once():
    raw = {
        "ErrorFunction": "Hinge",
        "Layers": [
            INPUT | {"N": 7, "pDropout": 0.5},
            {"N": 3},
            OUTPUT,
            {"Kind": "Output", "Name": "P", "N": "auto", "DataSet": "none"},
            {"Kind": "Output", "Name": "Q", "N": 3, "DataSet": "absent"},
            {"Kind": "Output", "Name": "R", "N": 9, "DataSet": "y"},
        ],
    }
    with pytest.raises(DataError) as caught:
        resolve(parse_network(raw, "n"), sets_of(x=random_matrix(4, 6, 1), y=random_matrix(4, 5, 1)), "d")
    assert [line.partition(";")[0] for line in str(caught.value).splitlines()] == [
        "d: layer I: N is 7, data set 'x' has width 6",
        "d: layer I: pDropout 0.5 is for dense inputs, 'x' is sparse",
        "d: layer O: Hinge needs targets of -1 and 1, 'y' is sparse",
        "d: layer P: no data set 'none', legal: x, y",
        "d: layer R: N is 9, data set 'y' has width 5",
        "d: layer R: Hinge needs targets of -1 and 1, 'y' is sparse",
    ]


def test_an_output_with_a_size_needs_no_targets_to_predict():
    raw = {"Layers": [INPUT, OUTPUT | {"N": 5}]}
    sets = sets_of(x=random_matrix(4, 6, 1))
    spec = resolve(parse_network(raw, "n"), sets, "d")
    assert list(examples_of(spec, sets, "d", targets=False).sets) == [0]
    with pytest.raises(DataError, match="d: layer O: no data set 'y', legal: x"):
        examples_of(spec, sets, "d")


def test_skips_are_checked_once_sizes_are_known():
    raw = {"Layers": [INPUT, {"N": 6}, OUTPUT | {"Skip": "I"}]}
    resolve(parse_network(raw, "n"), sets_of(x=random_matrix(4, 6, 1), y=random_matrix(4, 6, 1)), "d")
    with pytest.raises(SpecError, match=r'd: Layers\[2\]\.Skip of "O": "I" has 6 units, legal: 5'):
        resolve(parse_network(raw, "n"), sets_of(x=random_matrix(4, 6, 1), y=random_matrix(4, 5, 1)), "d")


def test_data_sets_need_as_many_examples():
    sets = sets_of(x=random_matrix(4, 6, 1), y=random_matrix(3, 5, 1))
    spec = resolve(parse_network(RAW, "n"), sets, "d")
    with pytest.raises(DataError, match=r"d: data sets have different numbers of examples: \{'x': 4, 'y': 3\}"):
        examples_of(spec, sets, "d")


def rows_of(values=None):
    """One example without entries, one with a unit that comes twice, and one more."""
    return Csr(np.array([0, 0, 3, 4]), np.array([2, 0, 2, 1], np.int32), 3, values)


def test_a_target_that_comes_twice_is_one_target():
    network = network_of(RAW, {"x": DataSet("x", rows_of()), "y": DataSet("y", rows_of())})
    batch = batch_of(network, {"x": DataSet("x", rows_of()), "y": DataSet("y", rows_of())})
    np.testing.assert_array_equal(batch.inputs[0].toarray(), [[0, 0, 0], [1, 0, 2], [0, 1, 0]])
    targets = batch.targets[2]
    np.testing.assert_array_equal(targets.columns.toarray(), [[0, 0, 0], [1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(targets.shares, [[0], [1], [1]])
    np.testing.assert_array_equal(targets.per_entry, [[1], [0.5], [1]])
    analog = DataSet("y", rows_of(np.array([1, 2, 3, 4], np.float32)), ignore_zero=True)
    targets = batch_of(network, {"x": DataSet("x", rows_of()), "y": analog}).targets[2]
    np.testing.assert_array_equal(targets.columns.toarray(), [[0, 0, 0], [2, 0, 4], [0, 4, 0]])
    np.testing.assert_array_equal(targets.shares, [[0], [6], [4]])
    assert targets.alone
    assert not targets.boolean


def test_weights_of_examples():
    """They multiply sparse inputs and the error of all targets; dense inputs have none."""
    weights = np.array([1, 2, 3], np.float32)
    sparse_x, dense_x = DataSet("x", rows_of(), weights=weights), DataSet("x", Dense(np.ones((3, 3))), weights=weights)
    y = DataSet("y", rows_of(), weights=weights)
    network = network_of(RAW, {"x": sparse_x, "y": y})
    batch = batch_of(network, {"x": sparse_x, "y": y})
    np.testing.assert_array_equal(batch.inputs[0].toarray(), [[0, 0, 0], [2, 0, 4], [0, 3, 0]])
    np.testing.assert_array_equal(batch.targets[2].weights, weights[:, None])
    assert np.all(batch_of(network, {"x": dense_x, "y": y}).inputs[0] == 1)


def test_bytes_are_centred_as_inputs_only():
    values = np.array([[0, 128], [64, 192]], np.uint8)
    sets = {name: DataSet(name, Dense(values)) for name in "xy"}
    network = network_of(RAW, sets)
    batch = batch_of(network, sets)
    np.testing.assert_array_equal(batch.inputs[0], values / 256 - 0.5)
    np.testing.assert_array_equal(batch.targets[2].dense, values / 256)


def test_examples_may_share_rows():
    index = np.array([2, 1, 1, 0])
    sets = {"x": DataSet("x", rows_of(), index=index), "y": DataSet("y", Dense(np.arange(4.0)[:, None]))}
    examples = examples_of(network_of(RAW, sets).spec, sets, "d")
    assert examples.count == 4
    np.testing.assert_array_equal(examples.take(np.array([0, 3])).sets[0].rows.indptr, [0, 1, 1])


def test_weights_multiply_the_values_of_sparse_inputs():
    values, weights = np.array([1, 2, 3, 4], np.float32), np.array([5, 6, 7], np.float32)
    matrix = batches.input_matrix(DataSet("x", rows_of(values), weights=weights))
    np.testing.assert_array_equal(matrix.toarray(), [[0, 0, 0], [2 * 6, 0, (1 + 3) * 6], [0, 4 * 7, 0]])


def test_what_input_layers_give_is_that_of_the_inputs_alone():
    sets = {"x": DataSet("x", Dense(np.arange(6.0).reshape(3, 2))), "y": DataSet("y", rows_of())}
    spec = resolve(parse_network(RAW, "n"), sets, "d")
    found = batches.inputs_of(spec, examples_of(spec, sets, "d"), np.float64)
    assert list(found) == [0]
    assert found[0].dtype == np.float64
    np.testing.assert_array_equal(found[0], np.arange(6.0).reshape(3, 2))


def test_every_layer_has_its_own_noise_in_every_step():
    """Of its own stream, whose number counts layers and steps: the kernels draw the same."""
    sets = {name: DataSet(name, rows_of(np.array([1, 2, 3, 4], np.float32))) for name in "xzy"}
    inputs = [{"Kind": "Input", "Name": name, "N": "auto", "DataSet": name} for name in "xz"]
    raw = {"Denoising": {"p": 0.5}, "Layers": [*inputs, {"N": 2, "Source": ["x", "z"]}, OUTPUT]}
    network = network_of(raw, sets)
    batch = batch_of(network, sets)
    for step in (1, 2, 7):
        found = add_noise(network.spec, batch, 3, step).inputs
        for n in (0, 1):
            keep = generator_for(3, batches.DENOISE, 4 * step + n).random(4, np.float32) >= 0.5
            np.testing.assert_array_equal(found[n].data, np.array([2, 4, 6, 8])[keep])
            np.testing.assert_array_equal(found[n].indices, np.array([2, 0, 2, 1])[keep])
            np.testing.assert_array_equal(np.diff(found[n].indptr), [0, keep[:3].sum(), keep[3]])
