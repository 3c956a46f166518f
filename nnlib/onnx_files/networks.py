"""A network as nodes of an ONNX graph, layer by layer, with what a prediction computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from nnlib.errors import NnlibError
from nnlib.model.graph import Graph, Node
from nnlib.onnx_files.library import Builder
from nnlib.ops.batch_norm import EPSILON
from nnlib.spec.geometry import Sweep, maps_of, sweep_of
from nnlib.spec.types import Activation, Edge, Layer, LayerKind, LayerType, PoolingFunction

BATCH = "batch"
MOST_BYTES = 2**31 - 2**20  # of weights in a file of ONNX, which holds 2 GB
PLAIN = {
    Activation.SIGMOID: "Sigmoid", Activation.TANH: "Tanh", Activation.RELU: "Relu", Activation.SOFTPLUS: "Softplus",
    Activation.SOFTSIGN: "Softsign",
}  # fmt: skip
JOINS = {PoolingFunction.SUM: "Add", PoolingFunction.PRODUCT: "Mul", PoolingFunction.MAXOUT: "Max"}
GLOBAL = {PoolingFunction.GLOBAL_AVERAGE: "GlobalAveragePool", PoolingFunction.GLOBAL_MAX: "GlobalMaxPool"}
SMALL = 1e-8  # what Cosine adds to each norm
Shape = tuple[int, ...]  # of one example: (channels, sizes, slowest axis first), or (units,)


def add_network(builder: Builder, graph: Graph, names: dict[int, str], batch: str = BATCH) -> None:
    """Add a network; `names` are those of its inputs and outputs, by the number of the layer, and of `batch` examples.

    NnlibError for a layer that no operators of ONNX are the same as.
    """
    stores = graph.network.stores.values()
    if sum(store.nbytes for store in stores) > MOST_BYTES:
        raise NnlibError("the weights take more than 2 GB, legal in a file of ONNX: less")
    builder.taken = frozenset(names.values())
    layers = _Layers(builder, graph)
    for node in graph.nodes:
        shape, builder.layer = layers.shape(node.number), node.layer.name
        if node.layer.kind is LayerKind.INPUT:
            builder.inputs[names[node.number]] = (batch, *shape)
            layers.values[node.number] = names[node.number], shape
        else:
            layers.values[node.number] = layers.compute(node, shape)
        if node.layer.kind is LayerKind.OUTPUT:
            shape = shape if prod(shape[1:]) > 1 else (prod(shape),)
            builder.add("Identity", layers.shaped(node.number, shape), out=names[node.number])
            builder.outputs[names[node.number]] = (batch, *shape)
    for ends in (builder.inputs, builder.outputs):  # in the order of the network, not of computation
        shapes = {name: ends.pop(name) for name in names.values() if name in ends}
        ends.update(shapes)


@dataclass(slots=True, eq=False)
class _Layers:
    """The layers so far: the value of each, and the shape that it has in the graph."""

    builder: Builder
    graph: Graph
    values: dict[int, tuple[str, Shape]] = field(default_factory=dict)

    def shape(self, number: int) -> Shape:
        """Return (channels, sizes) of a layer that has maps, (units,) of others."""
        maps = maps_of(self.graph.network.spec, number)
        return (maps.channels, *maps.sizes)

    def shaped(self, number: int, shape: Shape) -> str:
        """Return the value of a layer in a shape of as many units."""
        return self.laid(*self.values[number], shape)

    def laid(self, name: str, seen: Shape, shape: Shape) -> str:
        """Return a value of the shape `seen` in another of as many units."""
        if seen == shape:
            return name
        if len(shape) == 1:
            return self.builder.add("Flatten", name, axis=1)
        return self.builder.add("Reshape", name, self.builder.whole_numbers(-1, *shape))

    def flat(self, number: int) -> str:
        """Return the units of a layer in a row."""
        return self.shaped(number, (prod(self.values[number][1]),))

    def compute(self, node: Node, shape: Shape) -> tuple[str, Shape]:
        """Return the value of a layer, and its shape."""
        pools = node.layer.type is LayerType.POOLING
        z, seen = self.pool(node, shape) if pools else self.sums(node, shape)
        for skip in node.skips:
            z = self.builder.add("Add", z, self.shaped(skip, seen))
        if node.layer.batch_norm:
            z = self.normalize(node, z)
        return self.activate(node.layer, z, seen), seen

    def sums(self, node: Node, shape: Shape) -> tuple[str, Shape]:
        """Return the sums of weighted sources and biases."""
        convolves = node.layer.type is LayerType.CONVOLUTIONAL
        seen = shape if convolves else (prod(shape),)
        total = ""
        for edge in node.edges:
            part = self.convolve(edge) if convolves else self.multiply(edge)
            total = self.builder.add("Add", total, part) if total else part
        return total, seen

    def multiply(self, edge: Edge) -> str:
        """Return x W + b."""
        network = self.graph.network
        weights = network.matrix(edge.owner)
        at = self.builder.weight(weights.T if edge.transposed else weights)
        product = self.builder.add("MatMul", self.flat(edge.source), at)
        return self.builder.add("Add", product, self.builder.weight(network.biases[edge.number][None]))

    def convolve(self, edge: Edge) -> str:
        """Return the maps that a kernel gives."""
        network = self.graph.network
        sweep = sweep_of(network.spec, edge.source, edge.target)
        source = self.shaped(edge.source, self.shape(edge.source))
        arrays = [self.builder.weight(one) for one in (network.kernels(edge.owner), network.biases[edge.number])]
        dilations = [one.dilation for one in sweep.windows]
        return self.builder.add("Conv", source, *arrays, group=sweep.groups, dilations=dilations, **_windows(sweep))

    def normalize(self, node: Node, z: str) -> str:
        """Return z normalized by the running statistics."""
        norm = self.graph.network.norms[node.number]
        arrays = [self.builder.weight(one) for one in (norm.scale, norm.bias, norm.mean, norm.variance)]
        return self.builder.add("BatchNormalization", z, *arrays, epsilon=EPSILON)

    def pool(self, node: Node, shape: Shape) -> tuple[str, Shape]:
        """Return what a layer without weights gives, before its activation."""
        spec, function = self.graph.network.spec, node.layer.function
        sources = [spec.places[name] for name in node.layer.sources]
        if function in JOINS:
            return self.join(JOINS[function], sources, shape), shape
        if function is PoolingFunction.CONCATENATE:
            area = prod(shape[1:])
            parts = [self.shaped(one, (prod(self.values[one][1]) // area, *shape[1:])) for one in sources]
            return self.builder.add("Concat", *parts, axis=1), shape
        if function in (PoolingFunction.DOT_PRODUCT, PoolingFunction.COSINE):
            return self.compare(function, sources), shape
        [source] = sources
        if function in GLOBAL and len(self.shape(source)) == 1:  # of no maps, each unit is its own mean
            return self.shaped(source, shape), shape
        if function in GLOBAL:
            return self.builder.add(GLOBAL[function], self.shaped(source, self.shape(source))), shape
        maps = self.shaped(source, self.shape(source))
        if function is PoolingFunction.LRN:
            return self.respond(node.layer, source, shape), shape
        windows = _windows(sweep_of(spec, source, node.number))
        if function is PoolingFunction.MAX:
            return self.builder.add("MaxPool", maps, **windows), shape
        if function is PoolingFunction.AVERAGE:
            return self.builder.add("AveragePool", maps, count_include_pad=0, **windows), shape
        raise NnlibError(f"layer {node.layer.name}: {function}: ONNX has no such pooling")

    def respond(self, layer: Layer, source: int, shape: Shape) -> str:
        """Return values normalized by those of the channels around; LRN takes two sizes, so others are laid so."""
        rule, sizes = self.graph.network.spec.local_response, shape[1:]
        if rule.n % 2 == 0:
            raise NnlibError(f"layer {layer.name}: LRN over {rule.n} maps, legal in ONNX: an odd number")
        two = shape if len(sizes) == 2 else (shape[0], prod(sizes[:1]), prod(sizes[1:]))
        maps = self.shaped(source, two)
        found = self.builder.add("LRN", maps, size=rule.n, alpha=rule.alpha, beta=rule.beta, bias=rule.k)
        return self.laid(found, two, shape)

    def join(self, operator: str, sources: list[int], shape: Shape) -> str:
        """Return values that are put together one by one; one a channel is spread over its map."""
        spread = (shape[0], *(1,) * (len(shape) - 1))
        total = ""
        for source in sources:
            every = prod(self.values[source][1]) == prod(shape)
            value = self.shaped(source, shape if every else spread)
            total = self.builder.add(operator, total, value) if total else value
        return total

    def compare(self, function: PoolingFunction, sources: list[int]) -> str:
        """Return the products of the first source with each other one, by their norms for Cosine."""
        builder, axis = self.builder, self.builder.whole_numbers(1)
        first, *others = (self.flat(source) for source in sources)
        found = []
        for other in others:
            product = builder.add("ReduceSum", builder.add("Mul", first, other), axis, keepdims=1)
            if function is PoolingFunction.COSINE:
                norms = [builder.add("ReduceL2", one, axes=[1], keepdims=1) for one in (first, other)]
                small = builder.weight([[SMALL]])
                product = builder.add(
                    "Div", product, builder.add("Mul", *(builder.add("Add", n, small) for n in norms))
                )
            found.append(product)
        return builder.add("Concat", *found, axis=1)

    def activate(self, layer: Layer, z: str, shape: Shape) -> str:
        """Return the activation of z."""
        builder = self.builder
        special: dict[Activation, Callable[[], str]] = {
            Activation.LINEAR: lambda: z,
            Activation.RELU6: lambda: builder.add("Clip", z, builder.weight(0), builder.weight(6)),
            Activation.LEAKY_RELU: lambda: builder.add("LeakyRelu", z, alpha=layer.slope),
            Activation.ELU: lambda: builder.add("Elu", z, alpha=layer.alpha),
            Activation.SELU: lambda: builder.add("Selu", z, alpha=layer.alpha, gamma=layer.selu_lambda),
            Activation.SOFTMAX: lambda: self.softmax(z, shape),
        }
        if layer.activation in PLAIN:
            return builder.add(PLAIN[layer.activation], z)
        if layer.activation not in special:
            raise NnlibError(f"layer {layer.name}: {layer.activation}: ONNX has no such activation")
        return special[layer.activation]()

    def softmax(self, z: str, shape: Shape) -> str:
        """Return e^z / sum e^z over all units of an example."""
        row = (prod(shape),)
        return self.laid(self.builder.add("Softmax", self.laid(z, shape, row), axis=1), row, shape)


def _windows(sweep: Sweep) -> dict[str, Any]:
    windows = sweep.windows
    return {
        "kernel_shape": [one.kernel for one in windows],
        "strides": [one.stride for one in windows],
        "pads": [*(one.low for one in windows), *(one.high for one in windows)],
    }
