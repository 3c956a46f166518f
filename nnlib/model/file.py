"""DSSTNE's model files: NetCDF-4 with every setting as an attribute and variables for what was learned.

`file_attributes` has the attributes of the network and its layers. Those of the weight matrix numbered i start with
`weight<i>_`; its variables are `weight<i>_bias` and, unless another matrix is shared, `weight<i>_weights`, row-major
[in][out], of a convolutional layer [maps][channels of a group][z][y][x]. A layer with batch normalization has four
variables `layer<i>_...BN`. Beyond the format, ignored by DSSTNE: the variables `layer<i>_features` (names of the
units of a layer with a data set), the attribute `region`, and `repeats`, which is 1 where what an example has is
recommended like anything else, as the data said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from nnlib.data.file_history import REPEATS, read_repeats
from nnlib.data.sets import DataSet
from nnlib.errors import DataError
from nnlib.model.attributes import Attributes
from nnlib.model.file_attributes import network_attributes, read_network_spec
from nnlib.model.network import Network, assemble, bias_count, is_convolution, norm_count, weight_shape
from nnlib.model.size_attributes import check_sizes
from nnlib.ops.batch_norm import BatchNorm
from nnlib.spec.geometry import kernel_shape
from nnlib.spec.json_section import SpecError
from nnlib.spec.sizes import resolve_sizes
from nnlib.spec.topology import check_topology
from nnlib.spec.types import Edge, LayerKind, NetworkSpec, SharedWeights
from nnlib.util import netcdf
from nnlib.util.arrays import Floats


def model_of(network: Network, sets: Mapping[str, DataSet], region: str, repeats: bool = False) -> Model:
    """Return a model with the names of the units that its data have."""
    names = {
        n: sets[layer.data_set].features
        for n, layer in enumerate(network.spec.layers)
        if layer.data_set in sets and sets[layer.data_set].features
    }
    return Model(network, names, region, repeats)


SHAPE = ("width", "height", "length", "depth", "breadth")  # of a weight matrix: out, in, and the kernel's axes
NORMS = {"scaleBN": "scale", "biasBN": "bias", "runningMeanBN": "mean", "runningVarianceBN": "variance"}


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained network with the names of the units of its layers with a data set, by layer number, where known."""

    network: Network
    features: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    region: str = ""
    repeats: bool = False  # whether it recommends what an example has, too, as its data say

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the first Input's units, empty when unknown."""
        return self._first(LayerKind.INPUT)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the first Output's units, empty when unknown."""
        return self._first(LayerKind.OUTPUT)

    def _first(self, kind: LayerKind) -> tuple[str, ...]:
        spec = self.network.spec
        return self.features.get(spec.places[spec.layers_of(kind)[0].name], ())


def write_model(path: Path, model: Model) -> None:
    """Write a model file atomically; the same model gives the same bytes."""
    network = model.network
    spec = network.spec
    attributes = network_attributes(spec) | {"weights": np.uint32(len(spec.edges))}
    variables: dict[str, netcdf.Variable] = {}
    for edge in spec.edges:
        at = f"weight{edge.number}_"
        attributes |= {f"{at}{key}": value for key, value in _edge_attributes(network, edge).items()}
        variables[f"{at}bias"] = _variable(f"{at}biasDim", network.biases[edge.number])
        if edge.owner == edge.number:
            convolves = is_convolution(spec, edge)  # whose store has the order of the file
            weights = network.stores[edge.number] if convolves else network.matrix(edge.number)
            variables[f"{at}weights"] = _variable(f"{at}weightDim", weights)
    for n, norm in sorted(network.norms.items()):
        for name, own_name in NORMS.items():
            variables[f"layer{n}_{name}"] = _variable(f"layer{n}_bnDim", getattr(norm, own_name))
    for n, names in sorted(model.features.items()):
        if names:
            variables[f"layer{n}_features"] = netcdf.Variable(f"layer{n}_featuresDim", names)
    if model.region:
        attributes["region"] = model.region
    if model.repeats:
        attributes[REPEATS] = np.uint32(1)
    netcdf.write(path, netcdf.Content(attributes, variables))


def read_model(path: Path) -> Model:
    """Read a model file; DataError when it is torn, contradicts itself, or has what this version cannot run."""
    with netcdf.File(path) as file:
        attributes = Attributes(str(path), file.attributes)
        spec, numbers = _spec(attributes)
        arrays = _Arrays(file)
        weights, biases, locked = {}, [], set()
        for edge in spec.edges:
            at = f"weight{numbers[edge.number]}_"
            below, above = weight_shape(spec, edge)
            biases.append(arrays.floats(f"{at}bias", bias_count(spec, edge)))
            if edge.owner == edge.number:
                flat = arrays.floats(f"{at}weights", below * above)
                convolves = is_convolution(spec, edge)
                weights[edge.number] = flat.reshape(above, below).T if convolves else flat.reshape(below, above)
                if attributes.flag(f"{at}bLocked"):
                    locked.add(edge.number)
        norms = {n: arrays.norm(n, norm_count(spec, n)) for n, layer in enumerate(spec.layers) if layer.batch_norm}
        sizes = enumerate(layer.units or 0 for layer in spec.layers)
        features = {n: names for n, size in sizes if (names := arrays.names(f"layer{n}_features", size))}
        region, repeats = attributes.text("region") if "region" in file.attributes else "", read_repeats(file)
    return Model(assemble(spec, weights, biases, norms, frozenset(locked)), features, region, repeats)


