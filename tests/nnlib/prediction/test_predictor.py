"""Best items, outputs and embeddings of any network; what is left out; units found by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from nnlib.cpu.backend import Cpu
from nnlib.cpu.forward import Forward
from nnlib.data import blockwise
from nnlib.data.blockwise import run_in_order
from nnlib.data.file import write_data
from nnlib.data.rows import Csr, from_rows
from nnlib.data.sets import Data, DataSet, as_data_set
from nnlib.errors import DataError, DivergedError, NnlibError
from nnlib.model import network as net
from nnlib.model.examples import examples_of, resolve
from nnlib.model.file import Model
from nnlib.ops.ranking import NO_ITEM, top
from nnlib.prediction.exclusion import Numbered, exclude_by_file, exclude_inputs, read_listed
from nnlib.prediction.predictor import compute_outputs, find_layer, prepare, rank
from nnlib.spec.network import parse_network
from nnlib.spec.types import Activation
from nnlib.util.threads import map_in_turn, workers
from tests.nnlib.samples import ITEMS, clustered, random_rows


def raw_network(activation: str = "Sigmoid", **keys: Any) -> dict[str, Any]:
    error = {} if activation in ("Sigmoid", "SoftMax") else {"ErrorFunction": "L2"}
    return error | {
        "Layers": [
            {"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "input"},
            {"Name": "Hidden", "Kind": "Hidden", "N": 6, "Activation": "Tanh"},
            {"Name": "Out", "Kind": "Output", "N": "auto", "DataSet": "output", "Activation": activation, **keys},
        ]
    }


def made(raw: dict[str, Any], sets: dict[str, DataSet], seed: int = 1, scale: float = 3.0) -> Model:
    """A network of the sizes of the data, with weights large enough to tell units apart."""
    spec = resolve(parse_network(raw, "test"), sets, "data")
    network = net.create(spec, np.random.default_rng(seed))
    for store in network.stores.values():
        store *= scale
    for n, bias in enumerate(network.biases):
        bias += np.random.default_rng(n).normal(0, 0.1, bias.shape).astype(np.float32)  # no ties without inputs
    names = {n: sets[layer.data_set].features for n, layer in enumerate(spec.layers) if layer.data_set}
    return Model(network, {n: some for n, some in names.items() if some})


def sets_of(seed: int = 1, examples: int = 50, width: int = 30, named: bool = True) -> dict[str, DataSet]:
    names = tuple(f"item {n}" for n in range(width)) if named else ()
    rows = random_rows(examples, width, seed), random_rows(examples, width, seed + 1)
    return {name: DataSet(name, some, names) for name, some in zip(("input", "output"), rows, strict=True)}


def scores_of(model: Model, sets: dict[str, DataSet], layer: int = 2) -> Any:
    """All outputs by another way than the predictor's."""
    examples = examples_of(model.network.spec, sets, "data", targets=False)
    inputs = {0: sparse_of(examples.sets[0].rows)}
    return Forward(model.network).activations(inputs, layer)


def sparse_of(rows: Csr) -> Any:
    values = np.ones(rows.nonzeros, np.float32) if rows.values is None else rows.values
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=(rows.examples, rows.width))


def best(model: Model, ready: Any, k: int, each: Any = map_in_turn, **keys: Any) -> tuple[Any, Any]:
    blocks = list(rank(ready.network, ready.examples, 2, k, Cpu(each), each, **keys))
    return np.concatenate([b.items for b in blocks]), np.concatenate([b.scores for b in blocks])


# DSSTNE's cases of top-k: batch 128; keys as a full sort has them, here also with ties and the same items everywhere.


