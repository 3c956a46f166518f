"""The list `Layers` of a network file, read into dataclasses with every mistake noted.

Standard library only, because the manager reads networks too. What layers mean to each other is checked in
`topology`, once all of them are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nnlib.spec.json_section import MOST_UNITS, Problems, Section, show
from nnlib.spec.kernel import parse_kernel
from nnlib.spec.types import (
    Activation,
    Layer,
    LayerKind,
    LayerType,
    PoolingFunction,
    Scheme,
    SharedWeights,
    Sparseness,
    WeightInit,
)

INPUT_KEYS = ("Kind", "Type", "Name", "N", "Sparse", "pDropout", "DataSet")
COMPUTED_KEYS = (
    *("Kind", "Type", "Name", "N", "Sparse", "pDropout", "Source", "Skip", "Function"),
    *("Kernel", "KernelStride", "Padding", "Dilation", "Groups", "DropChannels"),
    *("Activation", "RELUSlope", "ELUAlpha", "SELULambda"),
    *("WeightNorm", "DeltaNorm", "WeightInit", "SharedWeights"),
)
LAYER_KEYS = {
    LayerKind.INPUT: INPUT_KEYS,
    LayerKind.HIDDEN: (*COMPUTED_KEYS, "BatchNormalization", "SparsenessPenalty"),
    LayerKind.OUTPUT: (*COMPUTED_KEYS, "DataSet"),
}
MOST_LAYERS = 2000  # ResNet-152 has 500; what a network costs before it learns grows with their square
ALIASES = {"Slope": "RELUSlope"}
ALL_KEYS = {key for keys in LAYER_KEYS.values() for key in keys} | set(ALIASES)
SHARED_NAMES = ("InputLayer", "SourceInputLayer", "SourceOutputLayer")

LAYER_KINDS = {kind.value: kind for kind in LayerKind}
NO_KINDS = {"Target": "DSSTNE reads Target layers but does nothing with them"}
TYPES = {type_.value: type_ for type_ in LayerType}
ACTIVATIONS = {a.value: a for a in Activation} | {
    "RectifiedLinear": Activation.RELU,
    "LRelu": Activation.LEAKY_RELU,
    "ELU": Activation.ELU,
    "SELU": Activation.SELU,
}
NO_ACTIVATIONS = dict.fromkeys(("ParametricRectifiedLinear", "PRelu"), "DSSTNE has the name only and trains no slopes")
SCHEMES = {scheme.value: scheme for scheme in Scheme}
NO_FUNCTIONS: dict[str, str] = dict.fromkeys(
    (PoolingFunction.STOCHASTIC, PoolingFunction.LCN, PoolingFunction.GLOBAL_TEMPORAL),
    "DSSTNE has the name only and computes nothing for it",
)
FUNCTIONS = {f.value: f for f in PoolingFunction if f not in NO_FUNCTIONS}
FUNCTIONS["LocalResponseNormalization"] = PoolingFunction.LRN

SLOPE, DSSTNE_SLOPE = 0.01, 1.0  # DSSTNE's default makes a leaky rectifier the identity
SELU_ALPHA, ALPHA = 1.6732632, 1.0  # DSSTNE's default for SELU is that of ELU, which does not keep the variance


@dataclass(frozen=True, slots=True)
class Defaults:
    """The network's own slope, alpha and lambda, which its layers have unless they say otherwise; None if not given."""

    slope: float | None
    alpha: float | None
    selu_lambda: float
    compat: bool

    def slope_of(self, layer: Section) -> float:
        """Return the slope of a leaky rectifier."""
        usual = DSSTNE_SLOPE if self.compat else SLOPE
        return layer.number("RELUSlope", usual if self.slope is None else self.slope, 0, 1)

    def alpha_of(self, layer: Section, activation: Activation) -> float:
        """Return the alpha of an exponential unit."""
        usual = SELU_ALPHA if activation is Activation.SELU and not self.compat else ALPHA
        return layer.number("ELUAlpha", usual if self.alpha is None else self.alpha, 0)


