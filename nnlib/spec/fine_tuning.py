"""The key `FineTuning` of a network file: how a network that starts from a trained one is trained.

Standard library only, because the manager reads networks too.
"""

from __future__ import annotations

from collections.abc import Iterator

from nnlib.spec.checks import Check, whole
from nnlib.spec.json_section import MOST, MOST_UNITS, Problems, Section, SpecError, nearest, show
from nnlib.spec.types import FineTuning, Layer, LayerKind, LayerType, NetworkSpec


def _factor(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST:
        raise ValueError
    return float(value)


FACTOR = Check(_factor, "a number above 0")
EPOCH = whole(0, MOST_UNITS)


def parse_fine_tuning(network: Section) -> FineTuning:
    """Return what a network's section says; what its names mean is for `check_fine_tuning`."""
    own = network.section("FineTuning", ("Freeze", "Rates", "Replace", "UnfreezeAt"))
    raw = own.raw("Rates")
    if "Rates" in own and not isinstance(raw, dict):
        own.refuse("Rates", 'an object such as {"Hidden": 0.1}')
        raw = {}
    rates = own.section("Rates", raw or ())
    return FineTuning(
        freeze=own.texts("Freeze"),
        rates=tuple((name, rates.read(name, 1.0, FACTOR)) for name in raw or ()),
        replace=own.texts("Replace"),
        unfreeze_at=own.read("UnfreezeAt", 0, EPOCH),
    )


def check_fine_tuning(spec: NetworkSpec, file: str) -> None:
    """Raise SpecError with every name that is none of a layer with weights, and whatever cannot be trained so."""
    problems, tuning = Problems(file), spec.tuning
    for key, names in _named(tuning):
        for name in names:
            for text in _layer_problems(spec, name):
                problems.add(f"FineTuning.{key}", text)
    for name in tuning.replace:
        if name in tuning.freeze:
            problems.add("FineTuning.Replace", f"{show(name)} is drawn anew and frozen, legal: one of the two")
    if not problems.found:
        _check_whole(spec, problems)
    if problems.found:
        raise SpecError(problems.found)


def describe_tuning(tuning: FineTuning) -> list[str]:
    """Return what is special about the training of some layers, in words for people."""
    found = []
    if tuning.freeze:
        until = f" until epoch {tuning.unfreeze_at}" if tuning.unfreeze_at else ""
        found.append(f"frozen{until}: {', '.join(tuning.freeze)}")
    if tuning.replace:
        found.append(f"drawn anew: {', '.join(tuning.replace)}")
    if tuning.rates:
        found.append("learning rate: " + ", ".join(f"{factor:g} times at {name}" for name, factor in tuning.rates))
    return found


def _named(tuning: FineTuning) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "Freeze", tuning.freeze
    yield "Rates", tuple(name for name, _ in tuning.rates)
    yield "Replace", tuning.replace


def _layer_problems(spec: NetworkSpec, name: str) -> Iterator[str]:
    learning = [layer.name for layer in spec.layers if _learns(layer)]
    legal = ", ".join(map(show, learning))
    if name not in spec.places:
        yield f"{show(name)} is not the name of a layer{nearest(name, learning) or f', legal: {legal}'}"
    elif name not in learning:
        pools = spec.layers[spec.places[name]].kind is not LayerKind.INPUT
        what = "a Pooling layer without BatchNormalization" if pools else "an Input layer"
        yield f"{show(name)} is {what}, which has no weights, legal: {legal}"


def _learns(layer: Layer) -> bool:
    """Whether a layer has anything that is learned."""
    return layer.kind is not LayerKind.INPUT and (layer.type is not LayerType.POOLING or layer.batch_norm)


def _check_whole(spec: NetworkSpec, problems: Problems) -> None:
    tuning = spec.tuning
    if tuning.freeze and all(layer.name in tuning.freeze for layer in spec.layers if _learns(layer)):
        problems.add("FineTuning.Freeze", "names every layer, so that nothing learns, legal: all but one or more")
    rates = dict(tuning.rates)
    for edge in spec.edges:
        one, other = (spec.layers[spec.edges[n].target].name for n in (edge.number, edge.owner))
        for key, differ in (
            ("Freeze", (one in tuning.freeze) != (other in tuning.freeze)),
            ("Rates", rates.get(one) != rates.get(other)),
            ("Replace", (one in tuning.replace) != (other in tuning.replace)),
        ):
            if differ:
                problems.add(
                    f"FineTuning.{key}",
                    f"{show(one)} and {show(other)} share weights, legal: the same for both, or none of them",
                )
