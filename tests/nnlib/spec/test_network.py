import copy
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.spec.json_section import SpecError
from nnlib.spec.layers import ALL_KEYS
from nnlib.spec.metric_names import canonical_metric, parse_metric
from nnlib.spec.network import (
    ALIASES,
    NETWORK_KEYS,
    network_of,
    parse_network,
    placeholders,
    read_json,
    read_network,
    substitute,
)
from nnlib.spec.topology import order
from nnlib.spec.types import (
    Activation,
    Boost,
    ErrorFunction,
    LayerKind,
    LayerType,
    LocalResponse,
    Marginal,
    PoolingFunction,
    Scheme,
    SharedWeights,
    Sparseness,
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


def test_all_network_keys_are_read():
    more = {
        "WeightsData": "old.nc",
        "LRN": {"k": 1, "n": 3, "alpha": 0.5, "beta": 0.25},
        "Maxout": {"k": 3},
        "SparsenessPenalty": {"p": 0.5, "beta": 2},
        "DeltaBoost": {"one": 4, "zero": 0.5},
        "Decay": 0.125,
    }
    spec = parse_network(GOOD | more, "n")
    assert (spec.local_response, spec.maxout) == (LocalResponse(1, 3, 0.5, 0.25), 3)
    assert (spec.sparseness, spec.boost, spec.decay) == (Sparseness(0.5, 2), Boost(4, 0.5), 0.125)
    assert not spec.compat


def test_all_layer_keys_are_read():
    layers = [
        {"Name": "A", "N": [4, 3, 2], "DataSet": "a", "pDropout": 0.125},
        {"Name": "B", "Kind": "Input", "N": 24, "DataSet": "b"},
        {
            "Name": "C",
            "N": 24,
            "Source": ["A", "B"],
            "Skip": "B",
            "Sparse": True,
            "BatchNormalization": True,
            "SparsenessPenalty": {"p": 0.25, "beta": 1},
            "Activation": "lrelu",
            "Slope": 0.5,
            "WeightNorm": 1,
            "DeltaNorm": 2,
            "WeightInit": {"Scheme": "selu", "Scale": 3, "Bias": 4},
            "SharedWeights": [{"InputLayer": "B", "SourceInputLayer": "A", "SourceOutputLayer": "C"}],
        },
        {"Name": "D", "Type": "Convolutional", "N": 5, "Kernel": [3, 2], "KernelStride": 2, "Source": "A"},
        {"Name": "E", "Type": "Pooling", "Function": "localresponsenormalization"},
        {"Name": "Out", "DataSet": "out", "N": 24, "Skip": ["C", "A"], "ELUAlpha": 2, "SELULambda": 3, "Kernel": 7},
    ]
    a, b, c, d, e, out = parse_network({"Layers": layers}, "n").layers
    assert (a.dimensions, a.units, a.dropout, a.sources) == ((4, 3, 2), 24, 0.125, ())
    assert (b.kind, b.units) == (LayerKind.INPUT, 24)
    assert (c.sources, c.skips, c.sparse, c.batch_norm) == (("A", "B"), ("B",), True, True)
    assert (c.sparseness, c.activation, c.slope) == (Sparseness(0.25, 1), Activation.LEAKY_RELU, 0.5)
    assert (c.weight_norm, c.delta_norm) == (1, 2)
    assert (c.init.scheme, c.init.scale, c.init.bias) == (Scheme.SELU, 3, 4)
    assert c.shared == (SharedWeights("B", "A", "C", transposed=False),)
    assert (d.type, d.dimensions, d.units, d.kernel, d.stride) == (LayerType.CONVOLUTIONAL, (5,), None, (3, 2), (2, 1))
    assert (e.type, e.function, e.units, e.sources) == (LayerType.POOLING, PoolingFunction.LRN, None, ("D",))
    assert (out.kind, out.sources, out.skips) == (LayerKind.OUTPUT, ("E",), ("C", "A"))
    assert (out.alpha, out.selu_lambda, out.kernel) == (2, 3, ())


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("relu", Activation.RELU),
        ("RectifiedLinear", Activation.RELU),
        ("LRelu", Activation.LEAKY_RELU),
        ("LeakyRectifiedLinear", Activation.LEAKY_RELU),
        ("ELU", Activation.ELU),
        ("ExponentialLinear", Activation.ELU),
        ("SELU", Activation.SELU),
        ("ScaledExponentialLinear", Activation.SELU),
        ("softsign", Activation.SOFTSIGN),
    ],
)
def test_names_of_activations(name, activation):
    assert parse_network(changed(["Layers", 1, "Activation"], name), "n").layers[1].activation is activation