def parse_layers(network: Section, defaults: Defaults, problems: Problems) -> tuple[Layer, ...]:
    """Return the layers of a network's section, noting every problem; those in error have defaults or are left out."""
    raw = network.raw("Layers")
    raw = [raw] if isinstance(raw, dict) else raw
    if not isinstance(raw, list) or not raw:
        network.wrong("Layers", f"{show(raw)} is not legal, legal: an array of layers, such as Input, Hidden, Output")
        return ()
    if len(raw) > MOST_LAYERS:
        network.wrong("Layers", f"{len(raw):,} layers are not legal, legal: {MOST_LAYERS:,} at most")
        return ()
    layers: list[Layer] = []
    names: set[str] = set()
    for index, item in enumerate(raw):
        if not isinstance(item, dict):
            problems.add(f"Layers[{index}]", f"{show(item)} is not legal, legal: an object {{...}}")
            continue
        usual = LayerKind.INPUT if not index else LayerKind.OUTPUT if index == len(raw) - 1 else LayerKind.HIDDEN
        kind, section = _section(item, f"Layers[{index}]", usual, problems)
        name = section.text("Name", "") or f"{kind}{index}"
        if name in names:
            section.wrong("Name", f"{show(name)} is the name of an earlier layer, legal: a name of its own")
        names.add(name)
        layers.append(_layer(section, name, kind, layers[-1].name if layers else None, defaults))
    return tuple(layers)


def _section(raw: Mapping[str, object], path: str, usual: LayerKind, problems: Problems) -> tuple[LayerKind, Section]:
    """Return the kind of a layer and its keys, of which the kind decides what is legal."""
    kinds = {key: value for key, value in raw.items() if key.lower() == "kind"}
    kind = Section(kinds, path, problems, ("Kind",)).choice("Kind", LAYER_KINDS, usual, NO_KINDS)
    why = f"not a key of {'a' if kind is LayerKind.HIDDEN else 'an'} {kind} layer"
    return kind, Section(raw, path, problems, LAYER_KEYS[kind], ALIASES, dict.fromkeys(ALL_KEYS, why))


def _layer(layer: Section, name: str, kind: LayerKind, previous: str | None, defaults: Defaults) -> Layer:
    type_ = _type(layer, kind)
    dimensions, units = _size(layer, kind, type_)
    function = _function(layer, type_)
    kernel = parse_kernel(layer, kind, type_, function)
    pools = type_ is LayerType.POOLING
    usual = Activation.LINEAR if pools else Activation.SIGMOID
    activation = layer.choice("Activation", ACTIVATIONS, usual, NO_ACTIVATIONS)
    init = layer.section("WeightInit", ("Scheme", "Scale", "Bias"))
    if kind is not LayerKind.HIDDEN and layer.raw("DataSet") in (None, ""):
        layer.wrong("DataSet", 'is missing, legal: the name of a data set, such as "input"')
    return Layer(
        name=name,
        kind=kind,
        units=units,
        type=type_,
        dimensions=dimensions,
        data_set=layer.text("DataSet", ""),
        sparse=layer.boolean("Sparse", False),
        sources=_sources(layer, kind, previous),
        skips=layer.texts("Skip"),
        shared=_shared(layer),
        activation=usual if pools and defaults.compat else activation,  # DSSTNE's pooling layers have none
        slope=defaults.slope_of(layer),
        alpha=defaults.alpha_of(layer, activation),
        selu_lambda=layer.number("SELULambda", defaults.selu_lambda, 0),
        dropout=layer.number("pDropout", 0.0, 0, 1, closed=False),
        batch_norm=layer.boolean("BatchNormalization", False),
        sparseness=parse_sparseness(layer),
        weight_norm=layer.number("WeightNorm", 0.0, 0),
        delta_norm=layer.number("DeltaNorm", 0.0, 0),
        init=WeightInit(
            scheme=init.choice("Scheme", SCHEMES, Scheme.XAVIER),
            scale=init.number("Scale", 1.0),
            bias=init.number("Bias", 0.0),
        ),
        function=function,
        kernel=kernel.sizes,
        stride=kernel.stride,
        padding=kernel.padding,
        dilation=kernel.dilation,
        groups=kernel.groups,
        drop_channels=_drop_channels(layer, type_),
    )


