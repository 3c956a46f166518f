"""Files that nobody wrote for us: torn, turned around, too large, or reaching out of their folder. Each is an error."""

from __future__ import annotations

from time import perf_counter

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from nnlib.errors import DataError
from nnlib.onnx_files import library, load, parts
from nnlib.onnx_files.folding import FOLDED
from nnlib.onnx_files.operators import OPERATORS
from nnlib.onnx_files.read import ImportOptions, import_network
from tests.nnlib.onnx_files.graphs import Small

FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def small_body():
    small = Small((2, 6, 6))
    x = small.add("Relu", small.norm(small.conv("x", 2, 3, 3, 3), 3))
    x = small.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return small, small.head(x, 12)


def read(path, **options):
    """Import; whatever is wrong has to be said as a DataError that names the file."""
    try:
        return import_network(path, ImportOptions(**options))
    except DataError as error:
        assert str(path) in str(error)
        return None


@FEW
@given(st.data())
def test_bytes_that_were_changed(tmp_path, data):
    small, out = small_body()
    content = bytearray(small.model(out).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "torn.onnx"
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    with np.errstate(all="ignore"):
        read(path)


NUMBERS = st.one_of(st.integers(-3, 5), st.sampled_from([2**31, 2**62, -(2**63)]))
ATTRIBUTES = st.one_of(NUMBERS, st.lists(NUMBERS, min_size=1, max_size=5), st.floats(), st.text(max_size=3))
CONSTANT = ("value", "value_float", "value_floats", "value_int", "value_ints", "start", "end")
KNOWN = sorted({name for one in OPERATORS.values() for name in one.attributes})


@FEW
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted({*OPERATORS, *FOLDED, "Constant", "Shape"})),
            st.lists(st.sampled_from(["x", "y0", "y1", "y2", "y3", "scalar", "axes", "row", "", "nobody"]), max_size=4),
            st.dictionaries(st.sampled_from([*KNOWN, *CONSTANT]), ATTRIBUTES, max_size=2),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_graphs_that_make_no_sense(tmp_path, nodes):
    small = Small((2, 4, 3))
    small.array(0.5, "scalar")
    small.array([0, 2, 3, -1], "axes", np.int64)
    small.array([0.5, 2.0], "row")
    small.conv("x", 2, 2, 1, 1)
    for number, (operator, inputs, attributes) in enumerate(nodes):
        own = OPERATORS[operator].attributes if operator in OPERATORS else (*KNOWN, *CONSTANT)
        legal = {name: value for name, value in attributes.items() if name in own}
        small.nodes.append(helper.make_node(operator, inputs, [f"y{number}"], **legal))
    path = small.save(tmp_path / "odd.onnx", f"y{len(nodes) - 1}")
    with np.errstate(all="ignore"):
        read(path)


def changed(tmp_path, change, **options):
    """Return what is said of a graph after a change of its message."""
    small, out = small_body()
    model = small.model(out)
    change(model)
    path = tmp_path / "small.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(DataError) as caught:
        import_network(path, ImportOptions(**options))
    assert str(path) in str(caught.value)
    return str(caught.value)


def external(location, **more):
    def change(model: ModelProto):
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            tensor.external_data.add(key=key, value=value)

    return change


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "a/../../secret", "", ".", "link"])
def test_weights_outside_of_the_folder(tmp_path, location):
    (tmp_path / "secret").write_bytes(bytes(1000))
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path / "secret")
    assert "legal: a file in the folder of the model" in changed(inside, external(location))


def test_weights_in_another_file(tmp_path):
    small, out = small_body()
    path = small.save(tmp_path / "small.onnx", out, save_as_external_data=True, location="small.data", size_threshold=0)
    whole = import_network(path, ImportOptions()).network
    direct = import_network(small.save(tmp_path / "direct.onnx", out), ImportOptions()).network
    for (_, one), (_, other) in zip(whole.arrays(), direct.arrays(), strict=True):
        np.testing.assert_array_equal(one, other)
    (tmp_path / "small.data").write_bytes(bytes(8))
    assert read(path) is None


@pytest.mark.parametrize("facts", [{"offset": "-4"}, {"offset": "9" * 30}, {"length": "8"}, {"offset": "10"}])
def test_places_in_another_file_that_are_not(tmp_path, facts):
    (tmp_path / "data").write_bytes(bytes(216))
    said = changed(tmp_path, external("data", **facts))
    assert "external data at" in said or "too short" in said


def test_a_length_of_ever_so_many_digits(tmp_path):
    assert "external data at" in changed(tmp_path, external("data", length="9" * 5000))


