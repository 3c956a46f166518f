"""From DSSTNE's network JSON to a `NetworkSpec`, with every mistake reported at once; and the names of metrics.

Standard library only, because the manager reads networks too. Keys and enumerated values are matched without
regard to case; names of layers and data sets are case-sensitive. `"$name"` in place of any value takes the
hyperparameter `name`, so one file serves a whole search:

    raw = read_json(path)
    spec = parse_network(substitute(raw, {"hidden": 128}), file="network.json")

DSSTNE features beyond a chain of fully connected layers are listed as LATER and refused as not supported yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnlib.architecture import Activation, ErrorFunction, LayerKind, Marginal, NetworkSpec
from nnlib.checker import Problems, Section, nearest, shown
from nnlib.layers import parse_layers


class SpecError(ValueError):
    """A network that cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


NETWORK_KEYS = (
    "Version",
    "Name",
    "Kind",
    "ShuffleIndices",
    "Denoising",
    "ScaledMarginalCrossEntropy",
    "ErrorFunction",
    "Layers",
)
LATER_NETWORK_KEYS = (
    "WeightsData",
    "LocalResponseNormalization",
    "LRN",
    "Maxout",
    "SparsenessPenalty",
    "DeltaBoost",
    "DataScaledMarginalCrossEntropy",
    "RELUSlope",
    "Slope",
    "ELUAlpha",
    "SELULambda",
    "Decay",
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
        layers=parse_layers(network, problems),
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


def _check_chain(spec: NetworkSpec, problems: Problems) -> None:
    for index, layer in enumerate(spec.layers):
        path = f"Layers[{index}].Activation"
        output = layer.kind is LayerKind.OUTPUT
        if output and layer.activation not in (Activation.SIGMOID, Activation.SOFTMAX):
            problems.add(path, f"{layer.activation} has no {spec.error} error, legal for Output: Sigmoid, SoftMax")
        if layer.kind is LayerKind.HIDDEN and layer.activation is Activation.SOFTMAX:
            problems.add(path, "SoftMax in a Hidden layer is not supported yet, legal: Sigmoid, Tanh, Relu, Linear")
