import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.spec.json_section import SpecError
from nnlib.spec.network import parse_network
from nnlib.spec.topology import check_topology, order
from nnlib.spec.types import Edge


def kernel(layer_type, n, width, **more):
    return {"Type": layer_type, "N": n, "Kernel": [width, width], "Kind": "Hidden", **more}


def image_layer(n, stride, scheme_bias, **more):
    init = {"Scheme": "Gaussian", "Scale": 0.04, "Bias": scheme_bias}
    return kernel("Convolutional", n, 3, KernelStride=[stride, stride], Activation="Relu", WeightInit=init, **more)


MAX_POOL = {"Kind": "Hidden", "Type": "Pooling", "Function": "Max", "Kernel": [3, 3], "KernelStride": [2, 2]}
LRN = {"Kind": "Hidden", "Type": "Pooling", "Function": "LRN"}
WIDE = {"Kind": "Hidden", "Type": "FullyConnected", "N": 4096, "Activation": "Relu", "pDropout": 0.5}
IMAGES = {"Kind": "Input", "Type": "Convolutional", "N": "auto", "DataSet": "input"}
CLASSES = {"Kind": "Output", "Type": "FullyConnected", "N": "auto", "DataSet": "output", "Activation": "SoftMax"}
ALEXNET = {
    "Version": 0.81,
    "Name": "AlexNet",
    "Kind": "FeedForward",
    "LocalResponseNormalization": {"k": 2, "n": 5, "alpha": 0.0001, "beta": 0.75},
    "Layers": [
        IMAGES,
        kernel("Convolutional", 96, 11, KernelStride=[4, 4], Activation="Relu"),
        LRN,
        MAX_POOL,
        kernel("Convolutional", 256, 5, Activation="Relu"),
        LRN,
        MAX_POOL,
        kernel("Convolutional", 384, 3, Activation="Relu"),
        kernel("Convolutional", 384, 3, Activation="Relu"),
        kernel("Convolutional", 256, 3, Activation="Relu"),
        MAX_POOL,
        WIDE,
        WIDE,
        CLASSES,
    ],
    "ErrorFunction": "CrossEntropy",
}
CIFAR = {
    "Version": 0.81,
    "Name": "CIFAR-100",
    "Kind": "FeedForward",
    "Layers": [
        IMAGES | {"Name": "Input"},
        image_layer(96, 1, 0.0, pDropout=0.2),
        image_layer(96, 1, 0.0),
        image_layer(96, 2, 0.1, pDropout=0.5),
        image_layer(192, 1, 0.0),
        image_layer(192, 1, 0.0),
        image_layer(192, 2, 0.1, pDropout=0.5),
        CLASSES | {"Name": "Output", "WeightInit": {"Scheme": "Gaussian", "Scale": 0.01, "Bias": 0.0}},
    ],
    "ErrorFunction": "CrossEntropy",
}
SPARSE_INPUT = {"Name": "Input", "Kind": "Input", "N": "auto", "DataSet": "input", "Sparse": True}
SPARSE_OUTPUT = {"Name": "Output", "Kind": "Output", "Type": "FullyConnected", "DataSet": "output", "N": "auto"}
SPARSE_OUTPUT |= {"Activation": "Sigmoid", "Sparse": True}
SHALLOW = {"Name": "Hidden", "Kind": "Hidden", "Type": "FullyConnected", "N": 128, "Activation": "Sigmoid"}
DEEP = {"Kind": "Hidden", "Type": "FullyConnected", "N": 1536, "Activation": "Relu", "Sparse": False, "pDropout": 0.37}
DEEP["WeightInit"] = {"Scheme": "Gaussian", "Scale": 0.01}
MARGIN = {"oneTarget": 1.0, "zeroTarget": 0.0, "oneScale": 1.0, "zeroScale": 1.0}
AUTOENCODER = {
    "Version": 0.7,
    "Name": "AE",
    "Kind": "FeedForward",
    "SparsenessPenalty": {"p": 0.5, "beta": 2.0},
    "ShuffleIndices": False,
    "Denoising": {"p": 0.2},
    "ScaledMarginalCrossEntropy": MARGIN,
    "Layers": [SPARSE_INPUT, SHALLOW | {"Sparse": True}, SPARSE_OUTPUT],
    "ErrorFunction": "ScaledMarginalCrossEntropy",
}
MOVIELENS = {
    "Version": 0.8,
    "Name": "AIV NNC",
    "Kind": "FeedForward",
    "ShuffleIndices": False,
    "ScaledMarginalCrossEntropy": MARGIN,
    "Layers": [
        SPARSE_INPUT,
        *(DEEP | {"Name": f"Hidden{n}"} for n in (1, 2, 3)),
        SPARSE_OUTPUT | {"WeightInit": {"Scheme": "Gaussian", "Scale": 0.01, "Bias": -10.2}},
    ],
    "ErrorFunction": "ScaledMarginalCrossEntropy",
}


