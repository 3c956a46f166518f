"""DSSTNE's model files: NetCDF-4 with every setting as an attribute and one pair of variables per weight matrix.

Attributes of layer i start with `layer<i>_`, those of weight matrix i with `weight<i>_`; weights are row-major
[in][out]. Beyond the format, ignored by DSSTNE: the variables `layer<i>_features` (names of the units of a layer
with a data set) and the attribute `region`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnlib import netcdf
from nnlib.architecture import Activation, ErrorFunction, Layer, LayerKind, Marginal, NetworkSpec, Scheme, WeightInit
from nnlib.errors import DataError
from nnlib.network import Edge, Network

FORMAT_VERSION = 0.9
KINDS = {"FeedForward": 0, "AutoEncoder": 1}
ERRORS = {ErrorFunction.CROSS_ENTROPY: 2, ErrorFunction.MARGINAL: 3}
LAYER_KINDS = {LayerKind.INPUT: 0, LayerKind.HIDDEN: 1, LayerKind.OUTPUT: 2}
ACTIVATIONS = {
    Activation.SIGMOID: 0,
    Activation.TANH: 1,
    Activation.RELU: 2,
    Activation.LINEAR: 3,
    Activation.SOFTMAX: 7,
}
SCHEMES = {
    Scheme.XAVIER: 0,
    Scheme.CAFFE_XAVIER: 1,
    Scheme.GAUSSIAN: 2,
    Scheme.UNIFORM: 3,
    Scheme.UNIT_BALL: 4,
    Scheme.CONSTANT: 5,
}
SPARSE, DENOISING = 1, 2  # bits of layer<i>_attributes

# What a network of this version cannot have, at DSSTNE's defaults, since a reader expects every attribute.
UNUSED_NETWORK: Mapping[str, Any] = {
    "maxout_k": np.int32(2),
    "LRN_k": np.float32(2),
    "LRN_n": np.int32(5),
    "LRN_alpha": np.float32(1e-4),
    "LRN_beta": np.float32(0.75),
    "bSparsenessPenalty": np.uint32(0),
    "sparsenessPenalty_p": np.float32(0),
    "sparsenessPenalty_beta": np.float32(0),
    "deltaBoost_one": np.float32(1),
    "deltaBoost_zero": np.float32(1),
}
UNUSED_LAYER: Mapping[str, Any] = {
    **{key: np.uint32(0) for key in ("type", "poolingfunction", "skips")},
    **{key: np.uint32(1) for key in ("Ny", "Nz", "Nw", "dimensions", "kernelDimensions")},
    **{f"kernel{axis}": np.uint32(1) for axis in "XYZ"},
    **{f"kernelStride{axis}": np.uint32(1) for axis in "XYZ"},
    **{f"kernelPadding{axis}": np.uint32(0) for axis in "XYZ"},
    **{key: np.float32(0) for key in ("weightNorm", "deltaNorm", "sparsenessPenalty_p", "sparsenessPenalty_beta")},
    **{key: np.float32(1) for key in ("RELUSlope", "ELUAlpha")},
    "SELULambda": np.float32(1.050701),
}


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained network with the names of its first and last units (empty when unknown)."""

    network: Network
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    region: str = ""


