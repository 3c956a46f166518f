"""Hostile networks, as JSON and as ONNX."""

from __future__ import annotations

import copy
import json
from pathlib import Path

from tests.hostile.data_files import prepare  # noqa: F401
from tests.hostile.inputs import STEERING, Input, Write, content, link, sparse
from tests.workflows.conftest import NETWORK

T = "nnlib train n.json d.nc --epochs 1 --out m.nc"
S = "nnlib inspect n.json --data d.nc"
ONNX = "nnlib import-onnx b.onnx --out b.nc"


def network(**changes) -> Write:
    """Write the honest network with other values; those of `Layers` are by number and key."""
    made = json.loads(json.dumps(NETWORK).replace('"$hidden"', "4"))
    layers = changes.pop("Layers", {})
    if callable(layers):
        made["Layers"] = layers(made["Layers"])
    else:
        for (number, key), value in layers.items():
            made["Layers"][number][key] = value
    return content("n.json", json.dumps({**made, **changes}))


def raw(old: str, new: str) -> Write:
    text = json.dumps(NETWORK).replace('"$hidden"', "4")
    assert old in text
    return content("n.json", text.replace(old, new, 1))


def chain(count: int):
    def layers(given):
        middle = [{**given[1], "Name": f"H{n}", "N": 2} for n in range(count)]
        return [given[0], *middle, given[2]]

    return layers


def onnx(change) -> Write:
    """Write a small graph, changed."""

    def leave(place: Path) -> None:
        from tests.nnlib.onnx_files.test_hostile import small_body

        small, out = small_body()
        model = small.model(out)
        change(model)
        (place / "b.onnx").write_bytes(model.SerializeToString())

    return leave


def outside(location: str):
    from onnx import TensorProto

    def change(model):
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    return change


def huge_dims(model):
    model.graph.initializer[0].dims[0] = 1 << 62


def negative_dims(model):
    model.graph.initializer[0].dims[0] = -3


def cyclic(model):
    first, last = model.graph.node[0], model.graph.node[-1]
    first.input[0] = last.output[0]


def many_nodes(model):
    one = model.graph.node[1]
    for number in range(30_000):
        node = copy.deepcopy(one)
        node.output[0] = f"o{number}"
        node.input[0] = f"o{number - 1}" if number else one.output[0]
        model.graph.node.append(node)


def steering(model):
    model.graph.node[0].op_type = STEERING