@pytest.mark.parametrize(
    "examples_k_items", [(128, 128, 1024), (16, 128, 100_000), (128, 64, 1024), (128, 32, 64), (128, 1, 64)]
)
@pytest.mark.parametrize("values", ["different", "ties"])
def test_top_k(examples_k_items, values):
    examples, k, items = examples_k_items
    random = np.random.default_rng(k)
    scores = random.normal(size=(examples, items)).astype(np.float32)
    if values == "ties":
        scores = np.round(scores * 2)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    found, found_scores = top(scores.copy(), k)
    np.testing.assert_array_equal(found, order)
    np.testing.assert_array_equal(found_scores, np.take_along_axis(scores, order, axis=1))


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("blocked", [True, False])
@pytest.mark.usefixtures("backend")
def test_ranking_is_that_of_the_outputs(activation, blocked):
    sets = sets_of()
    raw = raw_network(str(activation), **({} if blocked else {"DeltaNorm": 0.1}))
    model = made(raw, sets)
    ready = prepare(model, sets, "data")
    assert net.is_blocked(ready.network.spec, ready.network.spec.layers[2]) == (
        blocked and activation not in (Activation.RELU_MAX, Activation.LINEAR_MAX)
    )
    scores = scores_of(model, sets)
    items, found = best(model, ready, 30)
    np.testing.assert_allclose(found, np.take_along_axis(scores, items, axis=1), rtol=1e-5, atol=1e-7)
    assert np.all(np.diff(found, axis=1) <= 1e-6)
    np.testing.assert_array_equal(np.sort(items, axis=1), np.tile(np.arange(30), (50, 1)))
    values = np.concatenate(list(compute_outputs(ready.network, ready.examples, 2, Cpu())))
    np.testing.assert_allclose(values, scores, rtol=1e-6, atol=1e-7)


def test_saturated_outputs_are_ranked_by_their_sums():
    sets = sets_of()
    model = made(raw_network(), sets, scale=500.0)
    items, found = best(model, prepare(model, sets, "data"), 5)
    assert (found == 1).all(axis=1).any()  # all the same
    forward = Forward(model.network)
    values = forward.run({0: sparse_of(sets["input"].rows)})
    np.testing.assert_array_equal(
        items, np.argsort(-forward.sums(forward.node(2), values), axis=1, kind="stable")[:, :5]
    )


def test_any_number_of_threads_and_of_blocks_gives_the_same_bits(monkeypatch):
    sets = sets_of(examples=700)
    model = made(raw_network(), sets)
    ready = prepare(model, sets, "data")
    monkeypatch.setattr(blockwise, "WINDOW", 2)
    one = best(model, ready, 10)
    with workers(3) as each:
        other = best(model, ready, 10, each=each)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_blocks_of_wide_layers_are_small(monkeypatch):
    monkeypatch.setattr(blockwise, "MOST_OUTPUTS", 40)
    sizes = list(run_in_order(len, 10, 13))
    assert sizes == [3, 3, 3, 1]
    assert list(run_in_order(len, 0, 13)) == []
    assert list(run_in_order(len, 2, 1000)) == [1, 1]


def test_units_left_out():
    sets = sets_of()
    model = made(raw_network(), sets)
    ready = prepare(model, sets, "data")
    owned = exclude_inputs(model, ready, 2)
    items, scores = best(model, ready, 30, excluded=owned)
    for row, (some, own) in enumerate(zip(items, scores, strict=True)):
        rows = sets["input"].rows
        inside = set(rows.indices[rows.indptr[row] : rows.indptr[row + 1]].tolist())
        assert inside & set(some.tolist()) == set()
        assert (some == NO_ITEM).sum() == len(inside)
        assert np.all(own[some == NO_ITEM] == -np.inf)
        assert np.all(np.isfinite(own[some != NO_ITEM]))


def test_factors_multiply_scores():
    sets = sets_of()
    model = made(raw_network("Linear"), sets)
    ready = prepare(model, sets, "data")
    listed = Csr(np.array([0, 2, *[2] * 49]), np.array([3, 7], np.int32), 30, np.array([100.0, 0.0], np.float32))
    items, scores = best(model, ready, 30, factors=listed.take)
    wanted = scores_of(model, sets)
    wanted[0, 3] *= 100
    wanted[0, 7] = 0
    np.testing.assert_array_equal(items, np.argsort(-wanted, axis=1, kind="stable"))
    np.testing.assert_allclose(scores, np.take_along_axis(wanted, items, axis=1), rtol=1e-5)


def test_dense_data_for_a_model_of_sparse_inputs_and_the_other_way_round():
    sets = sets_of()
    model = made(raw_network(), sets)
    dense = {"input": as_data_set("input", sparse_of(sets["input"].rows).todense())}
    a, b = (best(model, prepare(model, some, "data"), 30) for some in (sets, dense))
    np.testing.assert_array_equal(a[0], b[0])
    np.testing.assert_allclose(a[1], b[1], rtol=1e-5)
    ready = prepare(made(raw_network(), {**sets, **dense}), sets, "data")
    assert ready.network.spec.layers[0].sparse


