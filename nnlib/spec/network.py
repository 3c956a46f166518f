"""From DSSTNE's network JSON to a `NetworkSpec`, with every mistake reported at once; and the names of metrics.

Standard library only, because the manager reads networks too. Keys and enumerated values are matched without
regard to case; names of layers and data sets are case-sensitive. `"$name"` in place of any value takes the
hyperparameter `name`, so one file serves a whole search:

    raw = read_json(path)
    spec = parse_network(substitute(raw, {"hidden": 128}), file="network.json")

or in one step `read_network(path, {"hidden": 128})`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nnlib.contract import TrainSettings, Trial
from nnlib.plain_file import read_most
from nnlib.spec.augmentation import parse_augmentation
from nnlib.spec.fine_tuning import check_fine_tuning, parse_fine_tuning
from nnlib.spec.json_section import Problems, Section, SpecError, nearest, show
from nnlib.spec.layers import Defaults, parse_layers, parse_sparseness
from nnlib.spec.sizes import resolve_sizes
from nnlib.spec.topology import check_topology
from nnlib.spec.types import Boost, ErrorFunction, FineTuning, LocalResponse, Marginal, NetworkSpec

__all__ = [
    "SpecError",
    "network_of",
    "parse_network",
    "placeholders",
    "read_json",
    "read_network",
    "substitute",
]


Value = bool | int | float | str

NETWORK_KEYS = (
    *("Version", "Name", "Kind", "WeightsData", "ShuffleIndices", "ErrorFunction", "Layers"),
    *("LocalResponseNormalization", "Maxout", "SparsenessPenalty", "Denoising", "DeltaBoost", "Decay"),
    *("ScaledMarginalCrossEntropy", "RELUSlope", "ELUAlpha", "SELULambda"),
    *("FineTuning", "Augmentation"),
)
ALIASES = {
    "LRN": "LocalResponseNormalization",
    "DataScaledMarginalCrossEntropy": "ScaledMarginalCrossEntropy",  # the same four numbers
    "Slope": "RELUSlope",
}
KINDS = {kind: kind for kind in ("FeedForward", "AutoEncoder")}
ERROR_FUNCTIONS = {e.value: e for e in ErrorFunction} | {"cross entropy": ErrorFunction.CROSS_ENTROPY}
MOST_BYTES = 16 << 20  # of a file; a network of hundreds of layers has 100 kB
MOST_NESTED = 50  # brackets within brackets; a network has six


def read_json(path: Path) -> Any:
    """Read a network file as plain JSON values; // and /* */ comments are allowed, as in DSSTNE.

    A key that comes twice in one object is a problem: one of its values would be lost.
    """
    repeated: list[tuple[dict[str, Any], str]] = []
    strings_or_comments = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)

    def blanked(match: re.Match[str]) -> str:
        text = match.group()
        return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeated.extend((found, key) for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return found

    try:
        text = strings_or_comments.sub(blanked, read_most(path, MOST_BYTES).decode("utf-8"))
        raw = json.loads(text, object_pairs_hook=once)
    except UnicodeDecodeError as error:
        raise SpecError([f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"]) from error
    except RecursionError as error:
        raise SpecError([f"{path}: brackets are nested too deeply, legal: up to {MOST_NESTED}"]) from error
    except json.JSONDecodeError as error:
        if not text.strip():
            raise SpecError([f"{path}: empty, legal: a network as DSSTNE's JSON"]) from error
        raise SpecError([f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}"]) from error
    except ValueError as error:  # Python reads no integer of more than a few thousand digits
        raise SpecError([f"{path}: {error}"]) from error
    level = [raw]
    for _ in range(MOST_NESTED):
        level = [inner for outer in level for inner in _inside(outer)]
    if level:
        raise SpecError([f"{path}: brackets are nested too deeply, legal: up to {MOST_NESTED}"])
    if repeated:
        places = {id(found): place for place, found in _objects(raw, "")}
        raise SpecError(
            [
                f"{path}: {places[id(found)]}{key}: comes more than once, legal: once"
                for found, key in repeated
                if id(found) in places  # else it is in a value that another one replaced, which is told
            ]
        )
    return raw


def placeholders(raw: Any) -> dict[str, str]:
    """Return the hyperparameters that `raw` takes: name -> key path of its first `"$name"`."""
    found: dict[str, str] = {}
    for path, value in _leaves(raw, ""):
        if isinstance(value, str) and value.startswith("$"):
            found.setdefault(value[1:], path)
    return found


def substitute(raw: Any, values: Mapping[str, Value], file: str = "network") -> Any:
    """Return a copy of `raw` with every `"$name"` replaced; SpecError names those without a value."""
    known = ", ".join(sorted(values)) or "none"
    problems = [
        f'{file}: {path}: "${name}" has no value{nearest(name, values)}; hyperparameters with one: {known}; '
        f"nnlib's option --set {name}=VALUE gives it one"
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


def network_of(
    raw: Any,
    file: str,
    hyperparameters: Mapping[str, Value],
    others: Mapping[str, Value] | None = None,
    compat: bool = False,
    legal: Callable[[str], str] | None = None,
) -> NetworkSpec:
    """Return a network with hyperparameters and `others` for its placeholders.

    SpecError names a hyperparameter that is used nowhere, or all that is wrong with the network. `legal` says what
    is legal instead of an unused one: an empty text when it is legal itself.
    """
    for name in sorted(set(hyperparameters) - set(placeholders(raw))):
        instead = legal(name) if legal is not None else f'"${name}" in place of a value'
        if instead:
            raise SpecError([f"{file}: hyperparameter {name!r} is used nowhere, legal: {instead}"])
    return parse_network(substitute(raw, {**(others or {}), **hyperparameters}, file), file, compat)


def network_of_trial(trial: Trial, folder: Path) -> NetworkSpec:
    """Return the network that a trial trains, whose file lies in `folder`, with its hyperparameters; SpecError.

    Those of TrainSettings are in `trial.train` already.
    """

    def legal(name: str) -> str:
        fields = TrainSettings.__dataclass_fields__
        return "" if name in fields else f'"${name}" in place of a value, or a training setting: {", ".join(fields)}'

    raw, train = read_json(folder / trial.network), trial.train
    spec = network_of(raw, trial.network, trial.hyperparameters, asdict(train), train.as_dsstne, legal)
    return spec if trial.init is not None else replace(spec, tuning=FineTuning())  # one file serves all regions


def read_network(path: Path, hyperparameters: Mapping[str, Value], compat: bool = False) -> NetworkSpec:
    """Return the network of the file at `path` with `hyperparameters` in place of its placeholders."""
    return parse_network(substitute(read_json(path), hyperparameters, str(path)), str(path), compat)


def parse_network(raw: Any, file: str, compat: bool = False) -> NetworkSpec:
    """Return the network that `raw` (JSON values, no placeholders left) describes; `file` is for messages.

    With `compat`, what a file leaves out is as in DSSTNE even where that is odd. Raises SpecError with every problem
    (file, key path, value seen, what is legal): those of single values, and when there are none those of the whole.
    """
    problems = Problems(file)
    if not isinstance(raw, dict):
        raise SpecError([f"{file}: {show(raw)} is not a network, legal: an object with the key Layers"])
    network = Section(raw, "", problems, NETWORK_KEYS, ALIASES)
    if network.number("Version", 0.9) < 0.7:
        network.wrong("Version", f"{show(network.raw('Version'))} is too old, legal: 0.7 and later")
    network.text("WeightsData", "")  # DSSTNE reads it and does nothing with it
    response = network.section("LocalResponseNormalization", ("k", "n", "alpha", "beta"))
    boost = network.section("DeltaBoost", ("one", "zero"))
    spec = NetworkSpec(
        name=network.text("Name", ""),
        kind=network.choice("Kind", KINDS, "FeedForward"),
        error=network.choice("ErrorFunction", ERROR_FUNCTIONS, ErrorFunction.CROSS_ENTROPY),
        marginal=_marginal(network),
        boost=Boost(one=boost.number("one", 1.0, 0), zero=boost.number("zero", 1.0, 0)),
        sparseness=parse_sparseness(network),
        denoising=network.section("Denoising", ("p",)).number("p", 0.0, 0, 1, closed=False),
        shuffle=network.boolean("ShuffleIndices", True),
        decay=network.number("Decay", 0.0, 0),
        local_response=LocalResponse(
            k=response.number("k", 2.0),
            n=response.whole("n", 5),
            alpha=response.number("alpha", 1e-4),
            beta=response.number("beta", 0.75),
        ),
        maxout=network.section("Maxout", ("k",)).whole("k", 2),
        compat=compat,
        tuning=parse_fine_tuning(network),
        augmentation=parse_augmentation(network),
        layers=parse_layers(network, _defaults(network, compat), problems),
    )
    if problems.found:
        raise SpecError(problems.found)
    check_topology(spec, file)
    check_topology(resolve_sizes(spec, file), file)  # the sizes that are known without data
    check_fine_tuning(spec, file)
    return spec


def _inside(raw: Any) -> Iterable[Any]:
    return raw.values() if isinstance(raw, dict) else raw if isinstance(raw, list) else ()


def _objects(raw: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every object with what stands before its keys in a key path."""
    if isinstance(raw, dict):
        before = f"{path}." if path else ""
        yield before, raw
        for key, value in raw.items():
            yield from _objects(value, f"{before}{key}")
    elif isinstance(raw, list):
        for index, value in enumerate(raw):
            yield from _objects(value, f"{path}[{index}]")


def _leaves(raw: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(raw, dict):
        for key, value in raw.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(raw, list):
        for index, value in enumerate(raw):
            yield from _leaves(value, f"{path}[{index}]")
    else:
        yield path, raw


def _defaults(network: Section, compat: bool) -> Defaults:
    """Return the network's slope, alpha and lambda."""
    return Defaults(
        slope=network.number("RELUSlope", 0.0, 0, 1) if "RELUSlope" in network else None,
        alpha=network.number("ELUAlpha", 0.0, 0) if "ELUAlpha" in network else None,
        selu_lambda=network.number("SELULambda", 1.050701, 0),
        compat=compat,
    )


def _marginal(network: Section) -> Marginal:
    section = network.section("ScaledMarginalCrossEntropy", ("oneTarget", "zeroTarget", "oneScale", "zeroScale"))
    return Marginal(
        one_target=section.number("oneTarget", 0.9, 0, 1),
        zero_target=section.number("zeroTarget", 0.1, 0, 1),
        one_scale=section.number("oneScale", 1.0, 0),
        zero_scale=section.number("zeroScale", 1.0, 0),
    )
