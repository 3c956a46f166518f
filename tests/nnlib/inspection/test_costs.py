"""What a training step takes, against networks that are counted by hand and memory that is really taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnlib.cpu import output
from nnlib.cpu.optimizer import Optimizer
from nnlib.engines import Rates
from nnlib.inspection import costs
from nnlib.inspection.costs import Entries, Step, count_costs, count_entries, outline
from nnlib.model.examples import examples_of
from nnlib.model.network import Network
from nnlib.optim.hyper import Hyper
from nnlib.optim.rules import RULES
from tests.nnlib.samples import network_of, random_matrix, sets_of

SPARSE: dict[str, Any] = {
    "Layers": [
        {"Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {"Kind": "Hidden", "N": 6, "Activation": "Relu", "BatchNormalization": True},
        {"Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "Sigmoid"},
    ],
}
DENSE: dict[str, Any] = {
    "Layers": [
        {"Kind": "Input", "N": "auto", "DataSet": "input"},
        {"Kind": "Hidden", "N": 8, "Activation": "Tanh"},
        {"Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "Linear"},
    ],
    "ErrorFunction": "L2",
}


def network(raw: dict[str, Any], dense: bool = False) -> Network:
    matrix = random_matrix(20, 30, 1)
    return network_of(raw, sets_of(input=matrix.toarray() if dense else matrix, output=matrix))


def test_a_dense_layer_by_hand():
    step = Step(batch=10, states=2, gpu=False)
    first, hidden, last = count_costs(network(DENSE, dense=True), {2: Entries(40, 20)}, step)
    assert (first.parameters, first.flops, first.batch) == (0, 0, 10 * 30 * 4)
    assert hidden.parameters == 30 * 8 + 8
    assert hidden.flops == 2 * (2 * 10 * 30 * 8)  # forwards and weights: nothing goes back to an input
    assert hidden.moved == 4 * 30 * 8 * (2 + 4)  # weights and two states, read and written
    assert last.flops == 3 * (2 * 10 * 8 * 30)
    assert (hidden.weights, hidden.state) == (4 * 248, 8 * 248)


def test_a_sparse_input_by_hand():
    step = Step(batch=10, states=1, gpu=False)
    _, hidden, _ = count_costs(network(SPARSE), {0: Entries(90, 25), 2: Entries(90, 25)}, step)
    assert hidden.flops == 0
    # 90 rows are summed, 90 deltas, 25 gradients; 25 rows and one state are settled and updated
    assert hidden.moved == 4 * 6 * (2 * 90 + 25 + 25 * (4 + 4))


def test_denoising_leaves_fewer_entries():
    less = network({**SPARSE, "Denoising": {"p": 0.5}})
    step = Step(10, 0, gpu=False)
    found = count_costs(less, {0: Entries(90, 25), 2: Entries(90, 25)}, step)[1]
    assert found.moved == 4 * 6 * (90 + 25 + 25 * 4)


@pytest.mark.parametrize("raw", [SPARSE, DENSE])
@pytest.mark.parametrize("rule", RULES)
def test_weights_and_state_are_what_training_takes(raw, rule):
    made = network(raw, dense=raw is DENSE)
    entries = {n: Entries(9, 9) for n in (0, 2)}
    found = count_costs(outline(made.spec), entries, Step(10, RULES[rule].states, gpu=False))
    optimizer = Optimizer(made, Hyper(rule), lambda step: 0.1)
    last = sum(slot.last.nbytes for slot in optimizer._weights.values() if slot.last is not None)
    assert sum(one.weights for one in found) == sum(array.nbytes for _, array in made.arrays())
    assert sum(one.state for one in found) == sum(array.nbytes for array in optimizer.arrays().values()) + last
    assert sum(one.parameters for one in found) == made.parameters == outline(made.spec).parameters


def test_a_gpu_keeps_gradients_of_what_is_updated_as_a_whole():
    entries = {n: Entries(9, 9) for n in (0, 2)}
    of = [count_costs(network(SPARSE), entries, Step(10, 0, gpu))[2] for gpu in (False, True)]
    rooms = 4 * 10 * 30  # sums of the output layer
    assert of[1].batch == 4 * (10 + 1 + 5 * 9) + rooms + 4 * 6 * 30
    assert of[1].moved == of[0].moved + 2 * 4 * 6 * 30


ENTRIES = {0: Entries(90, 25), 2: Entries(90, 25)}


def test_gradients_that_processors_keep_are_of_touched_rows_where_they_can():
    free, clipped = (count_costs(network(SPARSE), ENTRIES, Step(10, 1, False, whole)) for whole in (False, True))
    assert clipped[1].batch - free[1].batch == 4 * 6 * 25
    assert clipped[2].batch - free[2].batch == 4 * 6 * 30
    assert clipped[1].moved - free[1].moved == 2 * 4 * 6 * 25
    assert clipped[2].moved - free[2].moved == 2 * 4 * 6 * 30


def test_of_an_update_by_several_batches_each_has_its_share():
    one, four = (count_costs(network(SPARSE), ENTRIES, Step(10, 1, False, accumulate=count)) for count in (1, 4))
    # rows and one state are settled for each batch; a quarter of an update, gradients written, added to, read
    assert four[1].moved == 4 * 6 * (2 * 90 + 25 + 25 * (4 + 1 + 4))
    assert four[2].moved == 4 * 6 * 30 * (1 + 4)
    assert four[1].batch - one[1].batch == 4 * 6 * 25 * 4  # the touched rows of each batch
    assert four[2].batch - one[2].batch == 4 * 6 * 30
    assert [cost.state for cost in four] == [cost.state for cost in one]


def test_a_gpu_adds_up_several_batches_as_a_whole():
    one, four = (count_costs(network(SPARSE), ENTRIES, Step(10, 1, True, accumulate=count)) for count in (1, 4))
    assert four[1].moved == 4 * 6 * (2 * 90 + 25 + 30 * (1 + 4))
    assert four[1].batch - one[1].batch == 2 * 4 * 6 * 30  # of each batch, and their sum
    assert four[2].batch - one[2].batch == 4 * 6 * 30
    assert one[1].state - four[1].state == 4 * 30  # no row lags behind


def test_entries_are_counted_in_batches():
    matrix = random_matrix(20, 30, 1)
    sets = sets_of(input=matrix, output=matrix.toarray())
    spec = network_of(SPARSE, sets_of(input=matrix, output=matrix)).spec
    examples = examples_of(spec, sets, "d")
    batches = [np.arange(10), np.arange(10, 20)]
    found = count_entries(examples, batches)
    assert list(found) == [0]
    assert found[0].count == matrix.nnz / 2
    assert found[0].touched == np.mean([len(np.unique(matrix[rows].tocoo().col)) for rows in batches])


def test_seconds_add_up():
    [_, hidden, _] = count_costs(network(SPARSE), {n: Entries(9, 9) for n in (0, 2)}, Step(10, 0, gpu=False))
    rates = Rates((1, 1, 1), flops=2.0, bytes_moved=4.0, activations=8.0)
    assert hidden.seconds(rates) == hidden.flops / 2 + hidden.moved / 4 + hidden.activations / 8


def test_the_outline_of_a_huge_network_takes_no_memory():
    sets = sets_of(input=random_matrix(2, 30, 1), output=random_matrix(2, 30, 1))
    spec = network_of(SPARSE, sets).spec
    wide = (replace(layer, units=2 * 10**9) if layer.data_set else layer for layer in spec.layers)
    huge = outline(replace(spec, layers=tuple(wide)))
    assert huge.parameters == 2 * 6 * 2 * 10**9 + 6 + 2 * 10**9 + 12


def test_constants_are_those_of_the_engine():
    assert (costs.KEPT, costs.LANES) == (output.KEPT, output.LANES)