def test_units_are_found_by_name():
    sets = sets_of()
    model = made(raw_network(), sets)
    order = np.random.default_rng(7).permutation(30)
    place = np.argsort(order)
    old = sets["input"]
    shuffled = dataclasses.replace(
        old,
        rows=dataclasses.replace(old.rows, indices=place[old.rows.indices].astype(np.int32)),
        features=tuple(old.features[n] for n in order),
    )
    one, other = prepare(model, sets, "data"), prepare(model, {"input": shuffled}, "data")
    np.testing.assert_array_equal(best(model, one, 10)[0], best(model, other, 10)[0])
    assert other.names[2] == old.features
    a, b = (best(model, r, 30, excluded=exclude_inputs(model, r, 2)) for r in (one, other))
    np.testing.assert_array_equal(a[0], b[0])  # what is left out has the numbers of the output
    both = prepare(model, {"input": shuffled, "output": dataclasses.replace(shuffled, name="output")}, "data", True)
    np.testing.assert_array_equal(np.sort(order[best(model, both, 10)[0]], 1), np.sort(best(model, one, 10)[0], 1))


def test_names_of_units_that_only_the_data_have():
    sets = sets_of()
    model = made(raw_network(), sets_of(named=False))
    assert prepare(model, sets, "data").names == {0: sets["input"].features, 2: sets["output"].features}


def test_new_units_have_no_rank():
    """An autoencoder of one data set is carried over to today's units, of which it does not know all."""
    raw = raw_network()
    raw["Layers"][2]["DataSet"] = "input"
    sets = sets_of()
    model = made(raw, sets)
    wide = DataSet(
        "input", dataclasses.replace(sets["input"].rows, width=32), (*sets["input"].features, "new", "newer")
    )
    ready = prepare(model, {"input": wide}, "data")
    items, _ = best(model, ready, 32, rankable=ready.rankable(2))
    assert (items[:, :30] < 30).all()
    assert (items[:, 30:] == NO_ITEM).all()


def test_units_that_only_pad_have_no_rank():
    sets = sets_of()
    names = (*sets["output"].features[:25], *[""] * 5)
    padded = {name: dataclasses.replace(data_set, features=names) for name, data_set in sets.items()}
    model = made(raw_network(), padded)
    ready = prepare(model, padded, "data")
    items, _ = best(model, ready, 30, rankable=ready.rankable(2))
    assert (items[:, :25] < 25).all()
    assert (items[:, 25:] == NO_ITEM).all()
    assert prepare(made(raw_network(), sets_of(named=False)), sets_of(named=False), "data").rankable(2).all()


def test_wrong_data_are_refused():
    sets = sets_of(named=False)
    model = made(raw_network(), sets)
    with pytest.raises(DataError, match=r'a.nc: no data set "input", which the model takes, legal: "output"'):
        prepare(model, {"output": sets["output"]}, "a.nc")
    with pytest.raises(DataError, match=r"30 units.* has 31"):
        prepare(model, {"input": DataSet("input", from_rows([[1]], 31))}, "a.nc")
    raw = raw_network()
    raw["Layers"][1]["Activation"] = "Linear"
    model = made(raw, sets)
    huge = as_data_set("input", np.full((3, 30), 3e38))
    with pytest.raises(DivergedError, match='example 0: an output of layer "Out" is not a finite number'):
        best(model, prepare(model, {"input": huge}, "a.nc"), 3)


def test_layers_by_name():
    spec = made(raw_network(), sets_of()).network.spec
    assert (find_layer(spec, "Hidden"), find_layer(spec, None)) == (1, 0)
    with pytest.raises(NnlibError, match='--layer: "Hiden" is no layer of this network, did you mean "Hidden"'):
        find_layer(spec, "Hiden", where="--layer")


