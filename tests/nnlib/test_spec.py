import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.architecture import Activation, ErrorFunction, LayerKind, Marginal, Scheme
from nnlib.spec import (
    SpecError,
    canonical_metric,
    parse_metric,
    parse_network,
    placeholders,
    read_json,
    substitute,
)

GOOD = {
    "Version": 0.8,
    "Name": "AE",
    "Kind": "AutoEncoder",
    "ShuffleIndices": False,
    "Denoising": {"p": 0.2},
    "ScaledMarginalCrossEntropy": {"oneTarget": 1.0, "zeroTarget": 0.0, "oneScale": 30.0, "zeroScale": 1.0},
    "ErrorFunction": "ScaledMarginalCrossEntropy",
    "Layers": [
        {"Name": "In", "Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True},
        {
            "Kind": "Hidden",
            "Type": "FullyConnected",
            "N": 128,
            "Source": "In",
            "Activation": "RectifiedLinear",
            "pDropout": 0.37,
            "WeightInit": {"Scheme": "Gaussian", "Scale": 0.01},
        },
        {
            "Name": "Output",
            "Kind": "Output",
            "N": [10],
            "DataSet": "output",
            "Activation": "Sigmoid",
            "WeightInit": {"Bias": -10.2},
        },
    ],
}


def changed(path, value):
    raw = copy.deepcopy(GOOD)
    *way, last = path
    place = raw
    for step in way:
        place = place[step]
    place[last] = value
    return raw


def problems_of(raw):
    with pytest.raises(SpecError) as caught:
        parse_network(raw, "network.json")
    return caught.value.problems


def test_all_values_are_read():
    spec = parse_network(GOOD, "network.json")
    first, hidden, last = spec.layers
    assert (spec.name, spec.kind, spec.shuffle, spec.denoising) == ("AE", "AutoEncoder", False, 0.2)
    assert spec.error is ErrorFunction.MARGINAL
    assert spec.marginal == Marginal(1.0, 0.0, 30.0, 1.0)
    assert (first.units, first.data_set, first.sparse) == (None, "input", True)
    assert (hidden.name, hidden.kind, hidden.units) == ("Hidden1", LayerKind.HIDDEN, 128)
    assert (hidden.activation, hidden.dropout) == (Activation.RELU, 0.37)
    assert (hidden.init.scheme, hidden.init.scale) == (Scheme.GAUSSIAN, 0.01)
    assert (last.units, last.init.bias) == (10, -10.2)


def test_keys_and_choices_ignore_case():
    text = GOOD | {"errorfunction": "cross ENTROPY"}
    del text["ErrorFunction"]
    assert parse_network(text, "n").error is ErrorFunction.CROSS_ENTROPY


def test_all_problems_at_once_with_key_paths():
    raw = changed(["Layers", 1, "Activation"], "Sigmod")
    raw["Layers"][1]["pDropuot"] = 0.5
    raw["Denoising"]["p"] = 1.0
    raw["Layers"][0]["N"] = 0
    assert problems_of(raw) == [
        "network.json: Denoising.p: 1.0 is not legal, legal: a number in [0, 1)",
        'network.json: Layers[0].N: 0 is not legal, legal: a whole number from 1 or "auto"',
        'network.json: Layers[1].pDropuot: unknown key, did you mean "pDropout"?',
        'network.json: Layers[1].Activation: "Sigmod" is not legal, legal: Sigmoid, Tanh, Relu, Linear, SoftMax, '
        'RectifiedLinear, did you mean "Sigmoid"?',
    ]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["LRN"], {}, "LRN: LRN is a DSSTNE key that is not supported yet"),
        (["Layers", 1, "BatchNormalization"], True, "Layers[1].BatchNormalization: "),
        (["Layers", 1, "Activation"], "ELU", '"ELU" is not supported yet'),
        (["ErrorFunction"], "L2", '"L2" is not supported yet'),
        (["Layers", 1, "Type"], "Convolutional", "not supported yet"),
        (["Layers", 1, "Source"], ["In", "Other"], 'not supported yet, legal: "In"'),
        (["Layers", 2, "Activation"], "Relu", "Layers[2].Activation: Relu has no"),
        (["Layers", 1, "Activation"], "SoftMax", "not supported yet"),
        (["Layers", 1, "Kind"], "Output", "legal: one Input first"),
        (["Layers", 1, "Name"], "In", "name of an earlier layer"),
        (["Layers", 1, "N"], "auto", "a whole number from 1"),
        (["Layers", 1, "N"], "$hidden", "give the hyperparameter"),
        (["Layers", 1, "N"], True, "true is not legal"),
        (["Layers", 0, "DataSet"], "", "Layers[0].DataSet: is missing"),
        (["Layers", 1], 3, "Layers[1]: 3 is not legal"),
        (["Layers"], [], "Layers: [] is not legal"),
        (["Version"], 0.5, "too old"),
        (["ScaledMarginalCrossEntropy", "oneTarget"], 1.1, "a number in [0, 1]"),
        (["Denoising"], 0.5, "an object"),
        (["ShuffleIndices"], "yes", "true or false"),
        (["name"], "twice", "given twice"),
    ],
)
def test_each_mistake_names_its_place(path, value, words):
    assert any(words in problem for problem in problems_of(changed(path, value)))


