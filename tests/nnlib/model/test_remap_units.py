"""A model of an earlier catalogue, measured on the data of a later one."""

from dataclasses import replace

import numpy as np
import pytest

from nnlib.cpu.backend import Cpu
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import DataSet
from nnlib.data.units import Units
from nnlib.errors import DataError
from nnlib.evaluation import metrics
from nnlib.evaluation.metrics import RankedExamples
from nnlib.model import network as net
from nnlib.model.examples import Examples
from nnlib.model.file import Model
from nnlib.model.remap_units import remap_units
from nnlib.ops.ranking import top
from nnlib.spec.network import parse_network
from nnlib.spec.types import LayerKind
from tests.nnlib.samples import network_scorer, random_rows

OLD = tuple(f"item{n:02}" for n in range(30))
REMOVED, ADDED = set(OLD[3::7]), ("new0", "new1", "aaa")
HIDDEN = {"Name": "H", "N": 8, "Activation": "Tanh"}


def model_of(names, *hidden, outputs=None, **output):
    """A model whose input and output are `names`; its Output has its own settings."""
    outputs = names if outputs is None else outputs
    raw = {
        "ErrorFunction": output.pop("error", "CrossEntropy"),
        "Layers": [
            {"Name": "In", "N": len(names), "DataSet": "input", "Sparse": True},
            *(hidden or (HIDDEN,)),
            {"Name": "Out", "N": len(outputs), "DataSet": "output", "WeightInit": {"Bias": -1.5}} | output,
        ],
    }
    network = net.create(parse_network(raw, "n"), np.random.default_rng(7))
    for bias in network.biases:
        bias += np.random.default_rng(8).random(bias.shape, np.float32)  # no two scores are equal
    return Model(network, {0: names, len(raw["Layers"]) - 1: outputs})


def renumbered(rows, old, new):
    """The same rows in the numbering of other names; units that are gone are dropped."""
    place = {name: n for n, name in enumerate(new)}
    units = [rows.indices[a:b] for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]
    return from_rows([sorted(place[old[u]] for u in row if old[u] in place) for row in units], len(new))


def units(names, targets=None):
    targets = names if targets is None else targets
    return {"input": Units(len(names), names), "output": Units(len(targets), targets)}


def examples_of(network, inputs, targets=None):
    by_name = {"input": inputs, "output": targets}
    sets = {}
    for n, layer in enumerate(network.spec.layers):
        if layer.data_set and by_name[layer.data_set] is not None:
            sets[n] = DataSet(layer.data_set, by_name[layer.data_set])
    return Examples(sets)


def scores(network, inputs):
    return network_scorer(network)(examples_of(network, inputs))


def later_catalogue():
    """Items added and removed, the rest in another order."""
    kept = [name for name in OLD if name not in REMOVED] + list(ADDED)
    return tuple(kept[n] for n in np.random.default_rng(3).permutation(len(kept)))


TIED = {"Transposed": True, "InputLayer": "H", "SourceInputLayer": "In", "SourceOutputLayer": "H"}
NETWORKS = {
    "a chain": {},
    "softmax": {"Activation": "SoftMax"},
    "input also into the output": {"Source": ["H", "In"]},
    "weights tied": {"SharedWeights": TIED},
    "input added to the output": {"Skip": "In"},
}


@pytest.mark.parametrize("output", NETWORKS.values(), ids=NETWORKS)
def test_added_removed_and_reordered_items_do_not_change_the_metrics_of_the_common_ones(output):
    """The later data hold the same purchases of common items; the unmapped model ranks the common items only."""
    model, new = model_of(OLD, **output), later_catalogue()
    removed = [n for n, name in enumerate(OLD) if name in REMOVED]
    inputs, targets = (renumbered(random_rows(40, 30, seed), OLD, new) for seed in (1, 2))
    old_inputs, old_targets = (renumbered(rows, new, OLD) for rows in (inputs, targets))
    plain = network_scorer(model.network)

    def common(examples):
        found = plain(examples)
        found[:, removed] = -np.inf
        return found

    seen = remap_units(model, units(new))
    last = len(model.network.spec.layers) - 1
    ks = (1, 3, 5, 20)
    wanted = metrics.measure(
        metrics.rank_by(common), RankedExamples(examples_of(model.network, old_inputs, old_targets), last, 0), ks
    )
    found = metrics.measure(
        metrics.rank_by(network_scorer(seen.network)),
        RankedExamples(examples_of(seen.network, inputs, targets), last, 0),
        ks,
    )
    assert found == pytest.approx(wanted, rel=1e-12)
    assert len(seen.find_unscored(last, targets)) == 0
    assert [new[n] for n in np.flatnonzero(~seen.known[last])] == [name for name in new if name in ADDED]