def test_text_of_exclusions_and_filters(tmp_path):
    file = tmp_path / "filter.txt"
    file.write_text("b\ti1,0.5:i2:nothing,3\n\nunknown\ti1,2\nnobody\ti1\nb\ti0,2:i2,-1e-1\na\t\n", encoding="utf-8")
    samples, features = Numbered(3, ("a", "b", "c")), Numbered(4, ("i0", "i1", "i2", "i3"))
    listed = read_listed(file, samples, features)
    assert listed.rows.indptr.tolist() == [0, 0, 2, 2]  # the last line of b
    assert listed.rows.indices.tolist() == [0, 2]
    assert listed.rows.values.tolist() == pytest.approx([2, -0.1])
    assert str(listed) == "2 unknown samples and 1 unknown features ignored"
    folder = tmp_path / "filters"
    folder.mkdir()
    (folder / "1.txt").write_text("0\t1,3\n")
    (folder / "2.txt").write_text("2\t3\n")
    rows = read_listed(folder, Numbered(3), Numbered(4)).rows
    assert (rows.indices.tolist(), rows.values.tolist(), rows.indptr.tolist()) == ([1, 3], [3, 0], [0, 1, 1, 2])
    assert exclude_by_file(folder, Numbered(3), Numbered(4))(np.array([2, 0])).indices.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a i1,2", r'f.txt:1: "a i1,2" has no TAB, legal: sample<TAB>feature,value:...'),
        ("a\ti1,2\na\ti1,two", 'f.txt:2: "i1,two" has no finite number after its comma'),
        ("a\ti1,inf", "has no finite number"),
        ("x\ti1,2", 'f.txt: none of its 1 samples is in the data, legal: such as "a"'),
    ],
)
def test_wrong_text_is_refused(tmp_path, text, message):
    file = tmp_path / "f.txt"
    file.write_text(text)
    with pytest.raises(DataError) as caught:
        read_listed(file, Numbered(1, ("a",)), Numbered(2, ("i0", "i1")))
    assert message in str(caught.value)


def test_bytes_that_are_no_text(tmp_path):
    file = tmp_path / "f.txt"
    file.write_bytes(b"a\t\xff\xfe")
    with pytest.raises(DataError, match=r"f.txt: byte 2 is not UTF-8"):
        read_listed(file, Numbered(1, ("a",)), Numbered(2))


def test_data_files_of_exclusions(tmp_path):
    names = ("i0", "i1", "i2", "new")
    sets = DataSet("s", from_rows([[0, 3], [1], [2]], 4), names), DataSet("t", from_rows([[1], [], [2]], 4), names)
    write_data(tmp_path / "e.nc", Data(sets, ("b", "x", "a")))
    lookup = exclude_by_file(tmp_path / "e.nc", Numbered(3, ("a", "b", "c")), Numbered(3, ("i2", "i1", "i0")))
    rows = lookup(np.array([1, 2, 0]))
    assert rows.width == 3
    found = [sorted(rows.indices[a:b].tolist()) for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]
    assert found == [[1, 2], [], [0, 0]]  # b has i0 and i1, c is not there, a has i2 in both sets
    write_data(tmp_path / "plain.nc", Data((DataSet("s", from_rows([[0], [2]], 3)),)))
    rows = exclude_by_file(tmp_path / "plain.nc", Numbered(2), Numbered(3, ("i2", "i1", "i0")))(np.array([1]))
    assert rows.indices.tolist() == [2]
    for samples, features, message in [
        (Numbered(3, ("k", "l", "m")), Numbered(3, ("i2", "i1", "i0")), "none of its samples is in the data"),
        (Numbered(2), Numbered(3, ("i2", "i1", "i0")), "3 examples without names to go by, legal: 2"),
        (Numbered(3), Numbered(7), 'no sparse data set of these items, legal: one of width 7.*"s" of width 4'),
    ]:
        with pytest.raises(DataError, match=message):
            exclude_by_file(tmp_path / "e.nc", samples, features)


def test_inputs_of_other_items_are_not_left_out():
    sets = sets_of() | {"output": sets_of(width=12)["output"]}
    model = made(raw_network(), sets)
    assert exclude_inputs(model, prepare(model, sets, "data"), 2) is None
    data = clustered(20, 1, 6)
    sets = {s.name: s for s in data.sets}
    renamed = dataclasses.replace(sets["output"], features=tuple(f"other {n}" for n in range(ITEMS)))
    model = made(raw_network(), sets | {"output": renamed})
    assert exclude_inputs(model, prepare(model, sets, "data"), 2) is None