def test_not_an_object():
    assert "is not a network" in problems_of([])[0]


def test_placeholders_and_substitution():
    raw = changed(["Layers", 1, "N"], "$hidden")
    raw["Denoising"]["p"] = "$noise"
    assert placeholders(raw) == {"noise": "Denoising.p", "hidden": "Layers[1].N"}
    filled = substitute(raw, {"hidden": 7, "noise": 0.1, "other": 1})
    assert parse_network(filled, "n").layers[1].units == 7
    assert raw["Layers"][1]["N"] == "$hidden"
    with pytest.raises(SpecError, match=r'network: Layers\[1\].N: "\$hidden" has no value, did you mean "hiden"'):
        substitute(raw, {"hiden": 7, "noise": 0.1})


def test_comments_and_bad_json(tmp_path):
    path = tmp_path / "network.json"
    path.write_text('{ // a comment\n "Name": "a // b", /* two\nlines */ "Version": 1 }')
    assert read_json(path) == {"Name": "a // b", "Version": 1}
    path.write_text('{\n "Name" "x" }')
    with pytest.raises(SpecError, match=r"network.json:2:9: not JSON"):
        read_json(path)
    path.write_bytes(b'{"Name": "\xff"}')
    with pytest.raises(SpecError, match="byte 10 is not UTF-8"):
        read_json(path)
    path.write_text("[" * 100_000)
    with pytest.raises(SpecError):
        read_json(path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([*GOOD, *GOOD["Layers"][1], "0", "1", "2"]), VALUES)
def test_any_value_anywhere_parses_or_is_a_spec_error(key, value):
    places = [[int(key)]] if key.isdigit() else [[1, key], [2, key]]
    for path in [["Layers", *place] for place in places] + [[key]]:
        try:
            parse_network(changed(path, value), "network.json")
        except SpecError as error:
            assert all(problem.startswith("network.json") for problem in error.problems)


@pytest.mark.parametrize(
    ("name", "meaning", "key"),
    [
        ("p@10", ("p", 10), "p@10"),
        ("P@10", ("p", 10), "p@10"),
        ("Precision@5", ("p", 5), "p@5"),
        ("Recall@1", ("recall", 1), "recall@1"),
        ("NDCG@20", ("ndcg", 20), "ndcg@20"),
        ("Loss", ("loss", None), "loss"),
    ],
)
def test_metrics(name, meaning, key):
    assert parse_metric(name) == meaning
    assert canonical_metric(name) == canonical_metric(key) == key


@pytest.mark.parametrize("name", ["ndgc@20", "p@0", "p@", "p", "loss@3", "p@-1", "", "map@10", "p@1e3"])
def test_bad_metrics(name):
    with pytest.raises(ValueError, match="legal: p@K, recall@K"):
        parse_metric(name)
    with pytest.raises(ValueError, match="legal: p@K, recall@K"):
        canonical_metric(name)
