"""DSSTNE's network JSON as frozen dataclasses, with every mistake reported at once.

Standard library only, because the manager reads networks too. Keys and enumerated values are matched without
regard to case; names of layers and data sets are case-sensitive. `"$name"` in place of any value takes the
hyperparameter `name`, so one file serves a whole search:

    raw = read_json(path)
    spec = parse_network(substitute(raw, {"hidden": 128}), file="network.json")

DSSTNE features beyond a chain of fully connected layers are listed as LATER and refused as not supported yet.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlib.checker import Problems, Section, nearest, shown


class SpecError(ValueError):
    """A network that cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class LayerKind(enum.StrEnum):
    """Where a layer stands."""

    INPUT = "Input"
    HIDDEN = "Hidden"
    OUTPUT = "Output"


class Activation(enum.StrEnum):
    """What a unit makes of its weighted sum."""

    SIGMOID = "Sigmoid"
    TANH = "Tanh"
    RELU = "Relu"
    LINEAR = "Linear"
    SOFTMAX = "SoftMax"


class ErrorFunction(enum.StrEnum):
    """What training minimizes."""

    CROSS_ENTROPY = "CrossEntropy"
    MARGINAL = "ScaledMarginalCrossEntropy"


class Scheme(enum.StrEnum):
    """How weights start; `ops.initial_weights` has the formulas."""

    XAVIER = "Xavier"
    CAFFE_XAVIER = "CaffeXavier"
    GAUSSIAN = "Gaussian"
    UNIFORM = "Uniform"
    UNIT_BALL = "UnitBall"
    CONSTANT = "Constant"


@dataclass(frozen=True, slots=True)
class WeightInit:
    """How the weights and biases of the edge into a layer start."""

    scheme: Scheme = Scheme.XAVIER
    scale: float = 1.0
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; `units` is None for `"N": "auto"`, which takes the width of the data set."""

    name: str
    kind: LayerKind
    units: int | None
    data_set: str = ""
    sparse: bool = False
    activation: Activation = Activation.SIGMOID
    dropout: float = 0.0
    init: WeightInit = WeightInit()


@dataclass(frozen=True, slots=True)
class Marginal:
    """Targets and scales of ScaledMarginalCrossEntropy."""

    one_target: float = 0.9
    zero_target: float = 0.1
    one_scale: float = 1.0
    zero_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A chain of layers: one Input, at least one Hidden, one Output."""

    layers: tuple[Layer, ...]
    name: str = ""
    kind: str = "FeedForward"
    error: ErrorFunction = ErrorFunction.CROSS_ENTROPY
    marginal: Marginal = Marginal()
    denoising: float = 0.0
    shuffle: bool = True


NETWORK_KEYS = (
    *(
        "Version",
        "Name",
        "Kind",
        "ShuffleIndices",
        "Denoising",
        "ScaledMarginalCrossEntropy",
        "ErrorFunction",
    ),
    "Layers",
)
LATER_NETWORK_KEYS = (
    *("WeightsData", "LocalResponseNormalization", "LRN", "Maxout", "SparsenessPenalty", "DeltaBoost"),
    *("DataScaledMarginalCrossEntropy", "RELUSlope", "Slope", "ELUAlpha", "SELULambda", "Decay"),
)
INPUT_KEYS = ("Kind", "Type", "Name", "N", "Sparse", "DataSet")
HIDDEN_KEYS = ("Kind", "Type", "Name", "N", "pDropout", "Source", "Activation", "WeightInit")
OUTPUT_KEYS = ("Kind", "Type", "Name", "N", "Sparse", "DataSet", "Source", "Activation", "WeightInit")
LAYER_KEYS = {LayerKind.INPUT: INPUT_KEYS, LayerKind.HIDDEN: HIDDEN_KEYS, LayerKind.OUTPUT: OUTPUT_KEYS}
LATER_LAYER_KEYS = (
    *(
        "Kernel",
        "KernelStride",
        "BatchNormalization",
        "SparsenessPenalty",
        "Function",
        "Skip",
        "RELUSlope",
        "Slope",
    ),
    *("ELUAlpha", "SELULambda", "WeightNorm", "DeltaNorm", "SharedWeights", "pDropout", "Sparse"),
)
LAYER_KINDS = {kind.value: kind for kind in LayerKind}
ACTIVATIONS = {a.value: a for a in Activation} | {"RectifiedLinear": Activation.RELU}
LATER_ACTIVATIONS = (
    *("LRelu", "LeakyRectifiedLinear", "ELU", "ExponentialLinear", "SELU", "ScaledExponentialLinear"),
    *("SoftPlus", "SoftSign", "RELUMax", "LinearMax"),
)
ERROR_FUNCTIONS = {e.value: e for e in ErrorFunction} | {"cross entropy": ErrorFunction.CROSS_ENTROPY}
LATER_ERROR_FUNCTIONS = ("L1", "L2", "L2Hinge", "Hinge", "DataScaledMarginalCrossEntropy")
METRICS = ("p", "recall", "ndcg")