@pytest.mark.parametrize(
    ("activation", "error"),
    [
        ("Sigmoid", "CrossEntropy"),
        ("SoftMax", "CrossEntropy"),
        ("Sigmoid", "ScaledMarginalCrossEntropy"),
        ("Sigmoid", "DataScaledMarginalCrossEntropy"),
        ("Sigmoid", "L2"),
        ("Relu", "L1"),
        ("Relu", "L2Hinge"),
        ("Relu6", "L2"),
        ("SoftPlus", "L2"),
        ("RELUMax", "L2"),
    ],
)
def test_unknown_units_that_are_no_target_cost_no_loss(monkeypatch, activation, error):
    new = (*OLD[::-1], *(f"new{n}" for n in range(20)))
    inputs, targets = random_rows(40, 30, 1), random_rows(40, 30, 2)
    monkeypatch.setattr(net, "BLOCK", 7)  # whole blocks of unknown units
    model = model_of(OLD, Activation=activation, error=error)
    wanted = Cpu().evaluator(model.network).mean_loss(examples_of(model.network, inputs, targets))
    seen = remap_units(model, units(new))
    inputs, targets = (renumbered(rows, OLD, new) for rows in (inputs, targets))
    assert seen.find_unscored(2, targets).size == 0
    found = Cpu().evaluator(seen.network).mean_loss(examples_of(seen.network, inputs, targets))
    assert found == pytest.approx(wanted, rel=1e-5)


def test_where_unknown_units_cost_something_the_loss_has_no_value():
    targets = from_rows([[0], [1]], 3)
    for settings in ({"Activation": "Linear", "error": "L2"}, {"error": "Hinge"}):
        seen = remap_units(model_of(("a", "b"), **settings), units(("a", "b", "c")))
        assert seen.find_unscored(2, targets).tolist() == [2]
        assert seen.find_unscored(2, Dense(np.zeros((2, 3), np.float32))).tolist() == [2]
    seen = remap_units(model_of(("a", "b"), Activation="Linear", error="L2"), units(("b", "a")))
    assert seen.find_unscored(2, targets).size == 0


def test_unknown_units_come_last_by_number_and_contribute_nothing():
    new = ("x", "c", "y", "a")
    seen = remap_units(model_of(("a", "b", "c")), units(new))
    found = scores(seen.network, from_rows([[1], [0, 1, 2]], 4))
    np.testing.assert_array_equal(found[0], found[1])
    ranked, legal = top(found, 4)
    assert ranked[:, 2:].tolist() == [[0, 2], [0, 2]]
    assert legal.all()
    assert seen.find_unscored(2, from_rows([[0, 3], [0, 2]], 4)).tolist() == [0, 2]


