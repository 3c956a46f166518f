"""Which layers are cut: by network and batch alone."""

import dataclasses
import inspect

import pytest

from nnlib.contract import PARALLELS
from nnlib.errors import NnlibError
from nnlib.shards.plan import LEAST, WIDE, Plan, normalized_by_batch, plan_of, why_whole
from nnlib.spec.network import parse_network

INPUT = {"Name": "I", "Kind": "Input", "N": 9000, "DataSet": "x", "Sparse": True}
HIDDEN = {"Name": "H", "Kind": "Hidden", "N": 16, "Activation": "Relu"}
OUTPUT = {"Name": "O", "Kind": "Output", "N": 10000, "DataSet": "y"}


def spec_of(*layers, **keys):
    return parse_network({"Layers": list(layers), **keys}, "n")


def plan(*layers, batch=256, parallel="auto", **keys):
    return plan_of(spec_of(*layers, **keys), batch, parallel)


def test_wide_inputs_and_outputs_are_cut_by_items():
    assert plan(INPUT, HIDDEN, OUTPUT) == Plan("items", (0, 2))
    assert plan(INPUT | {"N": 100}, HIDDEN, OUTPUT) == Plan("items", (2,))
    assert plan(INPUT, HIDDEN, OUTPUT | {"N": 100}) == Plan("items", (0,))
    assert plan(INPUT, HIDDEN, OUTPUT, parallel="NONE") == Plan("none") == Plan()


@pytest.mark.parametrize(("units", "kind"), [(WIDE, "items"), (WIDE - 1, "none")])
def test_auto_leaves_small_networks_whole(units, kind):
    assert plan(INPUT | {"N": units}, HIDDEN, OUTPUT | {"N": units}).kind == kind


@pytest.mark.parametrize(("batch", "kind"), [(16384, "items"), (17998, "items"), (18000, "none")])
def test_auto_cuts_what_is_wider_than_half_the_batch(batch, kind):
    assert plan(INPUT, HIDDEN, OUTPUT | {"N": 9000}, batch=batch).kind == kind
    assert plan(INPUT, HIDDEN, OUTPUT, batch=batch, parallel="items").wide == (0, 2)


def test_items_cut_smaller_layers_when_asked_for():
    assert plan(INPUT | {"N": LEAST}, HIDDEN, OUTPUT | {"N": LEAST - 1}, parallel="Items") == Plan("items", (0,))
    with pytest.raises(
        NnlibError,
        match="of at least 4,096 units, and here is none; I has 4,095 units; O has 7 units; legal: auto, none",
    ):
        plan(INPUT | {"N": LEAST - 1}, HIDDEN, OUTPUT | {"N": 7}, parallel="items")


