"""Which hyperparameters shape a network, and a search that leaves them as a trained model has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from regiondag.study.constraints import parse_constraints
from regiondag.study.model import TRAIN_SETTINGS, Search
from regiondag.study.space import Choice, Parameter, Value, When

# What these keys of a network hold says how it is trained; its weights mean the same whatever it is.
NO_SHAPE = frozenset(
    key.lower()
    for key in (
        *("pDropout", "Denoising", "SparsenessPenalty", "WeightInit", "ShuffleIndices", "Decay", "DeltaNorm"),
        *("DeltaBoost", "ScaledMarginalCrossEntropy", "DataScaledMarginalCrossEntropy", "FineTuning"),
        *("DropChannels", "Augmentation"),
    )
)


def find_shaping(raw_network: Any) -> tuple[str, ...]:
    """Return the placeholders of a network (JSON values) that shape it, such as the width of a layer, sorted.

    >>> find_shaping({"Denoising": {"p": "$denoising"}, "Layers": [{"N": "$hidden", "pDropout": "$dropout"}]})
    ('hidden',)
    """
    return tuple(sorted(set(_find_names(raw_network)) - TRAIN_SETTINGS))


def _find_names(raw: Any) -> Iterator[str]:
    if isinstance(raw, dict):
        for key, value in raw.items():
            if key.lower() not in NO_SHAPE:
                yield from _find_names(value)
    elif isinstance(raw, list):
        for value in raw:
            yield from _find_names(value)
    elif isinstance(raw, str) and raw.startswith("$"):
        yield raw[1:]


def fix_values(search: Search, values: Mapping[str, Value]) -> Search:
    """Return `search` with the hyperparameters in `values` at these values, in every point that it proposes.

    Others exist in a point where they did before. Those that `values` leave no place for are gone, and so are
    constraints that speak of them, or of nothing but fixed ones.
    """
    known = {parameter.name: parameter for parameter in search.space}
    space: list[Parameter] = []
    for parameter in search.space:
        when = _conditions(parameter, known, values)
        if parameter.name in values:
            space.append(Choice(parameter.name, (values[parameter.name],)))
        elif when is not None:
            space.append(replace(parameter, when=when))
    free = {parameter.name for parameter in space} - values.keys()
    gone = known.keys() - free - values.keys()
    constraints = [
        constraint.text
        for constraint in parse_constraints(search.constraints, known)
        if constraint.names & free and not constraint.names & gone
    ]
    return replace(search, space=tuple(space), constraints=tuple(constraints))


def _conditions(parameter: Parameter, known: Mapping[str, Parameter], values: Mapping[str, Value]) -> When | None:
    """Return what has to hold of hyperparameters that are not fixed for one to exist; None when it never does."""
    found: When = ()
    for name, wanted in parameter.when:
        above = _conditions(known[name], known, values)
        if above is None or (name in values and values[name] not in wanted):
            return None
        found += above if name in values else ((name, wanted),)
    return found