def _variable(dimension: str, values: Floats) -> netcdf.Variable:
    return netcdf.Variable(dimension, np.ascontiguousarray(values, np.float32).reshape(-1))


def _edge_attributes(network: Network, edge: Edge) -> dict[str, netcdf.Attribute]:
    layers = network.spec.layers
    source, target = layers[edge.source], layers[edge.target]
    shape: tuple[int, ...] = weight_shape(network.spec, edge)[::-1]
    if is_convolution(network.spec, edge):
        shape = kernel_shape(network.spec, edge.source, edge.target)  # DSSTNE's, too, has the slowest axis first
    values: dict[str, netcdf.Attribute] = {
        "inputLayer": source.name,
        "outputLayer": target.name,
        **{key: np.uint64(size) for key, size in zip(SHAPE, (*shape, 1, 1, 1), strict=False)},
        "bShared": np.uint32(edge.owner != edge.number),
        "bLocked": np.uint32(edge.owner in network.locked),
        "norm": np.float32(target.weight_norm),
    }
    if edge.owner != edge.number:
        owner = network.spec.edges[edge.owner]
        values |= {
            "bTransposed": np.uint32(edge.transposed),
            "sourceInputLayer": layers[owner.source].name,
            "sourceOutputLayer": layers[owner.target].name,
        }
    return values


def _spec(attributes: Attributes) -> tuple[NetworkSpec, list[int]]:
    """Return the network, and of each of its edges the number that it has in the file."""
    spec = read_network_spec(attributes)
    try:
        check_topology(spec, attributes.file)
        spec, numbers = _with_edges(attributes, spec)
        check_topology(spec, attributes.file)
        found = resolve_sizes(spec, attributes.file)
    except SpecError as error:
        raise DataError(str(error)) from error
    check_sizes(attributes, spec, found)
    return found, numbers


def _with_edges(attributes: Attributes, spec: NetworkSpec) -> tuple[NetworkSpec, list[int]]:
    """Return the network with its shared weights, and of each of its edges the number that it has in the file."""
    layers = list(spec.layers)
    edges = {(layers[edge.source].name, layers[edge.target].name): edge.number for edge in spec.edges}
    numbers: dict[int, int] = {}
    if attributes.count("weights") != len(edges):
        raise attributes.wrong("weights", f"{len(edges)}, as many as the layers have sources")
    for n in range(len(edges)):
        at = f"weight{n}_"
        source, target = attributes.text(f"{at}inputLayer"), attributes.text(f"{at}outputLayer")
        if target not in spec.places:
            raise attributes.wrong(f"{at}outputLayer", "the name of a layer")
        edge = edges.get((source, target))
        if edge is None or edge in numbers:
            sources = ", ".join(repr(name) for name in layers[spec.places[target]].sources)
            raise attributes.wrong(f"{at}inputLayer", f"one of the sources of {target!r} ({sources}), each once")
        numbers[edge] = n
        if attributes.flag(f"{at}bShared"):
            place = spec.places[target]
            shared = SharedWeights(
                source,
                attributes.text(f"{at}sourceInputLayer"),
                attributes.text(f"{at}sourceOutputLayer"),
                attributes.flag(f"{at}bTransposed"),
            )
            layers[place] = replace(layers[place], shared=(*layers[place].shared, shared))
    return replace(spec, layers=tuple(layers)), [numbers[n] for n in range(len(edges))]


@dataclass(frozen=True, slots=True)
class _Arrays:
    """The variables of a model file, with errors that name the file and the variable."""

    file: netcdf.File

    def wrong(self, name: str, text: str) -> DataError:
        return DataError(f"{self.file.path}: variable {name}: {text}; copy or train the model again")

    def floats(self, name: str, size: int) -> Floats:
        """Return `size` finite numbers of type float; none are read when there are more or fewer."""
        shape = self.file.variables.get(name)
        if shape is None:
            raise self.wrong(name, f"is missing, legal: {size} numbers of type float")
        if shape.dtype is None or shape.dtype.kind != "f":
            raise self.wrong(name, "is of another type than float")
        if shape.length != size:
            raise self.wrong(name, f"{shape.length} numbers, legal: {size}, as the sizes of the layers say")
        with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused by name
            numbers = np.asarray(self.file.whole(name).values).astype(np.float32, copy=False)
        finite = np.isfinite(numbers)
        if not finite.all():
            place = int(np.argmin(finite))
            raise self.wrong(name, f"number {place} is {numbers[place]}, legal: finite numbers")
        return numbers

    def norm(self, layer: int, size: int) -> BatchNorm:
        """Return the batch normalization of a layer."""
        values = {own_name: self.floats(f"layer{layer}_{name}", size) for name, own_name in NORMS.items()}
        least = float(values["variance"].min())
        if least < 0:
            raise self.wrong(f"layer{layer}_runningVarianceBN", f"{least:g} is not legal, legal: numbers from 0")
        return BatchNorm(**values)

    def names(self, name: str, size: int) -> tuple[str, ...]:
        """Return the names of a layer's units, none when the file has none."""
        shape = self.file.variables.get(name)
        if shape is None:
            return ()
        if not shape.strings:
            raise self.wrong(name, "is of another type than string")
        if shape.length != size:
            raise self.wrong(name, f"{shape.length} names, legal: {size}, the number of units")
        return self.file.strings(name)