def write_model(path: Path, model: Model) -> None:
    """Write a model file atomically; the same model gives the same bytes."""
    spec = model.network.spec
    attributes = _network_attributes(spec)
    variables: dict[str, netcdf.Variable] = {}
    for n, layer in enumerate(spec.layers):
        source = spec.layers[n - 1].name if n else None
        attributes |= {f"layer{n}_{key}": value for key, value in _layer_attributes(spec, layer, source).items()}
    for n, edge in enumerate(model.network.edges):
        inputs, outputs = edge.weights.shape
        sizes = {"width": outputs, "height": inputs, "length": 1, "depth": 1, "breadth": 1}
        values = {key: np.uint64(size) for key, size in sizes.items()} | {
            "inputLayer": spec.layers[n].name,
            "outputLayer": spec.layers[n + 1].name,
            "bShared": np.uint32(0),
            "bLocked": np.uint32(0),
            "norm": np.float32(0),
        }
        attributes |= {f"weight{n}_{key}": value for key, value in values.items()}
        flat = np.ascontiguousarray(edge.weights, np.float32).reshape(-1)
        variables[f"weight{n}_bias"] = netcdf.Variable(f"weight{n}_biasDim", edge.bias.astype(np.float32))
        variables[f"weight{n}_weights"] = netcdf.Variable(f"weight{n}_weightDim", flat)
    for n, names in ((0, model.inputs), (len(spec.layers) - 1, model.outputs)):
        if names:
            variables[f"layer{n}_features"] = netcdf.Variable(f"layer{n}_featuresDim", names)
    if model.region:
        attributes["region"] = model.region
    netcdf.write(path, netcdf.Content(attributes, variables))


def read_model(path: Path) -> Model:
    """Read a model file; DataError when it is torn, or has what this version cannot run."""
    content = netcdf.read(path)
    try:
        spec = _spec(content.attributes)
        edges = tuple(_edge(content, spec, n) for n in range(len(spec.layers) - 1))
        inputs, outputs = (_names(content, spec, n) for n in (0, len(spec.layers) - 1))
    except KeyError as error:
        raise DataError(f"{path.name}: {error.args[0]} is missing or not supported yet in a model file") from error
    except ValueError as error:
        raise DataError(f"{path.name}: {error}") from error
    return Model(Network(spec, edges), inputs, outputs, str(content.attributes.get("region", "")))


def _network_attributes(spec: NetworkSpec) -> dict[str, Any]:
    return {
        "version": np.float32(FORMAT_VERSION),
        "name": spec.name,
        "kind": np.uint32(KINDS[spec.kind]),
        "errorFunction": np.uint32(ERRORS[spec.error]),
        **UNUSED_NETWORK,
        "bDenoising": np.uint32(spec.denoising > 0),
        "denoising_p": np.float32(spec.denoising),
        "SMCE_oneScale": np.float32(spec.marginal.one_scale),
        "SMCE_zeroScale": np.float32(spec.marginal.zero_scale),
        "SMCE_oneTarget": np.float32(spec.marginal.one_target),
        "SMCE_zeroTarget": np.float32(spec.marginal.zero_target),
        "ShuffleIndices": np.uint32(spec.shuffle),
        "layers": np.uint32(len(spec.layers)),
        "weights": np.uint32(len(spec.layers) - 1),
    }


def _layer_attributes(spec: NetworkSpec, layer: Layer, source: str | None) -> dict[str, Any]:
    sparse = layer.kind is not LayerKind.HIDDEN
    denoised = layer.kind is LayerKind.INPUT and spec.denoising > 0
    return {
        "name": layer.name,
        "kind": np.uint32(LAYER_KINDS[layer.kind]),
        **UNUSED_LAYER,
        "dataSet": layer.data_set,
        "Nx": np.uint32(layer.units or 1),
        "pDropout": np.float32(layer.dropout),
        "weightInit": np.uint32(SCHEMES[layer.init.scheme]),
        "weightInitScale": np.float32(layer.init.scale),
        "biasInit": np.float32(layer.init.bias),
        "activation": np.uint32(ACTIVATIONS[layer.activation]),
        "attributes": np.uint32(sparse * SPARSE | denoised * DENOISING),
        "sources": np.uint32(source is not None),
        **({"source0": source} if source is not None else {}),
    }