@pytest.mark.parametrize(
    ("network", "layer", "compat", "slope", "alpha"),
    [
        ({}, {"Activation": "SELU"}, False, 0.01, 1.6732632),
        ({}, {"Activation": "SELU"}, True, 1.0, 1.0),
        ({}, {"Activation": "ELU"}, False, 0.01, 1.0),
        ({"ELUAlpha": 2, "Slope": 0.25}, {"Activation": "SELU"}, False, 0.25, 2.0),
        ({"ELUAlpha": 2, "RELUSlope": 0.25}, {"Activation": "ELU", "ELUAlpha": 3, "Slope": 0}, True, 0.0, 3.0),
    ],
)
def test_slopes_and_alphas_left_out_are_the_networks(network, layer, compat, slope, alpha):
    raw = changed(["Layers", 1], {"N": 2} | layer) | network
    spec = parse_network(raw, "n", compat)
    assert spec.compat is compat
    assert (spec.layers[1].slope, spec.layers[1].alpha) == (slope, alpha)


@pytest.mark.parametrize("key", ["ScaledMarginalCrossEntropy", "DataScaledMarginalCrossEntropy"])
def test_either_margin_key_sets_the_numbers_of_both_errors(key):
    raw = {k: v for k, v in GOOD.items() if "Marginal" not in k} | {key: {"oneScale": 3}}
    for error in ErrorFunction:
        spec = parse_network(raw | {"ErrorFunction": error.value}, "n")
        assert (spec.error, spec.marginal) == (error, Marginal(0.9, 0.1, 3.0, 1.0))


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
        'network.json: Layers[0].N: 0 is not legal, legal: a whole number from 1, an array of 1 to 4 of them or "auto"',
        'network.json: Layers[1].pDropuot: unknown key, did you mean "pDropout"?',
        'network.json: Layers[1].Activation: "Sigmod" is not legal, legal: '
        f"{', '.join(Activation)}, "
        'RectifiedLinear, LRelu, ELU, SELU, did you mean "Sigmoid"?',
    ]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["Layers", 2, "BatchNormalization"], True, "not a key of an Output layer, legal: Activation, DataSet"),
        (["Layers", 0, "Source"], "In", "Layers[0].Source: not a key of an Input layer"),
        (["Layers", 1, "DataSet"], "x", "Layers[1].DataSet: not a key of a Hidden layer"),
        (["Layers", 1, "L1Penalty"], 1, "Layers[1].L1Penalty: unknown key"),
        (["Layers", 1, "Recurrent"], "LSTM", "Layers[1].Recurrent: unknown key"),
        (["Layers", 1, "SharedWeight"], [], 'unknown key, did you mean "SharedWeights"'),
        (["WeightData"], "x", 'WeightData: unknown key, did you mean "WeightsData"'),
        (["ErrorFunction"], "SMCE", '"SMCE" is not legal, legal: L1, L2'),
        (["Layers", 1, "Activation"], "ParametricRectifiedLinear", "trains no slopes"),
        (["Layers", 1, "Function"], "Max", "Layers[1].Function: not a key of a layer of type FullyConnected"),
        (["Layers", 1, "Type"], "Pooling", "Layers[1].Function: is missing, legal: Max, Average"),
        (["Layers", 0, "Type"], "Pooling", "an Input has nothing to pool"),
        (["Layers", 1, "Kind"], "Target", "DSSTNE reads Target layers but does nothing with them"),
        (["Layers", 0, "Kind"], "Hidden", "Layers[0].Source: is missing in the first layer"),
        (["Layers", 1, "Source"], [], "[] is not legal, legal: one name or more"),
        (["Layers", 1, "Source"], ["In", "In"], '"In" is named twice'),
        (["Layers", 1, "Source"], 3, "3 is not legal, legal: a name or an array of names"),
        (["Layers", 1, "SharedWeights"], {"InputLayer": "In"}, "SharedWeights.SourceInputLayer: is missing"),
        (["Layers", 1, "SharedWeights"], ["In"], "legal: an object {...} or an array of them"),
        (["Layers", 1, "Kernel"], [1, 2, 3, 4], "legal: a whole number from 1, an array of 1 to 3"),
        (["Layers", 1, "KernelStride"], [2, 2], "has more numbers than Kernel, legal: 1 of them"),
        (["Layers", 1, "pDropout"], 1, "1 is not legal, legal: a number in [0, 1)"),
        (["Layers", 1, "WeightNorm"], -1, "-1 is not legal, legal: a number from 0"),
        (["Layers", 1, "SparsenessPenalty"], True, "an object"),
        (["Layers", 1, "N"], [2**16, 2**16], "makes 4294967296 units"),
        (["Layers", 1, "N"], [1, 2, 3, 4, 5], "an array of 1 to 4"),
        (["Layers", 1, "Name"], "a\0b", "a string without control characters"),
        (["Layers", 1, "Name"], "\ud800", "a string without control characters"),
        (["Layers", 1, "Name"], "$name", "give the hyperparameter"),
        (["Decay"], 10**400, "a number from 0"),
        (["Decay"], float("nan"), "a number from 0"),
        (["LRN"], {"n": 1.5}, "LRN.n: 1.5 is not legal, legal: a whole number from 1"),
        (["DataScaledMarginalCrossEntropy"], {}, "means the same as ScaledMarginalCrossEntropy, which is given too"),
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


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        (["Layers", 1, "ELUAlpha"], [0, 3e38], [-0.1, 4e38]),
        (["Layers", 1, "Slope"], [0, 1], [-0.1, 1.1]),
        (["Layers", 1, "SELULambda"], [0, 0.5], [-0.1]),
        (["Layers", 1, "pDropout"], [0, 0.999], [-0.1, 1]),
        (["Layers", 1, "WeightNorm"], [0, 0.5], [-0.1]),
        (["Layers", 1, "DeltaNorm"], [0, 0.5], [-0.1]),
        (["Layers", 1, "WeightInit", "Scale"], [-1, 0], ["1"]),
        (["Layers", 1, "SparsenessPenalty"], [{"p": 0, "beta": 0}, {"p": 1, "beta": 9}], [{"p": 1.1}, {"beta": -1}]),
        (["Layers", 1, "N"], [1, [1, 2, 3, 4], [2**16, 2**14]], [0, [1] * 5, [2**16, 2**15]]),
        (["Denoising", "p"], [0, 0.999], [-0.1, 1]),
        (["Decay"], [0, 2], [-0.1]),
        (["ELUAlpha"], [0, 2], [-0.1]),
        (["SELULambda"], [0, 2], [-0.1]),
        (["Slope"], [0, 1], [-0.1, 1.1]),
        (["Maxout"], [{"k": 1}], [{"k": 0}]),
        (["LRN"], [{"n": 1, "k": 0, "alpha": -1, "beta": 0}], [{"n": 0}, {"k": "0"}]),
        (["DeltaBoost"], [{"one": 0, "zero": 0}], [{"one": -1}, {"zero": -1}]),
        (["ScaledMarginalCrossEntropy", "zeroTarget"], [0, 1], [-0.1, 1.1]),
        (["ScaledMarginalCrossEntropy", "zeroScale"], [0, 2], [-0.1]),
        (["Version"], [0.8, 1], [0.6]),
    ],
)
def test_bounds(path, good, bad):
    for value in good:
        parse_network(changed(path, value), "n")
    for value in bad:
        [problem] = problems_of(changed(path, value))  # once, and at its own place
        assert problem.removeprefix("network.json: ").startswith(
            "Layers[1]" if len(path) > 1 and path[0] == "Layers" else path[0]
        )