def test_a_link_to_itself(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    said = changed(tmp_path, external("loop"))
    assert "a link to itself" in said or "is missing" in said


def test_external_data_are_bounded_together(tmp_path, monkeypatch):
    (tmp_path / "data").write_bytes(bytes(216))
    monkeypatch.setattr(load, "MOST_EXTERNAL", 215)
    assert "external data of 216 bytes so far, legal: up to 215" in changed(tmp_path, external("data"))


def test_no_memory_is_no_torn_file(monkeypatch):
    def parse(content):
        raise MemoryError

    monkeypatch.setattr(ModelProto, "FromString", parse, raising=False)
    with pytest.raises(MemoryError):
        library.parse(b"")


def test_equal_names_and_shared_weights_take_no_time(tmp_path):
    small = Small((4,))
    x, weights, count = "x", small.drawn(4, 4), 3000
    for _ in range(count):
        x = small.add("Relu", small.add("MatMul", x, weights))
    for node in small.nodes:
        node.name = "same"
    seconds = perf_counter()
    layers = import_network(small.save(tmp_path / "small.onnx", x), ImportOptions()).network.spec.layers
    assert perf_counter() - seconds < 20 and len(layers) == count + 1  # 1 s
    assert [layer.name for layer in layers[1:4]] == ["same", "same_3", "same_5"]


def test_a_circle(tmp_path):
    def change(model: ModelProto):
        model.graph.node.insert(0, helper.make_node("Add", ["x", model.graph.node[0].output[0]], ["circle"]))
        model.graph.node[1].input[0] = "circle"

    assert "none of which feeds itself" in changed(tmp_path, change)


def test_sizes_that_lie(tmp_path):
    def change(model: ModelProto):
        model.graph.initializer[0].dims[0] = 2**40

    assert "has shape [1099511627776, 2, 3, 3], legal" in changed(tmp_path, change)

    def nothing(model: ModelProto):
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.dims[:] = [0, 2**62]

    assert "has shape [0, 4611686018427387904], legal" in changed(tmp_path, nothing)
    assert "bytes, legal for its shape" in changed(tmp_path, lambda m: m.graph.initializer[0].dims.append(2))


def test_what_is_no_graph(tmp_path):
    assert "is no ONNX file with a graph" in changed(tmp_path, lambda model: model.ClearField("graph"))
    assert "operators of set 3, legal: 7 and later" in changed(
        tmp_path, lambda model: setattr(model.opset_import[0], "version", 3)
    )
    assert "of type 7, legal: one of floating point" in changed(
        tmp_path, lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", 7)
    )
    (tmp_path / "text.onnx").write_text("<html>not found</html>")
    assert read(tmp_path / "text.onnx") is None


def test_subgraphs_and_strangers(tmp_path):
    def change(model: ModelProto):
        node = model.graph.node[1]
        node.domain, node.op_type = "com.microsoft", "FusedConv"

    assert "(com.microsoft.FusedConv): not read" in changed(tmp_path, change)


def test_an_array_that_is_named_ever_so_often_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MOST_WEIGHTS", 60)
    assert "weights, legal: up to 60" in changed(tmp_path, lambda _: None)
    small = Small((2,))
    x = small.array(np.zeros(2**14), "big")
    for _ in range(30):  # each twice as large as the one before
        x = small.add("Concat", x, x, axis=0)
    path = small.save(tmp_path / "bomb.onnx", small.add("Add", "x", x))
    with pytest.raises(DataError, match=r"numbers in all, legal: up to"):
        import_network(path, ImportOptions())


def test_names_from_a_file_are_made_plain(tmp_path):
    small = Small()
    small.conv("x", 4, 4, 1, 1)
    small.nodes[-1].name = "$learning_rate\n\x1b[31m" + "n" * 500
    small.conv("n0", 4, 4, 1, 1)
    small.nodes[-1].name = small.nodes[0].name
    network = import_network(small.save(tmp_path / "small.onnx", "n1"), ImportOptions()).network
    one, other = (layer.name for layer in network.spec.layers[1:])
    assert one.startswith("learning_rate__[31m") and other == f"{one}_2" and len(one) <= parts.MOST_NAME


@pytest.mark.parametrize("shape", [(2**30,), (2000, 20_000)], ids=["scaled", "averaged"])
def test_numbers_that_the_file_does_not_hold_are_bounded(tmp_path, shape):
    small = Small(shape)
    if len(shape) == 1:
        out = small.add("Mul", "x", 2.0)
    else:
        out = small.add("AveragePool", "x", kernel_shape=[20_000], pads=[1, 1], count_include_pad=1)
    with pytest.raises(DataError, match=r"numbers made up, legal: up to 16,777,216"):
        import_network(small.save(tmp_path / "small.onnx", out), ImportOptions())