def _spec(attributes: Mapping[str, Any]) -> NetworkSpec:
    count = int(attributes["layers"])
    if count < 3 or int(attributes["weights"]) != count - 1:
        raise ValueError(
            f"{count} layers and {attributes['weights']} weight matrices are not a chain, not supported yet"
        )
    return NetworkSpec(
        layers=tuple(_layer(attributes, n, count) for n in range(count)),
        name=str(attributes["name"]),
        kind=_named(KINDS, attributes, "kind"),
        error=_named(ERRORS, attributes, "errorFunction"),
        marginal=Marginal(
            one_target=float(attributes["SMCE_oneTarget"]),
            zero_target=float(attributes["SMCE_zeroTarget"]),
            one_scale=float(attributes["SMCE_oneScale"]),
            zero_scale=float(attributes["SMCE_zeroScale"]),
        ),
        denoising=float(attributes["denoising_p"]),
        shuffle=bool(attributes["ShuffleIndices"]),
    )


def _layer(attributes: Mapping[str, Any], n: int, count: int) -> Layer:
    prefix = f"layer{n}_"
    kind = _named(LAYER_KINDS, attributes, f"{prefix}kind")
    place = LayerKind.INPUT if n == 0 else LayerKind.OUTPUT if n == count - 1 else LayerKind.HIDDEN
    sources = [attributes[f"{prefix}source{i}"] for i in range(int(attributes[f"{prefix}sources"]))]
    chain = [attributes[f"layer{n - 1}_name"]] if n else []
    if kind is not place or sources != chain or int(attributes[f"{prefix}type"]) or int(attributes[f"{prefix}skips"]):
        raise ValueError(
            f"layer {attributes[f'{prefix}name']!r}: only a chain of fully connected layers is supported yet"
        )
    return Layer(
        name=str(attributes[f"{prefix}name"]),
        kind=kind,
        units=int(attributes[f"{prefix}Nx"]),
        data_set=str(attributes[f"{prefix}dataSet"]),
        sparse=bool(int(attributes[f"{prefix}attributes"]) & SPARSE),
        activation=_named(ACTIVATIONS, attributes, f"{prefix}activation"),
        dropout=float(attributes.get(f"{prefix}pDropout", 0)),
        init=WeightInit(
            scheme=_named(SCHEMES, attributes, f"{prefix}weightInit", Scheme.XAVIER),
            scale=float(attributes.get(f"{prefix}weightInitScale", 1)),
            bias=float(attributes.get(f"{prefix}biasInit", 0)),
        ),
    )


def _edge(content: netcdf.Content, spec: NetworkSpec, n: int) -> Edge:
    below, above = spec.layers[n].units or 0, spec.layers[n + 1].units or 0
    if content.attributes[f"weight{n}_inputLayer"] != spec.layers[n].name:
        raise ValueError(f"weight{n}_inputLayer: weight matrices out of order are not supported yet")
    weights, bias = (_floats(content, f"weight{n}_{kind}") for kind in ("weights", "bias"))
    if weights.size != below * above or bias.size != above:
        raise ValueError(
            f"weight{n}_weights: {weights.size} weights and {bias.size} biases, legal: {below * above}, {above}"
        )
    last = n == len(spec.layers) - 2
    weights = weights.reshape(below, above)
    return Edge(np.ascontiguousarray(weights.T if last else weights), bias, last)


def _floats(content: netcdf.Content, name: str) -> Any:
    values = content.variables[name].values
    if isinstance(values, tuple) or values.dtype.kind != "f":
        raise ValueError(f"variable {name} is not of type float")
    return values.astype(np.float32)


def _names(content: netcdf.Content, spec: NetworkSpec, n: int) -> tuple[str, ...]:
    variable = content.variables.get(f"layer{n}_features")
    if variable is None or not isinstance(variable.values, tuple):
        return ()
    if len(variable.values) != spec.layers[n].units:
        raise ValueError(f"layer{n}_features: {len(variable.values)} names, layer{n}_Nx is {spec.layers[n].units}")
    return variable.values


def _named(codes: Mapping[Any, int], attributes: Mapping[str, Any], key: str, default: Any = None) -> Any:
    if key not in attributes and default is not None:
        return default
    for name, code in codes.items():
        if code == int(attributes[key]):
            return name
    legal = ", ".join(f"{code} {name}" for name, code in codes.items())
    raise ValueError(f"attribute {key}: {attributes[key]} is not supported yet, legal: {legal}")