JSONS = (
    Input("a network of nothing", content("n.json", ""), T, "n.json", 4),
    Input("a network of zero bytes", content("n.json", bytes(10_000)), T, "n.json", 4),
    Input("a network of no UTF-8", content("n.json", b"\xff\xfe{}"), T, "n.json", 4),
    Input("a network of brackets", content("n.json", "[" * 1_000_000), T, "n.json", 4),
    Input("a network of objects", content("n.json", '{"a":' * 200_000), T, "n.json", 4),
    Input("a network that is a list", content("n.json", "[1, 2]"), T, "n.json", 4),
    Input("a network of a terabyte", sparse("n.json", 1 << 40, b"{"), T, "n.json", 4),
    Input("a network of zeros without end", link("n.json", "/dev/zero"), T, "n.json", 4),
    Input("a comment that never ends", content("n.json", "/*" * 500_000), T, "n.json", 4),
    Input("a text that never ends", content("n.json", '{"Name": "' + "\\\\" * 500_000), T, "n.json", 4),
    Input("a number of a million digits in JSON", raw('"N": 4', '"N": ' + "9" * 1_000_000), T, "n.json", 4),
    Input("a width of 10^18", network(Layers={(1, "N"): 10**18}), T, "N", 4),
    Input("a width of 2^31", network(Layers={(1, "N"): 2**31 - 1}), T, ".", (4, 75)),
    Input("a width below zero", network(Layers={(1, "N"): -4}), T, "N", 4),
    Input("half a unit", network(Layers={(1, "N"): 4.5}), T, "N", 4),
    Input("a width of NaN", raw('"N": 4', '"N": NaN'), T, "N", 4),
    Input("a width of infinity", raw('"N": 4', '"N": Infinity'), T, "N", 4),
    Input("a dropout of NaN", raw('"N": 4', '"N": 4, "pDropout": NaN'), T, "Dropout", 4),
    Input("a rate beyond all", raw('"N": 4', '"N": 4, "WeightNorm": 1e999'), T, "WeightNorm", 4),
    Input("a version of code", network(Version="__import__('os')"), T, "Version", 4),
    Input("layers that are none", network(Layers=lambda _: 7), T, "Layers", 4),
    Input("layers of nothing", network(Layers=lambda _: []), T, "Layers", 4),
    Input("a layer of itself", network(Layers={(1, "Source"): "Hidden"}), T, "Hidden", 4),
    Input(
        "layers in a circle",
        network(
            Layers=lambda given: [
                given[0],
                {**given[1], "Source": "B"},
                {**given[1], "Name": "B", "Source": "Hidden"},
                given[2],
            ]
        ),
        T,
        "B|Hidden",
        4,
    ),
    Input("a source that is not", network(Layers={(1, "Source"): STEERING}), T, "Source", 4),
    Input("a layer twice", network(Layers=lambda given: [given[0], given[1], given[1], given[2]]), T, "Hidden", 4),
    Input("a network that steers", network(Layers={(1, "Name"): STEERING}), T, ".", (0, 4), ("m.nc",)),
    Input("a layer of a path", network(Layers={(1, "Name"): "../../owned"}), T, ".", (0, 4), ("m.nc",)),
    Input("a layer of 100 kB", network(Layers={(1, "Name"): "x" * 100_000}), T, ".", (0, 4), ("m.nc",)),
    Input("20,000 layers", network(Layers=chain(20_000)), T, "Layers", 4),
    Input("a key twice in JSON", raw('"Name": "tiny"', '"Name": "a", "Name": "b"'), T, "Name", 4),
    Input("an activation of code", network(Layers={(1, "Activation"): "__import__('os')"}), T, "Activation", 4),
    Input("a data set that is not", network(Layers={(0, "DataSet"): "$(touch owned)"}), T, "DataSet", 4),
    Input("a hyperparameter that nobody gives", network(Layers={(1, "N"): "$" + "x" * 100_000}), T, "x", 4),
    Input("another error of code", network(ErrorFunction=["CrossEntropy"] * 10), T, "ErrorFunction", 4),
    Input("a circle, looked at", network(Layers={(1, "Source"): "Hidden"}), S, "Hidden", 4),
)
GRAPHS = (
    Input("a graph of nothing", content("b.onnx", b""), ONNX, "b.onnx", 4),
    Input("a graph of noise", content("b.onnx", b"\x08\x07" + b"\xff" * 5000), ONNX, "b.onnx", 4),
    Input("a graph of a device", link("b.onnx", "/dev/zero"), ONNX, "b.onnx", 4),
    Input("a graph of a terabyte", sparse("b.onnx", 1 << 40, b"\x08"), ONNX, "b.onnx", 4),
    Input("weights above", onnx(outside("../secret")), ONNX, "b.onnx", 4),
    Input("weights of the machine", onnx(outside("/etc/passwd")), ONNX, "b.onnx", 4),
    Input("weights of 2^62", onnx(huge_dims), ONNX, "b.onnx", 4),
    Input("weights below zero", onnx(negative_dims), ONNX, "b.onnx", 4),
    Input("a graph in a circle", onnx(cyclic), ONNX, "b.onnx", 4),
    Input("30,000 nodes", onnx(many_nodes), ONNX, "b.nc", 0, ("b.nc", "b.json")),
    Input("a node that steers", onnx(steering), ONNX, "b.onnx", 4),
)
NETWORKS = (*JSONS, *GRAPHS)