def parse_sparseness(owner: Section) -> Sparseness:
    """Return the sparseness penalty of a network or a layer."""
    section = owner.section("SparsenessPenalty", ("p", "beta"))
    return Sparseness(p=section.number("p", 0.0, 0, 1), beta=section.number("beta", 0.0, 0))


def _type(layer: Section, kind: LayerKind) -> LayerType:
    if kind is LayerKind.INPUT:
        types = {name: type_ for name, type_ in TYPES.items() if type_ is not LayerType.POOLING}
        return layer.choice("Type", types, LayerType.FULLY_CONNECTED, {"Pooling": "an Input has nothing to pool"})
    return layer.choice("Type", TYPES, LayerType.FULLY_CONNECTED)


def _size(layer: Section, kind: LayerKind, type_: LayerType) -> tuple[tuple[int, ...], int | None]:
    """Return N as dimensions, and the number of units where N alone decides it."""
    value = layer.raw("N")
    auto = kind is not LayerKind.HIDDEN
    if auto and isinstance(value, str) and value.lower() == "auto":
        return (), None
    dimensions = layer.wholes("N", 4, ' or "auto"' if auto else "") if "N" in layer else (1,)
    units = math.prod(dimensions)
    if units > MOST_UNITS:
        layer.wrong("N", f"{show(value)} makes {units} units, legal: up to {MOST_UNITS}")
    computed = kind is not LayerKind.INPUT and type_ is not LayerType.FULLY_CONNECTED
    return dimensions, units if dimensions and not computed else None


def _drop_channels(layer: Section, type_: LayerType) -> bool:
    if "DropChannels" in layer and type_ is LayerType.FULLY_CONNECTED:
        layer.wrong("DropChannels", f"not a key of a layer of type {type_}, legal: with Type Convolutional or Pooling")
        return False
    return layer.boolean("DropChannels", False)


def _sources(layer: Section, kind: LayerKind, previous: str | None) -> tuple[str, ...]:
    if kind is LayerKind.INPUT:
        return ()
    if "Source" in layer:
        sources = layer.texts("Source")
        if layer.raw("Source") == []:
            layer.wrong("Source", "[] is not legal, legal: one name or more")
        return sources
    if previous is None:
        layer.wrong("Source", f"is missing in the first layer, of kind {kind}, legal: the name of a layer")
        return ()
    return (previous,)


def _shared(layer: Section) -> tuple[SharedWeights, ...]:
    found = []
    for section in layer.sections("SharedWeights", (*SHARED_NAMES, "Transposed")):
        for key in SHARED_NAMES:
            if key not in section:
                section.wrong(key, "is missing, legal: the name of a layer")
        source, owner_source, owner_target = (section.text(key, "") for key in SHARED_NAMES)
        found.append(SharedWeights(source, owner_source, owner_target, section.boolean("Transposed", False)))
    return tuple(found)


def _function(layer: Section, type_: LayerType) -> PoolingFunction | None:
    function = layer.choice("Function", FUNCTIONS, None, NO_FUNCTIONS)
    if "Function" in layer and type_ is not LayerType.POOLING:
        layer.wrong("Function", f"not a key of a layer of type {type_}, legal: only with Type Pooling")
        return None
    if "Function" not in layer and type_ is LayerType.POOLING:
        layer.wrong("Function", f"is missing, legal: {', '.join(FUNCTIONS)}")
    return function