@pytest.mark.parametrize(("raw", "edges"), [(ALEXNET, 8), (CIFAR, 7), (AUTOENCODER, 2), (MOVIELENS, 4)])
def test_the_networks_that_come_with_dsstne(raw, edges):
    spec = parse_network(raw, "n.json")
    assert order(spec) == tuple(range(len(raw["Layers"])))
    assert len(spec.edges) == edges


def net(*hidden, out=None, **network):
    """Two inputs of 4 units, hidden layers, an output."""
    return {
        "Layers": [
            {"Name": "In", "Kind": "Input", "N": 4, "DataSet": "in"},
            {"Name": "In2", "Kind": "Input", "N": 4, "DataSet": "in2"},
            *hidden,
            {"Name": "Out", "Kind": "Output", "N": 3, "DataSet": "out"} | (out or {}),
        ],
        **network,
    }


def share(source, owner_source, owner_target, transposed=False):
    return {
        "InputLayer": source,
        "SourceInputLayer": owner_source,
        "SourceOutputLayer": owner_target,
        "Transposed": transposed,
    }


def test_sources_may_be_anywhere_and_an_output_may_feed_on():
    hidden = [
        {"Name": "C", "Source": ["D", "Out"], "N": 5},
        {"Name": "D", "Source": "In", "N": 5, "Skip": ["B"]},
        {"Name": "B", "Source": ["In", "In2"], "N": 5},
        {"Name": "Dangling", "Source": "In2"},
    ]
    spec = parse_network(net(*hidden, out={"Source": ["In", "D"]}), "n")
    names = [spec.layers[n].name for n in order(spec)]
    assert names == ["In", "In2", "B", "Dangling", "D", "Out", "C"]


def test_shared_weights_keep_their_owner():
    hidden = [{"Name": "A", "Source": "In", "N": 3}, {"Name": "B", "Source": ["In2", "A"], "N": 4}]
    hidden[1]["SharedWeights"] = [share("A", "In", "A", transposed=True)]
    spec = parse_network(net(*hidden, out={"SharedWeights": share("B", "In", "A")}), "n")
    assert spec.edges == (
        Edge(0, 0, 2, 0),
        Edge(1, 1, 3, 1),
        Edge(2, 2, 3, 0, transposed=True),
        Edge(3, 3, 4, 0),
    )


A = {"Name": "A", "Source": "In", "N": 3}


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (net({"Source": "in"}), 'Layers[2].Source: "in" is not the name of a layer, did you mean "In"?'),
        (
            net({"Skip": "zzz"}),
            'Layers[2].Skip: "zzz" is not the name of a layer, legal: "In", "In2", "Hidden2", "Out"',
        ),
        (
            net({"SharedWeights": share("In2", "In", "Owt")}),
            'Layers[2].SharedWeights[0].SourceOutputLayer: "Owt" is not the name of a layer, did you mean "Out"?',
        ),
        (
            net({"Name": "A", "Source": "B"}, {"Name": "B", "Source": "A"}),
            'Layers[2].Source: the layers feed each other in a circle: "A" <- "B" <- "A"',
        ),
        (
            net({"Name": "B", "Source": "A"}, {"Name": "A", "Skip": "A", "Source": "In"}),
            'Layers[3].Source: the layers feed each other in a circle: "A" <- "A"',
        ),
        (
            net(*({} for _ in range(4)), out={"Source": ["In", "In2", "Hidden2", "Hidden3", "Hidden4"]}),
            "Layers[6].Source: 5 sources, legal in a layer of type FullyConnected: up to 4",
        ),
        (net({"Skip": "In"}), 'Layers[2].Skip: "In" has 4 units, legal: 1, as many as "Hidden2"'),
        (
            net({"Type": "Pooling", "Function": "DotProduct"}),
            "Layers[2].Source: 1 source, legal with Function DotProduct: two or more, of the same size",
        ),
        (
            net(A, {"Type": "Pooling", "Function": "Maxout", "Source": ["In", "A"]}),
            'Layers[3].Source: sources of different sizes: "In" 4, "A" 3, legal with Function Maxout: one size',
        ),
        (
            net(A, {"SharedWeights": share("In2", "In", "A")}),
            'Layers[3].SharedWeights[0].InputLayer: no weights lead from "In2" to "Hidden3", legal: "A"',
        ),
        (
            net(A, {"SharedWeights": share("A", "In2", "A")}),
            'Layers[3].SharedWeights[0]: no weights lead from "In2" to "A", legal: a layer and one of its sources',
        ),
        (
            net(A | {"SharedWeights": share("In", "In", "A")}),
            'Layers[2].SharedWeights[0]: the weights from "In" to "A" cannot be shared with themselves',
        ),
        (
            net(
                A,
                {"Name": "B", "N": 3, "Source": "In", "SharedWeights": share("In", "In", "A")},
                {"N": 3, "Source": "In", "SharedWeights": share("In", "In", "B")},
            ),
            'Layers[4].SharedWeights[0]: the weights from "In" to "B" are shared themselves, legal: their owner, '
            '"In" to "A"',
        ),
        (
            net(A, {"N": 4, "SharedWeights": share("A", "In", "A")}),
            'Layers[3].SharedWeights[0]: the weights from "In" to "A" are 4 x 3, legal: 3 x 4',
        ),
        (
            net(A, {"N": 5, "SharedWeights": share("A", "In", "A", transposed=True)}),
            'Layers[3].SharedWeights[0]: the weights from "In" to "A" are 4 x 3, legal as they are shared transposed: '
            "5 x 3",
        ),
        (
            net(A, {"N": 4, "SharedWeights": [share("A", "In", "A", True), share("A", "In", "A", True)]}),
            'Layers[3].SharedWeights[1].InputLayer: "A" shares weights twice, legal: once',
        ),
        (
            net(out={"Activation": "Tanh"}),
            "Layers[2].Activation: Tanh has no CrossEntropy error, legal with it in an Output layer: Sigmoid, SoftMax",
        ),
        (
            net(out={"Activation": "SoftMax"}, ErrorFunction="DataScaledMarginalCrossEntropy"),
            "Layers[2].Activation: SoftMax has no DataScaledMarginalCrossEntropy error, legal with it in an Output "
            "layer: Sigmoid",
        ),
        ({"Layers": [{"DataSet": "in"}, {"Kind": "Hidden"}]}, "Layers: no layer of kind Output, legal: one or more"),
        ({"Layers": {"DataSet": "in"}}, "Layers: no layer of kind Output, legal: one or more"),
    ],
)
def test_what_cannot_be_is_named(raw, problem):
    with pytest.raises(SpecError) as caught:
        parse_network(raw, "n.json")
    assert caught.value.problems == [f"n.json: {problem}"]


