"""Every operator that is read gives what ONNX Runtime gives, and what is not read is named."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.errors import DataError

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from nnlib.onnx_files.operators import OPERATORS
from nnlib.onnx_files.read import ImportOptions, import_network
from nnlib.spec.types import Activation, LayerKind, LayerType, PoolingFunction
from tests.nnlib.onnx_files.graphs import Small, agree, draw, ours

READ: dict[str, set[str]] = {}


def body(small):
    """Add a convolution that is the first layer of every case, as a network must have weights."""
    return small.conv("x", small.shape[0], 4, *(3,) * (len(small.shape) - 1), pads=[1] * 2 * (len(small.shape) - 1))


def spatial(small, operator, *inputs, **attributes):
    return small.add(operator, body(small), *inputs, **attributes)


CASES = {
    "Conv bare": lambda s: s.conv("x", 4, 6, 3, 3, bias=False),
    "Conv strides": lambda s: s.conv("x", 4, 6, 3, 2, strides=[2, 1], pads=[1, 0, 2, 1]),
    "Conv dilations": lambda s: s.conv("x", 4, 6, 2, 2, dilations=[2, 3]),
    "Conv groups": lambda s: s.conv("x", 4, 6, 3, 3, groups=2, pads=[1, 1, 1, 1]),
    "Conv by channel": lambda s: s.conv("x", 4, 4, 3, 3, groups=4),
    "Conv same upper": lambda s: s.conv("x", 4, 6, 2, 3, auto_pad="SAME_UPPER", strides=[2, 2]),
    "Conv same lower": lambda s: s.conv("x", 4, 6, 2, 3, auto_pad="SAME_LOWER", strides=[2, 2]),
    "Conv valid": lambda s: s.conv("x", 4, 6, 2, 3, auto_pad="VALID"),
    "BatchNormalization": lambda s: s.norm(body(s), 4),
    "BatchNormalization epsilon": lambda s: s.norm(body(s), 4, epsilon=1e-3),
    "BatchNormalization first": lambda s: body_of(s, s.norm("x", 4)),
    "BatchNormalization tiny": lambda s: s.add(
        "BatchNormalization", body(s), *([[1.0, 2, 3, 4]] * 3), [0.0, 1e-7, 1e-6, 2], epsilon=1e-6
    ),
    "BatchNormalization twice": lambda s: s.norm(s.norm(body(s), 4), 4),
    "Relu": lambda s: spatial(s, "Relu"),
    "LeakyRelu": lambda s: spatial(s, "LeakyRelu", alpha=0.2),
    "Elu": lambda s: spatial(s, "Elu", alpha=0.7),
    "Selu": lambda s: spatial(s, "Selu"),
    "Selu constants": lambda s: spatial(s, "Selu", alpha=1.5, gamma=1.1),
    "Sigmoid": lambda s: spatial(s, "Sigmoid"),
    "Tanh": lambda s: spatial(s, "Tanh"),
    "Softplus": lambda s: spatial(s, "Softplus"),
    "Softsign": lambda s: spatial(s, "Softsign"),
    "Clip": lambda s: s.add("Clip", s.add("Mul", body(s), 9.0), 0.0, 6.0),
    "Clip from 0": lambda s: s.add("Clip", body(s), 0.0),
    "Clip others": lambda s: spatial(s, "Clip", -0.2, 0.3),
    "HardSigmoid": lambda s: spatial(s, "HardSigmoid", alpha=0.9, beta=0.4),
    "HardSwish": lambda s: s.add("HardSwish", s.add("Mul", body(s), 6.0)),
    "Swish by hand": lambda s: swish(s, body(s)),
    "Softmax": lambda s: s.add("Softmax", s.head(body(s), 120)),
    "MaxPool": lambda s: spatial(s, "MaxPool", kernel_shape=[3, 2], strides=[2, 2]),
    "MaxPool padded": lambda s: spatial(s, "MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "MaxPool ceil": lambda s: spatial(s, "MaxPool", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    "AveragePool": lambda s: spatial(s, "AveragePool", kernel_shape=[2, 3]),
    "AveragePool padded": lambda s: spatial(s, "AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "AveragePool ceil": lambda s: spatial(s, "AveragePool", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    "AveragePool counts": lambda s: spatial(
        s, "AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "AveragePool counts nothing": lambda s: spatial(
        s, "AveragePool", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1, count_include_pad=1
    ),
    "AveragePool nothing": lambda s: spatial(s, "AveragePool", kernel_shape=[1, 1]),
    "GlobalAveragePool": lambda s: s.head(spatial(s, "GlobalAveragePool"), 4),
    "GlobalMaxPool": lambda s: s.head(spatial(s, "GlobalMaxPool"), 4),
    "ReduceMean": lambda s: s.head(s.add("ReduceMean", body(s), s.array([-1, -2], dtype=np.int64)), 4),
    "ReduceMean dropped": lambda s: dense(s, s.add("ReduceMean", body(s), s.array([2, 3], dtype=np.int64), keepdims=0)),
    "ReduceMax": lambda s: s.head(s.add("ReduceMax", body(s), s.array([2, 3], dtype=np.int64)), 4),
    "LRN": lambda s: spatial(s, "LRN", size=3, alpha=0.3, beta=0.6, bias=1.5),
    "Pad": lambda s: s.conv(s.add("Pad", "x", s.array([0, 0, 1, 2, 0, 0, 0, 1], dtype=np.int64)), 4, 5, 3, 3),
    "Pad and pads": lambda s: s.conv(
        s.add("Pad", "x", s.array([0, 0, 1, 2, 0, 0, 0, 1], dtype=np.int64)), 4, 5, 3, 3, pads=[1, 1, 1, 1]
    ),
    "Pad nothing": lambda s: s.add("Relu", s.add("Pad", body(s), s.array([0] * 8, dtype=np.int64))),
    "Pad before MaxPool": lambda s: s.add(
        "MaxPool",
        s.add("Pad", body(s), s.array([0, 0, 1, 0, 0, 0, 1, 1], dtype=np.int64), -np.inf),
        kernel_shape=[2, 2],
    ),
    "Gemm": lambda s: s.head(body(s), 120),
    "Gemm alpha": lambda s: s.add(
        "Gemm", s.add("Flatten", body(s)), s.drawn(120, 3), s.drawn(1, 3), alpha=0.5, beta=2.0
    ),
    "Gemm without bias": lambda s: s.add("Gemm", s.add("Flatten", body(s)), s.drawn(120, 3)),
    "MatMul": lambda s: s.add("Add", s.add("MatMul", s.add("Flatten", body(s)), s.drawn(120, 3)), s.drawn(3)),
    "Add": lambda s: s.add("Add", body(s), "x"),
    "Add to itself": lambda s: twice(s, "Add"),
    "Add channels": lambda s: spatial(s, "Add", np.arange(4.0).reshape(1, 4, 1, 1)),
    "Sub": lambda s: s.add("Sub", body(s), "x"),
    "Sub from": lambda s: s.add("Sub", s.array(1.5), body(s)),
    "Sub channels": lambda s: spatial(s, "Sub", np.arange(4.0).reshape(4, 1, 1)),
    "Mul": lambda s: s.add("Mul", body(s), "x"),
    "Mul by itself": lambda s: twice(s, "Mul"),
    "Mul by channel": lambda s: excite(s, body(s)),
    "Mul number": lambda s: spatial(s, "Mul", 2.5),
    "Mul behind Relu": lambda s: s.add("Mul", spatial(s, "Relu"), np.arange(1.0, 5).reshape(4, 1, 1)),
    "Div": lambda s: spatial(s, "Div", np.arange(1.0, 5).reshape(4, 1, 1)),
    "Sum": lambda s: s.add("Sum", body(s), "x", s.add("Relu", "x")),
    "Max": lambda s: s.add("Max", body(s), "x"),
    "Concat": lambda s: s.add("Concat", body(s), "x", s.add("Relu", "x"), axis=1),
    "Concat units": lambda s: s.add("Concat", s.head(body(s), 120), s.head("x", 120), axis=-1),
    "Identity": lambda s: s.add("Relu", spatial(s, "Identity")),
    "Cast": lambda s: s.add("Relu", spatial(s, "Cast", to=1)),
    "Dropout": lambda s: s.add("Relu", s.add("Dropout", spatial(s, "Relu"), 0.3)),
    "Flatten": lambda s: s.add("Flatten", body(s)),
    "Reshape": lambda s: dense(s, s.add("Reshape", body(s), s.array([0, -1], dtype=np.int64)), 120),
    "Reshape computed": lambda s: dense(s, computed_shape(s, body(s)), 120),
    "Reshape fixed": lambda s: dense(s, s.add("Reshape", body(s), s.array([-1, 120], dtype=np.int64)), 120),
    "Squeeze": lambda s: dense(s, s.add("Squeeze", pooled(s), s.array([2, 3], dtype=np.int64))),
    "Unsqueeze": lambda s: unsqueezed(s),
    "Transpose": lambda s: dense(s, s.add("Flatten", s.add("Transpose", pooled(s), perm=[0, 2, 3, 1]))),
    "arithmetic before weights": lambda s: s.conv(s.add("Div", s.add("Sub", "x", 0.3), 0.2), 4, 5, 3, 3),
}


def body_of(small, x):
    return small.conv(x, 4, 5, 3, 3)


def swish(small, x):
    return small.add("Mul", x, small.add("Sigmoid", x))


def pooled(small):
    return spatial(small, "GlobalAveragePool")


def dense(small, x, below=4):
    return small.add("Gemm", x, small.drawn(below, 3), small.drawn(3))


def twice(small, operator):
    x = body(small)
    return small.add(operator, x, x)


def excite(small, x):
    squeezed = small.add("Relu", small.conv(small.add("GlobalAveragePool", x), 4, 2, 1, 1))
    return small.add("Mul", small.add("Sigmoid", small.conv(squeezed, 2, 4, 1, 1)), x)


def unsqueezed(small):
    x = body(small)
    flat = small.add("Squeeze", small.add("GlobalAveragePool", x), small.array([2, 3], dtype=np.int64))
    gate = small.add("Sigmoid", small.add("Gemm", flat, small.drawn(4, 4), small.drawn(4)))
    return small.add("Mul", x, small.add("Unsqueeze", gate, small.array([2, 3], dtype=np.int64)))


def computed_shape(small, x):
    """As torch writes x.view(x.size(0), -1)."""
    size = small.add("Gather", small.add("Shape", x), small.array(0, dtype=np.int64))
    first = small.add("Unsqueeze", size, small.array([0], dtype=np.int64))
    shape = small.add("Concat", first, small.array([-1], dtype=np.int64), axis=0)
    return small.add("Reshape", x, shape)


@pytest.mark.parametrize("case", CASES)
def test_operators(tmp_path, case):
    small = Small()
    out = CASES[case](small)
    if not any(node.op_type in ("Conv", "Gemm", "MatMul") for node in small.nodes):
        out = body_of(small, out)
    agree(small, tmp_path, out)


def test_every_operator_has_a_case():
    small = Small()
    for make in CASES.values():
        make(small)
    late = {"LogSoftmax", "Swish"}  # tested below; ONNX Runtime has the latter only in newer sets of operators
    assert {node.op_type for node in small.nodes} >= set(OPERATORS) - late


def test_logarithms_become_probabilities(tmp_path):
    small = Small()
    agree(small, tmp_path, small.add("LogSoftmax", small.head("x", 120)), logarithms=True)


def test_swish_of_newer_sets(tmp_path):
    small = Small(opset=24)
    path = small.save(tmp_path / "small.onnx", small.add("Swish", body(small), alpha=1.5))
    inputs = draw(small)
    by_hand = Small()
    x = body(by_hand)
    by_hand.save(tmp_path / "hand.onnx", by_hand.add("Mul", x, by_hand.add("Sigmoid", by_hand.add("Mul", x, 1.5))))
    found = [ours(import_network(one, ImportOptions()).network, inputs) for one in (path, tmp_path / "hand.onnx")]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(3, 9), (2, 4, 5, 3)], ids=["1-D", "3-D"])
def test_other_numbers_of_sizes(tmp_path, shape):
    small = Small(shape)
    axes = len(shape) - 1
    x = small.add("Relu", small.norm(small.conv("x", shape[0], 4, *(3,) * axes, pads=[1] * 2 * axes), 4))
    x = small.add("MaxPool", x, kernel_shape=[2] * axes, strides=[2] * axes)
    network = agree(small, tmp_path, small.head(small.add("GlobalAveragePool", x), 4))
    assert network.spec.layers[0].dimensions == (*reversed(shape[1:]), shape[0])


def test_a_residual_block(tmp_path):
    small = Small((3, 8, 8))
    x = small.add("Relu", small.norm(small.conv("x", 3, 8, 3, 3, bias=False, pads=[1] * 4), 8))
    for below, above, stride in ((8, 8, 1), (8, 12, 2)):
        y = small.add(
            "Relu", small.norm(small.conv(x, below, above, 3, 3, bias=False, pads=[1] * 4, strides=[stride] * 2), above)
        )
        y = small.norm(small.conv(y, above, above, 3, 3, bias=False, pads=[1] * 4), above)
        if below != above:
            x = small.norm(small.conv(x, below, above, 1, 1, bias=False, strides=[stride] * 2), above)
        x = small.add("Relu", small.add("Add", y, x))
    network = agree(small, tmp_path, small.head(small.add("GlobalAveragePool", x), 12, 5))
    # Each convolution has its normalization and activation, each sum its activation: nothing else is left.
    assert [(one.type, one.function) for one in network.spec.layers if one.kind is LayerKind.HIDDEN].count(
        (LayerType.POOLING, PoolingFunction.SUM)
    ) == 2
    assert len(network.spec.layers) == 1 + 6 + 2 + 1 + 1
    assert sum(layer.batch_norm for layer in network.spec.layers) == 6


def test_an_inverted_block_with_squeeze_and_excitation(tmp_path):
    small = Small((3, 8, 8))
    x = swish(small, small.norm(small.conv("x", 3, 4, 3, 3, bias=False, pads=[1] * 4, strides=[2, 2]), 4))
    y = swish(small, small.norm(small.conv(x, 4, 8, 1, 1, bias=False), 8))
    y = swish(small, small.norm(small.conv(y, 8, 8, 5, 5, bias=False, groups=8, pads=[2] * 4), 8))
    gate = swish(small, small.conv(small.add("GlobalAveragePool", y), 8, 2, 1, 1))
    y = small.add("Mul", small.add("Sigmoid", small.conv(gate, 2, 8, 1, 1)), y)
    y = small.norm(small.conv(y, 8, 4, 1, 1, bias=False), 4)
    x = small.add("Add", y, x)
    network = agree(small, tmp_path, small.head(small.add("GlobalAveragePool", x), 4, 5))
    assert Activation.SIGMOID in {layer.activation for layer in network.spec.layers[1:]}


@pytest.mark.parametrize("given", [{"axes": [1], "starts": [1], "ends": [4]}, {"starts": [0, 1], "ends": [2, 4]}])
def test_slices_of_earlier_sets(tmp_path, given):
    small = Small((2,), opset=9)
    weights = small.add("Slice", small.drawn(2, 5), **given)
    agree(small, tmp_path, small.add("MatMul", "x", weights))


def test_weights_that_are_used_twice_are_shared(tmp_path):
    small = Small()
    weights, bias = small.drawn(4, 4, 3, 3), small.drawn(4)
    x = small.add("Conv", "x", weights, bias, pads=[1] * 4)
    x = small.add("Conv", small.add("Relu", x), weights, bias, pads=[1] * 4)
    network = agree(small, tmp_path, x)
    assert len(network.stores) == 1 and len(network.spec.edges) == 2


def test_several_inputs_and_outputs(tmp_path):
    small = Small(inputs={"left": ("batch", 4, 6, 5), "right": ("batch", 7)})
    one = small.add("Relu", small.conv("left", 4, 3, 3, 3))
    both = small.add("Add", small.head(one, 36), small.add("Gemm", "right", small.drawn(7, 3), small.drawn(3)))
    network = agree(small, tmp_path, one, small.add("Sigmoid", both))
    names = [(layer.name, layer.data_set) for layer in network.spec.layers if layer.data_set]
    assert names[:2] == [("left", "input"), ("right", "right")]


def test_data_sets_have_names_of_their_own(tmp_path):
    shape = ("batch", 4)
    small = Small(inputs={"a": shape, "input": shape, "$q\n": shape})
    hidden = small.add("Sum", *(small.head(name, 4) for name in small.inputs))
    small.add("Relu", hidden, out="$r")
    layers = agree(small, tmp_path, "$r", small.add("Sigmoid", hidden)).spec.layers
    sets = [layer.data_set for layer in layers if layer.data_set]
    assert sets[:3] == ["input", "input_2", "q_"] and len(set(sets)) == 5 and "$" not in "".join(sets)


def test_layers_have_the_names_of_torch(tmp_path):
    small = Small()
    x = small.add("Conv", "x", small.drawn(4, 4, 3, 3, name="layer1.0.conv1.weight"), pads=[1] * 4)
    small.nodes.append(small.nodes.pop())
    small.add("Relu", x, out="y")
    small.nodes[-1].name = "/layer1/layer1.0/relu/Relu"
    network = agree(small, tmp_path, small.head(small.add("MaxPool", "y", kernel_shape=[2, 2]), 80))
    assert [layer.name for layer in network.spec.layers] == ["x", "layer1.0.conv1", "n2", "n4"]


WRONG = {
    "operator": (lambda s: s.add("Gelu", "x"), r"node 0 \"/n0/Gelu\" \(Gelu\): not read.*\nlegal: Add, .*Conv"),
    "attribute": (lambda s: s.add("Softplus", "x", steepness=1), r"attribute 'steepness' is not read, legal: none"),
    "training": (lambda s: s.norm("x", 4, training_mode=1), r"training_mode is not 0: .* model\.eval\(\)"),
    "order of axes": (
        lambda s: s.add("Transpose", "x", perm=[0, 2, 3, 1]),
        r"perm .* moves .* channels first \(NCHW\)",
    ),
    "batch": (lambda s: s.add("Reshape", "x", s.array([4, -1], dtype=np.int64)), r"legal: \(0 or -1, sizes...\)"),
    "softmax": (lambda s: s.add("Softmax", "x", axis=1), r"over axis 1 of \(batch, 4, 6, 5\), legal: over all units"),
    "two rules": (
        lambda s: s.add("LRN", s.add("LRN", "x", size=3), size=5),
        r"has other constants than the LRN before it",
    ),
    "concat": (lambda s: s.add("Concat", "x", "x", axis=2), r"over axis 2, legal: 1"),
    "indices": (lambda s: two_outputs(s), r"gives indices"),
    "places": (lambda s: s.add("Add", "x", np.ones((1, 4, 6, 5))), r"legal: one number, or one a channel"),
    "padded": (
        lambda s: s.add("Relu", s.add("Pad", "x", s.array([0, 0, 1, 1, 0, 0, 1, 1], dtype=np.int64))),
        r"follows a Pad, legal there: Conv",
    ),
    "kernel": (lambda s: s.conv("x", 4, 4, 9, 9), r"a kernel that spans 9 over 6, legal: one that fits"),
    "groups": (lambda s: s.add("Conv", "x", s.drawn(4, 3, 3, 3)), r"weights \[4, 3, 3, 3\] in 1 groups"),
    "dilated": (lambda s: s.add("MaxPool", "x", kernel_shape=[2, 2], dilations=[2, 2]), r"dilations is not 1"),
    "units in a row": (
        lambda s: s.add("Sub", s.add("Flatten", body(s)), np.arange(120.0)),
        r"is of 120 numbers, and layer .n0. has 4 channels, legal: as many",
    ),
    "wide edge": (
        lambda s: s.add(
            "MaxPool",
            s.add("Pad", body(s), s.array([0, 0, 2, 0, 0, 0, 0, 0], dtype=np.int64), -np.inf),
            kernel_shape=[2, 2],
        ),
        r"edges .* legal: less than the kernel",
    ),
    "counted twice": (
        lambda s: spatial(
            s, "AveragePool", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2], ceil_mode=1, count_include_pad=1
        ),
        r"legal: one of them, or no pads",
    ),
    "counted twice, same": (
        lambda s: spatial(
            s, "AveragePool", kernel_shape=[3, 3], auto_pad="SAME_UPPER", ceil_mode=1, count_include_pad=1
        ),
        r"legal: one of them, or no pads",
    ),
    "logarithms": (
        lambda s: s.add("Mul", s.add("LogSoftmax", s.head("x", 120)), 2.0),
        r"\(LogSoftmax\): becomes probabilities, .* legal: at the end",
    ),
    "too large": (lambda s: s.add("Clip", body(s), 0.0, 1e-40), r"layer .n0. would have weights that are not finite"),
    "infinite": (lambda s: s.add("Conv", "x", np.full((4, 4, 1, 1), np.inf)), r"not all finite"),
    "no weights": (lambda s: s.add("Relu", "x"), r"no layer has weights"),
    "div": (lambda s: s.add("Div", "x", 0.0), r"without 0"),
    "missing": (lambda s: s.add("Add", "x", "nobody"), r"\"nobody\" is given by no initializer"),
}


def two_outputs(small):
    small.add("MaxPool", "x", kernel_shape=[2, 2])
    small.nodes[-1].output.append("indices")
    return small.nodes[-1].output[0]


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_named(tmp_path, case):
    make, text = WRONG[case]
    small = Small()
    path = small.save(tmp_path / "small.onnx", make(small))
    with pytest.raises(DataError, match=text) as caught:
        import_network(path, ImportOptions())
    assert str(caught.value).startswith(f"{path}: ")


def test_sizes_that_are_open(tmp_path):
    small = Small(inputs={"x": ("batch", 4, "height", "width")})
    path = small.save(tmp_path / "small.onnx", small.conv("x", 4, 5, 3, 3))
    with pytest.raises(DataError, match=r"that may be any, legal: --size HEIGHTxWIDTH"):
        import_network(path, ImportOptions())
    network = import_network(path, ImportOptions(sizes=(7, 9))).network
    assert network.spec.layers[0].dimensions == (9, 7, 4)


def test_mean_and_deviation_are_of_bytes(tmp_path):
    small = Small((3, 4, 4))
    path = small.save(tmp_path / "small.onnx", small.head(small.add("Relu", small.conv("x", 3, 5, 3, 3)), 20))
    options = ImportOptions(mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225))
    imported = import_network(path, options)
    pixels = np.random.default_rng(2).integers(0, 256, (2, 3, 4, 4)).astype(np.float32)
    mean, deviation = (np.reshape(one, (3, 1, 1)) for one in (options.mean, options.deviation))
    torchs = ((pixels / 255 - mean) / deviation).astype(np.float32)
    [wanted] = ours(import_network(path, ImportOptions()).network, [torchs])
    [found] = ours(imported.network, [pixels / 256 - 0.5])  # as data of unsigned bytes are read
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert imported.tuned.tuning.freeze == ("Normalize",)
    with pytest.raises(DataError, match=r'--std: 2 numbers, legal: one, or 3, one for each channel of "x"'):
        import_network(path, ImportOptions(deviation=(1.0, 2.0)))


def test_a_new_head(tmp_path):
    small = Small()
    x = small.add("Relu", small.norm(small.conv("x", 4, 5, 3, 3), 5))
    path = small.save(tmp_path / "small.onnx", small.head(x, 60))
    tuned = import_network(path, ImportOptions(replace_head=True)).tuned
    head = tuned.layers[-1]
    assert (head.kind, head.units, head.activation) == (LayerKind.OUTPUT, None, Activation.SOFTMAX)
    assert tuned.tuning.replace == (head.name,) and tuned.tuning.freeze == ("n0",)


def test_a_head_that_shares_its_weights(tmp_path):
    small = Small((4,))
    weights = small.drawn(4, 4)
    x = small.add("MatMul", small.add("Relu", small.add("MatMul", "x", weights)), weights)
    with pytest.raises(DataError, match=r"--replace-head: layer .* has the weights of another layer, too"):
        import_network(small.save(tmp_path / "small.onnx", x), ImportOptions(replace_head=True))


def test_a_body_without_a_head_gets_one(tmp_path):
    small = Small()
    path = small.save(tmp_path / "small.onnx", small.add("Relu", small.conv("x", 4, 5, 3, 3)))
    imported = import_network(path, ImportOptions(replace_head=True))
    head = imported.tuned.layers[-1]
    assert (head.name, head.sources, head.units) == ("Head", ("n0",), None)
    assert imported.tuned.tuning.freeze == ("n0",)
    assert imported.network.spec.layers[-1].kind is LayerKind.OUTPUT
