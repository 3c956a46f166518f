"""The key FineTuning of a network file: what it may say, and what each mistake is told as."""

import json

import pytest

from nnlib.spec.fine_tuning import describe_tuning
from nnlib.spec.network import SpecError, parse_network, substitute
from nnlib.spec.types import FineTuning

SHARED = {"InputLayer": "I", "SourceInputLayer": "I", "SourceOutputLayer": "A"}
RAW = {
    "Layers": [
        {"Name": "I", "N": 4, "DataSet": "x"},
        {"Name": "A", "N": 3},
        {"Name": "B", "N": 3, "Source": "I", "SharedWeights": SHARED},
        {"Name": "C", "N": 5, "Source": ["A", "B"]},
        {"Name": "O", "N": 4, "DataSet": "y"},
    ]
}


def parse(**tuning):
    return parse_network(RAW | {"FineTuning": tuning}, "n.json").tuning


def test_all_that_it_may_say():
    found = parse(freeze=["A", "B"], Rates={"C": 0.1, "O": 2}, Replace="O", unfreezeAt=3)
    assert found == FineTuning(("A", "B"), (("C", 0.1), ("O", 2.0)), ("O",), 3)
    assert [found.frozen(epoch) for epoch in (1, 2, 3, 9)] == [("A", "B"), ("A", "B"), (), ()]
    assert describe_tuning(found) == [
        "frozen until epoch 3: A, B",
        "drawn anew: O",
        "learning rate: 0.1 times at C, 2 times at O",
    ]
    assert parse() == parse_network(RAW, "n.json").tuning == FineTuning()
    assert parse(Freeze="C").frozen(10**6) == ("C",) and describe_tuning(FineTuning()) == []


def test_hyperparameters_have_their_places():
    raw = RAW | {"FineTuning": {"Freeze": ["C"], "Rates": {"O": "$head"}, "UnfreezeAt": "$thaw"}}
    assert parse_network(substitute(raw, {"head": 3, "thaw": 2}), "n").tuning == FineTuning(
        ("C",), (("O", 3.0),), (), 2
    )


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        ({"Freeze": ["D"]}, 'Freeze: "D" is not the name of a layer, legal: "A", "B", "C", "O"'),
        ({"Replace": "Cc"}, 'Replace: "Cc" is not the name of a layer, did you mean "C"?'),
        ({"Rates": {"I": 2}}, 'Rates: "I" is an Input layer, which has no weights, legal: "A", "B", "C", "O"'),
        ({"Freeze": ["A", "B", "C", "O"]}, "Freeze: names every layer, so that nothing learns, legal: all but one or"),
        ({"Freeze": "O", "Replace": "O"}, 'Replace: "O" is drawn anew and frozen, legal: one of the two'),
        ({"Freeze": "A"}, 'Freeze: "B" and "A" share weights, legal: the same for both, or none of them'),
        ({"Replace": "B"}, 'Replace: "B" and "A" share weights'),
        ({"Rates": {"A": 2, "B": 3}}, 'Rates: "B" and "A" share weights'),
        ({"Rates": {"C": 0}}, "Rates.C: 0 is not legal, legal: a number above 0"),
        ({"Rates": {"C": "fast"}}, 'Rates.C: "fast" is not legal, legal: a number above 0'),
        ({"Rates": ["C"]}, 'Rates: ["C"] is not legal, legal: an object such as {"Hidden": 0.1}'),
        ({"UnfreezeAt": -1}, "UnfreezeAt: -1 is not legal, legal: a whole number from 0 to"),
        ({"UnfreezeAt": "$thaw"}, 'UnfreezeAt: "$thaw" has no value, give the hyperparameter "thaw" one'),
        ({"Freeze": 3}, "Freeze: 3 is not legal, legal: a name or an array of names"),
        ({"Thaw": 3}, "Thaw: unknown key"),
    ],
    ids=json.dumps,
)
def test_mistakes(tuning, message):
    with pytest.raises(SpecError) as caught:
        parse(**tuning)
    assert caught.value.problems[0].startswith(f"n.json: FineTuning.{message}")


def test_shared_weights_are_legal_where_both_layers_are_named():
    assert parse(Freeze=["A", "B"], Rates={"A": 2, "B": 2}).freeze == ("A", "B")


def test_pooling_layers_learn_only_by_their_batch_normalization():
    pool = {"Name": "P", "Type": "Pooling", "Function": "Sum", "Source": "C"}
    raw = {
        "Layers": [*RAW["Layers"][:-1], pool | {"BatchNormalization": True}, pool | {"Name": "Q"}, RAW["Layers"][-1]]
    }
    assert parse_network(raw | {"FineTuning": {"Freeze": "P"}}, "n").tuning.freeze == ("P",)
    with pytest.raises(
        SpecError, match='"Q" is a Pooling layer without BatchNormalization, which has no weights, legal'
    ):
        parse_network(raw | {"FineTuning": {"Freeze": "Q"}}, "n")
