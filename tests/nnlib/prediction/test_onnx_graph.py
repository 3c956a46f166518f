"""ONNX graphs say what our own models say: ONNX Runtime is asked about the same histories."""

from __future__ import annotations

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
from nnlib.spec.types import Activation
from tests.nnlib.families.made_up import drawn, everybody, from_last

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

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


def write_onnx(*arguments):
    from nnlib.prediction.onnx_graph import write_onnx as write

    return write(*arguments)


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


@pytest.mark.parametrize(("recipe", "names"), [
    (Recipe("ials", {"dims": 4, "sweeps": 1}), "ials"),
    (Recipe("blend", members=(Recipe("ease"), Recipe("ials", {"dims": 4, "sweeps": 1})), weights=(1.0, 1.0)), "ials"),
])  # fmt: skip
def test_what_is_no_product_is_refused(tmp_path, recipe, names):
    write_recipe_model(tmp_path / "model.nc", fit_recipe(recipe, drawn()))
    with pytest.raises(NnlibError, match=rf"{names}: scores are no product .* legal: ease, knn, elsa, graph"):
        write_onnx(tmp_path / "model.nc", "North", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


NETWORK = {
    "Version": 0.8, "Name": "small", "Kind": "FeedForward", "ErrorFunction": "ScaledMarginalCrossEntropy",
    "Layers": [
        {"Name": "In", "Kind": "Input", "N": 24, "DataSet": "input", "Sparse": True},
        {"Name": "A", "Kind": "Hidden", "N": 7, "Activation": "Tanh"},
        {"Name": "B", "Kind": "Hidden", "N": 5, "Activation": "Relu", "Source": ["A", "In"]},
        {"Name": "Out", "Kind": "Output", "N": 24, "DataSet": "output", "Activation": "Sigmoid"},
    ],
}  # fmt: skip


def write_network(path, activation):
    """Write a network whose second hidden layer, with two sources, has that activation; return it."""
    layers = [layer | ({"Activation": activation} if layer["Name"] == "B" else {}) for layer in NETWORK["Layers"]]
    network = create(parse_network(NETWORK | {"Layers": layers}, "small"), np.random.default_rng(1))
    for bias in network.biases:
        bias[:] = np.random.default_rng(2).standard_normal(len(bias))
    write_model(path, Model(network, {}))
    return network


@pytest.mark.parametrize("activation", [one.value for one in Activation if one.value not in ("RELUMax", "LinearMax")])
def test_networks(tmp_path, activation):
    network = write_network(tmp_path / "model.nc", activation)
    facts = write_onnx(tmp_path / "model.nc", "", tmp_path / "model.onnx")
    assert facts.half_lives == {"history": None} and facts.items[3] == "3"
    histories = np.random.default_rng(3).random((9, 24)).astype(np.float32)
    wanted = Forward(network).activations({0: sparse.csr_array(histories)}, 3)
    np.testing.assert_allclose(ask(tmp_path / "model.onnx", {"history": histories}), wanted, rtol=1e-4, atol=1e-6)


def test_networks_of_which_there_is_no_graph(tmp_path):
    write_network(tmp_path / "model.nc", "RELUMax")
    with pytest.raises(NnlibError, match="layer B: RELUMax: ONNX has no such activation"):
        write_onnx(tmp_path / "model.nc", "", tmp_path / "model.onnx")