def test_what_a_file_leaves_out_is_as_in_dsstne(tmp_path):
    path = tmp_path / "n.json"
    path.write_text(json.dumps(GOOD | {"LRN": {}, "Maxout": {}}))
    spec = read_network(path, {})
    assert (spec.local_response, spec.maxout) == (LocalResponse(2, 5, 0.0001, 0.75), 2)
    assert (spec.boost, spec.sparseness, spec.decay, spec.compat) == (Boost(1, 1), Sparseness(0, 0), 0, False)
    assert not parse_network(GOOD, "n").compat


def test_slope_has_two_names():
    raw = changed(["Layers", 1, "Slope"], 0.5)
    raw["Layers"][1]["RELUSlope"] = 0.5
    assert problems_of(raw) == [
        "network.json: Layers[1].RELUSlope: means the same as Slope, which is given too, legal: one of them"
    ]


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
    for text in ("[" * 100_000, "[" * 900 + "]" * 900, "9" * 100_000):
        path.write_text(text)
        with pytest.raises(SpecError):
            read_json(path)


def test_a_file_with_hyperparameters_in_one_step(tmp_path):
    path = tmp_path / "network.json"
    path.write_text(json.dumps(changed(["Layers", 1, "N"], "$hidden")))
    spec = read_network(path, {"hidden": 7}, compat=True)
    assert (spec.layers[1].units, spec.compat) == (7, True)
    with pytest.raises(SpecError, match=r'network.json: Layers\[1\].N: "\$hidden" has no value'):
        read_network(path, {})


PLAIN_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.deferred(
    lambda: PLAIN_VALUES | st.lists(VALUES, max_size=3) | st.dictionaries(st.text(max_size=8), VALUES, max_size=3)
)