def test_several_inputs_and_outputs_each_by_its_own_names():
    raw = {
        "ErrorFunction": "L2",
        "Layers": [
            {"Name": "A", "N": [3, 1], "DataSet": "a"},
            {"Name": "B", "Kind": "Input", "N": 2, "DataSet": "b"},
            {"Name": "H", "N": 4, "Source": ["A", "B"], "BatchNormalization": True},
            {"Name": "O", "Kind": "Output", "N": 3, "DataSet": "a", "Activation": "Linear"},
            {"Name": "G", "N": 4, "Source": ["O", "H"], "Skip": "H"},
            {"Name": "P", "N": 2, "DataSet": "p", "Source": ["G", "B"], "Activation": "Tanh"},
        ],
    }
    network = net.create(parse_network(raw, "n"), np.random.default_rng(0))
    model = Model(replace(network, locked=frozenset({0})), {0: ("a", "b", "c"), 1: ("d", "e"), 3: ("a", "b", "c")})
    new = ("c", "z", "b", "a")
    seen = remap_units(model, {"a": Units(4, new), "b": Units(2, ("e", "d")), "p": Units(2, ())})
    assert [layer.units for layer in seen.network.spec.layers] == [4, 2, 4, 4, 4, 2]
    assert [layer.dimensions for layer in seen.network.spec.layers[:2]] == [(4,), (2,)]
    assert seen.network.locked == {0}
    assert {n: known.tolist() for n, known in seen.known.items()} == {3: [True, False, True, True], 5: [True, True]}
    a, b = np.random.default_rng(1).random((2, 5, 3), np.float32)
    b = b[:, :2]
    before = Examples({0: DataSet("a", Dense(a)), 1: DataSet("b", Dense(b))})
    after = Examples({0: DataSet("a", Dense(a[:, [2, 0, 1, 0]])), 1: DataSet("b", Dense(b[:, ::-1]))})
    for output, places in ((3, [3, 2, 0]), (5, [0, 1])):
        wanted = network_scorer(model.network, output)(before)
        found = network_scorer(seen.network, output)(after)
        np.testing.assert_allclose(found[:, places], wanted, atol=1e-6)


def test_the_model_itself_is_left_alone():
    model = model_of(OLD)
    before = [values.copy() for _, values in model.network.arrays()]
    remap_units(model, units(later_catalogue()))
    for (_, values), old in zip(model.network.arrays(), before, strict=True):
        np.testing.assert_array_equal(values, old)


@pytest.mark.parametrize(("mine", "theirs"), [((), OLD), (OLD, ()), ((), ()), (OLD, OLD)])
def test_the_same_width_without_names_is_the_same_numbering(mine, theirs):
    network = model_of(OLD).network
    seen = remap_units(Model(network, {0: mine, 2: mine}), {name: Units(30, theirs) for name in ("input", "output")})
    assert seen.known[2].all()
    assert seen.network.spec == network.spec
    for (_, ours), (_, found) in zip(network.arrays(), seen.network.arrays(), strict=True):
        np.testing.assert_array_equal(ours, found)


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (
            (),
            OLD,
            'layer "Out" has 30 units, data set "output" has 31, with no names of units in the model by which to',
        ),
        (OLD, (), "no names of units in the data"),
        ((), (), "no names of units in the model and the data"),
    ],
)
def test_other_widths_without_names(mine, theirs, words):
    model = Model(model_of(OLD).network, {0: OLD, 2: mine})
    with pytest.raises(DataError, match=words):
        remap_units(model, units(OLD) | {"output": Units(31, (*theirs, "x") if theirs else ())})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (model_of(OLD, Skip="In", outputs=OLD), 'layer "Out" skips from "In", whose units have moved differently'),
        (
            model_of(OLD, HIDDEN | {"N": 30, "Skip": "In"}),
            'layer "H" skips from "In", whose units have moved differently',
        ),
        (
            model_of(OLD, SharedWeights=TIED),
            'the weights from "H" to "Out" are shared with layers whose units moved differently',
        ),
        (model_of(OLD, Activation="LinearMax", error="L2"), "where an unknown unit changes all others"),
        (
            replace(model_of(OLD), features={}),
            'layer "In" has 30 units, data set "input" has 31, with no names of units in the model',
        ),
    ],
)
def test_networks_whose_units_cannot_move(model, words):
    with pytest.raises(DataError) as caught:
        remap_units(model, units((*OLD[::-1], "x"), (*OLD, "y")))
    assert words in str(caught.value)


def test_a_data_set_that_is_missing():
    with pytest.raises(DataError, match=r'layer "Out" takes data set "output", the data have "input"'):
        remap_units(model_of(OLD), {"input": Units(30, OLD)})


def test_every_input_and_output_has_a_place():
    seen = remap_units(model_of(OLD), units(later_catalogue()))
    sizes = {layer.kind: layer.units for layer in seen.network.spec.layers}
    assert sizes[LayerKind.INPUT] == sizes[LayerKind.OUTPUT] == len(later_catalogue())