def read_json(path: Path) -> Any:
    """Read a network file as plain JSON values; // and /* */ comments are allowed, as in DSSTNE."""
    strings_or_comments = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)

    def blanked(match: re.Match[str]) -> str:
        text = match.group()
        return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)

    try:
        return json.loads(strings_or_comments.sub(blanked, path.read_text(encoding="utf-8")))
    except UnicodeDecodeError as error:
        raise SpecError([f"{path.name}: byte {error.start} is not UTF-8; save the file as UTF-8"]) from error
    except RecursionError as error:
        raise SpecError([f"{path.name}: brackets are nested too deeply for a network"]) from error
    except json.JSONDecodeError as error:
        raise SpecError([f"{path.name}:{error.lineno}:{error.colno}: not JSON: {error.msg}"]) from error


def placeholders(raw: Any) -> dict[str, str]:
    """Return the hyperparameters that `raw` takes: name -> key path of its first `"$name"`."""
    found: dict[str, str] = {}
    for path, value in _leaves(raw, ""):
        if isinstance(value, str) and value.startswith("$"):
            found.setdefault(value[1:], path)
    return found


def substitute(raw: Any, values: Mapping[str, bool | int | float | str], file: str = "network") -> Any:
    """Return a copy of `raw` with every `"$name"` replaced; SpecError names those without a value."""
    known = ", ".join(sorted(values)) or "none"
    problems = [
        f'{file}: {path}: "${name}" has no value{nearest(name, values)}; hyperparameters with one: {known}'
        for name, path in placeholders(raw).items()
        if name not in values
    ]
    if problems:
        raise SpecError(problems)

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return values[value[1:]] if isinstance(value, str) and value.startswith("$") else value

    return replaced(raw)


def parse_network(raw: Any, file: str) -> NetworkSpec:
    """Return the network that `raw` (JSON values, no placeholders left) describes; `file` is for messages.

    Raises SpecError with every problem: file, key path, value seen, what is legal.
    """
    problems = Problems(file)
    if not isinstance(raw, dict):
        raise SpecError([f"{file}: {shown(raw)} is not a network, legal: an object with the key Layers"])
    network = Section(raw, "", problems, NETWORK_KEYS, LATER_NETWORK_KEYS)
    if network.number("Version", 0.9) < 0.7:
        network.wrong("Version", f"{shown(network.raw('Version'))} is too old, legal: 0.7 and later")
    margin = network.section("ScaledMarginalCrossEntropy", ("oneTarget", "zeroTarget", "oneScale", "zeroScale"))
    spec = NetworkSpec(
        name=network.text("Name", ""),
        kind=network.choice("Kind", {k: k for k in ("FeedForward", "AutoEncoder")}, "FeedForward"),
        error=network.choice("ErrorFunction", ERROR_FUNCTIONS, ErrorFunction.CROSS_ENTROPY, LATER_ERROR_FUNCTIONS),
        marginal=Marginal(
            one_target=margin.number("oneTarget", 0.9, 0, 1, closed=True),
            zero_target=margin.number("zeroTarget", 0.1, 0, 1, closed=True),
            one_scale=margin.number("oneScale", 1.0, 0),
            zero_scale=margin.number("zeroScale", 1.0, 0),
        ),
        denoising=network.section("Denoising", ("p",)).number("p", 0.0, 0, 1),
        shuffle=network.boolean("ShuffleIndices", True),
        layers=_layers(network, problems),
    )
    if not problems.found:
        _check_chain(spec, problems)
    if problems.found:
        raise SpecError(problems.found)
    return spec


def parse_metric(name: str) -> tuple[str, int | None]:
    """Return ("ndcg", 20) for `ndcg@20`, ("p", 10) for `p@10` or `precision@10`, ("loss", None)."""
    kind, at, k = name.lower().partition("@")
    kind = "p" if kind == "precision" else kind
    if kind == "loss" and not at:
        return "loss", None
    if kind in METRICS and re.fullmatch(r"[1-9][0-9]{0,5}", k):
        return kind, int(k)
    hint = "" if kind in METRICS else nearest(kind, (*METRICS, "precision", "loss"))
    raise ValueError(f"metric {name!r} is not legal, legal: p@K, recall@K, ndcg@K (K = 1, 2, ...), loss{hint}")


def canonical_metric(name: str) -> str:
    """Return the metric's key in a result: `p@10` for `Precision@10`, `ndcg@20`, `loss`; ValueError as above."""
    kind, k = parse_metric(name)
    return kind if k is None else f"{kind}@{k}"


def _leaves(raw: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(raw, dict):
        for key, value in raw.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(raw, list):
        for index, value in enumerate(raw):
            yield from _leaves(value, f"{path}[{index}]")
    else:
        yield path, raw


def _layers(network: Section, problems: Problems) -> tuple[Layer, ...]:
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
            scheme=init.choice("Scheme", {s.value: s for s in Scheme}, Scheme.XAVIER, later=("SELU",)),
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


def _check_chain(spec: NetworkSpec, problems: Problems) -> None:
    for index, layer in enumerate(spec.layers):
        path = f"Layers[{index}].Activation"
        output = layer.kind is LayerKind.OUTPUT
        if output and layer.activation not in (Activation.SIGMOID, Activation.SOFTMAX):
            problems.add(path, f"{layer.activation} has no {spec.error} error, legal for Output: Sigmoid, SoftMax")
        if layer.kind is LayerKind.HIDDEN and layer.activation is Activation.SOFTMAX:
            problems.add(path, "SoftMax in a Hidden layer is not supported yet, legal: Sigmoid, Tanh, Relu, Linear")