NAMES = st.sampled_from(["In", "Hidden1", "Output", "other"])
LIKELY = st.one_of(
    VALUES,
    NAMES,
    st.lists(NAMES, max_size=3),
    st.sampled_from([kind.value for kind in (*LayerKind, *LayerType, *Activation, *ErrorFunction, *PoolingFunction)]),
    st.dictionaries(st.sampled_from(["p", "beta", "k", "n", "Scheme", "Scale"]), VALUES, max_size=3),
    st.fixed_dictionaries({"InputLayer": NAMES, "SourceInputLayer": NAMES, "SourceOutputLayer": NAMES}),
)
NETWORK_CHANGES = st.dictionaries(st.sampled_from([*NETWORK_KEYS, *ALIASES]), LIKELY, max_size=3)
LAYER_CHANGES = st.dictionaries(st.sampled_from(sorted(ALL_KEYS)), LIKELY, max_size=4)


@given(NETWORK_CHANGES, st.lists(LAYER_CHANGES, max_size=4), VALUES)
def test_any_value_anywhere_parses_or_is_a_spec_error(network, layers, other):
    changed_layers = [a | b for a, b in zip(GOOD["Layers"], layers, strict=False)]
    rest = GOOD["Layers"][len(layers) :]
    for raw in (
        GOOD | network,
        GOOD | {"Layers": [*changed_layers, *rest]},
        GOOD | {"Layers": [*layers, other]},
        other,
    ):
        try:
            spec = parse_network(raw, "network.json")
            assert len(order(spec)) == len(spec.layers)
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
        ("MAP@10", ("map", 10), "map@10"),
        ("mrr@5", ("mrr", 5), "mrr@5"),
        ("Loss", ("loss", None), "loss"),
    ],
)
def test_metrics(name, meaning, key):
    assert parse_metric(name) == meaning
    assert canonical_metric(name) == canonical_metric(key) == key


@pytest.mark.parametrize("name", ["ndgc@20", "p@0", "p@", "p", "loss@3", "p@-1", "", "mrr", "auc@10", "p@1e3"])
def test_bad_metrics(name):
    with pytest.raises(ValueError, match="legal: p@K, recall@K"):
        parse_metric(name)
    with pytest.raises(ValueError, match="legal: p@K, recall@K"):
        canonical_metric(name)


def test_keys_that_come_twice_are_told_with_their_place(tmp_path):
    path = tmp_path / "n.json"
    path.write_text(
        '{"Decay": 1, "Layers": [{"N": 1}, {"N": 1, "N": 2, "WeightInit": {"Bias": 0, "Bias": 0}}], "Decay": 2}'
    )
    with pytest.raises(SpecError) as caught:
        read_json(path)
    assert sorted(str(caught.value).splitlines()) == [
        f"{path}: Decay: comes more than once, legal: once",
        f"{path}: Layers[1].N: comes more than once, legal: once",
        f"{path}: Layers[1].WeightInit.Bias: comes more than once, legal: once",
    ]
    path.write_text('{"Maxout": {"k": 1, "k": 2}, "Maxout": {"k": 1}}')
    with pytest.raises(SpecError, match=f"^{re.escape(str(path))}: Maxout: comes more than once, legal: once$"):
        read_json(path)


def test_hyperparameters_that_are_used_nowhere():
    raw = {**GOOD, "Decay": "$decay"}
    assert network_of(raw, "n", {"decay": 0.5}, {"decay": 0.1, "epochs": 3}).decay == 0.5
    assert network_of(raw, "n", {}, {"decay": 0.1}).decay == 0.1
    with pytest.raises(SpecError, match="n: hyperparameter 'x' is used nowhere, legal: "):
        network_of(raw, "n", {"decay": 0.5, "x": 1})
    with pytest.raises(SpecError, match="'y' is used nowhere, legal: z"):
        network_of(raw, "n", {"decay": 0.5, "x": 1, "y": 2}, legal=lambda name: "" if name == "x" else "z")


def test_the_lambda_of_selu_is_that_of_its_authors():
    """Klambauer et al. (2017): 1.0507, so that mean and variance stay from layer to layer."""
    layer = {"Activation": "SELU", "N": 2}
    [_, left_out, _] = parse_network(changed(["Layers", 1], layer), "n").layers
    assert left_out.selu_lambda == pytest.approx(1.0507009873554805, abs=1e-6)
    [_, of_network, _] = parse_network(changed(["Layers", 1], layer) | {"SELULambda": 3}, "n").layers
    assert of_network.selu_lambda == 3


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("ndgc@5", ', loss, did you mean "ndcg"?'),
        ("precison@5", ', loss, did you mean "precision"?'),
        ("ndcg@0", ", loss"),  # the name is right
        ("recall", ", loss"),
        ("map@1000000", ", loss"),
        ("mrr@05", ", loss"),
        ("loss@3", ', loss, did you mean "loss"?'),  # which takes no K
    ],
)
def test_only_a_metric_whose_name_is_wrong_is_told_a_nearer_one(name, end):
    with pytest.raises(ValueError, match="is not legal, legal: p@K, recall@K") as caught:
        parse_metric(name)
    assert str(caught.value).endswith(end)