@pytest.mark.parametrize("error", ["L1", "L2", "L2Hinge", "Hinge"])
def test_other_errors_take_any_output(error):
    check_topology(parse_network(net(out={"Activation": "LRelu"}, ErrorFunction=error), "n"), "n")


def test_an_output_that_pools_has_no_activation_with_compat():
    raw = net(out={"Type": "Pooling", "Function": "Sum", "Source": ["In", "Full"], "Activation": "SoftMax"})
    raw["Layers"].insert(2, {"Name": "Full", "N": 4, "Source": "In"})
    del raw["Layers"][-1]["N"]
    assert parse_network(raw, "n")
    with pytest.raises(SpecError) as caught:
        parse_network(raw, "n", compat=True)
    words = (
        "n: Layers[3].Activation: with compat a Pooling layer has none, and Linear has no CrossEntropy error, legal "
        "with it in an Output layer: Sigmoid, SoftMax, of type FullyConnected or Convolutional; or no compat"
    )
    assert set(caught.value.problems) == {words}


def test_a_network_without_weights_has_nothing_to_learn():
    raw = net(out={"Type": "Pooling", "Function": "GlobalAverage", "Source": "In", "Activation": "SoftMax"})
    del raw["Layers"][-1]["N"]
    with pytest.raises(SpecError) as caught:
        parse_network(raw, "n")
    words = "n: Layers: no layer has weights, legal: one or more of type FullyConnected or Convolutional"
    assert caught.value.problems == [words]


def test_a_name_among_thousands():
    with pytest.raises(SpecError, match=r'"Hidden11" and 289 more$'):
        parse_network(net(*({} for _ in range(297)), {"Name": "x", "Source": "zzz"}), "n")


def test_unknown_sizes_are_not_compared():
    hidden = {"N": 7, "Source": "In2", "Skip": "In"}
    raw = net(hidden, out={"N": "auto", "Source": "In2", "SharedWeights": share("In2", "In2", "Hidden2")})
    raw["Layers"][0]["N"] = "auto"
    parse_network(raw, "n")


@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_the_order_puts_every_layer_after_all_it_is_made_of(count, draw):
    assert isinstance(draw, random.Random)
    names = [f"L{n}" for n in range(count)]
    hidden = [
        {"Name": name, "Source": sorted(draw.sample(["In", *names[:n]], min(n + 1, draw.randint(1, 4))))}
        for n, name in enumerate(names)
    ]
    draw.shuffle(hidden)
    spec = parse_network(net(*hidden, out={"Source": names[-1]}), "n")
    place = {number: at for at, number in enumerate(order(spec))}
    assert sorted(place) == list(range(count + 3))
    assert all(place[spec.places[s]] < place[n] for n, layer in enumerate(spec.layers) for s in layer.sources)


def test_more_layers_than_python_calls_within_calls():
    spec = parse_network(net(*({} for _ in range(1990))), "n")
    assert order(spec) == tuple(range(1993))
