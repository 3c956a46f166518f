"""ONNX graphs say what our own models say: ONNX Runtime is asked about the same histories."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from nnlib.contract import Recipe
from nnlib.cpu.forward import Forward
from nnlib.errors import NnlibError
from nnlib.families.fit import fit_recipe
from nnlib.families.model_file import write_recipe_model
from nnlib.model.file import Model, write_model
from nnlib.model.network import create
from nnlib.spec.network import parse_network
from nnlib.spec.sizes import resolve_sizes
from nnlib.spec.types import Activation, LocalResponse
from tests.nnlib.families.made_up import drawn, everybody, from_last

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from nnlib.onnx_files.read import ImportOptions, import_network  # noqa: E402
from nnlib.onnx_files.write import write_network, write_onnx  # noqa: E402
from tests.nnlib.onnx_files import graphs  # noqa: E402
from tests.nnlib.onnx_files.graphs import ours  # noqa: E402

BLEND = Recipe(
    "blend",
    {},
    members=(Recipe("ease"), Recipe("knn"), Recipe("popularity"), Recipe("knn")),
    weights=(1.0, 0.5, 0.25, 0.0),
)
RECIPES = {
    "ease": Recipe("ease", {"l2": 5.0}),
    "ease with own weight and bias": Recipe("ease", {"l2": 5.0, "own_weight": 3.0, "bias": 0.5, "bias_scale": "log"}),
    "knn": Recipe("knn", {"k": 5}),
    "elsa": Recipe("elsa", {"dims": 8, "epochs": 2}),
    "graph": Recipe("graph", {"vectors": 4, "sharpen": 0.5}),
    "popularity": Recipe("popularity"),
    "blend": BLEND,
}


def ask(path, histories):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert {one.name for one in session.get_inputs()} == set(histories)
    [scores] = session.run(["scores"], {name: found.astype(np.float32) for name, found in histories.items()})
    return scores


@pytest.mark.parametrize("region", ["North", "South", "nobody's"])
@pytest.mark.parametrize("name", RECIPES)
def test_recipes(tmp_path, name, region):
    history = drawn(customers=80)
    model = fit_recipe(RECIPES[name], history)
    write_recipe_model(tmp_path / "model.nc", model)
    facts = write_onnx(tmp_path / "model.nc", region, tmp_path / "model.onnx")
    assert facts.items == model.items
    everywhere = np.zeros(history.customers, np.int32)
    asked = type(history)(history.bought, history.items, everywhere, (region,), history.days, history.as_of)
    wanted = model.scores(asked, everybody(asked))
    ages = {name: from_last(asked, half_life or 1e9) for name, half_life in facts.half_lives.items()}
    scores = ask(tmp_path / "model.onnx", ages)
    np.testing.assert_allclose(scores, wanted, rtol=1e-3, atol=1e-5 * np.abs(wanted).max())
    assert (scores.argmax(axis=1) == wanted.argmax(axis=1)).mean() > 0.95  # equal ones may change places


def test_logistic_regression_takes_its_inputs(tmp_path):
    history = drawn(customers=80)
    model = fit_recipe(Recipe("logistic", {"l2": 0.1}), history)
    write_recipe_model(tmp_path / "model.nc", model)
    facts = write_onnx(tmp_path / "model.nc", "North", tmp_path / "model.onnx")
    assert (facts.items, facts.half_lives) == (model.items, {})
    assert (facts.inputs, facts.outputs) == ({"inputs": ("batch", 40)}, {"scores": ("batch", 24)})
    scores = ask(tmp_path / "model.onnx", {"inputs": history.inputs.floats(as_input=True)})
    np.testing.assert_allclose(scores, model.scores(history, everybody(history)), rtol=1e-4, atol=1e-6)
    assert scores.max() > 0.2  # nothing that is alike for all


@pytest.mark.parametrize(("recipe", "names"), [
    (Recipe("blend", members=(Recipe("ease"), Recipe("logistic")), weights=(1.0, 1.0)), "logistic"),
    (Recipe("ials", {"dims": 4, "sweeps": 1}), "ials"),
    (Recipe("blend", members=(Recipe("ease"), Recipe("ials", {"dims": 4, "sweeps": 1})), weights=(1.0, 1.0)), "ials"),
])  # fmt: skip
def test_what_is_no_product_is_refused(tmp_path, recipe, names):
    write_recipe_model(tmp_path / "model.nc", fit_recipe(recipe, drawn()))
    with pytest.raises(NnlibError, match=rf"{names}: scores are no product .* legal: ease, knn, elsa, graph"):
        write_onnx(tmp_path / "model.nc", "North", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


NETWORK = {
    "Version": 0.8,
    "Name": "small",
    "Kind": "FeedForward",
    "ErrorFunction": "ScaledMarginalCrossEntropy",
    "Layers": [
        {"Name": "In", "Kind": "Input", "N": 24, "DataSet": "input", "Sparse": True},
        {"Name": "A", "Kind": "Hidden", "N": 7, "Activation": "Tanh"},
        {"Name": "B", "Kind": "Hidden", "N": 5, "Activation": "Relu", "Source": ["A", "In"]},
        {"Name": "Out", "Kind": "Output", "N": 24, "DataSet": "output", "Activation": "Sigmoid"},
    ],
}


def write_dense(path, activation):
    """Write a network whose second hidden layer, with two sources, has that activation; return it."""
    layers = [layer | ({"Activation": activation} if layer["Name"] == "B" else {}) for layer in NETWORK["Layers"]]
    network = create(parse_network(NETWORK | {"Layers": layers}, "small"), np.random.default_rng(1))
    for bias in network.biases:
        bias[:] = np.random.default_rng(2).standard_normal(len(bias))
    write_model(path, Model(network, {}))
    return network


@pytest.mark.parametrize("activation", [one.value for one in Activation if one.value not in ("RELUMax", "LinearMax")])
def test_networks(tmp_path, activation):
    network = write_dense(tmp_path / "model.nc", activation)
    facts = write_onnx(tmp_path / "model.nc", "", tmp_path / "model.onnx")
    assert facts.half_lives == {"history": None} and facts.items[3] == "3"
    histories = np.random.default_rng(3).random((9, 24)).astype(np.float32)
    wanted = Forward(network).activations({0: sparse.csr_array(histories)}, 3)
    np.testing.assert_allclose(ask(tmp_path / "model.onnx", {"history": histories}), wanted, rtol=1e-4, atol=1e-6)


def test_networks_of_which_there_is_no_graph(tmp_path):
    write_dense(tmp_path / "model.nc", "RELUMax")
    with pytest.raises(NnlibError, match="layer B: RELUMax: ONNX has no such activation"):
        write_onnx(tmp_path / "model.nc", "", tmp_path / "model.onnx")


def layer(name, type_="FullyConnected", kind="Hidden", **more):
    return {"Name": name, "Kind": kind, "Type": type_, "Activation": "Relu", **more}


IMAGE = {"Name": "In", "Kind": "Input", "N": [7, 6, 3], "DataSet": "input"}
OUT = layer("Out", kind="Output", N=4, DataSet="output", Activation="SoftMax")
CONVOLUTION = layer("C", "Convolutional", N=4, Kernel=[3, 3], Padding=1)


def out_of(*sources, **more):
    return {**OUT, "Source": list(sources), **more}


NETWORKS = {
    "convolution as in DSSTNE": [IMAGE, layer("C", "Convolutional", N=5, Kernel=[3, 4]), OUT],
    "stride as in DSSTNE": [IMAGE, layer("C", "Convolutional", N=5, Kernel=[3, 3], KernelStride=[2, 2]), OUT],
    "kernel as large as the maps": [IMAGE, layer("C", "Convolutional", N=5, Kernel=[9, 6]), OUT],
    "padding, dilation, groups": [
        IMAGE,
        layer("C", "Convolutional", N=6, Kernel=[3, 2], Padding=[[1, 2], 0], Dilation=[2, 1], Groups=3),
        OUT,
    ],
    "one size": [{**IMAGE, "N": [9, 2]}, layer("C", "Convolutional", N=3, Kernel=3, Padding=1), OUT],
    "three sizes": [{**IMAGE, "N": [4, 5, 3, 2]}, layer("C", "Convolutional", N=3, Kernel=[2, 2, 2], Padding=0), OUT],
    "batch normalization": [
        IMAGE,
        {**CONVOLUTION, "BatchNormalization": True},
        layer("H", N=5, BatchNormalization=True),
        OUT,
    ],
    "pooling": [
        IMAGE,
        CONVOLUTION,
        layer("M", "Pooling", Function="Max", Kernel=[2, 2], KernelStride=[2, 2], Activation="Linear"),
        layer("A", "Pooling", Function="Average", Kernel=[3, 3], KernelStride=[1, 1], Activation="Tanh"),
        OUT,
    ],
    "global": [
        IMAGE,
        CONVOLUTION,
        layer("M", "Pooling", Function="GlobalMax", Source="C"),
        layer("A", "Pooling", Function="GlobalAverage", Source="C"),
        layer("B", "Pooling", Function="Concatenate", Source=["M", "A"]),
        out_of("B"),
    ],
    "response": [IMAGE, CONVOLUTION, layer("L", "Pooling", Function="LRN", Activation="Linear"), OUT],
    "response of one size": [
        {**IMAGE, "N": [9, 2]},
        layer("C", "Convolutional", N=4, Kernel=3, Padding=1),
        layer("L", "Pooling", Function="LRN", Activation="Linear"),
        OUT,
    ],
    "response of three sizes": [
        {**IMAGE, "N": [4, 5, 3, 2]},
        layer("C", "Convolutional", N=4, Kernel=[2, 2, 2], Padding=0),
        layer("L", "Pooling", Function="LRN", Activation="Linear"),
        OUT,
    ],
    "pooling without maps": [
        IMAGE,
        layer("H", N=7),
        layer("L", "Pooling", Function="LRN", Activation="Linear"),
        layer("M", "Pooling", Function="GlobalMax", Activation="Linear"),
        layer("A", "Pooling", Function="GlobalAverage", Activation="Tanh"),
        OUT,
    ],
    "sum, product, skip": [
        IMAGE,
        CONVOLUTION,
        layer("D", "Convolutional", N=4, Kernel=[1, 1], Padding=0, Source="In", Skip="C"),
        layer("S", "Pooling", Function="Sum", Source=["C", "D"], BatchNormalization=True, Activation="Sigmoid"),
        layer("G", "Pooling", Function="GlobalAverage", Source="S", Activation="Linear"),
        layer("P", "Pooling", Function="Product", Source=["G", "S"], Activation="Linear"),
        layer("X", "Pooling", Function="Maxout", Source=["P", "C"], Activation="Linear"),
        out_of("X"),
    ],
    "concatenate": [
        IMAGE,
        CONVOLUTION,
        layer("K", "Pooling", Function="Concatenate", Source=["In", "C"], Activation="Linear"),
        out_of("K"),
    ],
    "compare": [
        IMAGE,
        layer("A", N=5, Source="In"),
        layer("B", N=5, Source="In"),
        layer("C", N=5, Source="In"),
        layer("D", "Pooling", Function="DotProduct", Source=["A", "B", "C"], Activation="Linear"),
        layer("E", "Pooling", Function="Cosine", Source=["A", "B"], Activation="Linear"),
        out_of("D", "E"),
    ],
    "shared kernels": [
        IMAGE,
        layer("C", "Convolutional", N=3, Kernel=[3, 3], Padding=1),
        layer(
            "D",
            "Convolutional",
            N=3,
            Kernel=[3, 3],
            Padding=1,
            SharedWeights={"InputLayer": "C", "SourceInputLayer": "In", "SourceOutputLayer": "C"},
        ),
        OUT,
    ],
    "weights turned around": [
        IMAGE,
        layer("A", N=5, Source="In"),
        layer("B", N=6, Source="A"),
        layer(
            "C",
            N=5,
            Source="B",
            SharedWeights={"InputLayer": "B", "SourceInputLayer": "A", "SourceOutputLayer": "B", "Transposed": True},
        ),
        out_of("C"),
    ],
    "several ends": [
        IMAGE,
        {"Name": "In2", "Kind": "Input", "N": 5, "DataSet": "other"},
        {**CONVOLUTION, "Source": "In"},
        layer("H", N=4, Source=["C", "In2"]),
        out_of("H"),
        layer(
            "Maps", "Convolutional", kind="Output", N=2, Kernel=[3, 3], Source="C", DataSet="maps", Activation="Sigmoid"
        ),
    ],
    "SoftMax of maps": [IMAGE, {**CONVOLUTION, "Activation": "SoftMax"}, OUT],
    "Relu6 and its like": [
        IMAGE,
        {**CONVOLUTION, "Activation": "Relu6"},
        layer("H", N=5, Activation="LRelu"),
        layer("I", N=5, Activation="ELU", ELUAlpha=0.5),
        OUT,
    ],
}


def made(layers):
    """Return a network of drawn numbers, those of its normalizations too."""
    spec = resolve_sizes(parse_network({"Layers": layers}, "made"), "made")
    network = create(spec, np.random.default_rng(3))
    random = np.random.default_rng(4)
    for name, values in network.arrays():
        if not name.startswith("weights"):
            values[...] = np.abs(random.standard_normal(values.shape)) + 0.3 * name.endswith("variance")
    return network


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_maps(tmp_path, name):
    network = made(NETWORKS[name])
    write_model(tmp_path / "model.nc", Model(network, {}))
    facts = write_onnx(tmp_path / "model.nc", "", tmp_path / "model.onnx")
    random = np.random.default_rng(6)
    inputs = [random.standard_normal((3, *shape[1:])).astype(np.float32) for shape in facts.inputs.values()]
    for one, other in zip(ours(network, inputs), graphs.ask(tmp_path / "model.onnx", inputs), strict=True):
        np.testing.assert_allclose(other.reshape(one.shape), one, rtol=1e-4, atol=1e-6)
    assert facts.half_lives == {} and next(iter(facts.outputs)) == "Out"


def test_a_response_over_an_even_number(tmp_path):
    layers = [IMAGE, CONVOLUTION, layer("L", "Pooling", Function="LRN", Activation="Linear"), OUT]
    spec = replace(made(layers).spec, local_response=LocalResponse(n=4))
    with pytest.raises(NnlibError, match="layer L: LRN over 4 maps, legal in ONNX: an odd number"):
        write_network(Model(create(spec, np.random.default_rng(3))), tmp_path / "model.onnx")


def test_a_network_of_ours_comes_back(tmp_path):
    network = made(NETWORKS["sum, product, skip"])
    write_network(Model(network, {2: ()}), tmp_path / "model.onnx")
    again = import_network(tmp_path / "model.onnx", ImportOptions()).network
    x = [np.random.default_rng(6).standard_normal((3, 3, 6, 7)).astype(np.float32)]
    np.testing.assert_allclose(ours(again, x)[0], ours(network, x)[0], rtol=1e-5, atol=1e-6)
    assert set(network.spec.places) <= set(again.spec.places)  # a skip becomes a sum of its own


def test_names_of_classes_travel(tmp_path):
    network = made([IMAGE, CONVOLUTION, OUT])
    write_model(tmp_path / "model.nc", Model(network, {2: ("cat", "dog", "owl", "Käuzchen")}))
    facts = write_onnx(tmp_path / "model.nc", "", tmp_path / "model.onnx")
    assert facts.items == ("cat", "dog", "owl", "Käuzchen")
    kept = runtime.InferenceSession(str(tmp_path / "model.onnx")).get_modelmeta().custom_metadata_map
    assert json.loads(kept["units"]) == list(facts.items)


def test_layers_may_have_the_names_that_nodes_have(tmp_path):
    layers = [{**IMAGE, "Name": "w0"}, {**CONVOLUTION, "Name": "n1"}, {**OUT, "Name": "n0"}]
    write_network(Model(made(layers)), tmp_path / "model.onnx")
    assert graphs.ask(tmp_path / "model.onnx", [np.zeros((1, 3, 6, 7), np.float32)])[0].shape == (1, 4)