OBSTACLES = {
    "dense": ((INPUT | {"Sparse": False}, HIDDEN, OUTPUT | {"N": 7}), {}, "I: its data are dense"),
    "weight norm": ((INPUT, HIDDEN | {"WeightNorm": 1.0}, OUTPUT | {"N": 7}), {}, "I: WeightNorm of H is over all"),
    "straight": ((INPUT, OUTPUT | {"N": 7}), {}, "I: it leads to the output layer O without a layer between"),
    "straight too": ((INPUT | {"N": 50}, OUTPUT), {}, "O: a sparse input leads to it without a layer between"),
    "hidden": ((INPUT | {"N": 50}, HIDDEN | {"N": 9000}, OUTPUT | {"N": 7}), {}, "H: it is hidden"),
    "softmax": (
        (INPUT | {"N": 50}, HIDDEN, OUTPUT | {"Activation": "SoftMax"}),
        {"ErrorFunction": "L2"},
        "O: all its units are needed at once",
    ),
    "dropout": ((INPUT | {"N": 50}, HIDDEN, OUTPUT | {"pDropout": 0.1}), {}, "O: all its units are needed at once"),
    "shared": (
        (
            INPUT,
            HIDDEN,
            OUTPUT
            | {
                "N": 9000,
                "SharedWeights": {
                    "InputLayer": "H",
                    "SourceInputLayer": "I",
                    "SourceOutputLayer": "H",
                    "Transposed": True,
                },
            },
        ),
        {},
        "I: its weights are shared",
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_cannot_be_cut_stays_whole_and_says_why_where_it_was_asked_for(name):
    layers, keys, why = OBSTACLES[name]
    assert plan(*layers, **keys) == Plan()
    with pytest.raises(NnlibError, match=why) as told:
        plan(*layers, parallel="items", **keys)
    assert str(told.value).startswith("parallel: 'items' cuts sparse inputs and output layers of at least 4,096 units")
    assert str(told.value).endswith("; legal: auto, examples, none" if name == "dense" else "; legal: auto, none")


def test_what_else_can_be_cut_is():
    layers = INPUT, HIDDEN | {"WeightNorm": 1.0}, OUTPUT | {"WeightNorm": 1.0}
    assert plan(*layers) == Plan("items", (2,))


DENSE = (INPUT | {"Sparse": False}, HIDDEN, OUTPUT | {"N": 7})


def test_batches_are_cut_where_it_is_asked_for():
    found = plan(*DENSE, parallel="Examples")
    assert found == Plan("examples") and found.is_cut and not Plan().is_cut
    assert plan(*DENSE, batch=4096) == plan(*DENSE, parallel="none") == Plan()
    assert why_whole(spec_of(*DENSE), 256, "examples") == dict.fromkeys(range(3), "parallel is examples")


NORMED = {"BatchNormalization": True}
POOL = {"Type": "Pooling", "Function": "Sum"}
BATCHWISE = {
    "sparse": ((INPUT, HIDDEN, OUTPUT), {}, "I: its data are sparse; legal: auto, items, none$"),
    "penalties": (
        (DENSE[0], *(POOL | {"Name": name, "Sparse": True} for name in "ABCDE"), OUTPUT),
        {"SparsenessPenalty": {"p": 0.2, "beta": 0.5}},
        "A: the .*; B: the .*; C: the .* whole batch; 2 more; legal: auto, none$",
    ),
    "penalty": (
        (DENSE[0], HIDDEN | {"Sparse": True}, OUTPUT),
        {"SparsenessPenalty": {"p": 0.2, "beta": 0.5}},
        "H: the sparseness penalty is over the whole batch",
    ),
}


@pytest.mark.parametrize("name", BATCHWISE)
def test_what_looks_at_a_whole_batch_is_not_cut_by_examples(name):
    layers, keys, why = BATCHWISE[name]
    with pytest.raises(NnlibError, match=f"each example alone; {why}.*"):
        plan(*layers, parallel="examples", **keys)


def test_a_plan_knows_no_ranks_no_device_and_no_link():
    assert list(inspect.signature(plan_of).parameters) == ["spec", "batch", "parallel"]
    assert [field.name for field in dataclasses.fields(Plan)] == ["kind", "wide"]
    assert PARALLELS == ("auto", "items", "examples", "none")


def test_layers_that_are_normalized_by_the_whole_batch():
    """All but those that are frozen from the first epoch to the last."""
    layers = DENSE[0], HIDDEN | NORMED, HIDDEN | NORMED | {"Name": "G", "Source": "H"}, DENSE[2]
    assert plan(*layers, parallel="examples") == Plan("examples")
    for tuning, wanted in (({}, (1, 2)), ({"Freeze": ["H"]}, (2,)), ({"Freeze": ["H"], "UnfreezeAt": 3}, (1, 2))):
        assert normalized_by_batch(spec_of(*layers, FineTuning=tuning)) == wanted


def test_networks_that_pool_are_cut_by_examples_alone():
    layers = (INPUT | {"Sparse": False}, POOL, OUTPUT)
    assert plan(*layers) == plan(*layers, parallel="none") == Plan()
    assert plan(*layers, parallel="examples") == Plan("examples")
    with pytest.raises(NnlibError, match=r"parallel: 'items' is .* Hidden1 is Sum; legal: auto, examples, none"):
        plan(*layers, parallel="items")
    assert set(why_whole(spec_of(*layers), 256).values()) == {"the network has layers that are not fully connected"}
