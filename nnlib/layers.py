"""The list `Layers` of a network file, read into dataclasses with every mistake noted.

Standard library only, because the manager reads networks too. Keys that are here and refused as not supported yet
are DSSTNE's, listed as LATER.
"""

from __future__ import annotations

from typing import Any

from nnlib.architecture import Activation, Layer, LayerKind, Scheme, WeightInit
from nnlib.checker import Problems, Section, shown

COMMON_KEYS = ("Kind", "Type", "Name", "N")
DATA_KEYS = ("Sparse", "DataSet")
COMPUTED_KEYS = ("Source", "Activation", "WeightInit")
LAYER_KEYS = {
    LayerKind.INPUT: COMMON_KEYS + DATA_KEYS,
    LayerKind.HIDDEN: (*COMMON_KEYS, "pDropout", *COMPUTED_KEYS),
    LayerKind.OUTPUT: COMMON_KEYS + DATA_KEYS + COMPUTED_KEYS,
}
LATER_LAYER_KEYS = (
    "Kernel",
    "KernelStride",
    "BatchNormalization",
    "SparsenessPenalty",
    "Function",
    "Skip",
    "RELUSlope",
    "Slope",
    "ELUAlpha",
    "SELULambda",
    "WeightNorm",
    "DeltaNorm",
    "SharedWeights",
    "pDropout",
    "Sparse",
)
LAYER_KINDS = {kind.value: kind for kind in LayerKind}
ACTIVATIONS = {a.value: a for a in Activation} | {"RectifiedLinear": Activation.RELU}
LATER_ACTIVATIONS = (
    "LRelu",
    "LeakyRectifiedLinear",
    "ELU",
    "ExponentialLinear",
    "SELU",
    "ScaledExponentialLinear",
    "SoftPlus",
    "SoftSign",
    "RELUMax",
    "LinearMax",
)
SCHEMES = {scheme.value: scheme for scheme in Scheme}


def parse_layers(network: Section, problems: Problems) -> tuple[Layer, ...]:
    """Return the layers of a network's section, noting every problem; those in error have defaults or are left out."""
    raw = network.raw("Layers")
    raw = [raw] if isinstance(raw, dict) else raw
    if not isinstance(raw, list) or len(raw) < 3:
        network.wrong("Layers", f"{shown(raw)} is not legal, legal: a list of an Input, one or more Hidden, an Output")
        return ()
    layers: list[Layer] = []
    for index, item in enumerate(raw):
        if not isinstance(item, dict):
            problems.add(f"Layers[{index}]", f"{shown(item)} is not legal, legal: an object {{...}}")
            continue
        place = LayerKind.INPUT if index == 0 else LayerKind.OUTPUT if index == len(raw) - 1 else LayerKind.HIDDEN
        layers.append(_layer(item, index, place, layers, problems))
    return tuple(layers)


def _layer(raw: dict[str, Any], index: int, place: LayerKind, before: list[Layer], problems: Problems) -> Layer:
    keys = LAYER_KEYS[place]
    later = [key for key in LATER_LAYER_KEYS if key not in keys]
    layer = Section(raw, f"Layers[{index}]", problems, keys, later)
    kind = layer.choice("Kind", LAYER_KINDS, place, later=("Target",))
    if kind is not place:
        layer.wrong(
            "Kind",
            f"{kind} here is not supported yet, legal: one Input first, Hidden between, one Output last",
        )
    layer.choice("Type", {"FullyConnected": 0}, 0, later=("Convolutional", "Pooling"))
    hidden = place is LayerKind.HIDDEN
    name = layer.text("Name", f"{place}{index}")
    if name in {other.name for other in before}:
        layer.wrong("Name", f"{shown(name)} is the name of an earlier layer, legal: a name of its own")
    if not hidden and not layer.text("DataSet", ""):
        layer.wrong("DataSet", 'is missing, legal: the name of a data set, such as "input"')
    if "Source" in layer and before and layer.raw("Source") not in (before[-1].name, [before[-1].name]):
        layer.wrong("Source", f"{shown(layer.raw('Source'))} is not supported yet, legal: {shown(before[-1].name)}")
    init = layer.section("WeightInit", ("Scheme", "Scale", "Bias"))
    return Layer(
        name=name,
        kind=place,
        units=_units(layer, auto=not hidden),
        data_set=layer.text("DataSet", ""),
        sparse=layer.boolean("Sparse", False),
        activation=layer.choice("Activation", ACTIVATIONS, Activation.SIGMOID, LATER_ACTIVATIONS),
        dropout=layer.number("pDropout", 0.0, 0, 1),
        init=WeightInit(
            scheme=init.choice("Scheme", SCHEMES, Scheme.XAVIER, later=("SELU",)),
            scale=init.number("Scale", 1.0),
            bias=init.number("Bias", 0.0),
        ),
    )


def _units(layer: Section, auto: bool) -> int | None:
    value = layer.raw("N") if "N" in layer else 1
    if auto and isinstance(value, str) and value.lower() == "auto":
        return None
    if isinstance(value, str) and value.startswith("$"):
        layer.wrong("N", f"{shown(value)} has no value, give the hyperparameter {shown(value[1:])} one")
        return None
    if isinstance(value, list) and len(value) != 1:
        layer.wrong("N", f"{shown(value)} is not supported yet, legal: one number of units")
        return None
    value = value[0] if isinstance(value, list) else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        legal = "a whole number from 1" + (' or "auto"' if auto else "")
        layer.wrong("N", f"{shown(value)} is not legal, legal: {legal}")
        return None
    return value
