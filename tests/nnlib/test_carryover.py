"""A model of an earlier catalogue, measured on the data of a later one."""

import numpy as np
import pytest
from nnlib_samples import random_rows

from nnlib import metrics
from nnlib import network as net
from nnlib.carryover import Units, carried
from nnlib.data import from_rows
from nnlib.errors import DataError
from nnlib.modelfile import Model
from nnlib.spec import parse_network
from nnlib.train import resolve

OLD = tuple(f"item{n:02}" for n in range(30))
REMOVED, ADDED = set(OLD[3::7]), ("new0", "new1", "aaa")


def model_of(names, activation="Sigmoid", outputs=None):
    raw = {
        "Layers": [
            {"N": "auto", "DataSet": "input", "Sparse": True},
            {"N": 8, "Activation": "Tanh"},
            {"N": "auto", "DataSet": "output", "Activation": activation, "WeightInit": {"Bias": -1.5}},
        ]
    }
    outputs = names if outputs is None else outputs
    spec = resolve(parse_network(raw, "n"), len(names), len(outputs), "n")
    network = net.create(spec, np.random.default_rng(7))
    network.edges[-1].bias[:] += np.random.default_rng(8).random(len(outputs), np.float32)  # no two scores are equal
    return Model(network, names, outputs)


def renumbered(rows, old, new):
    """The same rows in the numbering of other names; units that are gone are dropped."""
    place = {name: n for n, name in enumerate(new)}
    units = [rows.indices[a:b] for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]
    return from_rows([sorted(place[old[u]] for u in row if old[u] in place) for row in units], len(new))


def units(names):
    return Units(len(names), names)


def later_catalogue():
    """Items added and removed, the rest in another order."""
    kept = [name for name in OLD if name not in REMOVED] + list(ADDED)
    return tuple(kept[n] for n in np.random.default_rng(3).permutation(len(kept)))


def test_added_removed_and_reordered_items_do_not_change_the_metrics_of_the_common_ones():
    """The later data hold the same purchases of common items; the unmapped model ranks the common items only."""
    model, new = model_of(OLD), later_catalogue()
    removed = [n for n, name in enumerate(OLD) if name in REMOVED]
    inputs, targets = (renumbered(random_rows(40, 30, seed), OLD, new) for seed in (1, 2))
    old_inputs, old_targets = (renumbered(rows, new, OLD) for rows in (inputs, targets))
    plain = metrics.of_network(model.network)

    def common(rows):
        scores = plain(rows)
        scores[:, removed] = -np.inf
        return scores

    seen = carried(model, units(new), units(new))
    ks = (1, 3, 5, 20)
    wanted = metrics.measure(common, old_inputs, old_targets, ks)
    assert metrics.measure(metrics.of_network(seen.network), inputs, targets, ks) == pytest.approx(wanted, rel=1e-12)
    assert len(seen.unscored(targets)) == 0
    assert [new[n] for n in np.flatnonzero(~seen.known)] == [name for name in new if name in ADDED]


@pytest.mark.parametrize("activation", ["Sigmoid", "SoftMax"])
def test_unknown_units_that_are_no_target_cost_no_loss(monkeypatch, activation):
    model = model_of(OLD, activation)
    new = (*OLD[::-1], *(f"new{n}" for n in range(20)))
    monkeypatch.setattr(net, "BLOCK", 7)  # whole blocks of unknown units
    inputs, targets = random_rows(40, 30, 1), random_rows(40, 30, 2)
    wanted = metrics.mean_loss(model.network, inputs, targets)
    seen = carried(model, units(new), units(new)).network
    found = metrics.mean_loss(seen, *(renumbered(rows, OLD, new) for rows in (inputs, targets)))
    assert found == pytest.approx(wanted, rel=1e-5)


def test_unknown_units_come_last_by_number_and_contribute_nothing():
    model = model_of(("a", "b", "c"))
    new = ("x", "c", "y", "a")
    seen = carried(model, units(new), units(new))
    score = metrics.of_network(seen.network)
    scores = score(from_rows([[1], [0, 1, 2]], 4))
    np.testing.assert_array_equal(scores[0], scores[1])
    ranked, legal = metrics.top(scores, 4)
    assert ranked[:, 2:].tolist() == [[0, 2], [0, 2]]
    assert legal.all()
    assert seen.unscored(from_rows([[0, 3], [0, 2]], 4)).tolist() == [0, 2]


def test_the_model_itself_is_left_alone():
    model = model_of(OLD)
    before = [(edge.store.copy(), edge.bias.copy()) for edge in model.network.edges]
    carried(model, units(later_catalogue()), units(later_catalogue()))
    for edge, (store, bias) in zip(model.network.edges, before, strict=True):
        np.testing.assert_array_equal(edge.store, store)
        np.testing.assert_array_equal(edge.bias, bias)


@pytest.mark.parametrize(("mine", "theirs"), [((), OLD), (OLD, ()), ((), ()), (OLD, OLD)])
def test_the_same_width_without_names_is_the_same_numbering(mine, theirs):
    network = model_of(OLD).network
    seen = carried(Model(network, mine, mine), Units(30, theirs), Units(30, theirs))
    assert seen.known.all()
    np.testing.assert_array_equal(seen.network.edges[0].store, network.edges[0].store)
    np.testing.assert_array_equal(seen.network.edges[-1].bias, network.edges[-1].bias)


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        ((), OLD, "it has 30 output units, the data have 31, with no names of units in the model by which to match"),
        (OLD, (), "no names of units in the data"),
        ((), (), "no names of units in the model and the data"),
    ],
)
def test_other_widths_without_names(mine, theirs, words):
    model = Model(model_of(OLD).network, OLD, mine)
    with pytest.raises(DataError, match=words):
        carried(model, units(OLD), Units(31, (*theirs, "x") if theirs else ()))
